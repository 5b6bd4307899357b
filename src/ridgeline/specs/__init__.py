"""Frozen records of what exists (chips, systems, models, prices, sites) and what we decide (plans)."""

from ridgeline.specs.calibration import Calibration, Law
from ridgeline.specs.chip import Chip
from ridgeline.specs.engine import EngineProfile, Load
from ridgeline.specs.network import Network, Node, Shape
from ridgeline.specs.plan import ServingPlan, TrainingPlan
from ridgeline.specs.precision import BITS_PER_ELEMENT, PEAK_KEYS, WHOLE_FILE_FORMATS, bytes_per_element
from ridgeline.specs.price import Price, Site
from ridgeline.specs.reliability import Reliability
from ridgeline.specs.software import SoftwareProfile
from ridgeline.specs.system import Host, Link, NetworkLevel, RankGroup, System
from ridgeline.specs.transformer import (
    Layer,
    LayerRun,
    Linear,
    Mixer,
    Recurrence,
    SoftmaxAttention,
    Stack,
    Transformer,
)

__all__ = [
    "BITS_PER_ELEMENT",
    "PEAK_KEYS",
    "WHOLE_FILE_FORMATS",
    "Calibration",
    "Chip",
    "EngineProfile",
    "Host",
    "Law",
    "Layer",
    "LayerRun",
    "Linear",
    "Link",
    "Load",
    "Mixer",
    "Network",
    "NetworkLevel",
    "Node",
    "Price",
    "RankGroup",
    "Recurrence",
    "Reliability",
    "ServingPlan",
    "Shape",
    "Site",
    "SoftmaxAttention",
    "SoftwareProfile",
    "Stack",
    "System",
    "TrainingPlan",
    "Transformer",
    "bytes_per_element",
]
