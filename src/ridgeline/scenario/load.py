"""From a scenario file to specs: the model, the machines with their prices, the site, the limits, the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ridgeline.catalog import Catalog
from ridgeline.errors import IntakeError, RidgelineError, ScenarioError, UnitError
from ridgeline.intake import load_model
from ridgeline.scenario.problems import fail, messages, place
from ridgeline.scenario.reading import read_mapping
from ridgeline.scenario.schema import CandidateFile, ScenarioFile
from ridgeline.scenario.settings import Path as KeyPath
from ridgeline.scenario.settings import apply_settings
from ridgeline.scenario.sizes import expand
from ridgeline.specs import Price, Site, System, Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A machine to try: the system, the counts of devices, and prices (the scenario's own before the catalogue's)."""

    system: System
    devices: tuple[int, ...]
    prices: tuple[Price, ...]
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario with every name resolved. `file` keeps what was written; `where` is the file for messages."""

    file: ScenarioFile
    where: str
    model: Transformer
    candidates: tuple[Candidate, ...]
    site: Site
    catalog: Catalog
    set_paths: tuple[KeyPath, ...] = ()

    @property
    def kind(self) -> str:
        """ "train" or "serve"."""
        return "train" if self.file.workload.train is not None else "serve"

    def place(self, *path: str | int) -> str:
        """File and key path for a message about the value at `path`."""
        return place(self.where, path, self.set_paths)


def read_scenario(
    source: str | Path | Mapping[str, Any], sets: Sequence[str] = ()
) -> tuple[ScenarioFile, str, Path, tuple[KeyPath, ...]]:
    """The file as checked by the schema, its name for messages, its folder, and the paths that `--set` gave.

    No catalogue is read: whatever is wrong with the file itself is said at once, all of it.
    """
    if isinstance(source, Mapping):
        data, where, folder = dict(source), "scenario", Path.cwd()
    else:
        data, where, folder = read_mapping(source), str(source), Path(source).resolve().parent
    changed, set_paths = apply_settings(data, sets, ScenarioFile)
    try:
        file = ScenarioFile.model_validate(_without_nulls(changed))
    except ValidationError as error:
        raise fail(messages(error, where, set_paths)) from None
    problems = list(_contradictions(file, where, tuple(set_paths)))
    if problems:
        raise fail(problems)
    return file, where, folder, tuple(set_paths)


def load_scenario(source: str | Path | Mapping[str, Any], sets: Sequence[str] = (), *, catalog: Catalog) -> Scenario:
    """The scenario at `source` (a path, or the same content as a dict) with `sets` applied.

    Raises `ScenarioError`, `CatalogError` or `IntakeError`; several problems of one file come in one message.
    """
    file, where, folder, set_paths = read_scenario(source, sets)
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
    )


def _model(ref: str, folder: Path, catalog: Catalog, spot: str) -> Transformer:
    """A path relative to the scenario's folder where there is such a file or the text looks like one; else an id."""
    path = folder / ref
    if ref.endswith((".json", ".yaml")) or ref.startswith((".", "/", "~")) or _exists(path):
        target = Path(ref).expanduser() if ref.startswith("~") else path
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
    devices = expand(item.devices, system, place(where, ("candidates", index, "devices"), set_paths))
    own = tuple(_own_prices(item, system, f"{where}: candidates.{index}"))
    kinds = {price.kind for price in own}
    listed = tuple(price for price in catalog.prices(system.id) if price.kind not in kinds)
    return Candidate(system=system, devices=devices, prices=own + listed, index=index)


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


def _contradictions(file: ScenarioFile, where: str, set_paths: tuple[KeyPath, ...]) -> list[str]:
    """What is wrong between fields that are each right."""
    found = []
    workload = file.workload
    spot = place(where, ("workload",), set_paths)
    if workload.train is None and workload.serve is None:
        found.append(f"{spot}: has neither `train` nor `serve`; give one of them")
    if workload.train is not None and workload.serve is not None:
        found.append(f"{spot}: has both `train` and `serve`; a scenario has one of them")
    if workload.train is not None:
        train = workload.train
        step = train.sequence * train.global_batch
        if train.tokens < step:
            at = place(where, ("workload", "train", "tokens"), set_paths)
            found.append(f"{at}: got {train.tokens:g}, less than one step of sequence x global_batch = {step:,} tokens")
        if train.micro_batch is not None and train.global_batch % train.micro_batch:
            at = place(where, ("workload", "train", "micro_batch"), set_paths)
            found.append(f"{at}: got {train.micro_batch}, does not divide the global_batch {train.global_batch}")
    if workload.serve is not None:
        serve = workload.serve
        if serve.rate is not None and serve.concurrency is not None:
            at = place(where, ("workload", "serve"), set_paths)
            found.append(f"{at}: has both `rate` and `concurrency`; give one of them (or neither for the maximum)")
        if serve.output == 0 and serve.tpot_p95 is not None:
            at = place(where, ("workload", "serve", "tpot_p95"), set_paths)
            found.append(f"{at}: is a limit on generated tokens, but workload.serve.output is 0")
    return found


def _without_nulls(data: Any) -> Any:
    """A key with nothing behind it counts as left out."""
    if isinstance(data, Mapping):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [_without_nulls(item) for item in data]
    return data
