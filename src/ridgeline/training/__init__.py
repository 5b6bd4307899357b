"""Training: the step of a layout in time and memory, which layouts there are, and what an unstated plan means."""

from ridgeline.training.check import Problem, check_plan
from ridgeline.training.complete import PlanDraft, Setting, complete_plan
from ridgeline.training.effective import GoodputEstimate, RunConditions, estimate_goodput, run_conditions
from ridgeline.training.job import TrainingEstimate, TrainingJob
from ridgeline.training.layouts import LayoutRequest, candidates, layouts, least_recompute
from ridgeline.training.memory import peak_bytes, peak_memory, stage_memory
from ridgeline.training.network_step import NetworkTrainingEstimate, NetworkTrainingJob, estimate_network_step
from ridgeline.training.step import estimate_step

__all__ = [
    "GoodputEstimate",
    "LayoutRequest",
    "NetworkTrainingEstimate",
    "NetworkTrainingJob",
    "PlanDraft",
    "Problem",
    "RunConditions",
    "Setting",
    "TrainingEstimate",
    "TrainingJob",
    "candidates",
    "check_plan",
    "complete_plan",
    "estimate_goodput",
    "estimate_network_step",
    "estimate_step",
    "layouts",
    "least_recompute",
    "peak_bytes",
    "peak_memory",
    "run_conditions",
    "stage_memory",
]
