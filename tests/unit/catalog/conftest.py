"""A small data folder to compile, and a catalogue made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline.catalog import Catalog
from ridgeline.catalog.compiler import compile_folder
from ridgeline.catalog.shelf import Shelf, dump, resolve_extends

FILES = {
    "sources/lab.yaml": "id: lab\ntitle: Our laboratory\nkind: measurement\ntrust: independent\n",
    "devices/chip-a.yaml": """
id: chip-a
aliases: [a]
name: Chip A
vendor: Maker
kind: gpu
architecture: hopper
facts:
  peak_dense.fp64: {v: 10 TFLOP/s, kind: datasheet, src: lab}
  peak_dense.fp64_matrix: {v: 20 TFLOP/s, kind: datasheet, src: lab}
  peak_dense.bf16: {v: 400 TFLOP/s, kind: datasheet, src: lab, at: table 1}
  memory_capacity: {v: 80 GB, kind: datasheet, src: lab}
  memory_usable: {v: 79 GB, kind: measured, src: lab}
  memory_bandwidth: {v: 2 TB/s, kind: datasheet, src: lab}
  host_link: {v: bus, kind: datasheet, src: lab}
  idle: {v: 50 W, kind: assumed, why: like its sibling, lo: 40 W, hi: 70 W}
more:
  form: {v: card, kind: unsourced}
  burst: {v: 3 us, dim: time, kind: measured, src: lab}
""",
    "links/bus.yaml": """
id: bus
type: PCIe
facts:
  oneway: {v: 256 Gb/s, kind: datasheet, src: lab}
  latency: {v: 1 us, kind: measured, src: lab}
""",
    "systems/box-1.5.yaml": """
id: box-1.5
name: Box
chip: chip-a
devices_per_node: 4
src: lab
host: {cpu: Some CPU, sockets: 2, memory: {v: 1 TB, kind: datasheet, src: lab}}
node_power: {v: 2 kW, kind: datasheet, src: lab}
levels:
  - {name: bus, kind: pcie, link: bus, size: 4}
  - name: net
    kind: ethernet
    link: bus
    oneway: {v: 1.25 GB/s, kind: derived, from: 10 Gb/s / 8}
    latency: {v: 20 us, kind: measured, src: lab}
""",
    "prices/cloud-box.yaml": """
id: cloud-box
system: box-1.5
device: chip-a
devices: 4
provider: Cloud
prices:
  - {term: on-demand, v: 4 USD/h, date: 2024-01-01, kind: secondary, src: lab}
  - {term: on-demand, v: 3.6 USD/h, date: 2025-01-01, kind: secondary, src: lab}
  - {term: purchase, v: 40000 USD, lo: 36000 USD, hi: 48000 USD, date: 2024, kind: secondary, src: lab}
""",
    "prices/other-chip.yaml": """
id: other-chip
device: chip-a
instance: one.chip
provider: Other
prices:
  - {term: on-demand, v: 2 USD/h, date: 2026-01-01, kind: secondary, src: lab}
""",
    "models/tiny.yaml": "id: tiny\naliases: [org/Tiny]\ndate: 2024-05-01\nsrc: lab\nconfig: {hidden_size: 64}\n",
    "efficiency/all.yaml": """
id: all
level: universal
laws:
  gemm.bf16:
    parameters: {compute_frac: 0.7, memory_frac: 0.8, smooth_count: 4, launch_s: 1.0e-6, edge_count: 1, row_count: 1}
    ape_p50: 0.1
    ape_p90: 0.3
    src: lab
  elementwise:
    parameters:
      default.memory_frac: 0.8
      default.unit_bytes_per_cycle: 100
      default.cached_bytes_per_cycle: 15
      default.launch_s: 2.0e-6
    ape_p50: 0.1
    ape_p90: 0.2
    src: lab
""",
    "efficiency/hopper.yaml": """
id: hopper
level: architecture
architecture: hopper
laws:
  gemm.bf16:
    parameters: {compute_frac: 0.75, memory_frac: 0.8, smooth_count: 4, launch_s: 1.0e-6, edge_count: 1, row_count: 1}
    ape_p50: 0.05
    ape_p90: 0.2
    src: lab
""",
    "efficiency/chip-a.yaml": """
id: chip-a-laws
level: device
device: chip-a
laws:
  gemm.bf16:
    parameters: {compute_frac: 0.8, memory_frac: 0.8, smooth_count: 4, launch_s: 1.0e-6, edge_count: 1, row_count: 1}
    ape_p50: 0.02
    ape_p90: 0.1
    src: lab
    tiles: [[128, 64]]
""",
    "labels.yaml": 'labels:\n  "Chip-A 80GB": chip-a\n  "mixed": {note: two kinds of chip}\n',
}


def write_files(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data", FILES)


@pytest.fixture
def catalog(data: Path) -> Catalog:
    return Catalog(Shelf(dump(resolve_extends(compile_folder(data)))))
