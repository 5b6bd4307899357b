"""The scaling curve: sizes that run, the knee, and its cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ridgeline.search import Machine, TrainingRequest
from ridgeline.search.explain import Term
from ridgeline.search.scaling import ScalePoint, knee_of, scaling_curve
from ridgeline.specs import Calibration, SoftwareProfile, System, Transformer

Make = Callable[..., Transformer]
SOFTWARE = SoftwareProfile(id="plain", attention="fa2", bucket_bytes=4e6)
REQUEST = {"tokens_count": 1e9, "sequence_tokens": 2048, "global_batch_count": 32, "precision": "bf16"}


def machines(system: System, calibration: Calibration, sizes: tuple[int, ...]) -> list[Machine]:
    return [Machine(system=system, devices_count=size, calibration=calibration, software=SOFTWARE) for size in sizes]


def point(devices: int, rate: float, **times_s: float) -> ScalePoint:
    terms = tuple(Term(name, time_s) for name, time_s in times_s.items())
    return ScalePoint(devices_count=devices, plan=None, tokens_per_s=rate, step_s=sum(times_s.values()), terms=terms)


def test_a_curve_that_stays_straight_has_no_knee() -> None:
    assert knee_of([point(8, 8.0, work=1.0), point(16, 14.0, work=0.5, exchange=0.07)]) == (None, "", 0.0)


def test_the_knee_is_named_by_what_grows_in_device_time() -> None:
    # from 16 to 32: 14 to 18, less than half of the 14 that the added devices would bring
    curve = [
        point(8, 8.0, work=1.0),
        point(16, 14.0, work=0.5, exchange=0.07),
        point(32, 18.0, work=0.3, exchange=0.14),
    ]
    knee, cause, grown = knee_of(curve)
    assert (knee, cause) == (16, "exchange")
    assert grown == pytest.approx((32 * 0.14 - 16 * 0.07) / (16 * 0.57))


def test_a_small_batch_bends_the_curve(machine: System, calibration: Calibration, make_gpt: Make) -> None:
    request = TrainingRequest(model=make_gpt(8, 2048, 16), **REQUEST)  # type: ignore[arg-type]
    told: list[str] = []
    curve = scaling_curve(request, machines(machine, calibration, (8, 16, 32, 64, 128)), told.append)
    assert len(told) == 5
    assert [item.devices_count for item in curve.points] == [8, 16, 32, 64, 128]
    assert all(item.plan is not None and item.plan.devices_count == item.devices_count for item in curve.points)
    shares = [curve.efficiency_frac(item) for item in curve.points]
    assert shares[0] == 1
    assert shares[-1] < 0.5
    assert curve.knee_devices_count in (16, 32, 64)
    assert curve.cause
    data = curve.to_dict()
    assert data["knee_devices"] == curve.knee_devices_count
    assert [item["feasible"] for item in data["points"]] == [True] * 5


def test_sizes_that_do_not_run_say_why(machine: System, calibration: Calibration, make_gpt: Make) -> None:
    request = TrainingRequest(model=make_gpt(8, 2048, 16), **REQUEST)  # type: ignore[arg-type]
    tight = replace(machine, chip=replace(machine.chip, memory_capacity_bytes=2.2e9))
    curve = scaling_curve(request, machines(tight, calibration, (1, 64)))
    assert curve.points[0].plan is None
    assert "memory" in curve.points[0].reason
    assert curve.points[1].plan is not None
    assert curve.efficiency_frac(curve.points[1]) == 1


def test_an_interrupt_leaves_the_sizes_before_it(machine: System, calibration: Calibration, make_gpt: Make) -> None:
    request = TrainingRequest(model=make_gpt(8, 2048, 16), **REQUEST)  # type: ignore[arg-type]

    def stop(text: str) -> None:
        if text.endswith(" 32"):
            raise KeyboardInterrupt

    curve = scaling_curve(request, machines(machine, calibration, (8, 16, 32, 64)), stop)
    assert [item.devices_count for item in curve.points] == [8, 16]
    assert curve.unsearched == ("machine x 32", "machine x 64")
