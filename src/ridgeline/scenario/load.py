"""From a scenario file to specs: the model, the machines with their prices, the site, the limits, the job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ridgeline.catalog import Catalog
from ridgeline.errors import IntakeError, RidgelineError, ScenarioError, UnitError
from ridgeline.intake import Trace, load_model
from ridgeline.scenario.calibrating import read_calibration
from ridgeline.scenario.checking import read_scenario
from ridgeline.scenario.problems import fail, place
from ridgeline.scenario.schema import CandidateFile, ScenarioFile
from ridgeline.scenario.settings import Path as KeyPath
from ridgeline.scenario.sizes import expand
from ridgeline.scenario.tracing import with_trace
from ridgeline.specs import Calibration, Price, Site, System, Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A machine to try: the system, the counts of devices, and prices (the scenario's own before the catalogue's)."""

    system: System
    devices: tuple[int, ...]
    prices: tuple[Price, ...]
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario with every name resolved. `file` keeps what was written; `where` is the file for messages.

    `own_laws`: laws fitted to the user's measurements, by device. `trace`: recorded requests that the file names.
    """

    file: ScenarioFile
    where: str
    model: Transformer
    candidates: tuple[Candidate, ...]
    site: Site
    catalog: Catalog
    set_paths: tuple[KeyPath, ...] = ()
    own_laws: tuple[Calibration, ...] = ()
    trace: Trace | None = None

    @property
    def kind(self) -> str:
        """ "train" or "serve"."""
        return "train" if self.file.workload.train is not None else "serve"

    def place(self, *path: str | int) -> str:
        """File and key path for a message about the value at `path`."""
        return place(self.where, path, self.set_paths)


def load_scenario(source: str | Path | Mapping[str, Any], sets: Sequence[str] = (), *, catalog: Catalog) -> Scenario:
    """The scenario at `source` (a path, or the same content as a dict) with `sets` applied.

    Raises `ScenarioError`, `CatalogError` or `IntakeError`; several problems of one file come in one message.
    """
    file, where, folder, set_paths = read_scenario(source, sets)
    file, trace = with_trace(file, folder, place(where, ("workload", "serve", "traffic", "trace"), set_paths))
    if file.workload.pipeline is not None:
        spot = place(where, ("workload",), set_paths)
        raise ScenarioError(f"{spot}: has a `pipeline`; use `ridgeline simulate`")
    problems: list[RidgelineError] = []
    model = None
    try:
        model = _model(file.workload.model, folder, catalog, place(where, ("workload", "model"), set_paths))
    except RidgelineError as error:
        problems.append(error)
    candidates = []
    for index, item in enumerate(file.candidates):
        try:
            candidates.append(_candidate(item, index, where, set_paths, catalog))
        except RidgelineError as error:
            problems.append(error)
    own = _own_laws(file, folder, place(where, ("calibration",), set_paths), candidates, problems)
    if len(problems) == 1:
        raise problems[0]
    if problems or model is None:
        raise fail(str(error) for error in problems)
    return Scenario(
        file=file,
        where=where,
        model=model,
        candidates=tuple(candidates),
        site=_site(file),
        catalog=catalog,
        set_paths=set_paths,
        own_laws=own,
        trace=trace,
    )


def _own_laws(
    file: ScenarioFile, folder: Path, spot: str, candidates: Sequence[Candidate], problems: list[RidgelineError]
) -> tuple[Calibration, ...]:
    """The calibrations that the file names, relative to its folder; each is of a device that a candidate has."""
    found = []
    chips = {item.system.chip.id for item in candidates}
    for name in file.calibration:
        try:
            own = read_calibration(folder / os.path.expanduser(name))
            if candidates and own.chip not in chips:
                raise ScenarioError(f"{spot}: {name} is of {own.chip}; the candidates have {', '.join(sorted(chips))}")
            found.append(own)
        except RidgelineError as error:
            problems.append(error)
    return tuple(found)


def _model(ref: str, folder: Path, catalog: Catalog, spot: str) -> Transformer:
    """A path relative to the scenario's folder where there is such a file or the text looks like one; else an id."""
    path = folder / ref
    if "://" in ref:
        raise ScenarioError(f"{spot}: got {ref!r}, a web address is not read; download the config.json, give its path")
    if ref.endswith((".json", ".yaml")) or ref.startswith((".", "/", "~")) or _exists(path):
        target = Path(os.path.expanduser(ref)) if ref.startswith("~") else path
        if not _exists(target):
            raise ScenarioError(f"{spot}: no such file {target}")
        return load_model(str(target), catalog)
    try:
        return load_model(ref, catalog)
    except (IntakeError, UnitError) as error:
        raise type(error)(f"{spot}: {error}") from None
    except RidgelineError as error:
        message = str(error)
        raise ScenarioError(f"{spot}: {message}") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _candidate(
    item: CandidateFile, index: int, where: str, set_paths: tuple[KeyPath, ...], catalog: Catalog
) -> Candidate:
    spot = place(where, ("candidates", index, "system"), set_paths)
    try:
        system = catalog.system(item.system)
    except RidgelineError as error:
        raise ScenarioError(f"{spot}: {error}") from None
    system = _with_links(system, item.links, place(where, ("candidates", index, "links"), set_paths))
    devices = expand(item.devices, system, place(where, ("candidates", index, "devices"), set_paths))
    own = tuple(_own_prices(item, system, f"{where}: candidates.{index}"))
    kinds = {price.kind for price in own}
    listed = tuple(price for price in catalog.prices(system.id) if price.kind not in kinds)
    return Candidate(system=system, devices=devices, prices=own + listed, index=index)


def _with_links(system: System, rates: Sequence[float], spot: str) -> System:
    """The system with the rates of the innermost links of a node's devices, where the scenario gives them."""
    if not rates:
        return system
    if len(rates) != system.devices_per_node_count or not system.levels:
        count = system.devices_per_node_count if system.levels else 0
        raise ScenarioError(f"{spot}: got {len(rates)} rates, a node of {system.id} has {count} links")
    inner = replace(system.levels[0], device_oneway_bytes_per_s=tuple(rates))
    return replace(system, levels=(inner, *system.levels[1:]))


def _own_prices(item: CandidateFile, system: System, where: str) -> list[Price]:
    prices = []
    if item.rent is not None:
        prices.append(
            Price(
                id=f"scenario.{system.id}.rent",
                system=system.id,
                kind="on-demand",
                provider="the scenario",
                date="",
                fact=f"{where}.rent",
                per_device_usd_per_s=item.rent,
            )
        )
    if item.purchase is not None:
        prices.append(
            Price(
                id=f"scenario.{system.id}.purchase",
                system=system.id,
                kind="purchase",
                provider="the scenario",
                date="",
                fact=f"{where}.purchase",
                per_device_usd=item.purchase,
            )
        )
    return prices


def _site(file: ScenarioFile) -> Site:
    site = file.site
    return Site(
        name=site.name or "",
        electricity_usd_per_j=site.electricity,
        pue_frac=site.pue if site.pue is not None else 1.0,
        carbon_kg_co2e_per_j=site.carbon,
    )


def require_kind(scenario: Scenario, kind: str) -> None:
    """`ScenarioError` where the workload is not of `kind` ("train" or "serve")."""
    if scenario.kind != kind:
        has, spot = scenario.kind, scenario.place("workload")
        raise ScenarioError(f"{spot}: has `{has}`, `ridgeline {kind}` needs `{kind}`; use `ridgeline {has}` or `plan`")
