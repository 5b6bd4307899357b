"""Measured rows as (kind, bytes, group, machine, seconds), with the link family that they calibrate."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ridgeline.network.collectives import ring_sent_frac
from ridgeline.specs import Chip, NetworkLevel, RankGroup, System

_KINDS = {"alltoall": "all_to_all", "psum (all_reduce)": "all_reduce", "send_recv": "send"}
# Newest NCCL table of each device folder: version, link, one-way B/s, devices in one domain, sums in the switch.
NCCL_TABLES = {
    "a100_sxm": ("2.27.3", "nvlink3", 300e9, 8, False),
    "h100_sxm": ("2.29.2", "nvlink4", 450e9, 8, True),
    "h200_sxm": ("2.29.2", "nvlink4", 450e9, 8, True),
    "b200_sxm": ("2.29.2", "nvlink5", 900e9, 8, True),
    "b300_sxm": ("2.29.2", "nvlink5", 900e9, 8, True),
    "gb200": ("2.29.2", "nvlink5", 900e9, 72, True),
    "gb300": ("2.29.2", "nvlink5", 900e9, 72, True),
    "rtx_pro_6000_server": ("2.29.2", "pcie5-x16", 63e9, 8, False),
    "l40s": ("2.27.3", "pcie4-x16", 31e9, 8, False),
}
# All-reduce over peer memory, as engines ship it: graph replay, newest version of each engine.
PEER_TABLES = {
    "a100_sxm": ("trtllm/1.0.0", "vllm/0.14.0", "sglang/0.5.10"),
    "h100_sxm": ("trtllm/1.3.0rc20", "vllm/0.24.0", "sglang/0.5.14"),
    "h200_sxm": ("trtllm/1.3.0rc20", "vllm/0.24.0", "sglang/0.5.14"),
    "b200_sxm": ("trtllm/1.3.0rc20", "vllm/0.24.0", "sglang/0.5.14"),
    "b300_sxm": ("trtllm/1.3.0rc20", "vllm/0.24.0", "sglang/0.5.14"),
    "gb200": ("trtllm/1.3.0rc20", "vllm/0.24.0", "sglang/0.5.14"),
    "gb300": ("trtllm/1.3.0rc20", "vllm/0.24.0", "sglang/0.5.14"),
}
# Above this size the engines hand the message to NCCL.
PEER_LIMIT_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `label` names the device, `source` the table."""

    kind: str
    message_bytes: float
    time_s: float
    group: RankGroup
    system: System
    label: str
    link: str
    source: str
    peer: bool = False

    @property
    def bus_bytes_per_s(self) -> float:
        """Bus bandwidth of nccl-tests."""
        return self.message_bytes / self.time_s * ring_sent_frac(self.kind, self.group.size_count)


def scale_up(link: str, oneway: float, size: int, in_switch: bool, kind: str = "switch") -> NetworkLevel:
    """A level inside one domain."""
    return NetworkLevel(
        name="scale-up",
        kind=kind,
        link=link,
        size_count=size,
        oneway_bytes_per_s=oneway,
        latency_s=1e-6,
        in_switch_reduction=in_switch,
    )


def rail(link: str, oneway: float, transport: str = "rdma") -> NetworkLevel:
    """A level between nodes; `oneway` is per device."""
    return NetworkLevel(
        name="rail",
        kind="fat-tree",
        link=link,
        size_count=None,
        oneway_bytes_per_s=oneway,
        latency_s=5e-6,
        transport=transport,
    )


def machine(name: str, *levels: NetworkLevel) -> System:
    """A machine of these levels."""
    return System(
        id=name,
        name=name,
        chip=Chip(id=name),
        devices_per_node_count=levels[0].size_count or 1,
        levels=levels,
    )


def load(shared: Path, package: Path | None) -> list[Row]:
    """All rows."""
    data = _package_data(package)
    published = _facts(shared / "facts/collectives.csv")
    return [*_nccl(data), *_peer(data), *published, *_points(), *_vidur(shared / "corpus")]


def _package_data(package: Path | None) -> Path:
    if package is not None:
        return package / "aiconfigurator_core/systems/data"
    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        raise SystemExit("aiconfigurator-core is not installed: pip install 'ridgeline[silicon,fit]', or --package DIR")
    return Path(spec.origin).parent / "systems/data"


def _machine_of(device: str) -> System:
    _, link, oneway, size, in_switch = NCCL_TABLES[device]
    kind = "pcie" if link.startswith("pcie") else "switch"
    return machine(device, scale_up(link, oneway, size, in_switch, kind))


def _nccl(data: Path) -> Iterator[Row]:
    import pandas as pd

    for device, (version, link, _, _, _) in NCCL_TABLES.items():
        system = _machine_of(device)
        table = pd.read_parquet(data / f"{device}/comm/nccl/{version}/nccl_perf.parquet")
        for item in table[table.nccl_dtype == "half"].itertuples():
            kind = _KINDS.get(item.op_name, item.op_name)
            group = RankGroup(size_count=int(item.num_gpus))
            yield Row(kind, 2.0 * item.message_size, item.latency * 1e-3, group, system, device, link, "nccl-table")


