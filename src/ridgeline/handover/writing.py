"""All launch files of a deployment, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

import yaml

from ridgeline.errors import ScenarioError
from ridgeline.files import whole_file
from ridgeline.handover.commands import (
    disaggregated_settings,
    script,
    sglang_command,
    trtllm_build_command,
    trtllm_command,
    trtllm_settings,
    vllm_command,
)
from ridgeline.handover.deployment import Deployment
from ridgeline.handover.kubernetes import manifests, manifests_text, spans_nodes
from ridgeline.handover.labels import node_labels
from ridgeline.handover.options import READ
from ridgeline.handover.triton import triton_files

OPTION = "--handover"


def handover_files(deployment: Deployment) -> dict[str, str]:
    """Paths inside the folder and contents of every launch file."""
    found: dict[str, str] = {}
    summary = deployment.summary()
    if deployment.generates:
        for pool in deployment.pools:
            role = "" if pool.role == "both" else f"-{pool.role}"
            count = pool.plan.replica_count
            head = [*summary, f"one of {count:,} {'' if pool.role == 'both' else pool.role + ' '}engines"]
            found[f"vllm{role}.sh"] = script([*head, f"options: {READ['vllm']}"], [vllm_command(deployment, pool)])
            found[f"sglang{role}.sh"] = script(
                [*head, f"options: {READ['sglang']}"], [sglang_command(deployment, pool)]
            )
            if deployment.system.chip.vendor.lower().startswith("nvidia"):
                found |= _trtllm_files(deployment, pool.role, role, head)
        if len(deployment.pools) > 1 and deployment.system.chip.vendor.lower().startswith("nvidia"):
            found["trtllm-disaggregated.yaml"] = yaml.safe_dump(disaggregated_settings(deployment), sort_keys=False)
    if manifests(deployment):
        found["kubernetes.yaml"] = manifests_text(deployment, summary)
    found |= triton_files(deployment)
    found["sizing.json"] = json.dumps(deployment.sized.to_dict(), indent=2, allow_nan=False) + "\n"
    found["README.md"] = _readme(deployment, sorted(found))
    return found


def _trtllm_files(deployment: Deployment, pool_role: str, role: str, head: list[str]) -> dict[str, str]:
    pool = next(item for item in deployment.pools if item.role == pool_role)
    settings = f"trtllm{role}.yaml"
    return {
        f"trtllm-serve{role}.sh": script(
            [*head, f"options: {READ['trtllm-serve']}"], [trtllm_command(deployment, pool, settings)]
        ),
        settings: yaml.safe_dump(trtllm_settings(deployment, pool), sort_keys=False),
        f"trtllm-build{role}.sh": script(
            [*head, f"options: {READ['trtllm-build']}"], [trtllm_build_command(deployment, pool)]
        ),
    }


def _readme(deployment: Deployment, names: list[str]) -> str:
    lines = [f"# {deployment.name}", "", *(f"- {text}" for text in deployment.summary()), "", "Files:", ""]
    lines += [f"- `{name}`" for name in names]
    remarks = []
    for pool in deployment.pools:
        if spans_nodes(deployment, pool):
            remarks.append(
                f"an engine ({pool.role}) takes {pool.plan.devices_per_replica_count} devices, more than a node has: a"
                " Kubernetes Deployment cannot hold it (use a LeaderWorkerSet), so there is no manifest for it"
            )
        labels = node_labels(deployment.system, pool.plan.devices_per_replica_count)
        if labels is None or not labels.values:
            remarks.append(f"no node label is known for {deployment.system.chip.id}: pods are not bound to nodes of it")
        if pool.plan.weight_precision not in ("bf16", "fp16", "fp32", "fp8") or deployment.quantised:
            remarks.append(
                f"weights in {pool.plan.weight_precision} must be stored so in the checkpoint that is loaded"
            )
    if len(deployment.pools) > 1:
        remarks.append(
            "requests go to a router that knows both pools (prefill first), which is not part of these files"
        )
    if remarks:
        lines += ["", "Mind:", "", *(f"- {text}" for text in dict.fromkeys(remarks))]
    return "\n".join(lines) + "\n"


def check_target(folder: Path, force: bool) -> None:
    """Raise `ScenarioError` where launch files cannot go to `folder`: not a folder, or not empty without `force`."""
    if folder.exists() and not folder.is_dir():
        raise ScenarioError(f"{OPTION} {folder}: is a file, expected a folder")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ScenarioError(f"{OPTION} {folder}: is not empty; add --force to replace launch files in it")
    parent = folder.resolve().parent
    if not parent.is_dir():
        raise ScenarioError(f"{OPTION} {folder}: no such folder {parent}")
    if not os.access(folder if folder.is_dir() else parent, os.W_OK):
        raise ScenarioError(f"{OPTION} {folder}: cannot be written (read-only)")


def write_handover(deployment: Deployment, folder: Path, force: bool = False) -> list[Path]:
    """Write all launch files into `folder` and return their paths.

    A new folder appears with everything in it or not at all. In one that exists (empty, or with `force`) each file is
    replaced in one step; files of other names stay.
    """
    check_target(folder, force)
    files = handover_files(deployment)
    if folder.is_dir():
        for name, text in files.items():
            target = folder / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ScenarioError(f"{OPTION} {folder}: cannot be written: {error.strerror}") from None
            with whole_file(target, OPTION) as write:
                write(text)
            _make_runnable(target)
        return [folder / name for name in files]
    target_folder = folder.resolve()
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{target_folder.name[:80]}.", dir=target_folder.parent))
    except OSError as error:
        raise ScenarioError(f"{OPTION} {folder}: cannot be written: {error.strerror}") from None
    try:
        for name, text in files.items():
            path = staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            _make_runnable(path)
        staging.chmod(0o755)
        os.rename(staging, target_folder)
    except OSError as error:
        raise ScenarioError(f"{OPTION} {folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [folder / name for name in files]


def _make_runnable(path: Path) -> None:
    if path.suffix == ".sh":
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
