"""Least squares of logarithms with a Gaussian prior and robust noise, and the error on points left out.

A law predicts times from parameters that are known beforehand within a spread. A few measured points move them as far
as the points agree among themselves, and no further: each parameter is multiplied by exp(x), x having the prior
N(0, spread), and the log of a measured time is Student-t round that of the law, with a scale that is estimated along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]
"""Logarithms of the predicted times for shifts of the logarithms of the parameters."""

_FREEDOM = 4.0  # src: lange-1989
_MAD = 1.4826  # src: normal-quantiles
_STEP = 1e-3  # src: rl-numerics
_LARGEST_STEP = 0.7  # src: rl-numerics
_CLOSE = 1e-4  # src: rl-numerics
_ROUNDS = 40  # src: rl-numerics
_LEFT_OUT_ROUNDS = 8  # src: rl-numerics
_MOST_FOLDS = 50  # src: rl-numerics
_DAMPING = (1e-2, 10.0, 1e-6, 1e8)  # src: marquardt-1963 (start, factor, least, most)


@dataclass(frozen=True, slots=True)
class ShiftFit:
    """What measured points make of the parameters of a law.

    `shift`: change of the logarithm of each parameter; `sigma`: what it is still in doubt by (posterior); `scale`: the
    spread of the points round the fit; `residual`, `prior_residual`, `left_out_residual`: log of predicted over
    measured time with the fit, with the prior, and with a fit from which the point is left out.
    """

    shift: Array
    sigma: Array
    scale: float
    residual: Array
    prior_residual: Array
    left_out_residual: Array


def fit_shifts(predict: Predict, measured_log: Array, spread: Array, least_scale: float) -> ShiftFit:
    """Shifts of the parameters with which `predict` comes closest to `measured_log`.

    `spread`: standard deviation of the prior of each shift; `least_scale`: noise that the law shows on its own
    measurements, below which no scale is taken. Minimises the sum over points of (f + 1)/2 log(1 + z^2/f), z = (log
    predicted - log measured)/scale, f = 4, plus half the sum of (x/spread)^2, by Levenberg-Marquardt with reweighting;
    the scale is the median absolute residual of each round. Sources: Marquardt 1963; Lange 1989 (the t distribution).

    >>> truth = np.array([0.3, -0.2])
    >>> shape = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 0.1], [0.1, 1.0], [0.7, 0.3]])
    >>> found = fit_shifts(lambda x: shape @ x, shape @ truth, np.array([1.0, 1.0]), 0.01)
    >>> [round(float(x), 2) for x in found.shift]
    [0.3, -0.2]
    """
    start = np.zeros(len(spread))
    prior_residual = predict(start) - measured_log
    shift, jacobian, scale = _descend(predict, measured_log, spread, least_scale)
    residual = predict(shift) - measured_log
    normal = jacobian.T @ (_weights(residual, scale)[:, None] * jacobian) + np.diag(spread**-2)
    sigma = np.sqrt(np.diag(np.linalg.inv(normal)))
    left_out = _left_out(predict, measured_log, (shift, jacobian, scale), spread)
    return ShiftFit(shift, sigma, scale, residual, prior_residual, left_out)


def _descend(predict: Predict, measured_log: Array, spread: Array, least_scale: float) -> tuple[Array, Array, float]:
    """The minimum, the derivative of the prediction there, and the scale of the points round it."""
    shift = np.zeros(len(spread))
    damping, factor, least, most = _DAMPING
    residual = predict(shift) - measured_log
    jacobian = _jacobian(predict, shift)
    scale = _scale(residual, least_scale)
    for _ in range(_ROUNDS):
        weights = _weights(residual, scale)
        gradient = jacobian.T @ (weights * residual) + shift / spread**2
        normal = jacobian.T @ (weights[:, None] * jacobian) + np.diag(spread**-2)
        step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
        step *= min(1.0, _LARGEST_STEP / max(float(np.abs(step).max()), _CLOSE))
        tried = predict(shift + step) - measured_log
        if _loss(tried, shift + step, spread, scale) > _loss(residual, shift, spread, scale):
            damping *= factor
            if damping > most:
                break
            continue
        shift, residual, damping = shift + step, tried, max(least, damping / factor)
        jacobian = _jacobian(predict, shift)
        last, scale = scale, _scale(residual, least_scale)
        if float(np.abs(step).max()) < _CLOSE and abs(scale / last - 1.0) < _CLOSE:
            break
    return shift, jacobian, scale


def _left_out(predict: Predict, measured_log: Array, found: tuple[Array, Array, float], spread: Array) -> Array:
    """Residual of each point under the fit to the others: a few steps from the whole fit with its derivative.

    Of more points than 50, every fiftieth is left out together.
    """
    shift, jacobian, scale = found
    count = len(measured_log)
    residuals = np.zeros(count)
    for fold in range(min(count, _MOST_FOLDS)):
        out = np.arange(count) % _MOST_FOLDS == fold
        here = shift
        residual = predict(here) - measured_log
        for _ in range(_LEFT_OUT_ROUNDS):
            weights = np.where(out, 0.0, _weights(residual, scale))
            gradient = jacobian.T @ (weights * residual) + here / spread**2
            normal = jacobian.T @ (weights[:, None] * jacobian) + np.diag(spread**-2)
            step = -np.linalg.solve(normal, gradient)
            here = here + step * min(1.0, _LARGEST_STEP / max(float(np.abs(step).max()), _CLOSE))
            residual = predict(here) - measured_log
            if float(np.abs(step).max()) < _STEP:
                break
        residuals[out] = residual[out]
    return residuals


def _jacobian(predict: Predict, shift: Array) -> Array:
    columns = []
    for index in range(len(shift)):
        there = np.zeros(len(shift))
        there[index] = _STEP
        columns.append((predict(shift + there) - predict(shift - there)) / (2 * _STEP))
    return np.stack(columns, axis=1)


def _weights(residual: Array, scale: float) -> Array:
    """Weight of each point: that of the t distribution over its variance."""
    return (_FREEDOM + 1.0) / (_FREEDOM + (residual / scale) ** 2) / scale**2


def _loss(residual: Array, shift: Array, spread: Array, scale: float) -> float:
    points = (_FREEDOM + 1.0) / 2 * np.log1p((residual / scale) ** 2 / _FREEDOM)
    return float(points.sum() + 0.5 * ((shift / spread) ** 2).sum())


def _scale(residual: Array, least: float) -> float:
    return max(least, _MAD * float(np.median(np.abs(residual))))
