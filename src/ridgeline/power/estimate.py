"""Power of a whole machine under a given activity, with an interval from the ranges of the assumed shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ridgeline.core import Breakdown, FrozenMap, Interval, Note, leaf, quadrature, total
from ridgeline.power.chip import chip_power_w
from ridgeline.power.node import host_power_from_fraction_w, host_power_from_maximum_w
from ridgeline.specs import System


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """The shares that the power models need, each with its range (80 %), and the facts that they are.

    `base`, `compute_share`, `memory_share`: see `chip_power_w`. `idle`: idle power over TDP where a chip's idle
    power is not known. `host_activity`: see `host_power_from_maximum_w`. `host`: `host_power_from_fraction_w`.
    `serving_compute_share`: takes the place of `compute_share` where few rows fill the tiles of the matrix units badly
    (None: the same).
    """

    base_frac: Interval
    compute_share_frac: Interval
    memory_share_frac: Interval
    idle_frac: Interval
    host_activity_frac: Interval
    host_frac: Interval
    serving_compute_share_frac: Interval | None = None
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def fact(self, name: str) -> str:
        """Id of the fact behind a share."""
        return self.facts.get(name, f"power.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """How busy a chip is: shares of peak matrix rate and bandwidth while it works, and the share of time it works.

    `waiting_frac`: share of that time in which it waits for other chips; clocks are up, but its units rest.
    `serves`: it decodes for requests, with few rows a product.
    """

    compute_frac: float
    memory_frac: float
    busy_frac: float = 1.0
    waiting_frac: float = 0.0
    serves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerEstimate:
    """Mean power of one chip, of its share of the host, and of the whole machine; `power` adds up to `total_w`."""

    chip_w: float
    host_per_device_w: float
    total_w: Interval
    power: Breakdown
    notes: tuple[Note, ...] = ()
    uses: tuple[str, ...] = ()


_Shares = Mapping[str, float]
_SERVING_SHARE = "serving_compute_share_frac"


def estimate_power(system: System, devices_count: int, activity: Activity, law: PowerLaw) -> PowerEstimate:
    """Mean power of `devices_count` devices of `system` and their hosts under `activity`.

    Raises `MissingFact` where the chip's TDP is not known. The interval moves each assumed share to the ends of its
    range, one at a time, and adds the changes in quadrature.
    """
    chip = system.chip
    tdp_w = chip.need("tdp_w", "power of a busy chip")
    shares = _best(law)
    names = ["base_frac", _compute_share(activity, law), "memory_share_frac"]
    uses = [chip.fact_id("tdp_w")]
    if chip.idle_w is None:
        names.append("idle_frac")
    else:
        uses.append(chip.fact_id("idle_w"))
    if system.node_power_w is None:
        names.append("host_frac")
    else:
        names.append("host_activity_frac")
        uses.append(system.facts.get("node_power_w", f"{system.id}.node_power"))
    uses += [law.fact(name) for name in names]

    def per_device_w(values: _Shares) -> tuple[float, float]:
        chip_w = _chip_w(system, tdp_w, activity, values)
        return chip_w, _host_w(system, tdp_w, chip_w, values)

    chip_w, host_w = per_device_w(shares)
    sigma = _sigma(lambda values: sum(per_device_w(values)), law, names, shares)
    power = total(
        "power",
        "W",
        [
            leaf("chips", devices_count * chip_w, "W", model="chip-power-from-activity", uses=uses),
            leaf("hosts, fans, network cards", devices_count * host_w, "W", model=_host_model(system), uses=uses),
        ],
    )
    return PowerEstimate(
        chip_w=chip_w,
        host_per_device_w=host_w,
        total_w=Interval.from_sigma(power.value, sigma),
        power=power,
        notes=_notes(system),
        uses=tuple(dict.fromkeys(uses)),
    )


def estimate_chips(system: System, devices_count: int, activity: Activity, law: PowerLaw) -> Interval:
    """Mean power of `devices_count` chips of `system` alone, without their hosts [W], as what reads a GPU's own sensor.

    Raises `MissingFact` where the chip's TDP is not known. The interval is made as that of `estimate_power`.
    """
    tdp_w = system.chip.need("tdp_w", "power of a busy chip")
    names = ["base_frac", _compute_share(activity, law), "memory_share_frac"]
    names += ["idle_frac"] if system.chip.idle_w is None else []
    shares = _best(law)
    sigma = _sigma(lambda values: _chip_w(system, tdp_w, activity, values), law, names, shares)
    return Interval.from_sigma(devices_count * _chip_w(system, tdp_w, activity, shares), sigma)


def _chip_w(system: System, tdp_w: float, activity: Activity, shares: _Shares) -> float:
    idle_w = system.chip.idle_w if system.chip.idle_w is not None else shares["idle_frac"] * tdp_w
    busy_w = float(
        chip_power_w(
            idle_w,
            tdp_w,
            min(1.0, activity.compute_frac),
            min(1.0, activity.memory_frac),
            shares["base_frac"] * (1.0 - activity.waiting_frac),
            shares[_SERVING_SHARE if activity.serves and _SERVING_SHARE in shares else "compute_share_frac"],
            shares["memory_share_frac"],
        )
    )
    return activity.busy_frac * busy_w + (1 - activity.busy_frac) * idle_w


def _host_w(system: System, tdp_w: float, chip_w: float, shares: _Shares) -> float:
    if system.node_power_w is None:
        return float(host_power_from_fraction_w(1, tdp_w, shares["host_frac"]))
    nodes_devices = system.devices_per_node_count
    node_w = host_power_from_maximum_w(
        system.node_power_w, nodes_devices, tdp_w, chip_w / tdp_w, shares["host_activity_frac"]
    )
    return float(node_w) / nodes_devices


def _host_model(system: System) -> str:
    return "host-power-from-fraction" if system.node_power_w is None else "host-power-from-node-maximum"


def _best(law: PowerLaw) -> dict[str, float]:
    names: tuple[str, ...] = (
        "base_frac",
        "compute_share_frac",
        "memory_share_frac",
        "idle_frac",
        "host_activity_frac",
        "host_frac",
    )
    names += (_SERVING_SHARE,) if law.serving_compute_share_frac is not None else ()
    return {name: getattr(law, name).best for name in names}


def _compute_share(activity: Activity, law: PowerLaw) -> str:
    """The share that the matrix units of this activity draw by."""
    served = activity.serves and law.serving_compute_share_frac is not None
    return _SERVING_SHARE if served else "compute_share_frac"


def _sigma(power_w: Callable[[_Shares], float], law: PowerLaw, names: list[str], best: _Shares) -> float:
    sigmas = []
    for name in names:
        interval: Interval = getattr(law, name)
        low_w = power_w({**best, name: interval.low})
        high_w = power_w({**best, name: interval.high})
        sigmas.append(Interval(min(low_w, high_w), power_w(best), max(low_w, high_w)).sigma)
    return quadrature(*sigmas) if all(math.isfinite(sigma) for sigma in sigmas) else 0.0


def _notes(system: System) -> tuple[Note, ...]:
    notes = []
    if system.chip.idle_w is None:
        text = f"idle power of {system.chip.id} is not known; a share of its TDP is taken"
        notes.append(Note("missing", text, (system.chip.fact_id("idle_w"),)))
    if system.node_power_w is None:
        text = f"maximum power of a {system.id} node is not known; a share of the chips' TDP is taken"
        notes.append(Note("missing", text, (system.facts.get("node_power_w", f"{system.id}.node_power"),)))
    return tuple(notes)
