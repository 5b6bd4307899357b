"""Reads the golden scenarios and boils an answer down to the figures that are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

import ridgeline

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "answers.json"


def scenarios() -> dict[str, dict[str, Any]]:
    """Whole scenarios by name."""
    data = yaml.safe_load((FOLDER / "scenarios.yaml").read_text())
    found = {}
    for kind in ("train", "serve"):
        for name, entry in data[kind].items():
            job = {key: value for key, value in entry.items() if key not in ("model", "system", "devices", "pins")}
            found[name] = {
                **data["base"],
                "workload": {"model": entry["model"], kind: job | entry.get("pins", {})},
                "candidates": [{"system": entry["system"], "devices": entry["devices"]}],
            }
    return found


def figures(scenario: dict[str, Any]) -> dict[str, Any]:
    """What is recorded of the best row of a scenario."""
    row = ridgeline.plan(scenario).to_dict()["rows"][0]
    names = ("mfu_frac", "ttft_p95_s", "tpot_p95_s", "max_running_count")
    found: dict[str, Any] = {"layout": row["layout"]} | {name: row[name] for name in names if name in row}
    for name in ("step_s", "output_tokens_per_s", "requests_per_s", "energy_j"):
        value = row.get(name)
        if isinstance(value, dict):
            found[name] = value["best"] if "best" in value else value["value"]
    found["step_s"] = row["step_s"]["best"] if "step_s" in row else row["step"]["value"]
    found["memory_bytes"] = row["memory"]["value"]
    money = row["cost"]["headline_usd"]
    found["cost_usd"] = None if money is None else money["best"]
    return found


def recorded() -> dict[str, Any]:
    """The recorded answers, with the reason and date of the last recording; empty where there is none."""
    return dict(json.loads(RECORDED.read_text())) if RECORDED.exists() else {}
