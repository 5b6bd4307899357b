"""Jobs of the catalogue, made once, and requests for them."""

from __future__ import annotations

from functools import cache

import numpy as np

from ridgeline.catalog import load_catalog
from ridgeline.intake import load_model
from ridgeline.serving import ServingJob
from ridgeline.simulation.engine import Prepared, prepare_table
from ridgeline.simulation.engine_limits import ReplicaLimits
from ridgeline.simulation.options import SimulationOptions, Users
from ridgeline.simulation.steps import StepTable
from ridgeline.specs import Load, ServingPlan
from ridgeline.specs.requests import Requests

PLAIN = ServingPlan()
FP8 = ServingPlan(weight_precision="fp8", activation_precision="fp8", kv_precision="fp8")


@cache
def job(
    model: str = "llama-2-7b", system: str = "dgx-a100", engine: str = "vllm", plan: ServingPlan = PLAIN
) -> ServingJob:
    catalog = load_catalog(plugins=False)
    machine = catalog.system(system)
    name, _, version = engine.partition("@")
    return ServingJob(
        model=load_model(model, catalog),
        plan=plan,
        system=machine,
        calibration=catalog.calibration(machine.chip.id),
        engine=catalog.engine(name, version) if version else catalog.engine(name),
        load=Load(input_tokens=500, output_tokens=200),
    )


def drawn(count: int, rate: float, inputs: int = 400, outputs: int = 100, seed: int = 0) -> Requests:
    """Poisson arrivals, lengths even between one and twice the mean."""
    generator = np.random.default_rng(seed)
    return Requests(
        arrived_s=np.cumsum(generator.exponential(1 / rate, count)),
        input_tokens=generator.integers(1, 2 * inputs, count),
        output_tokens=generator.integers(1, 2 * outputs, count),
    )


def limits(**changes: float) -> ReplicaLimits:
    """A replica without limits but those given."""
    every = {
        "blocks_count": 2**40,
        "block_tokens": 16,
        "fixed_blocks": 0,
        "block_bytes": 1.0,
        "sequences_count": 64,
        "step_tokens": 2048,
        "chunk_tokens": 2048,
    }
    return ReplicaLimits(**{**every, **changes})


def theory(
    table: StepTable,
    requests: Requests,
    bounds: ReplicaLimits,
    policy: str = "chunked",
    options: SimulationOptions | None = None,
    users: Users | None = None,
    replicas: int = 1,
) -> Prepared:
    """A server of theory in the loop."""
    return prepare_table(table, job(), bounds, requests, policy, replicas, options, users)
