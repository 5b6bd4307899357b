"""Many plans at once: the best layout of each machine, ranked; what is infeasible, counted by reason."""

from ridgeline.search.result import Infeasible, SearchResult, ServingRow, TrainingRow, rejected_text
from ridgeline.search.serving import ServingRequest, rank_serving
from ridgeline.search.terms import OBJECTIVES, Limits, Machine, Objective, Terms
from ridgeline.search.training import TrainingRequest, rank_training

__all__ = [
    "OBJECTIVES",
    "Infeasible",
    "Limits",
    "Machine",
    "Objective",
    "SearchResult",
    "ServingRequest",
    "ServingRow",
    "Terms",
    "TrainingRequest",
    "TrainingRow",
    "rank_serving",
    "rank_training",
    "rejected_text",
]
