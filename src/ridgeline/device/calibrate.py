"""A chip's own kernels: a few measured points move the parameters of its laws, as far as the laws' spread allows.

The law that would be used without the points is the prior: its parameters are log-normal round their values, with the
spread that the fitted devices show among each other. What comes out is a law of level "calibrated" whose stated error
is that on points left out; where that is no better than before, the prior stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ridgeline.core import FrozenMap
from ridgeline.core.fitting import Array, ShiftFit, fit_shifts
from ridgeline.device.context import KernelContext
from ridgeline.device.optime import LAW_PRECISION, attention_law, gemm_law, op_time
from ridgeline.device.rates import find_law
from ridgeline.specs import Calibration, Chip, Law
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, ComputeOp, Gemm

CALIBRATED = "calibrated"
# Parameters that points may move; what is a property of the form (tiles, exponents, ratios) stays.
FREE = (
    *("launch_cycles", "ramp_cycles", "compute_frac", "memory_frac", "feed_flop_per_byte", "wave_k_count", "split_s"),
    *("cache_bytes_per_cycle", "launch_s", "block_cycles", "score_cycles", "feed_bytes_per_cycle", "cache_gain"),
    *("head_s", "unit_bytes_per_cycle", "cached_bytes_per_cycle"),
    *("low_base_s", "low_hop_s", "low_frac", "high_base_s", "high_hop_s", "high_frac", "half_bytes"),
    *("switch_base_s", "switch_frac"),
)
_NORMAL_HALF = 0.6745  # src: normal-quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPoint:
    """One measured kernel: the operation, its time, and how it was run.

    `copies_count`: other copies of the weights that passed through the cache before the same ones were read again (0:
    the same operands again and again; inf: always from memory). `family`: kernels of attention ("": those that the chip
    prefers).
    """

    op: ComputeOp
    time_s: float
    copies_count: float = 0.0
    family: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is known of a law before the points: log spread of its parameters, and the noise of its form."""

    spread: FrozenMap[str, float]
    noise_sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """One law before and after: `law` is what to use; `moved` says whether the points moved it.

    `before` and `after` are median and 90th-percentile error on the points: with the prior, and with the fit from which
    the point at hand was left out. `factors`: what each parameter was multiplied by, `sigmas` what that is still in
    doubt by (log). `middle_ratio`: measured over predicted time with the prior, in the middle of the points.
    """

    key: str
    prior: Law
    law: Law
    moved: bool
    points_count: int
    before: tuple[float, float]
    after: tuple[float, float]
    factors: FrozenMap[str, float]
    sigmas: FrozenMap[str, float]
    middle_ratio: float


def law_key_of(point: KernelPoint, chip: Chip, calibration: Calibration) -> tuple[str, Law]:
    """Key of the law that times `point`, and that law; for products the key of their own precision."""
    op = point.op
    if isinstance(op, Gemm):
        law, _ = gemm_law(calibration, chip, op.math_precision)
        own = f"gemm.{LAW_PRECISION.get(op.math_precision, op.math_precision)}"
        return own, _in_precision(law, own, chip, op.math_precision)
    if isinstance(op, AttentionPrefill):
        return attention_law(calibration, chip, "prefill", point.family, op.precision)
    if isinstance(op, AttentionDecode):
        return attention_law(calibration, chip, "decode", point.family, op.kv_precision)
    return find_law(calibration, chip, ("elementwise",), "a law for element-wise work")


def _in_precision(law: Law, key: str, chip: Chip, precision: str) -> Law:
    """The law of another precision as one of `key`: a unit takes in the same bytes a cycle, at another peak."""
    own = law.kind.partition(".")[2]
    if law.kind == key or "feed_flop_per_byte" not in law.parameters or not (own and chip.has_peak(own)):
        return replace(law, kind=key)
    feed = law.parameters["feed_flop_per_byte"] * chip.peak(precision) / chip.peak(own)
    return replace(law, kind=key, parameters=FrozenMap({**law.parameters, "feed_flop_per_byte": feed}))


def kernel_s(point: KernelPoint, chip: Chip, key: str, law: Law) -> float:
    """Time that `law`, filed under `key`, gives for the operation of `point` [s]."""
    family = key.split(".")[1] if key.startswith("attention") and "." in key else ""
    copies = math.inf if math.isinf(point.copies_count) else point.copies_count + 1.0
    context = KernelContext(weight_copies_count=copies, attention=family)
    return op_time(point.op, chip, Calibration(chip=chip.id, laws=FrozenMap({key: law})), context).time_s


