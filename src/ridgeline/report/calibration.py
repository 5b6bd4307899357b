"""The text of a calibration: each law before and after its points, and what they moved."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ridgeline.device.calibrate import LawFit
from ridgeline.report.layout import plain, table
from ridgeline.scenario.calibrating import CalibrationAnswer

# Factors nearer to 1 than this are not worth a word.
_UNMOVED = 0.01  # src: display


def calibration_report(answer: CalibrationAnswer, out: str | None) -> Sequence[RenderableType]:
    """One line a law: level and errors before, on points left out after; then the factors and the remarks."""
    points = sum(fit.points_count for fit in answer.fits)
    parts: list[RenderableType] = [plain(f"{answer.device}: {points} points, laws: {len(answer.fits)}", "bold")]
    lines = table("law", "points", "level before", "error before", "level", "error left out", left=(0, 2, 4))
    for fit in answer.fits:
        lines.add_row(
            fit.key, str(fit.points_count), fit.prior.level, _errors(fit.before), fit.law.level, _errors(fit.after)
        )
    parts += [lines, plain("errors: median / 90th percentile; left out: of each point under the fit to the others")]
    parts += [plain(f"{fit.key}: {_factors(fit)}") for fit in answer.fits if fit.moved]
    parts += [plain(f"hint: {note}", "yellow") for note in answer.notes]
    if out is not None:
        parts.append(plain(f"written to {out}; name it in a scenario: `calibration: {out}`"))
    else:
        parts.append(plain("nothing written; --out FILE keeps the laws for a scenario's `calibration:`"))
    return parts


def _errors(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.1%} / {pair[1]:.1%}"


def _factors(fit: LawFit) -> str:
    moved = [
        f"{name} x {factor:.3g} (+-{fit.sigmas[name]:.0%})"
        for name, factor in fit.factors.items()
        if abs(factor - 1.0) > _UNMOVED
    ]
    return ", ".join(moved) or "hardly moved"
