"""Recipes of published runs fill what their tables leave open, and nothing else."""

from __future__ import annotations

import pytest

from ridgeline.catalog.loader import load_catalog
from ridgeline.intake.models import load_model
from ridgeline.specs import SoftwareProfile
from ridgeline.validation.corpus import Row
from ridgeline.validation.training_recipes import as_in_recipe, recipe_of, remade_frac

BRIDGE = "Megatron-Bridge/Megatron-Core"
NEW = SoftwareProfile(id="new", graphs=True, deduplicated_dispatch=True, expert_overlap="outside")


def row(device: str, precision: str = "bf16", framework: str = BRIDGE, ep: str = "8") -> Row:
    return Row({"device": device, "precision": precision, "framework": framework, "ep": ep}, 2)


@pytest.mark.parametrize(
    ("model", "device", "graphs", "flex", "overlap", "recompute"),
    [
        ("qwen3-235b-a22b", "H100-SXM-80GB", False, False, "all", None),
        ("qwen3-235b-a22b", "GB200", True, True, "none", None),
        ("gpt-oss-120b", "B200", False, False, "none", "selective"),
    ],
)
def test_software_is_set_as_the_recipe_says(
    model: str, device: str, graphs: bool, flex: bool, overlap: str, recompute: str | None
) -> None:
    fills: list[str] = []
    software, again = as_in_recipe(row(device), model, NEW, fills)
    assert (software.graphs, software.deduplicated_dispatch, software.expert_overlap) == (graphs, flex, overlap)
    assert again == recompute
    assert len(fills) == 1


def test_the_wider_variant_overlaps() -> None:
    wide, narrow = recipe_of(row("B200", "fp8", ep="32"), "deepseek-v3"), recipe_of(row("B200", "fp8"), "deepseek-v3")
    assert wide is not None
    assert narrow is not None
    assert (wide.overlap, narrow.overlap) == (True, False)


@pytest.mark.parametrize(
    ("software", "case", "model"),
    [
        (NEW, row("GB200", framework="AutoModel"), "qwen3-30b-a3b"),
        (NEW, row("A100-SXM-80GB"), "qwen3-30b-a3b"),
        (NEW, row("GB200"), "mixtral-8x7b"),
        (SoftwareProfile(id="old", graphs=False, deduplicated_dispatch=True), row("GB200"), "qwen3-30b-a3b"),
        (
            SoftwareProfile(id="whole", graphs=True, deduplicated_dispatch=True, whole_graphs=True),
            row("GB200", "fp8"),
            "qwen3-30b-a3b",
        ),
    ],
)
def test_other_rows_stay_as_they_are(software: SoftwareProfile, case: Row, model: str) -> None:
    fills: list[str] = []
    assert as_in_recipe(case, model, software, fills) == (software, None)
    assert fills == []


def test_blocks_of_experts_are_made_again_where_the_recipe_says_so() -> None:
    model = load_model("nemotron-3-nano-30b-a3b", load_catalog())
    _, again = as_in_recipe(row("H100-SXM-80GB", "fp8"), model.id, NEW, [])
    assert again == "full"
    assert remade_frac(model) == pytest.approx(23 / 52)  # 23 blocks of experts, 23 of Mamba-2, 6 of attention
