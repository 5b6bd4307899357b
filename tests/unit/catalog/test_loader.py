"""Records to specs, names, facts, prices, laws and folders of the user's own."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ridgeline.catalog import Catalog, load_catalog, loader
from ridgeline.errors import BadFact, CatalogError, MissingFact, UnknownName


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


def test_chip_holds_si_figures_and_the_ids_of_its_facts(catalog: Catalog) -> None:
    chip = catalog.chip("chip-a")
    assert chip.memory_bandwidth_bytes_per_s == 2e12
    assert chip.memory_capacity_bytes == 80e9
    assert chip.memory_bytes() == 79e9
    assert chip.fact_id("memory_bandwidth_bytes_per_s") == "chip-a.memory_bandwidth"
    assert catalog.fact(chip.fact_id("peak_dense_flop_per_s.bf16")).at == "table 1"


def test_matrix_rate_stands_for_the_peak_and_the_vector_rate_stays(catalog: Catalog) -> None:
    chip = catalog.chip("chip-a")
    assert chip.peak("fp64") == 20e12
    assert chip.peak_dense_flop_per_s["fp64_vector"] == 10e12
    assert catalog.fact(chip.fact_id("peak_dense_flop_per_s.fp64")).id == "chip-a.peak_dense.fp64_matrix"


def test_host_rate_comes_from_the_link(catalog: Catalog) -> None:
    chip = catalog.chip("chip-a")
    assert chip.host_oneway_bytes_per_s == 32e9  # 256 Gb/s / 8
    assert chip.fact_id("host_oneway_bytes_per_s") == "bus.oneway"


def test_missing_figure_is_named(catalog: Catalog) -> None:
    chip = catalog.chip("a")
    assert chip.tdp_w is None
    with pytest.raises(MissingFact, match=r"missing fact chip-a\.tdp:"):
        chip.need("tdp_w")
    with pytest.raises(MissingFact, match=r"chip-a\.peak_dense\.fp8"):
        chip.peak("fp8")
    with pytest.raises(MissingFact):
        catalog.fact("chip-a.tdp")


def test_facts_carry_range_reason_and_text(catalog: Catalog) -> None:
    idle = catalog.fact("chip-a.idle")
    assert (idle.value, idle.low, idle.high, idle.unit, idle.kind) == (50.0, 40.0, 70.0, "W", "assumed")
    assert (idle.why, idle.written) == ("like its sibling", "50 W")
    assert catalog.fact("chip-a.burst").value == pytest.approx(3e-6)
    assert catalog.fact("chip-a.form").value == "card"
    assert [fact.id for fact in catalog.facts_of("links", "bus")] == ["bus.oneway", "bus.latency"]


def test_ids_with_dots_resolve_to_the_longest_record(catalog: Catalog) -> None:
    assert catalog.fact("box-1.5.node_power").value == 2000.0
    assert catalog.fact("box-1.5.levels.net.oneway").basis == "10 Gb/s / 8"


def test_system_takes_what_its_levels_leave_out_from_the_link(catalog: Catalog) -> None:
    system = catalog.system("box-1.5")
    bus, net = system.levels
    assert (bus.oneway_bytes_per_s, bus.latency_s) == (32e9, 1e-6)
    assert bus.facts["oneway_bytes_per_s"] == "bus.oneway"
    assert (net.oneway_bytes_per_s, net.latency_s) == (1.25e9, pytest.approx(2e-5))
    assert net.facts["latency_s"] == "box-1.5.levels.net.latency"
    assert (system.host.socket_count, system.host.memory_bytes) == (2, 1e12)
    assert system.need("node_power_w") == 2000.0


def test_level_without_any_latency_is_refused(data: Path) -> None:
    write(data, "links/bare.yaml", "id: bare\ntype: X\nfacts: {oneway: {v: 1 GB/s, kind: datasheet, src: lab}}\n")
    text = (data / "systems/box-1.5.yaml").read_text().replace("link: bus, size: 4", "link: bare, size: 4")
    write(data, "systems/box-1.5.yaml", text)
    catalog = load_catalog([data], plugins=False)
    with pytest.raises(BadFact, match=r"box-1\.5\.yaml: levels\.bus\.latency"):
        catalog.system("box-1.5")


def test_names_are_exact_and_the_nearest_are_offered(catalog: Catalog) -> None:
    assert catalog.chip("a") is catalog.chip("chip-a")
    for wrong in ("chip", "chip-a2", "CHIP-A"):
        with pytest.raises(UnknownName, match="unknown device"):
            catalog.chip(wrong)
    with pytest.raises(UnknownName) as caught:
        catalog.system("box-15")
    assert caught.value.nearest == ("box-1.5",)
    with pytest.raises(UnknownName):
        catalog.ids("gpus")
    with pytest.raises(UnknownName):
        catalog.fact("chip-a.colour")


def test_prices_own_first_then_elsewhere_newest_first(catalog: Catalog) -> None:
    prices = catalog.prices("box-1.5")
    assert [(price.id, price.kind) for price in prices] == [
        ("cloud-box.on-demand.2025-01-01", "on-demand"),
        ("cloud-box.on-demand.2024-01-01", "on-demand"),
        ("cloud-box.purchase.2024", "purchase"),
        ("other-chip.on-demand.2026-01-01", "on-demand"),
    ]
    newest, _, bought, elsewhere = prices
    assert newest.per_device_usd_per_s == pytest.approx(0.9 / 3600)  # 3.6 USD/h over 4 devices
    assert (bought.per_device_usd, bought.low_usd, bought.high_usd) == (10000.0, 9000.0, 12000.0)
    assert elsewhere.per_device_usd_per_s == pytest.approx(2 / 3600)
    assert elsewhere.note == "price of one.chip at Other, per device"
    assert catalog.fact(newest.fact).value == pytest.approx(3.6 / 3600)


def test_prices_of_a_device_alone(catalog: Catalog) -> None:
    assert len(catalog.prices("chip-a")) == 4
    with pytest.raises(UnknownName):
        catalog.prices("no-such")


def test_most_specific_law_wins_by_kernel_family(catalog: Catalog) -> None:
    laws = catalog.calibration("chip-a").laws
    assert laws["gemm.bf16"].parameters["compute_frac"] == 0.8
    assert (laws["gemm.bf16"].level, laws["gemm.bf16"].tiles) == ("device", ((128, 64),))
    assert laws["elementwise"].level == "universal"
    assert catalog.fact(laws["gemm.bf16"].fact).source == "lab"


def test_models_and_sources(catalog: Catalog) -> None:
    model = catalog.model_record("org/Tiny")
    assert (model.id, model.date, model.source, model.config) == ("tiny", "2024-05-01", "lab", {"hidden_size": 64})
    assert catalog.source("lab").title == "Our laboratory"


def test_labels_are_looked_up_whole(catalog: Catalog) -> None:
    assert catalog.device_for_label("Chip-A 80GB") == "chip-a"
    assert catalog.device_for_label("chip-a") == "chip-a"
    with pytest.raises(UnknownName):
        catalog.device_for_label("Chip-A")
    with pytest.raises(CatalogError, match="two kinds of chip"):
        catalog.device_for_label("mixed")


def test_users_folder_replaces_changes_and_is_noted(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "mine",
        "devices/chip-a.yaml",
        "id: chip-a\nextends: chip-a\nfacts:\n  tdp: {v: 300 W, kind: measured, src: lab}\n",
    )
    assert catalog.chip("chip-a").tdp_w is None
    catalog.add_folder(folder)
    chip = catalog.chip("a")
    assert (chip.tdp_w, chip.memory_bandwidth_bytes_per_s) == (300.0, 2e12)
    assert catalog.system("box-1.5").chip.tdp_w == 300.0
    assert [note.text for note in catalog.notes] == [
        "mine/devices/chip-a.yaml changes the catalogue's own device chip-a"
    ]


def test_variant_does_not_inherit_what_follows_a_changed_figure(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "mine",
        "devices/chip-b.yaml",
        "id: chip-b\nextends: chip-a\nfacts:\n  memory_capacity: {v: 96 GB, kind: datasheet, src: lab}\n",
    )
    catalog.add_folder(folder)
    chip = catalog.chip("chip-b")
    assert (chip.memory_capacity_bytes, chip.memory_usable_bytes, chip.vendor) == (96e9, None, "Maker")
    assert catalog.notes == ()


def test_users_folder_with_dangling_names_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "mine",
        "devices/chip-c.yaml",
        "id: chip-c\nextends: chip-a\nfacts:\n  tdp: {v: 300 W, kind: measured, src: labb}\n",
    )
    with pytest.raises(BadFact, match=r"chip-c\.yaml: tdp\.src: unknown source 'labb'; nearest: lab"):
        catalog.add_folder(folder)
    write(tmp_path / "mine", "devices/chip-c.yaml", "id: chip-c\nextends: chip-z\n")
    with pytest.raises(UnknownName, match="unknown device 'chip-z'"):
        catalog.add_folder(folder)


def test_plugins_offer_folders(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "some.module:folder", loader.ENTRY_POINTS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda: data)
    monkeypatch.setattr(loader, "entry_points", lambda group: [point] if group == "ridgeline.catalog" else [])
    assert "chip-a" in load_catalog().ids("devices")
    assert "chip-a" not in load_catalog(plugins=False).ids("devices")


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFact, match="no such folder"):
        load_catalog([tmp_path / "absent"], plugins=False)
