"""Serving: how fast a model answers on a machine, how many requests fit, and which layout to use."""

from ridgeline.serving.answer import ServingEstimate
from ridgeline.serving.capacity import Capacity, capacity
from ridgeline.serving.estimate import (
    estimate_encoder,
    estimate_max_load,
    estimate_serving,
    estimate_static_batch,
)
from ridgeline.serving.job import ServingJob
from ridgeline.serving.layouts import (
    Rejection,
    best_layout,
    fewest_devices,
    layout_problems,
    precisions_on,
    serving_layouts,
    try_layouts,
)
from ridgeline.serving.network import NetworkServingEstimate, NetworkServingJob, estimate_network
from ridgeline.serving.step import OpShare, StepTime, step_time

__all__ = [
    "Capacity",
    "NetworkServingEstimate",
    "NetworkServingJob",
    "OpShare",
    "Rejection",
    "ServingEstimate",
    "ServingJob",
    "StepTime",
    "best_layout",
    "capacity",
    "estimate_encoder",
    "estimate_max_load",
    "estimate_network",
    "estimate_serving",
    "estimate_static_batch",
    "fewest_devices",
    "layout_problems",
    "precisions_on",
    "serving_layouts",
    "step_time",
    "try_layouts",
]