def _peer(data: Path) -> Iterator[Row]:
    import pandas as pd

    for device, versions in PEER_TABLES.items():
        system = _machine_of(device)
        for version in versions:
            path = data / f"{device}/comm/{version}/custom_allreduce_perf.parquet"
            if not path.exists():
                continue
            table = pd.read_parquet(path)
            table = table[~table.kernel_source.str.contains("eager")]
            for item in table.itertuples():
                size = 2.0 * item.message_size
                # More than one tray of a rack: only one engine has kernels that reach there.
                beyond = device.startswith("gb") and item.num_gpus > 4
                if size <= PEER_LIMIT_BYTES and not beyond:
                    group = RankGroup(size_count=int(item.num_gpus))
                    label = f"{device} {version.split('/')[0]}"
                    link = NCCL_TABLES[device][1]
                    yield Row("all_reduce", size, item.latency * 1e-3, group, system, label, link, "peer-table", True)


# Rows of facts/collectives.csv that can be used: (device, fabric) -> (link, machine). Others are left out: acceptance
# thresholds (a lower bound, not a mean), one forced algorithm, metrics that are not those of nccl-tests.
_NV4 = scale_up("nvlink4", 450e9, 8, True)
_NV4_RING = scale_up("nvlink4", 450e9, 8, False)
_NV5 = scale_up("nvlink5", 900e9, 8, True)
_NV5_RING = scale_up("nvlink5", 900e9, 8, False)
_NVL72 = scale_up("nvlink5", 900e9, 72, True)
_NV3 = scale_up("nvlink3", 300e9, 8, False)
_FACTS: dict[tuple[str, str], tuple[str, System]] = {
    ("A100-SXM4 (NVLink3)", "NVLink3/NVSwitch"): ("nvlink3", machine("a100-sxm", _NV3)),
    ("H200-SXM", "NVLink4 (NCCL default: NVLS above 4 GPUs)"): ("nvlink4", machine("h200-sxm", _NV4)),
    ("H200-SXM", "NVLink4, NCCL_NVLS_ENABLE=0 (ring)"): ("nvlink4", machine("h200-sxm-ring", _NV4_RING)),
    ("H200-SXM", "NVLink4 NVLS off (ring)"): ("nvlink4", machine("h200-sxm-ring", _NV4_RING)),
    ("H200-SXM", "NVLink4 NVLS on"): ("nvlink4", machine("h200-sxm", _NV4)),
    ("H200-SXM", "NVLink4 ring"): ("nvlink4", machine("h200-sxm-ring", _NV4_RING)),
    ("H200-SXM (NVLink4)", "NVLink4/NVSwitch+NVLS"): ("nvlink4", machine("h200-sxm", _NV4)),
    ("B200-SXM (p6-b200)", "NVLink5 default"): ("nvlink5", machine("b200-sxm", _NV5)),
    ("B200-SXM (p6-b200)", "NVLink5, NVLS off (ring)"): ("nvlink5", machine("b200-sxm-ring", _NV5_RING)),
    ("B200-SXM (p6-b200.48xlarge)", "NVLink5/NVSwitch"): ("nvlink5", machine("b200-sxm", _NV5)),
    ("GB200 NVL72", "NVLink5 NVL72 single rack (72 GPUs)"): ("nvlink5", machine("gb200-nvl72", _NVL72)),
    ("GB200 NVL72", "2 racks NVL72 + Quantum-X800/NDR IB (144 GPUs)"): (
        "ib-ndr",
        machine("gb200-nvl72-ib", _NVL72, rail("ib-ndr", 50e9)),
    ),
    ("GB200 NVL72", "20 racks NVL72 + IB (1440 GPUs)"): (
        "ib-ndr",
        machine("gb200-nvl72-ib", _NVL72, rail("ib-ndr", 50e9)),
    ),
    ("H100-SXM", "NDR InfiniBand 8x400Gb/s + SHARP (nccl-test-distributed-h100-64-sharp example)"): (
        "ib-ndr",
        machine("h100-ib", _NV4, rail("ib-ndr", 50e9)),
    ),
    ("A100-SXM4-40GB", "HDR InfiniBand 4x200Gb/s"): ("ib-hdr", machine("a100-hdr", _NV3, rail("ib-hdr", 12.5e9))),
    ("A100-80GB (p4de.24xlarge)", "EFAv1 4x100Gb/s"): (
        "efa-v1-p4d",
        machine("p4de", _NV3, rail("efa-v1-p4d", 6.25e9, "efa")),
    ),
    ("H100-80GB (p5.48xlarge)", "EFAv2 32x100Gb/s"): (
        "efa-v2-p5",
        machine("p5", _NV4, rail("efa-v2-p5", 50e9, "efa")),
    ),
    ("H100-80GB (p5.48xlarge, EKS, NCCL 2.18.5)", "EFAv2 32x100Gb/s"): (
        "efa-v2-p5",
        machine("p5", _NV4, rail("efa-v2-p5", 50e9, "efa")),
    ),
    ("H200-SXM (p5en.48xlarge)", "EFAv3 16x200Gb/s, ring"): (
        "efa-v3-p5en-trn2",
        machine("p5en", _NV4_RING, rail("efa-v3-p5en-trn2", 50e9, "efa")),
    ),
    ("B200-SXM (p6-b200.48xlarge)", "EFAv4 8x400Gb/s per node"): (
        "efa-v4-p6-b200",
        machine("p6-b200", _NV5, rail("efa-v4-p6-b200", 50e9, "efa")),
    ),
    ("H100-SXM x8 nodes", "8x400Gb (mlx5, RoCE GID index set)"): (
        "roce-400gbe",
        machine("h100-roce", _NV4, rail("roce-400gbe", 50e9)),
    ),
    ("MI300X", "xGMI"): ("xgmi-mi300x", machine("mi300x", scale_up("xgmi-mi300x", 448e9, 8, False, "mesh"))),
}
# torch's all_reduce_bench.py times a call from the host: below this size it shows the launch, not the kernel.
_HOST_TIMED_FROM_BYTES = 16 * 2**20


