"""Systems: they load, their networks are possible, and the figures that decide are those of the makers."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import MissingFact

CATALOG = load_catalog(plugins=False)
SYSTEMS = CATALOG.ids("systems")

# Issue 2, point 2: the systems that must be there.
REQUIRED = (
    *("dgx-1v", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72"),
    *("mi250x-4", "mi300x-8", "mi325x-8", "mi355x-8", "gaudi1-8", "gaudi2-8", "gaudi3-8"),
    *("tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7"),
    *("trn1-2xlarge", "trn1-32xlarge", "trn2-48xlarge", "inf1-xlarge", "inf2-xlarge", "inf2-8xlarge", "inf2-24xlarge"),
    *("inf2-48xlarge", "p3-16xlarge", "p4d-24xlarge", "p4de-24xlarge", "p5-48xlarge", "p5en-48xlarge"),
    *("l40s-8", "a100-pcie-8", "h100-pcie-8", "h100-nvl-8", "rtx-4090-2", "rtx-3090-2", "rtx-6000-ada-2"),
    *("jetson-agx-orin-64-1", "coral-edge-tpu-1", "xeon-8490h-2s", "epyc-9654-2s", "gh200-1"),
)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return CATALOG


@pytest.mark.parametrize("name", REQUIRED)
def test_required_system_is_there(catalog: Catalog, name: str) -> None:
    assert catalog.system(name).devices_per_node_count >= 1


@pytest.mark.parametrize("name", SYSTEMS)
def test_network_is_possible(catalog: Catalog, name: str) -> None:
    """Levels go from inner to outer, a torus has as many places as its axes make, and the outermost level is open."""
    system = catalog.system(name)
    assert system.levels, "a system needs at least one level, or nothing can leave it"
    bounded = [level.size_count for level in system.levels[:-1]]
    assert all(size is not None and size > 1 for size in bounded)
    assert bounded == sorted(set(bounded))
    assert system.levels[-1].size_count is None
    for level in system.levels:
        assert level.latency_s > 0
        assert level.transport in ("", "rdma", "tcp", "efa")
        if level.axes:
            assert level.kind.startswith("torus")
            assert math.prod(level.axes) == level.size_count
        if level.kind == "pcie":
            assert level.oneway_bytes_per_s < 70e9
    inner = [level.oneway_bytes_per_s for level in system.levels if level.kind != "torus2d" or level.size_count != 8]
    assert inner == sorted(inner, reverse=True), "bandwidth of a device falls from level to level"


@pytest.mark.parametrize("name", SYSTEMS)
def test_power_of_the_node_covers_its_devices(catalog: Catalog, name: str) -> None:
    system = catalog.system(name)
    if system.node_power_w is None or system.chip.tdp_w is None:
        return
    devices_w = system.chip.tdp_w * system.devices_per_node_count
    assert devices_w < system.node_power_w < 2.3 * devices_w
    if system.node_idle_w is not None:
        assert system.node_idle_w < system.node_power_w / 2


@pytest.mark.parametrize(
    ("name", "level", "oneway_bytes_per_s"),
    [
        ("dgx-1v", "rail", 6.25e9),  # 4 x 100 Gb/s / 8 bits / 8 GPUs
        ("dgx-a100", "rail", 25e9),  # 8 x 200 Gb/s, one a GPU
        ("dgx-h100", "rail", 50e9),  # 8 x 400 Gb/s
        ("dgx-b200", "rail", 50e9),  # ConnectX-7: still 400 Gb/s
        ("dgx-b300", "rail", 100e9),  # ConnectX-8: 800 Gb/s
        ("gb200-nvl72", "rail", 50e9),
        ("gb300-nvl72", "rail", 100e9),
        ("p3-16xlarge", "lan", 0.390625e9),  # 25 Gb/s for eight GPUs
        ("p4d-24xlarge", "efa", 6.25e9),  # 400 Gb/s for eight GPUs
        ("p5-48xlarge", "efa", 50e9),  # 3,200 Gb/s for eight GPUs
        ("p6-b300-48xlarge", "efa", 100e9),
        ("trn1-32xlarge", "efa", 6.25e9),  # 800 Gb/s for sixteen chips
        ("trn2-48xlarge", "efa", 25e9),
        ("tpu-v5e", "dcn", 3.125e9),  # 2 x 100 Gb/s for eight chips
        ("tpu-v6e", "dcn", 12.5e9),  # 4 x 200 Gb/s for eight chips
        ("dgx-h100", "nvlink", 450e9),  # one direction: half of the 900 GB/s that is advertised
        ("dgx-a100", "nvlink", 300e9),
        ("dgx-b200", "nvlink", 900e9),
        ("mi300x-8", "xgmi", 448e9),  # 7 x 64 GB/s
        ("gaudi3-8", "roce-up", 525e9),  # 21 x 200 Gb/s
        ("tpu-v5p", "ici", 600e9),  # six links of 100 GB/s one way: 1,200 GB/s both ways
        ("tpu-v5e", "ici", 200e9),  # 400 GB/s both ways
        ("l40s-8", "pcie", 31e9),
    ],
)
def test_bandwidth_of_one_device_and_direction(
    catalog: Catalog, name: str, level: str, oneway_bytes_per_s: float
) -> None:
    """Published rates, converted by hand."""
    found = {item.name: item for item in catalog.system(name).levels}
    assert found[level].oneway_bytes_per_s == pytest.approx(oneway_bytes_per_s, rel=0.005)


@pytest.mark.parametrize(
    ("name", "kilowatt"),
    [("dgx-a100", 6.5), ("dgx-h100", 10.2), ("dgx-b200", 14.3), ("gb300-nvl72", 142 / 18), ("dgx-1v", 3.5)],
)
def test_maximum_power_is_the_makers(catalog: Catalog, name: str, kilowatt: float) -> None:
    assert catalog.system(name).node_power_w == pytest.approx(kilowatt * 1e3, rel=0.01)


def test_clusters_reach_thousands_of_nodes(catalog: Catalog) -> None:
    for name in ("dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8", "p5-48xlarge"):
        system = catalog.system(name)
        assert system.need("max_devices_count") >= 1000 * system.devices_per_node_count
    assert catalog.system("dgx-a100").need("max_devices_count") >= 10_000  # the often-quoted GPT on 10,000 A100


def test_nvlink_reduction_starts_with_hopper(catalog: Catalog) -> None:
    reducing = {name for name in SYSTEMS if any(level.in_switch_reduction for level in catalog.system(name).levels)}
    assert {"dgx-h100", "dgx-b200", "gb200-nvl72", "p5-48xlarge"} <= reducing
    assert not {"dgx-a100", "dgx-2", "p4d-24xlarge", "mi300x-8"} & reducing
    assert all(catalog.system(name).chip.architecture in ("hopper", "blackwell") for name in reducing)


def test_slices_are_sold_in_sizes(catalog: Catalog) -> None:
    for name in ("tpu-v5e", "tpu-v6e"):
        system = catalog.system(name)
        assert {256, 512} <= set(system.sizes_count)
        assert 96 not in system.sizes_count


def test_a_device_has_one_standard_system(catalog: Catalog) -> None:
    claims = Counter(name for id in SYSTEMS for name in catalog.record("systems", id).get("default_for", ()))
    assert [name for name, count in claims.items() if count > 1] == []
    for id in SYSTEMS:
        for name in catalog.record("systems", id).get("default_for", ()):
            assert catalog.system(id).chip.id == name
            assert catalog.standard_system(name) == id


def test_standard_systems(catalog: Catalog) -> None:
    assert catalog.standard_system("h100-sxm5-80") == "dgx-h100"
    assert catalog.standard_system("rtx-4090") == "rtx-4090-8"
    assert catalog.standard_system("gb200") == "gb200-nvl72"
    assert catalog.standard_system("envise") == ""


def test_user_system_takes_over_as_standard(tmp_path: object) -> None:
    folder = tmp_path / "mine"  # type: ignore[operator]
    (folder / "systems").mkdir(parents=True)
    (folder / "systems" / "lab.yaml").write_text(
        "id: lab\nname: Lab\nextends: dgx-h100\ndevices_per_node: 4\ndefault_for: [h100-sxm5-80]\n"
    )
    (folder / "systems" / "copy.yaml").write_text("id: copy\nname: Copy\nextends: dgx-a100\n")
    own = load_catalog([folder], plugins=False)
    assert own.standard_system("h100-sxm5-80") == "lab"
    assert own.standard_system("a100-sxm4-80") == "dgx-a100"  # `extends` does not inherit the standing


def test_missing_figures_are_named(catalog: Catalog) -> None:
    with pytest.raises(MissingFact, match=r"tpu-v5p\.node_power"):
        catalog.system("tpu-v5p").need("node_power_w")


def test_every_figure_of_a_system_says_where_it_comes_from(catalog: Catalog) -> None:
    for name in SYSTEMS:
        for fact in catalog.facts_of("systems", name):
            assert fact.kind != "unsourced"
            if fact.kind == "assumed":
                assert fact.why
                assert fact.low is not None
                assert fact.high is not None
                assert fact.low <= fact.value <= fact.high
            else:
                assert fact.sources, fact.id
                for source in fact.sources:
                    assert catalog.source(source).title
