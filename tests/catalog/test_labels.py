"""Labels of devices in published tables: an exact table, complete for the corpus, never a part of a name."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import CatalogError, UnknownName

CATALOG = load_catalog(plugins=False)
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "device_labels.csv"

# Labels that mean no single device; the reason stands in the file.
WITHOUT_DEVICE = {
    "AMD Instinct MI325X 256GB HBM3E (x16), AMD Instinct MI300X 192GB HBM3 (x8)",
    "AMD Instinct MI300X 192GB HBM3 (x32), AMD Instinct MI325X 256GB HBM3e (x16)",
}
# Devices of labels for which no source gives any peak rate; a row on them is skipped with the missing fact.
WITHOUT_PEAKS = {"qaic100-lite", "recaccel-fpga"}
LABELS = [text for text in CATALOG.ids("labels") if text not in WITHOUT_DEVICE]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return CATALOG


def test_every_label_of_the_corpus_is_in_the_table(catalog: Catalog) -> None:
    if not CORPUS.exists():
        pytest.skip("no corpus beside the checkout")
    with CORPUS.open(newline="") as stream:
        wanted = {row["label"] for row in csv.DictReader(stream)}
    assert wanted - set(catalog.ids("labels")) == set()


@pytest.mark.parametrize("text", LABELS)
def test_label_means_a_device_in_a_system(catalog: Catalog, text: str) -> None:
    label = catalog.label(text)
    chip = catalog.chip(label.device)
    assert catalog.device_for_label(text) == chip.id
    assert label.system, f"no standard system for {chip.id}"
    assert catalog.system(label.system).chip.id == chip.id
    assert label.devices_count >= 1
    assert chip.peak_dense_flop_per_s or chip.id in WITHOUT_PEAKS


@pytest.mark.parametrize("text", sorted(WITHOUT_DEVICE))
def test_mixed_runs_are_refused_with_the_reason(catalog: Catalog, text: str) -> None:
    with pytest.raises(CatalogError, match="two kinds of device"):
        catalog.label(text)


def test_sources_of_a_label_lead_to_matching_systems(catalog: Catalog) -> None:
    for text in LABELS:
        for source in catalog.record("labels", text).get("by_source", {}):
            label = catalog.label(text, source)
            assert catalog.system(label.system).chip.id == label.device


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("H100", "h100-sxm5-80"),
        ("NVIDIA H100-PCIe-80GB", "h100-pcie-80"),
        ("NVIDIA H100-NVL-94GB", "h100-nvl-94"),
        ("H200 131GB HBM3", "h200-sxm-141"),  # 131 GiB
        ("GH200 480GB", "gh200-96"),  # 480 GB is the processor's memory
        ("NVIDIA A100-SXM4", "a100-sxm4-40"),  # v0.7: before the 80 GB part
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80"),
        ("Pi CM5 - 16GB (Nvidia RTX 3080 Ti)", "rtx-3080-ti"),
        ("NVIDIA GeForce RTX 3080", "rtx-3080-10"),
        ("Ryzen 9 7950X (Nvidia 4070 Ti Super)", "rtx-4070-ti-super"),
        ("Intel 265K Custom PC (Nvidia RTX 4070 Ti)", "rtx-4070-ti"),
        ("Intel Core i7-12700H iGPU", "igpu-i7-12700h"),
        ("Intel Core i7-12700H CPU", "core-i7-12700h"),
        ("RTX-6000-Ada", "rtx-6000-ada"),
        ("RTX 6000 Pro Blackwell SE", "rtx-pro-6000-server"),
        ("TPU v6", "tpu-v6e"),
    ],
)
def test_look_alike_names(catalog: Catalog, text: str, device: str) -> None:
    assert catalog.device_for_label(text) == device


def test_labels_that_count_several_devices(catalog: Catalog) -> None:
    counts = {text: catalog.label(text).devices_count for text in LABELS}
    assert counts["MI250 (1 GCD)"] == 1
    assert counts["MI250 (2 GCDs)"] == 2
    assert counts["NVIDIA A100-SXM-80GB (7x1g.10gb MIG)"] == 7
    assert counts["T3000 (2x4 Wormhole)"] == 8


def test_label_names_the_machine(catalog: Catalog) -> None:
    assert catalog.label("Inf2.48xlarge").system == "inf2-48xlarge"
    assert catalog.label("trn1.2xlarge").system == "trn1-2xlarge"
    assert catalog.label("Framework Mainboard (128GB)").cpu == "ryzen-ai-max-395-cpu"


def test_source_decides_where_the_label_does_not(catalog: Catalog) -> None:
    """FasterTransformer prints a memory clock of 1215 MHz: the 40 GB part."""
    assert catalog.label("A100").device == "a100-sxm4-80"
    guide = catalog.label("A100", "NVIDIA FasterTransformer bert_guide")
    assert (guide.device, guide.system) == ("a100-sxm4-40", "dgx-a100-40")
    bloom = catalog.label("A100-SXM-80GB", "BigScience tr11-176B chronicles-prequel (BLOOM tuning)")
    assert (bloom.device, bloom.system) == ("a100-sxm4-80", "jean-zay-a100")
    assert catalog.label("A100-SXM-80GB", "another title").system == "dgx-a100"


@pytest.mark.parametrize("text", ["H100-SXM-80GB (engineering sample)", "NVIDIA", "A100 ", "RTX 4090 Ti", ""])
def test_nothing_matches_by_parts(catalog: Catalog, text: str) -> None:
    with pytest.raises(UnknownName):
        catalog.device_for_label(text)


def test_slice_of_a_gpu_is_a_share_of_it(catalog: Catalog) -> None:
    """14 of 108 SM and an eighth of the memory bandwidth: 312 x 14/108 = 40.44 TFLOP/s, 2,039 / 8 = 254.9 GB/s."""
    part = catalog.chip("a100-sxm4-80-mig-1g10gb")
    whole = catalog.chip("a100-sxm4-80")
    assert part.peak("bf16") == pytest.approx(whole.peak("bf16") * 14 / 108, rel=1e-3)
    assert part.need("memory_bandwidth_bytes_per_s") == pytest.approx(
        whole.need("memory_bandwidth_bytes_per_s") / 8, rel=0.01
    )


@pytest.mark.parametrize(
    ("device", "precision", "tera"),
    [
        ("rtx-3080-ti", "fp16", 68.2),  # 80 SM x 512 x 1.665 GHz, FP32 accumulation
        ("rtx-4080", "fp8", 195.0),  # 76 SM x 1,024 x 2.505 GHz
        ("a2", "int8", 36.2),  # NVIDIA prints 36
        ("rx-7900-xtx", "fp16", 122.8),
        ("arc-pro-b60", "int8", 196.6),  # Intel prints 197
        ("igpu-ultra-258v", "int8", 63.9),  # Intel prints 64
    ],
)
def test_derived_rates_against_printed_ones(catalog: Catalog, device: str, precision: str, tera: float) -> None:
    assert catalog.chip(device).peak(precision) == pytest.approx(tera * 1e12, rel=0.005)
