"""A user's own measurements: laws fitted to them, the file that keeps those, and which level made each law used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline.catalog import Catalog
from ridgeline.catalog.priors import law_priors
from ridgeline.core import FrozenMap
from ridgeline.device.calibrate import CALIBRATED, LawFit, calibrate_kernels, law_key_of, with_laws
from ridgeline.errors import IntakeError, RidgelineError, ScenarioError, few, nearest_names, shown
from ridgeline.intake.points import Points, read_points
from ridgeline.network.calibrate import calibrate_collectives
from ridgeline.scenario.plain import SCHEMA_VERSION, finite
from ridgeline.scenario.reading import parse_value
from ridgeline.specs import Calibration, Law

FORMAT_VERSION = 1
# Points that are this many times off what the law expects, in the middle, are in another unit or of another device.
_BEYOND = 5.0
_ADVISED_COUNT = 20
_MAX_FILE_BYTES = 1 << 20
_LAW_KEYS = ("base", "points", "before", "ape_p50", "ape_p90", "parameters", "tiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationAnswer:
    """What points of one device came to, law by law."""

    device: str
    system: str
    where: str
    fits: tuple[LawFit, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the points."""
        found = [f"{fit.key}: {fit.points_count} points; 20 to 50 are advised" for fit in self.fits if _few_points(fit)]
        found += [
            f"{fit.key}: the points do not agree better with any law near the one at hand, which stays"
            for fit in self.fits
            if not fit.moved
        ]
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(
            finite(
                {
                    "schema_version": SCHEMA_VERSION,
                    "kind": "calibration",
                    "device": self.device,
                    "system": self.system or None,
                    "points": sum(fit.points_count for fit in self.fits),
                    "laws": [_fit_dict(fit) for fit in self.fits],
                    "notes": list(self.notes),
                }
            )
        )


def _few_points(fit: LawFit) -> bool:
    return fit.points_count < _ADVISED_COUNT


def _fit_dict(fit: LawFit) -> dict[str, Any]:
    return {
        "law": fit.key,
        "points": fit.points_count,
        "level": fit.law.level,
        "level_before": fit.prior.level,
        "base": fit.prior.fact,
        "before": {"median_ape": fit.before[0], "p90_ape": fit.before[1]},
        "left_out": {"median_ape": fit.after[0], "p90_ape": fit.after[1]},
        "factors": dict(fit.factors),
        "factor_sigmas": dict(fit.sigmas),
    }


def calibrate(path: str | Path, device: str, system: str = "", *, catalog: Catalog) -> CalibrationAnswer:
    """Fit the laws of `device` to the points in the CSV file at `path` (collectives: on the links of `system`).

    Raises `IntakeError` for a file that cannot be used and `UnknownName` for a device or system that is not known.
    """
    chip = catalog.chip(device)
    machine = catalog.system(system) if system else None
    points = read_points(path)
    if machine is not None and machine.chip.id != chip.id:
        raise ScenarioError(f"--system {system}: holds {machine.chip.id}, the points are of {chip.id}")
    if points.collectives and machine is None:
        raise ScenarioError(f"{path}: has collectives; say with --system ID on which machine they ran")
    base = catalog.calibration(chip.id)
    fits: list[LawFit] = []
    if points.kernels:
        keys = {law_key_of(point, chip, base)[0] for point in points.kernels}
        fits += calibrate_kernels(points.kernels, chip, base, law_priors(catalog, keys))
    if points.collectives and machine is not None:
        kinds = {f"collective.{level.link}.{p.kind}" for p in points.collectives for level in machine.levels}
        fits += calibrate_collectives(points.collectives, machine, base, law_priors(catalog, kinds))
    _require_near(points, fits)
    return CalibrationAnswer(
        device=chip.id, system="" if machine is None else machine.id, where=str(path), fits=tuple(fits)
    )


def _require_near(points: Points, fits: Iterable[LawFit]) -> None:
    for fit in fits:
        off = fit.middle_ratio
        if not 1 / _BEYOND < off < _BEYOND:
            slow = f"{off:.3g} times as long as" if off > 1 else f"1/{1 / off:.3g} of what"
            raise IntakeError(
                f"{points.where}: {fit.points_count} points for {fit.key} take, in the middle, {slow} the law of "
                f"level {fit.prior.level!r} expects; check their unit, their device and that one kernel was timed"
            )


def calibration_text(answer: CalibrationAnswer) -> str:
    """The laws as a file that a scenario can name (`calibration: FILE`)."""
    lines = [
        "# Written by `ridgeline calibrate`; name it in a scenario with `calibration:`.",
        f"version: {FORMAT_VERSION}",
        f"device: {answer.device}",
        "laws:",
    ]
    for fit in answer.fits:
        if not fit.moved:
            continue
        law = fit.law
        lines += [
            f"  {fit.key}:",
            f"    base: {fit.prior.fact}",
            f"    points: {fit.points_count}",
            f"    before: [{fit.before[0]:.4g}, {fit.before[1]:.4g}]",
            f"    ape_p50: {law.ape_p50_frac:.4g}",
            f"    ape_p90: {law.ape_p90_frac:.4g}",
            "    parameters:",
            *(f"      {name}: {value:.9g}" for name, value in law.parameters.items()),
        ]
        if law.tiles:
            lines.append(f"    tiles: [{', '.join(f'[{rows}, {columns}]' for rows, columns in law.tiles)}]")
    if lines[-1] == "laws:":
        lines[-1] = "laws: {}"
    return "\n".join(lines) + "\n"


