"""Questions that people asked about collectives, with the answer that the thread or arithmetic gives.

Expected values: published in the threads named, or derived from their figures as shown.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.core import FrozenMap
from ridgeline.network import collective_time
from ridgeline.network.collectives import bus_bytes_per_s, ring_all_reduce_s, ring_sent_frac
from ridgeline.specs import Calibration, Law, NetworkLevel, RankGroup, System

CATALOG: Catalog = load_catalog(plugins=False)
H100 = CATALOG.system("dgx-h100")
LAWS = CATALOG.calibration("h100-sxm5-80")


def bus(kind: str, size: float, ranks: int, system: System, stride: int = 1) -> float:
    """Bus bandwidth that is predicted [B/s]."""
    time_s = collective_time(kind, size, RankGroup(size_count=ranks, stride_count=stride), system, LAWS).time_s
    return size / time_s * ring_sent_frac(kind, ranks)


def between(link: str, oneway: float, transport: str, inside: NetworkLevel = H100.levels[0]) -> System:
    """Eight devices on NVLink in a node, and one kind of network between nodes (rate per device)."""
    rail = NetworkLevel(
        name="net",
        kind="fat-tree" if transport != "tcp" else "ethernet",
        link=link,
        size_count=None,
        oneway_bytes_per_s=oneway,
        latency_s=5e-6,
        transport=transport,
    )
    return replace(H100, id=f"h100-{link}", levels=(inside, rail))


def test_nvlink_and_pcie_figures_are_one_direction() -> None:
    # "900 GB/s" of NVLink 4 is both directions; a ring of 8 reaches 365-370 GB/s, so never more than 450.
    assert H100.levels[0].oneway_bytes_per_s == 450e9
    assert CATALOG.system("dgx-a100").levels[0].oneway_bytes_per_s == 300e9
    assert CATALOG.link("pcie5-x16").oneway_bytes_per_s == pytest.approx(63e9)


def test_eight_h100_reach_480_with_and_367_without_sums_in_the_switch() -> None:
    # nccl-tests 212, 239, 290: 476-480 GB/s bus bandwidth is above the 450 GB/s wire, because the switch adds; ring
    # 365-370. Bus bandwidth is a corrected rate, not wire speed.
    ring_only = replace(H100, levels=(replace(H100.levels[0], in_switch_reduction=False), H100.levels[1]))
    assert bus("all_reduce", 16 * 2**30, 8, H100) == pytest.approx(478e9, rel=0.03)
    assert bus("all_reduce", 16 * 2**30, 8, ring_only) == pytest.approx(367e9, rel=0.03)
    found = collective_time("all_reduce", 16 * 2**30, RankGroup(size_count=8), H100, LAWS)
    assert found.algorithm == "in-switch"


def test_one_ndr_card_gives_46_to_48() -> None:
    # nccl-tests 290: expect 46-48 GB/s a card of 50 GB/s, one device a node.
    assert 45.5e9 <= bus("all_reduce", 16 * 2**30, 2, H100, stride=8) <= 48.5e9


def test_two_nodes_on_one_card_show_more_than_its_rate() -> None:
    # nccl-tests 196: one 100 Gb/s card (12.5 GB/s) a node, bus bandwidth above 12.5 GB/s: a tree between two nodes
    # moves the message once where a ring moves it twice.
    slow = between("ib-edr", 12.5e9 / 8, "rdma")
    found = collective_time("all_reduce", 4e9, RankGroup(size_count=16), slow, LAWS)
    assert found.algorithm in ("tree", "in-switch-tree")
    assert 12.5e9 < bus("all_reduce", 4e9, 16, slow) < 25e9
    # A ring shows the network: four nodes and more are bound by the card.
    assert bus("all_reduce", 4e9, 64, slow) < 12.5e9


def test_bus_bandwidth_scales_with_the_rails_in_use() -> None:
    # nccl 569: 1.6 GB in 363, 173, 132 ms for 8 x 1, 4 x 2, 2 x 4 devices = 7.7, 16.2, 21.2 GB/s.
    measured = [bus_bytes_per_s(1.6e9, t, 2 * 7 / 8) / 1e9 for t in (0.363, 0.173, 0.132)]
    assert measured == pytest.approx([7.7, 16.2, 21.2], abs=0.05)
    # A rail that gives what the first run shows: the second doubles it; the third would double again (the thread: it is
    # held back by something else).
    rail = between("ideal", 7.71e9, "rdma")
    laws = Calibration(chip="x", laws=FrozenMap({f"collective.{name}.all_reduce": _ideal() for name in LINKS}))
    predicted = []
    for per_node, stride in ((1, 8), (2, 4), (4, 2)):
        group = RankGroup(size_count=8, stride_count=stride)
        time_s = collective_time("all_reduce", 1.6e9, group, rail, laws).time_s
        predicted.append(1.6e9 / time_s * 2 * 7 / 8 / 1e9)
        assert per_node * stride == 8
    assert predicted[0] == pytest.approx(7.7, rel=0.01)
    assert predicted[1] == pytest.approx(16.2, rel=0.06)
    assert predicted[2] >= 21.2


LINKS = ("nvlink4", "ideal", "tcp-10gbe")


def _ideal() -> Law:
    figures = {
        "low_base_s": 1e-6,
        "low_hop_s": 0.0,
        "low_frac": 0.5,
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
    return Law(
        kind="ideal", level="test", parameters=FrozenMap(figures), ape_p50_frac=0.0, ape_p90_frac=0.0, fact="ideal"
    )


def test_zero_3_over_ten_gigabit_waits_for_its_gathers() -> None:
    # LlamaFactory 5014: 8.03e9 parameters in bf16 = 16.06 GB at 1.25 GB/s = 12.8 s a gather; 2 nodes of 8.
    slow = between("tcp-10gbe", 1.25e9 / 8, "tcp")
    ideal = Calibration(chip="x", laws=FrozenMap({f"collective.{name}.all_gather": _ideal() for name in LINKS}))
    bound_s = 16.06e9 / 1.25e9
    assert bound_s == pytest.approx(12.8, abs=0.1)
    group = RankGroup(size_count=16)
    # A node sends 15/16 of it: the half that the other lacks and what passes on.
    assert collective_time("all_gather", 16.06e9, group, slow, ideal).time_s == pytest.approx(
        bound_s * 15 / 16, rel=0.01
    )
    real_s = collective_time("all_gather", 16.06e9, group, slow, LAWS).time_s
    assert bound_s < real_s < 2 * bound_s
    # On InfiniBand the same gather is two orders of magnitude faster: the job with it is fine.
    assert collective_time("all_gather", 16.06e9, group, H100, LAWS).time_s < real_s / 100


def test_a_second_node_without_infiniband_costs_more_than_it_brings() -> None:
    # llm-foundry 336 (8 times slower), open_clip 466 (240 -> 160 samples/s): bf16 gradients of 1.3e9 parameters.
    gradient_bytes = 2 * 1.3e9
    ten = between("tcp-10gbe", 1.25e9 / 8, "tcp")
    without_s = collective_time("all_reduce", gradient_bytes, RankGroup(size_count=16), ten, LAWS).time_s
    with_s = collective_time("all_reduce", gradient_bytes, RankGroup(size_count=16), H100, LAWS).time_s
    inside_s = collective_time("all_reduce", gradient_bytes, RankGroup(size_count=8), H100, LAWS).time_s
    assert without_s > 1.5
    assert with_s < 0.02
    assert without_s > 100 * inside_s


def test_p3_16xlarge_has_25_gigabit_between_nodes() -> None:
    # nccl 318: one node 36 min, two nodes 105 min; 25 Gb/s = 3.1 GB/s against NVLink inside.
    machine = CATALOG.system("p3-16xlarge")
    node_bytes_per_s = machine.levels[-1].oneway_bytes_per_s * machine.devices_per_node_count
    assert node_bytes_per_s == pytest.approx(25e9 / 8, rel=1e-4)
    laws = CATALOG.calibration(machine.chip.id)
    size = 4 * 110e6  # fp32 gradients of a BERT-base
    inside_s = collective_time("all_reduce", size, RankGroup(size_count=8), machine, laws).time_s
    across_s = collective_time("all_reduce", size, RankGroup(size_count=16), machine, laws).time_s
    assert across_s > 15 * inside_s


def test_hand_figures_of_nccl_tests() -> None:
    # 1 GB over 8 ranks in 3.889 ms is 257 GB/s of algorithm and 450 GB/s of bus bandwidth.
    time_s = ring_all_reduce_s(1e9, 8, 450e9, 0.0)
    assert 1e9 / time_s == pytest.approx(257.1e9, rel=1e-3)
    assert bus_bytes_per_s(1e9, time_s, 14 / 8) == pytest.approx(450e9)


@pytest.mark.parametrize(
    ("system", "ranks", "gathered"),
    [
        ("dgx-a100", 2, 147e9),
        ("dgx-a100", 4, 180e9),
        ("dgx-a100", 8, 180e9),
        ("dgx-h100", 2, 221e9),
        ("dgx-h100", 4, 279e9),
        ("dgx-h100", 8, 305e9),
        ("dgx-b200", 2, 404e9),
        ("dgx-b200", 4, 510e9),
        ("dgx-b200", 8, 511e9),
    ],
)
def test_all_gather_rates_by_devices(system: str, ranks: int, gathered: float) -> None:
    # Bus bandwidth of NCCL all-gathers of 64 MB and above, mean over sizes of the measured tables.
    machine = CATALOG.system(system)
    laws = CATALOG.calibration(machine.chip.id)
    size = 256e6
    time_s = collective_time("all_gather", size, RankGroup(size_count=ranks), machine, laws).time_s
    assert size / time_s * (ranks - 1) / ranks == pytest.approx(gathered, rel=0.2)
