"""Running a layered network: what is left after fusion, floors of an engine, batches and devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.errors import BadPlan, MissingFact
from ridgeline.serving.network import NetworkServingJob, estimate_network
from ridgeline.specs import EngineProfile
from ridgeline.workload.convnets.builder import start
from ridgeline.workload.convnets.catalogue import network
from ridgeline.workload.network_inference import Execution, network_inference_ops
from ridgeline.workload.ops import Convolve, Elementwise

CATALOG = load_catalog()
SYSTEM = CATALOG.system("dgx-a100")


def job(**changes: object) -> NetworkServingJob:
    base = NetworkServingJob(
        network=network("resnet50"),
        batch_count=64.0,
        precision="fp16",
        system=SYSTEM,
        calibration=CATALOG.calibration(SYSTEM.chip.id),
        engine=CATALOG.engine("tensorrt"),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_fused_engines_leave_convolutions_and_one_more_read_of_the_shortcut() -> None:
    """conv - norm - relu - conv - norm - add - relu, 16 x 8 x 8 in 16 bit, batch 4: 8,192 bytes a pass.

    Fused: two convolutions and the shortcut read once. Eager: 2 norms and 2 activations of 2 passes, addition of 3.
    """
    net = start(8, 16)
    first = net.block(-1, 16, 3)
    net.act(net.sum(net.normalise(net.conv(first, 16, 3)), first))
    made = net.done("block", "test")
    for fused, passes, kernels in ((True, 1, 0), (False, 11, 5)):
        ops = [item.op for item in network_inference_ops(made, 4.0, Execution(precision="fp16", fused=fused))]
        between = [op for op in ops if isinstance(op, Elementwise)]
        assert sum(isinstance(op, Convolve) for op in ops) == 2
        assert sum(op.bytes for op in between) == passes * 8192
        assert sum(op.launches_count for op in between) == kernels


def test_the_tree_adds_up() -> None:
    estimate = estimate_network(job(devices_count=8))
    assert estimate.time.check() == []
    assert estimate.latency_s.best == pytest.approx(estimate.time.value)
    assert estimate.samples_per_s.best == pytest.approx(8 * 64 / estimate.latency_s.best)
    assert estimate.fits
    assert 0 < estimate.device_busy_frac <= 1


def test_narrow_formats_and_fusion_are_faster() -> None:
    eager = replace(job().engine, fused_epilogues=False)
    times = [
        estimate_network(job(**changes)).latency_s.best
        for changes in ({"precision": "int8"}, {}, {"engine": eager}, {"precision": "tf32", "engine": eager})
    ]
    assert times == sorted(times)


def test_floors_bind_single_images_and_graphs_lift_them() -> None:
    engine = EngineProfile(id="slow", graphs=False, kernel_floor_s=1e-3)
    one = estimate_network(job(batch_count=1.0, engine=engine))
    kernels = sum(
        item.op.launches_count if isinstance(item.op, Elementwise) else 1.0
        for item in network_inference_ops(network("resnet50"), 1.0, Execution(precision="fp16", fused=False))
    )
    assert one.latency_s.best == pytest.approx(kernels * 1e-3, rel=1e-3)
    assert one.time.value_of("kernel floors") > 0.9 * one.latency_s.best
    free = estimate_network(job(batch_count=1.0, engine=replace(engine, graphs=True)))
    assert free.time.value_of("kernel floors") == 0


def test_host_time_hides_behind_a_busy_device() -> None:
    engine = replace(job().engine, host_step_s=1e-3)
    waited = estimate_network(job(engine=engine))
    loaded = estimate_network(job(engine=engine, sustained=True))
    assert waited.time.value_of("host") == pytest.approx(1e-3)
    assert loaded.time.value_of("host") == 0


def test_what_cannot_be_answered() -> None:
    with pytest.raises(BadPlan):
        estimate_network(job(batch_count=0.0))
    v100 = CATALOG.system("dgx-1v")
    with pytest.raises(MissingFact, match="int8"):
        estimate_network(job(system=v100, calibration=CATALOG.calibration(v100.chip.id), precision="int8"))