def read_calibration(path: str | Path) -> Calibration:
    """The calibrated laws in a file that `calibration_text` wrote; `ScenarioError` for anything else."""
    where = str(path)
    data = parse_value(_text(Path(path)), where)
    if not isinstance(data, Mapping) or set(data) != {"version", "device", "laws"}:
        raise ScenarioError(f"{where}: not a calibration: expected the keys version, device, laws")
    if data["version"] != FORMAT_VERSION:
        raise ScenarioError(f"{where}: version {shown(data['version'])}, this Ridgeline reads {FORMAT_VERSION}")
    laws = data["laws"]
    if not isinstance(laws, Mapping):
        raise ScenarioError(f"{where}: laws: got {shown(laws)}, expected laws by name")
    problems: list[str] = []
    found: dict[str, Law] = {}
    for key, raw in laws.items():
        try:
            found[str(key)] = _law(str(key), raw, where)
        except RidgelineError as error:
            problems.append(str(error))
    if problems:
        raise ScenarioError("\n".join(few(problems)))
    return Calibration(chip=str(data["device"]), laws=FrozenMap(found))


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ScenarioError(f"{path}: larger than {_MAX_FILE_BYTES:,} bytes; not a calibration")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise ScenarioError(f"{path}: not a text in UTF-8") from None


def _law(key: str, raw: Any, where: str) -> Law:
    place = f"{where}: laws.{key}"
    if not isinstance(raw, Mapping):
        raise ScenarioError(f"{place}: got {shown(raw)}, expected a law")
    for name in raw:
        if name not in _LAW_KEYS:
            near = nearest_names(str(name), _LAW_KEYS)
            raise ScenarioError(f"{place}: unknown key {shown(name)}; allowed: {', '.join(near or _LAW_KEYS)}")
    parameters = raw.get("parameters")
    if not isinstance(parameters, Mapping) or not parameters:
        raise ScenarioError(f"{place}.parameters: got {shown(parameters)}, expected numbers by name")
    tiles = raw.get("tiles", [])
    if not isinstance(tiles, list) or not all(isinstance(t, list) and len(t) == 2 for t in tiles):
        raise ScenarioError(f"{place}.tiles: got {shown(tiles)}, expected pairs of rows and columns")
    return Law(
        kind=key,
        level=CALIBRATED,
        parameters=FrozenMap({str(n): _number(v, f"{place}.parameters.{n}") for n, v in parameters.items()}),
        ape_p50_frac=_number(raw.get("ape_p50"), f"{place}.ape_p50"),
        ape_p90_frac=_number(raw.get("ape_p90"), f"{place}.ape_p90"),
        fact=f"{where}.{key}",
        tiles=tuple((int(_number(t[0], f"{place}.tiles")), int(_number(t[1], f"{place}.tiles"))) for t in tiles),
    )


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ScenarioError(f"{place}: got {shown(value)}, expected a number")
    return float(value)


def calibrated(calibration: Calibration, own: Iterable[Calibration]) -> Calibration:
    """`calibration` of a chip with the user's own laws for it in the place of the catalogue's.

    Raises `ScenarioError` where an own law lacks parameters that the catalogue's law of that name has.
    """
    for each in own:
        if each.chip != calibration.chip:
            continue
        for key, law in each.laws.items():
            known = calibration.laws.get(key)
            missing = sorted(set(known.parameters) - set(law.parameters)) if known is not None else []
            if missing:
                raise ScenarioError(f"{law.fact}: parameters missing: {', '.join(missing)}; calibrate again")
        calibration = with_laws(calibration, each.laws)
    return calibration


def laws_used(calibration: Calibration, uses: Iterable[str]) -> list[dict[str, Any]]:
    """The laws behind an answer whose facts are `uses`, with the level at which each was made."""
    wanted = set(uses)
    return [
        {"law": key, "level": law.level, "fact": law.fact, "median_ape": law.ape_p50_frac, "p90_ape": law.ape_p90_frac}
        for key, law in calibration.laws.items()
        if law.fact in wanted
    ]


def levels_text(laws: Iterable[Mapping[str, Any]]) -> str:
    """Which level made each law, in one line: calibrated first."""
    by: dict[str, list[str]] = {}
    for item in laws:
        by.setdefault(item["level"], []).append(item["law"])
    order = (CALIBRATED, "device", "architecture", "universal", "published")
    return "; ".join(f"{level}: {', '.join(sorted(by[level]))}" for level in order if level in by)
