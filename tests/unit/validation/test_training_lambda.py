"""Lambda's benchmark: which rows exchange through the host's memory, and what their rates count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.network import collective_time
from ridgeline.specs import Calibration, RankGroup, System
from ridgeline.validation.corpus import Row
from ridgeline.validation.training_lambda import counted_frac, stages_in_host, through_host

CELLS = {"id": "lambda-104", "family": "bert", "n_devices": "8", "micro_batch": "16", "note": ""}


def a_row(**cells: str) -> Row:
    return Row(CELLS | cells, 2)


def a_system(machine: System, link_bytes_per_s: float | None) -> System:
    return replace(machine, chip=replace(machine.chip, host_oneway_bytes_per_s=link_bytes_per_s))


def test_only_measured_hosts_of_the_first_scripts_stage_copies(machine: System) -> None:
    old = a_system(machine, 31e9)
    assert stages_in_host(a_row(), old)
    assert not stages_in_host(a_row(n_devices="1"), old)
    assert not stages_in_host(a_row(id="dle-104"), old)
    assert not stages_in_host(a_row(note="v2 script set; batch not listed"), old)
    assert not stages_in_host(a_row(), a_system(machine, 63e9))
    assert not stages_in_host(a_row(), a_system(machine, None))


def test_a_sum_through_the_host_runs_at_the_measured_rate(machine: System, calibration: Calibration) -> None:
    group = RankGroup(size_count=4, stride_count=1)
    size = 2e9
    direct, staged = (
        collective_time("all_reduce", size, group, system, calibration).time_s
        for system in (machine, through_host(machine, calibration))
    )
    assert staged > 10 * direct
    # 5.2 GB/s a device as nccl-tests count it: 2 (n - 1) / n of the buffer
    assert size * 1.5 / staged == pytest.approx(5.2e9, rel=0.03)


def test_rates_count_a_hundred_steps_whatever_was_run() -> None:
    assert counted_frac(a_row()) == pytest.approx(100 / 101)
    # 88641 sequences on eight devices: 11081 a device and epoch, two of them in place of 100 x 320
    assert counted_frac(a_row(micro_batch="320")) == pytest.approx(32000 / 22162)
    assert counted_frac(a_row(family="cnn")) == counted_frac(a_row(id="dle-001")) == 1.0
