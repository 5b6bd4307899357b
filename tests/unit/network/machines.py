"""Machines by hand for the network tests."""

from __future__ import annotations

from ridgeline.core import FrozenMap
from ridgeline.specs import Calibration, Chip, Law, NetworkLevel, System

EXACT = {
    "low_base_s": 1.0,
    "low_hop_s": 0.0,
    "low_frac": 1.0,
    "high_base_s": 0.0,
    "high_hop_s": 0.0,
    "high_frac": 1.0,
    "half_bytes": 0.0,
    "half_power": 1.0,
    "local_frac": 0.0,
    "switch_base_s": 0.0,
    "switch_frac": 1.0,
    "switch_power": 0.0,
    "sharpness": 20.0,
}
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def level(name: str, kind: str, link: str, size: int | None, oneway: float, **more: object) -> NetworkLevel:
    return NetworkLevel(
        name=name,
        kind=kind,
        link=link,
        size_count=size,
        oneway_bytes_per_s=oneway,
        latency_s=1e-6,
        **more,  # type: ignore[arg-type]
    )


def system(*levels: NetworkLevel, devices: int = 8) -> System:
    return System(id="hand-made", name="", chip=Chip(id="chip"), devices_per_node_count=devices, levels=levels)


def calibration(*links: str, **changes: float) -> Calibration:
    """Laws without losses (the low-latency protocol takes a second, so it never runs), with `changes`."""
    law = Law(
        kind="collective",
        level="test",
        parameters=FrozenMap({**EXACT, **changes}),
        ape_p50_frac=0.05,
        ape_p90_frac=0.15,
        fact="test-law",
    )
    laws = {f"collective.{link}.{kind}": law for link in links for kind in KINDS}
    return Calibration(chip="chip", laws=FrozenMap(laws))


NVLINK = level("nvlink", "switch", "nvlink4", 8, 450e9)
NVLS = level("nvlink", "switch", "nvlink4", 8, 450e9, in_switch_reduction=True)
RAIL = level("rail", "fat-tree", "ib-ndr", None, 50e9, transport="rdma")
DGX = system(NVLINK, RAIL)
IDEAL = calibration("nvlink4", "ib-ndr")
