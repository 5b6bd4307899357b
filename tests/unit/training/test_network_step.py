"""A training step of a layered network: the tree adds up, hand-counted traffic, what data parallelism adds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.errors import BadPlan
from ridgeline.specs import SoftwareProfile
from ridgeline.training.network_step import (
    NetworkTrainingJob,
    estimate_network_step,
    largest_batch_count,
    network_memory,
)
from ridgeline.workload.convnets.builder import start
from ridgeline.workload.convnets.catalogue import network
from ridgeline.workload.network_training import network_training_ops, transposes
from ridgeline.workload.ops import Convolve, Elementwise

CATALOG = load_catalog()
SYSTEM = CATALOG.system("dgx-a100")


def job(**changes: object) -> NetworkTrainingJob:
    base = NetworkTrainingJob(
        network=network("resnet50"),
        devices_count=1,
        batch_count=256.0,
        precision="fp16",
        system=SYSTEM,
        calibration=CATALOG.calibration(SYSTEM.chip.id),
        software=CATALOG.software("pytorch-ddp-1.9"),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_the_tree_adds_up_and_the_headline_is_its_total() -> None:
    estimate = estimate_network_step(job(devices_count=8))
    assert estimate.time.check() == []
    assert estimate.memory.check() == []
    assert estimate.step_s.best == pytest.approx(estimate.time.value)
    assert estimate.samples_per_s == pytest.approx(8 * 256 / estimate.step_s.best)
    assert 0 < estimate.mfu_frac < 1
    # 3 x 2 x 4.089e9 multiply-adds an image
    assert estimate.model_flop_per_s_per_device * estimate.step_s.best == pytest.approx(256 * 6 * 4.089e9, rel=1e-3)


def test_traffic_of_one_block_by_hand() -> None:
    """conv - norm - relu on 16 x 8 x 8 in 16 bit, batch 4: 8,192 bytes a pass.

    Eager forward: norm 3, relu 2; backward: relu 3, norm 5. Fused: norm 3 forward and 5 backward, nothing else.
    """
    net = start(8, 16)
    net.block(-1, 16, 3)
    made = net.done("block", "test")
    for fusion, forward, backward in (("none", 5, 8), ("norm", 3, 5)):
        ops = network_training_ops(made, 4.0, "fp16", SoftwareProfile(id="x", network_fusion=fusion))  # type: ignore[arg-type]
        moved = [sum(i.op.bytes for i in part if isinstance(i.op, Elementwise)) for part in (ops.forward, ops.backward)]
        assert moved == [forward * 8192, backward * 8192]
        directions = [i.op.direction for i in (*ops.forward, *ops.backward) if isinstance(i.op, Convolve)]
        assert directions == ["forward", "weight-gradient"]  # nobody needs the gradient of the image


def test_layouts() -> None:
    last, first = SoftwareProfile(id="a"), SoftwareProfile(id="b", channels_last=False)
    assert [transposes(p, last) for p in ("fp16", "tf32", "fp32")] == [False, True, False]
    assert [transposes(p, first) for p in ("fp16", "tf32", "fp32")] == [True, True, False]
    slower = estimate_network_step(job(software=replace(job().software, channels_last=False)))
    assert slower.step_s.best > 1.2 * estimate_network_step(job()).step_s.best


def test_more_devices_exchange_gradients_and_are_no_faster_each() -> None:
    one, many = estimate_network_step(job()), estimate_network_step(job(devices_count=16))
    assert one.time.value_of("gradient exchange") == 0
    assert many.time.value_of("gradient exchange") > 0
    assert many.step_s.best > one.step_s.best


def test_host_and_input_are_roofs() -> None:
    tiny = estimate_network_step(job(batch_count=1.0))
    assert tiny.time.value_of("host launches") > 0
    starved = estimate_network_step(job(input_sample_s=1e-3))
    assert starved.step_s.best == pytest.approx(0.256)
    with pytest.raises(BadPlan):
        estimate_network_step(job(batch_count=0.0))


def test_memory_grows_with_the_batch_and_bounds_it() -> None:
    half, whole = network_memory(job(batch_count=128.0)).value, network_memory(job()).value
    assert half < whole < 2 * half
    most = largest_batch_count(job())
    assert network_memory(job(batch_count=float(most))).value <= SYSTEM.chip.memory_bytes()
    assert network_memory(job(batch_count=float(most + 8))).value > SYSTEM.chip.memory_bytes()


def test_old_depthwise_kernels_are_slower() -> None:
    mobile = job(network=network("mobilenet-v2"), software=CATALOG.software("pytorch-ddp-1.9"))
    newer = replace(mobile, software=replace(mobile.software, depthwise_frac=1.0))
    assert estimate_network_step(mobile).step_s.best > estimate_network_step(newer).step_s.best


def test_engines_side_by_side_hide_the_shorter() -> None:
    software = CATALOG.software("pytorch-ddp-1.9")
    apart, beside = (
        estimate_network_step(job(software=replace(software, engines_overlap=overlap))).time
        for overlap in (False, True)
    )
    assert beside.value < apart.value
    assert beside.value > 0.5 * apart.value


def test_channels_first_are_transposed_at_their_own_rate() -> None:
    software = SoftwareProfile(id="b", channels_last=False)
    net = start(8, 16)
    net.block(-1, 16, 3)
    ops = network_training_ops(net.done("block", "test"), 4.0, "fp16", software)
    kinds = {item.op.kind for item in (*ops.forward, *ops.backward) if isinstance(item.op, Elementwise)}
    assert "transpose" in kinds
