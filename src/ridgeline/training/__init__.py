"""Training: the step of a layout in time and memory, which layouts there are, and what an unstated plan means."""

from ridgeline.training.job import TrainingEstimate, TrainingJob
from ridgeline.training.memory import peak_memory, stage_memory
from ridgeline.training.step import estimate_step

__all__ = ["TrainingEstimate", "TrainingJob", "estimate_step", "peak_memory", "stage_memory"]
