"""Which facts each kind of record may carry, of which dimension, and which field of the spec they fill.

The key of a fact has no unit (the unit stands in the value); the field of the spec has. Facts that fill no spec field
are kept all the same, and anything that is not listed here goes under `more` in the file, where keys are free.
"""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "text"
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4")
# Rates of units other than the fastest matrix unit: kept apart so that nobody takes one for the other.
PEAK_VARIANTS = ("fp64_matrix", "fp32_matrix", "fp16_vector")


@dataclass(frozen=True, slots=True)
class Field:
    """One allowed fact: its dimension (a key of `units.DIMENSIONS`, or "text") and the spec field that it fills."""

    dimension: str
    spec: str = ""
    plausible: tuple[float, float] = (0.0, float("inf"))


def _peaks() -> dict[str, Field]:
    names = (*PRECISIONS, *PEAK_VARIANTS)
    dense = {f"peak_dense.{name}": Field("flop_rate", plausible=(1e8, 3e17)) for name in names}
    sparse = {f"peak_sparse.{name}": Field("flop_rate", plausible=(1e8, 3e17)) for name in names}
    return dense | sparse


DEVICE_FIELDS: dict[str, Field] = {
    "year": Field("count", "year_count", (1990, 2040)),
    **_peaks(),
    "memory_type": Field(TEXT, "memory_type"),
    "memory_capacity": Field("bytes", "memory_capacity_bytes", (1e6, 3e15)),
    "memory_usable": Field("bytes", "memory_usable_bytes", (1e6, 3e15)),
    "memory_bandwidth": Field("bandwidth", "memory_bandwidth_bytes_per_s", (1e8, 3e16)),
    "unit_count": Field("count", "unit_count", (1, 2e6)),
    "clock": Field("frequency", "clock_hz", (1e7, 1e10)),
    "matrix_clock": Field("frequency", plausible=(1e7, 1e10)),
    "l2": Field("bytes", "l2_bytes", (1e4, 1e11)),
    "tdp": Field("power", "tdp_w", (0.01, 5e4)),
    "idle": Field("power", "idle_w", (0.001, 5e3)),
    "scale_up_link": Field(TEXT, "scale_up_link"),
    "scale_up_oneway": Field("bandwidth", "scale_up_oneway_bytes_per_s", (1e8, 1e14)),
    "scale_up_pair_oneway": Field("bandwidth", plausible=(1e8, 1e14)),
    "scale_up_domain": Field("count", "scale_up_domain_count", (2, 1e5)),
    "host_link": Field(TEXT, "host_link"),
    "host_oneway": Field("bandwidth", "host_oneway_bytes_per_s", (1e7, 1e13)),
    "operating_temperature": Field("temperature", plausible=(273.0, 400.0)),
    "slowdown_temperature": Field("temperature", "slowdown_temperature_k", (273.0, 400.0)),
    "shutdown_temperature": Field("temperature", plausible=(273.0, 420.0)),
    "memory_temperature": Field("temperature", plausible=(273.0, 400.0)),
}
LINK_FIELDS: dict[str, Field] = {
    "oneway": Field("bandwidth", "oneway_bytes_per_s", (1e7, 1e14)),
    "achieved_oneway": Field("bandwidth", "achieved_oneway_bytes_per_s", (1e7, 1e14)),
    "pair_oneway": Field("bandwidth", plausible=(1e7, 1e14)),
    "latency": Field("time", "latency_s", (1e-8, 1.0)),
    "generation": Field("count", plausible=(1, 20)),
    "lanes": Field("count", plausible=(1, 64)),
    "links": Field("count", plausible=(1, 256)),
    "domain": Field("count", plausible=(2, 1e5)),
}
# Facts of a system stand at fixed places in its file; the key is the path.
SYSTEM_FIELDS: dict[str, Field] = {
    "node_power": Field("power", "node_power_w", (0.1, 1e6)),
    "node_idle": Field("power", "node_idle_w", (0.01, 1e6)),
    "max_devices": Field("count", "max_devices_count", (1, 1e7)),
}
HOST_FIELDS: dict[str, Field] = {
    "cpu": Field(TEXT, "cpu"),
    "sockets": Field("count", "socket_count", (0, 64)),
    "memory": Field("bytes", "memory_bytes", (1e8, 1e15)),
    "memory_bandwidth": Field("bandwidth", "memory_bandwidth_bytes_per_s", (1e8, 1e14)),
    "storage_bandwidth": Field("bandwidth", "storage_bytes_per_s", (1e6, 1e14)),
}
LEVEL_FIELDS: dict[str, Field] = {
    "oneway": Field("bandwidth", "oneway_bytes_per_s", (1e6, 1e14)),
    "latency": Field("time", "latency_s", (1e-8, 1.0)),
}
LEVEL_KINDS = ("switch", "mesh", "torus2d", "torus3d", "pcie", "fat-tree", "ethernet", "ring", "package")
PRICE_TERMS = ("on-demand", "reserved-1y", "reserved-3y", "reserved", "spot", "capacity-block", "purchase")
LAW_LEVELS = ("device", "architecture", "universal", "published")
DEVICE_KINDS = ("gpu", "tpu", "asic", "npu", "cpu", "edge", "fpga", "neuromorphic", "photonic", "quantum")
# Kernel families: devices of one architecture run the same kernels, so that a law fitted on one carries over.
ARCHITECTURES = (
    "pascal",
    "volta",
    "turing",
    "ampere",
    "ada",
    # GeForce boards of that generation: half the matrix rate a clock (FP32 accumulation), so power and operand feed do
    # not bind as on the full-rate parts that the law of "ada" is fitted on; they take the universal laws.
    "ada-geforce",
    "hopper",
    "blackwell",
    "blackwell-consumer",
    "maxwell",
    "cdna1",
    "cdna2",
    "cdna3",
    "cdna4",
    "xe",
    "gaudi",
    "tpu",
    "edge-tpu",
    "neuron",
    "cpu",
    "apple",
    "fpga",
    "wafer",
    "ipu",
    "lpu",
    "rdu",
    "hailo",
    "qaic",
    "vpu",
    "goya",
    "neuromorphic",
    "photonic",
    "quantum",
    "other",
)
