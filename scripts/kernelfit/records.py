"""Writes fitted laws as records of the catalogue."""

from __future__ import annotations

from pathlib import Path

from kernelfit.least import Fitted

DATE = "2026-12-01"


def write_records(laws: list[Fitted], folder: Path) -> None:
    """One file a device, an architecture, and one for all; the files that were there before are replaced."""
    for old in folder.glob("kernels-*.yaml"):
        old.unlink()
    groups: dict[tuple[str, str], list[Fitted]] = {}
    for law in laws:
        groups.setdefault((law.level, law.scope), []).append(law)
    for (level, scope), group in groups.items():
        name = {"device": scope, "architecture": f"arch-{scope}", "universal": "universal"}.get(level)
        name = name or f"published-{scope or 'all'}"
        (folder / f"kernels-{name}.yaml").write_text(_record(f"kernels-{name}", level, scope, group))


def _record(id: str, level: str, scope: str, laws: list[Fitted]) -> str:
    lines = [
        "# Written by scripts/fit_kernels.py; what the parameters mean: ridgeline/device.",
        f"id: {id}",
        f"level: {level}",
    ]
    if level == "device" or (level == "published" and laws[0].published_device):
        lines.append(f"device: {scope}")
    elif level == "architecture" or (level == "published" and scope):
        lines.append(f"architecture: {scope}")
    lines.append("laws:")
    for law in laws:
        lines.append(f"  {law.kind}:")
        lines.append(f"    src: [{', '.join(law.sources)}]")
        lines.append(f"    kind: {law.fact_kind}")
        lines.append(f"    from: {_quoted(law.basis)}")
        if law.note:
            lines.append(f"    note: {_quoted(law.note)}")
        lines.append(f"    date: {DATE}")
        if law.rows:
            lines.append(f"    rows: {law.rows}")
        lines.append(f"    ape_p50: {law.p50:.4f}")
        lines.append(f"    ape_p90: {law.p90:.4f}")
        lines.append("    parameters:")
        lines += [f"      {name}: {_number(value)}" for name, value in law.parameters.items()]
        if law.ranges:
            lines.append("    ranges:")
            lines += [f"      {name}: [{_number(low)}, {_number(high)}]" for name, (low, high) in law.ranges.items()]
        if law.tiles:
            tiles = ", ".join(f"[{rows}, {columns}]" for rows, columns in law.tiles)
            lines.append(f"    tiles: [{tiles}]")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "'") + '"'


def _number(value: float) -> str:
    """Four digits, in a form that YAML reads as a number (1.0e-6, not 1e-6)."""
    text = f"{float(value):.4g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
    return text
