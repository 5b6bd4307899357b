"""The run with its failures: figures of the catalogue for the machine of a row, and what comes out."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.catalog import Catalog
from ridgeline.core import FrozenMap, Interval
from ridgeline.scenario.schema import FailuresFile
from ridgeline.specs import Reliability, System

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


def reliability_of(catalog: Catalog, system: System, given: FailuresFile | None = None) -> Reliability:
    """What interrupts a run on `system`: published figures with their ranges, and what a scenario has `given`."""
    chip = system.chip
    kind = chip.architecture if chip.kind == "gpu" and chip.architecture in _KNOWN else "other"
    keys = {"node_failures_per_s": f"failures.{kind}", **_FIELDS}
    figures = {name: _interval(catalog, f"{_RECORD}.{key}") for name, key in keys.items()}
    facts = {name: f"{_RECORD}.{key}" for name, key in keys.items()}
    published = Reliability(
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
        facts=FrozenMap(facts),
    )
    return published if given is None else _with_given(published, given)


def _with_given(published: Reliability, given: FailuresFile) -> Reliability:
    """The published figures with those of a scenario in their place; these are exact and no facts."""
    own: dict[str, Interval] = {}
    if given.between is not None:
        own["node_failures_per_s"] = Interval.exact(1.0 / given.between)
        own["device_share_frac"] = Interval.exact(0.0)  # the node is the scenario's, however many devices it has
    if given.restart is not None:
        own["restart_s"] = Interval.exact(given.restart)
    return replace(
        published,
        **own,  # type: ignore[arg-type]
        storage_bytes_per_s=given.storage,
        interval_s=given.interval,
        asynchronous=published.asynchronous if given.asynchronous is None else given.asynchronous,
        spares_count=given.spares,
        facts=FrozenMap({name: fact for name, fact in published.facts.items() if name not in own}),
    )


def _interval(catalog: Catalog, fact_id: str) -> Interval:
    fact = catalog.fact(fact_id)
    best = float(fact.value)
    return Interval(fact.low if fact.low is not None else best, best, fact.high if fact.high is not None else best)