def _facts(path: Path) -> Iterator[Row]:
    with path.open() as stream:
        for item in csv.DictReader(stream):
            place = _FACTS.get((item["device"], item["fabric"]))
            if place is None or not item["message_bytes"] or float(item["busbw_GBps"]) <= 0.02:
                continue
            size = float(item["message_bytes"])
            between = float(item["nodes"]) > 1 and place[0].startswith(("ib", "efa", "roce"))
            if not between and size < _HOST_TIMED_FROM_BYTES:
                continue
            kind = _KINDS.get(item["collective"], item["collective"])
            group = RankGroup(size_count=int(item["gpus_total"]))
            bus = float(item["busbw_GBps"]) * 1e9
            time_s = size * ring_sent_frac(kind, group.size_count) / bus
            label = f"{item['device']}, {item['fabric']}"
            yield Row(kind, size, time_s, group, place[1], label, place[0], "published")


_POINTS = {
    "h100-one-a-node": (machine("h100-ib", _NV4, rail("ib-ndr", 50e9)), 8),
    "a100-one-a-node": (machine("a100-hdr", _NV3, rail("ib-hdr", 25e9)), 8),
    "h20": (machine("h20-ib", _NV4, rail("ib-ndr", 50e9)), 1),
    "p4d": (machine("p4de", _NV3, rail("efa-v1-p4d", 6.25e9, "efa")), 1),
}


def _points() -> Iterator[Row]:
    """Single published rows between nodes, with the thread that each stands in."""
    with (Path(__file__).parent / "points.csv").open() as stream:
        for item in csv.DictReader(stream):
            system, stride = _POINTS[item["layout"]]
            group = RankGroup(size_count=int(item["ranks"]), stride_count=stride)
            source = "old" if "not fitted" in item["note"] else "published"
            time_s = float(item["time_us"]) * 1e-6
            label = f"{item['layout']}, {item['source']}"
            yield Row(item["kind"], float(item["message_bytes"]), time_s, group, system, label, item["link"], source)


# System of the table -> (link, machine, devices at least, bytes at least). In a server of bridged pairs a ring of four
# crosses PCIe twice, which is its slowest part; small messages there are too noisy to fit.
_VIDUR = {
    "a100_dgx": ("nvlink3", machine("a100-sxm", _NV3), 2, 0.0),
    "h100_dgx": ("nvlink4", machine("h100-sxm", _NV4), 2, 0.0),
    "a100_pairwise_nvlink": ("pcie4-x16", machine("a100-pcie", scale_up("pcie4-x16", 31e9, 8, False, "pcie")), 4, 4e6),
    "h100_pairwise_nvlink": ("pcie5-x16", machine("h100-pcie", scale_up("pcie5-x16", 63e9, 8, False, "pcie")), 4, 4e6),
}


def _vidur(folder: Path) -> Iterator[Row]:
    with (folder / "vidur_collectives.csv").open() as stream:
        for item in csv.DictReader(stream):
            place = _VIDUR.get(item["system"])
            if place is None or item["num_workers"] != item["devices_per_node"]:
                continue
            link, system, least, size = place
            if int(item["num_workers"]) < least or float(item["size"]) < size:
                continue
            kind = _KINDS.get(item["collective"], item["collective"])
            group = RankGroup(size_count=int(item["num_workers"]))
            time_s = float(item["median_ms_max_over_ranks"]) * 1e-3
            yield Row(kind, float(item["size"]), time_s, group, system, item["system"], link, "vidur")