def free_parameters(law: Law) -> tuple[str, ...]:
    """Names of the parameters of `law` that points may move; those of kinds of kernels move together."""
    names = {name.rpartition(".")[2] for name, value in law.parameters.items() if value > 0}
    return tuple(name for name in FREE if name in names)


def shifted(law: Law, names: Sequence[str], shift: Array) -> Law:
    """`law` with its parameters `names` multiplied by exp(shift); no share exceeds 1.

    >>> law = Law(kind="gemm", level="published", parameters=FrozenMap({"compute_frac": 0.5, "launch_s": 1e-6}),
    ...           ape_p50_frac=0.1, ape_p90_frac=0.3, fact="x")
    >>> shifted(law, ("compute_frac",), np.array([5.0])).parameters["compute_frac"]
    1.0
    """
    factors = dict(zip(names, np.exp(shift), strict=True))
    parameters = dict(law.parameters)
    for full, value in law.parameters.items():
        name = full.rpartition(".")[2]
        if name in factors:
            moved = value * float(factors[name])
            parameters[full] = min(1.0, moved) if name.endswith("_frac") else moved
    return replace(law, parameters=FrozenMap(parameters))


Times = tuple[Callable[[Law], Sequence[float]], Sequence[float]]


def fit_law(key: str, law: Law, prior: Prior, times: Times) -> LawFit:
    """What points make of one law. `times`: (predicted times under a law, measured times), in one order [s].

    A parameter whose spread among devices is not known may be off by the error that the law states.
    """
    predicted_s, measured_s = times
    names = free_parameters(law)
    spread = np.array([prior.spread.get(name, law.sigma) for name in names])
    found = fit_shifts(
        lambda shift: np.log(np.asarray(predicted_s(shifted(law, names, shift)), dtype=np.float64)),
        np.log(np.asarray(measured_s, dtype=np.float64)),
        spread,
        prior.noise_sigma,
    )
    before, after = _errors(found.prior_residual), _errors(found.left_out_residual)
    moved = _mean_error(found.left_out_residual) < _mean_error(found.prior_residual)
    calibrated = replace(
        shifted(law, names, found.shift), kind=key, level=CALIBRATED, ape_p50_frac=after[0], ape_p90_frac=after[1]
    )
    return LawFit(
        key=key,
        prior=law,
        law=calibrated if moved else law,
        moved=moved,
        points_count=len(measured_s),
        before=before,
        after=after,
        factors=FrozenMap(dict(zip(names, (float(x) for x in np.exp(found.shift)), strict=True))),
        sigmas=FrozenMap(dict(zip(names, _floats(found), strict=True))),
        middle_ratio=math.exp(-float(np.median(found.prior_residual))),
    )


def _floats(found: ShiftFit) -> list[float]:
    return [float(x) for x in found.sigma]


def _errors(residual: Array) -> tuple[float, float]:
    """Median and 90th percentile of |predicted/measured - 1|."""
    error = np.abs(np.expm1(residual))
    return float(np.median(error)), float(np.quantile(error, 0.9))  # src: rl-definition


def _mean_error(residual: Array) -> float:
    """Mean log error: of a few dozen points far steadier than their percentiles."""
    return float(np.abs(residual).mean())


def calibrate_kernels(
    points: Sequence[KernelPoint], chip: Chip, calibration: Calibration, priors: Mapping[str, Prior]
) -> tuple[LawFit, ...]:
    """All laws of `chip` that `points` were measured for, in order of their first point.

    `priors` by key of the law; a law without one may move by the error that it states.
    """
    groups: dict[str, tuple[Law, list[KernelPoint]]] = {}
    for point in points:
        key, law = law_key_of(point, chip, calibration)
        groups.setdefault(key, (law, []))[1].append(point)
    found = []
    for key, (law, mine) in groups.items():

        def predicted(tried: Law, key: str = key, mine: Sequence[KernelPoint] = mine) -> list[float]:
            return [kernel_s(point, chip, key, tried) for point in mine]

        prior = priors.get(key) or default_prior(law)
        found.append(fit_law(key, law, prior, (predicted, [point.time_s for point in mine])))
    return tuple(found)


def default_prior(law: Law) -> Prior:
    """What is known of a law of which no other device has one: its own error."""
    return Prior(spread=FrozenMap(), noise_sigma=math.log1p(law.ape_p50_frac) / _NORMAL_HALF)


def with_laws(calibration: Calibration, laws: Mapping[str, Law]) -> Calibration:
    """`calibration` with `laws` in the place of those of the same key."""
    return replace(calibration, laws=FrozenMap({**calibration.laws, **laws}))
