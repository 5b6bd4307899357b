"""What the script of Lambda's benchmark does that its tables do not say: how devices talk, which steps count."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from ridgeline.network import collective_time
from ridgeline.specs import Calibration, RankGroup, System
from ridgeline.validation.corpus import Row

LAMBDA = "lambda"

# All-reduce of 1 to 8 GB over four A100 with NCCL_P2P_DISABLE=1: 5.2 GB/s a device (225 over NVLink). Two cards on
# PCIe 3 that cannot copy to each other: 4.0 in an all-reduce, 5.7 for a plain copy. Nobody publishes it for PCIe 5.
_HOST_PATH_BYTES_PER_S = 5.2e9  # src: llm-insights-hardware
_MEASURED_RANKS_COUNT, _MEASURED_BYTES = 4, 8.59e9  # src: llm-insights-hardware
_MEASURED_UP_TO_BYTES_PER_S = 32e9  # src: pcie-base-spec (PCIe 4, 16 lanes)

# SQuAD 1.1 cut into sequences of 384 tokens at a stride of 128; runs read it twice and stop after 101 steps, of which
# the printed rate counts 100, whether they were run or not.
_SQUAD_SEQUENCES_COUNT = 88641  # src: lambda-bert-squad-log
_SQUAD_EPOCHS_COUNT = 2  # src: lambda-bert-squad-log
_SQUAD_COUNTED_STEPS_COUNT = 100  # src: lambda-bert-squad-log


def stages_in_host(row: Row, system: System) -> bool:
    """Whether devices of a row exchange through the host's memory, at a rate that somebody has measured.

    The first set of scripts exports NCCL_P2P_DISABLE=1 for every benchmark; the second one is not stored anywhere.
    Source: lambdal/deeplearning-benchmark, pytorch/scripts/benchmark_pytorch.sh.
    """
    if row.source != LAMBDA or (row.count("n_devices") or 1) < 2 or "v2 script set" in row.text("note"):
        return False
    link = system.chip.host_oneway_bytes_per_s
    return link is not None and link <= _MEASURED_UP_TO_BYTES_PER_S


def through_host(system: System, calibration: Calibration) -> System:
    """The machine for a library that may not copy from device to device: all of it is staged in the host's memory.

    The level gets the rate at which the law of PCIe gives what was measured. The benchmark's log of November 2022 shows
    steps of eight A100 that take 0.43 s longer than those of one, for a sum of 0.67 GB that NVLink has done in 6 ms.
    """
    plain = _staged(system, _HOST_PATH_BYTES_PER_S)
    group, size = RankGroup(size_count=_MEASURED_RANKS_COUNT, stride_count=1), _MEASURED_BYTES
    sent = 2 * (group.size_count - 1) / group.size_count * size
    got = sent / collective_time("all_reduce", size, group, plain, calibration).time_s
    return _staged(system, _HOST_PATH_BYTES_PER_S**2 / got)


def _staged(system: System, oneway_bytes_per_s: float) -> System:
    inner = replace(
        system.levels[0],
        kind="pcie",
        oneway_bytes_per_s=oneway_bytes_per_s,
        in_switch_reduction=False,
        oversubscription=1.0,
        full_rate_count=None,
        axes=(),
    )
    return replace(system, levels=(inner, *system.levels[1:]))


def counted_frac(row: Row) -> float:
    """Samples that the rate of a row counts, over those that were processed; 1 for every other benchmark.

    >>> cells = {"id": "lambda-000", "family": "bert", "n_devices": "8", "micro_batch": "320"}
    >>> round(counted_frac(Row(cells, 2)), 3), round(counted_frac(Row(cells | {"n_devices": "1"}, 2)), 3)
    (1.444, 0.99)
    """
    devices, micro = row.count("n_devices"), row.count("micro_batch")
    if row.source != LAMBDA or row.text("family") != "bert" or not devices or not micro:
        return 1.0
    shard = ceil(_SQUAD_SEQUENCES_COUNT / devices)
    processed = min((_SQUAD_COUNTED_STEPS_COUNT + 1) * micro, _SQUAD_EPOCHS_COUNT * shard)
    return _SQUAD_COUNTED_STEPS_COUNT * micro / processed
