"""The parameters of one link's collectives, and where they come from.

A law holds, for one family of links and one kind of collective:

    low_base_s, low_hop_s, low_frac       the low-latency protocol: start, each further step, share of the link's rate
    high_base_s, high_hop_s, high_frac    the high-bandwidth protocol
    half_bytes, half_power                sent bytes at which it runs at half rate, and how suddenly
    local_frac                            traffic that does not shrink with more ranks, in shares of a rank's part of
                                          the message: copies inside the device (negative where pairs are spared some)
    switch_base_s, switch_frac            reduction in the switch (all-reduce only, where the level has it), whose rate
    switch_power                          falls with this power of the number of ranks
    sharpness                             how sudden the change of protocol is

Laws are looked up in the calibration as "collective.<link>.<kind>", then "collective.<family>.<kind>" (for an exchange
of tokens then the same for all-to-all); where none is there, NCCL's own planning constants with the level's datasheet
latency are used, with a wide interval.
"""

from __future__ import annotations

from collections.abc import Mapping

from ridgeline.core import FrozenMap
from ridgeline.specs import Calibration, Law, NetworkLevel

_FAMILY_BY_KIND: Mapping[str, str] = {
    "switch": "scale-up",
    "mesh": "mesh",
    "pcie": "pcie",
    "package": "scale-up",
    "ring": "torus",
    "torus2d": "torus",
    "torus3d": "torus",
    "fat-tree": "rdma",
    "ethernet": "tcp",
}


def family(level: NetworkLevel) -> str:
    """The family of links whose law stands in for an unmeasured link: its transport, or what its kind implies.

    >>> from ridgeline.specs import NetworkLevel
    >>> family(NetworkLevel(name="eth", kind="ethernet", link="roce-400gbe", size_count=None, transport="rdma",
    ...                     oneway_bytes_per_s=50e9, latency_s=5e-6))
    'rdma'
    """
    return level.transport or _FAMILY_BY_KIND.get(level.kind, level.kind)


def law_for(level: NetworkLevel, kind: str, calibration: Calibration) -> Law:
    """The law for collectives of `kind` over the links of `level`: measured link, its family, else published."""
    laws = calibration.laws
    for each in (kind, "all_to_all") if kind == "token_exchange" else (kind,):
        for key in (f"collective.{level.link}.{each}", f"collective.{family(level)}.{each}"):
            found = laws.get(key)
            if found is not None:
                return found
    return published_law(level, kind)


def peer_law(level: NetworkLevel, calibration: Calibration, engine: str = "any") -> Law | None:
    """The law of an engine's all-reduce kernels over peer memory on the links of `level`, where one was measured.

    Its low protocol is the one-shot kernel, its high protocol the two-shot kernel. An engine that was not measured
    gets the pooled law of all engines.
    """
    key = f"collective.{level.link}.peer_all_reduce"
    return calibration.laws.get(f"{key}.{engine}") or calibration.laws.get(key)


def published_law(level: NetworkLevel, kind: str) -> Law:
    """NCCL's planning constants on the level's datasheet latency: what holds where nothing was measured.

    `latency_s` of a level is one step of the low-latency protocol; the high-bandwidth one takes 5.6 times as long for a
    step. They start in 6.6 and 8.4 us and reach half of, and all of, 80 % of the rate (the plan on NVLink).
    """
    return Law(
        kind=f"collective.{kind}",
        level="published",
        parameters=FrozenMap(
            {
                "low_base_s": 6.6e-6,  # src: nccl-tuner
                "low_hop_s": level.latency_s,
                "low_frac": 0.4,  # src: nccl-tuner
                "high_base_s": 8.4e-6,  # src: nccl-tuner
                "high_hop_s": 5.6 * level.latency_s,  # src: nccl-tuner
                "high_frac": 0.8,  # src: nccl-tuner
                "half_bytes": 0.0,
                "half_power": 1.0,
                "local_frac": 0.0,
                "switch_base_s": 25e-6,  # src: nccl-tuner
                "switch_frac": 0.65,  # src: stas00-network
                "switch_power": 0.0,
                "sharpness": 8.0,  # src: ridgeline-collective-laws
            }
        ),
        ape_p50_frac=0.25,  # src: ridgeline-collective-laws
        ape_p90_frac=0.7,  # src: ridgeline-collective-laws
        fact="nccl-tuner",
    )
