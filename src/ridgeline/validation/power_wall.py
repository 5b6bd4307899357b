"""Wall power of audited benchmark runs: accelerators, their server and its losses, against the meter.

The meter reads the whole server, of which a row states platform, accelerators and sockets. What a run keeps busy is not
stated: benchmark runs saturate their accelerators, so one activity with a wide range stands for all of them.
"""

from __future__ import annotations

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.errors import CatalogError
from ridgeline.power import Activity, PowerLaw, estimate_chips, estimate_power, server_wall_w
from ridgeline.specs import System
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.power import power_law, score_figures, share
from ridgeline.validation.scores import Report, ScoredRow

# Kinds of chips that are a whole computer on a module, metered with little around them.
_MODULES = ("edge",)
# Hosts that are phones' processors rather than servers'.
_SMALL_HOSTS = ("snapdragon",)
_CAPPED = ("maxq", "max-q", "max_q")


def score_wall(rows: list[Row], path: str, catalog: Catalog) -> Report:
    """Wall power of every row whose accelerators are known and run at their own limit."""
    law, seen = power_law(catalog), set[tuple[str, str, str]]()
    return score_figures(rows, path, lambda row: [_score(row, catalog, law, seen)])


def _score(row: Row, catalog: Catalog, law: PowerLaw, seen: set[tuple[str, str, str]]) -> ScoredRow:
    measured = row.number("avg_system_power_w")
    if not measured:
        raise Unscored("power not stated")
    key = (row.text("platform"), row.text("round"), row.text("avg_system_power_w"))
    if key in seen:
        raise Unscored("repeats the power of another row of its platform")
    seen.add(key)
    if any(word in f"{row.text('platform')} {row.text('software')}".lower() for word in _CAPPED):
        raise Unscored("power limit of an efficiency run not stated")
    system, count = _machine(row, catalog)
    sockets = row.number("host_cpu_sockets") or 0.0
    sockets *= row.number("nodes") or 1.0
    small = any(word in row.text("host_cpu").lower() for word in _SMALL_HOSTS)
    power = wall_power(system, count, 0.0 if small else sockets, catalog, law)
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=system.chip.id,
        family="wall power",
        metric="power",
        unit="W",
        measured=measured,
        predicted=power.best,
        low=power.low,
        high=power.high,
        baseline=count * (system.chip.tdp_w or 0.0),
        fills=("activity of a saturated accelerator assumed", "server around the accelerators assumed"),
        notes=(f"{count:g} x {system.chip.id}, {sockets:g} sockets",),
    )


def _machine(row: Row, catalog: Catalog) -> tuple[System, int]:
    text = row.text("accelerator")
    if not text or text == "-":
        raise Unscored("no accelerator named")
    try:
        label = catalog.label(text, f"MLPerf Inference {row.text('round')} power")
    except CatalogError as error:
        raise Unscored(str(error).splitlines()[0][:90]) from error
    if not label.system:
        raise Unscored(f"no standard system for {label.device}")
    count = (row.count("accelerators_per_node") or 1) * (row.count("nodes") or 1)
    return catalog.system(label.system), count


def wall_power(system: System, count: int, sockets: float, catalog: Catalog, law: PowerLaw) -> Interval:
    """Power at the meter [W] of `count` saturated chips of `system` in servers with so many sockets in all (0: beside a
    small processor). Whole nodes whose maker publishes a maximum take their hosts from that."""
    names = ("benchmark_compute_frac", "benchmark_memory_frac")
    around_names = ("server_base", "server_socket", "server_card", "small_host", "server_fans_frac", "supply_frac")
    shares = {name: share(catalog, name) for name in (*names, *around_names)}
    if system.node_power_w is not None and count % system.devices_per_node_count == 0:
        return _node_power(system, count, shares, law)
    module = system.chip.kind in _MODULES

    def at(values: dict[str, float]) -> tuple[float, float]:
        activity = Activity(compute_frac=values[names[0]], memory_frac=values[names[1]])
        chips = estimate_chips(system, count, activity, law)
        if module:
            around = 0.0
        elif sockets > 0:
            around = values["server_base"] + sockets * values["server_socket"] + count * values["server_card"]
        else:
            around = values["small_host"]
        fans = values["server_fans_frac"] if sockets > 0 and not module else 0.0
        return server_wall_w(chips.best, around, fans, values["supply_frac"]), chips.sigma

    best = {name: interval.best for name, interval in shares.items()}
    value, chip_sigma = at(best)
    spread = [
        Interval(*sorted((at({**best, name: each.low})[0], value, at({**best, name: each.high})[0]))).sigma
        for name, each in shares.items()
    ]
    return Interval.from_sigma(value, quadrature(chip_sigma, *spread))


def _node_power(system: System, count: int, shares: dict[str, Interval], law: PowerLaw) -> Interval:
    """The same for whole nodes, from the maker's maximum."""

    def at(compute: float, memory: float) -> Interval:
        return estimate_power(system, count, Activity(compute_frac=compute, memory_frac=memory), law).total_w

    compute, memory = shares["benchmark_compute_frac"], shares["benchmark_memory_frac"]
    value = at(compute.best, memory.best)
    ends = Interval(at(compute.low, memory.best).best, value.best, at(compute.high, memory.best).best)
    return Interval.from_sigma(value.best, quadrature(value.sigma, ends.sigma))
