"""The run with its failures: figures of the catalogue for the machine of a row, and what comes out."""

from __future__ import annotations

from ridgeline.catalog import Catalog
from ridgeline.core import FrozenMap, Interval
from ridgeline.search import TrainingRow
from ridgeline.specs import Reliability, System, Transformer
from ridgeline.training import GoodputEstimate, estimate_goodput, run_conditions

_RECORD = "reliability"
# Failure rates are published for nodes of these; all others take the assumed one, which says so.
_KNOWN = ("ampere", "blackwell", "hopper")
_FIELDS = {
    "device_share_frac": "device_share",
    "detect_s": "detect",
    "restart_s": "restart",
    "repair_s": "repair",
    "write_node_bytes_per_s": "write_node",
    "read_node_bytes_per_s": "read_node",
    "blocking_s": "blocking",
    "slow_frac": "slow",
}


def reliability_of(catalog: Catalog, system: System) -> Reliability:
    """What interrupts a run on `system`: published figures with their ranges, the best interval, spares enough."""
    chip = system.chip
    kind = chip.architecture if chip.kind == "gpu" and chip.architecture in _KNOWN else "other"
    keys = {"node_failures_per_s": f"failures.{kind}", **_FIELDS}
    figures = {name: _interval(catalog, f"{_RECORD}.{key}") for name, key in keys.items()}
    return Reliability(
        id=f"{_RECORD}.{kind}",
        node_failures_per_s=figures["node_failures_per_s"],
        device_share_frac=figures["device_share_frac"],
        detect_s=figures["detect_s"],
        restart_s=figures["restart_s"],
        repair_s=figures["repair_s"],
        write_node_bytes_per_s=figures["write_node_bytes_per_s"],
        read_node_bytes_per_s=figures["read_node_bytes_per_s"],
        blocking_s=figures["blocking_s"],
        slow_frac=figures["slow_frac"],
        reference_devices_count=float(catalog.fact(f"{_RECORD}.reference_devices").value),
        facts=FrozenMap({name: f"{_RECORD}.{key}" for name, key in keys.items()}),
    )


def row_goodput(catalog: Catalog, model: Transformer, found: TrainingRow) -> GoodputEstimate:
    """The run of a row with its failures."""
    run = run_conditions(model, found.plan, found.system, found.software, found.estimate.step_s.best, found.run_s)
    return estimate_goodput(run, reliability_of(catalog, found.system))


def _interval(catalog: Catalog, fact_id: str) -> Interval:
    fact = catalog.fact(fact_id)
    best = float(fact.value)
    return Interval(fact.low if fact.low is not None else best, best, fact.high if fact.high is not None else best)
