"""Tables of step times against the steps themselves."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.simulation.toys import FP8, job

from ridgeline.des.compiled import working
from ridgeline.serving import step_time
from ridgeline.simulation import loop_law as law
from ridgeline.simulation.options import tokens_of_a_step
from ridgeline.simulation.steps import Reach, StepTable, linear_table, step_table, with_speculation
from ridgeline.specs import ServingPlan
from ridgeline.workload.engine_step import Step

REACH = Reach(sequences_count=256, step_tokens=4096, prompt_tokens=4096, context_tokens=8192)


class Placed:
    """A table where the loop would read it."""

    def __init__(self, table: StepTable) -> None:
        floats, wholes = law.place((table,), 8, 0, 0)
        self.x, self.n = working(floats), working(wholes, "int")

    def figures(self, step: Step) -> list[float]:
        tokens = step.prompt_count * step.prompt_tokens
        pairs = tokens * (step.cached_tokens + step.prompt_tokens / 2)
        numbers = (step.decode_count, step.context_tokens, step.prompt_count, tokens, pairs)
        law.step(self.x, self.n, 0, *(float(x) for x in numbers))
        first = self.n[law.FIGURES] + law.ANSWER
        return list(self.x[first : first + law.ROW])


def random_step(generator: np.random.Generator, kind: str) -> Step:
    """A step of sequences, of prompts, or of both."""
    decoding = 0.0 if kind == "prompts" else np.floor(2 ** generator.uniform(0, 8))
    prompts = 0.0 if kind == "sequences" else float(generator.choice([1, 1, 1, 2, 3, 5]))
    return Step(
        decode_count=decoding,
        context_tokens=np.floor(2 ** generator.uniform(6, 13)) if decoding else 0.0,
        prompt_count=prompts,
        prompt_tokens=np.floor(2 ** generator.uniform(4, 9.5)) if prompts else 0.0,
        cached_tokens=float(generator.choice([0, 0, 1000, 3000])) if prompts else 0.0,
        finishing_count=prompts,
    )


@pytest.mark.parametrize(
    ("model", "system", "engine", "plan"),
    [
        ("llama-2-7b", "dgx-a100", "vllm", ServingPlan()),
        ("llama-3.1-70b", "dgx-h100", "tensorrt-llm", ServingPlan(tensor_count=4)),
        ("mixtral-8x7b", "dgx-h100", "vllm", ServingPlan(tensor_count=2)),
        ("llama-3.1-8b", "dgx-h200", "sglang", FP8),
        ("llama-3.1-70b", "dgx-h100", "vllm", ServingPlan(tensor_count=2, pipeline_count=4)),
    ],
)
def test_interpolated_steps_are_within_a_per_cent(model, system, engine, plan):
    """Median, mean and bias below half a per cent; nine of ten below one; the worst lie at edges of tiles."""
    asked = job(model, system, engine, plan)
    placed, generator = Placed(step_table(asked, REACH)), np.random.default_rng(4)
    errors = []
    for _ in range(30):
        for kind in ("sequences", "prompts", "both"):
            step = random_step(generator, kind)
            errors.append(placed.figures(step)[0] / step_time(asked, step).time_s - 1)
    size = np.abs(errors)
    assert np.median(size) < 0.003
    assert size.mean() < 0.005
    assert abs(np.mean(errors)) < 0.003
    assert np.quantile(size, 0.9) < 0.0125
    assert size.max() < 0.08


def test_a_scan_of_both_kinds_costs_its_launch_twice():
    """Layers with a state scan sequences and prompts in one kernel; the tables add one of each: mixed steps are a few
    per cent long, steps of one kind are not."""
    asked = job("nemotron-nano-9b-v2", "dgx-h100", "vllm")
    placed, generator = Placed(step_table(asked, REACH)), np.random.default_rng(4)
    errors: dict[str, list[float]] = {"sequences": [], "prompts": [], "both": []}
    for _ in range(12):
        for kind, found in errors.items():
            step = random_step(generator, kind)
            found.append(placed.figures(step)[0] / step_time(asked, step).time_s - 1)
    assert np.abs(errors["sequences"] + errors["prompts"]).max() < 0.015
    assert 0.0 < np.mean(errors["both"]) < 0.05


def test_at_the_knots_a_table_is_the_step_itself():
    """Time, device time, operations and bytes of steps whose numbers are knots; flop and bytes anywhere."""
    asked = job()
    placed = Placed(step_table(asked, REACH))
    for step in (
        Step(decode_count=16.0, context_tokens=64.0),
        Step(prompt_count=1.0, prompt_tokens=256.0, finishing_count=1.0),
    ):
        found, exact = placed.figures(step), step_time(asked, step)
        assert found == pytest.approx([exact.time_s, exact.device_s, exact.flop, exact.moved_bytes], rel=1e-9)
    between = Step(decode_count=37.0, context_tokens=777.0)
    found, exact = placed.figures(between), step_time(asked, between)
    assert found[2:] == pytest.approx([exact.flop, exact.moved_bytes], rel=1e-9)


def test_beyond_its_end_a_table_continues():
    asked = job()
    short, long = (Placed(step_table(asked, Reach(**{**REACH_FIELDS, "step_tokens": n}))) for n in (1024.0, 4096.0))
    step = Step(prompt_count=4.0, prompt_tokens=900.0, finishing_count=4.0)
    assert short.figures(step)[0] == pytest.approx(long.figures(step)[0], rel=0.1)


REACH_FIELDS = {name: getattr(REACH, name) for name in Reach.__slots__}


def test_servers_of_theory():
    """step + sequence * (sequences + prompts) + token * tokens, by hand."""
    placed = Placed(linear_table(step_s=1.0, sequence_s=0.1, token_s=0.01))
    both = Step(decode_count=3.0, context_tokens=5.0, prompt_count=2.0, prompt_tokens=10.0)
    assert placed.figures(both)[0] == pytest.approx(1.0 + 0.1 * 5 + 0.01 * 23)


def test_verified_tokens_pass_through_the_matrices():
    """Four tokens a sequence cost what four sequences cost where only tokens count; the head and host see theirs."""
    table = with_speculation(linear_table(step_s=1.0, token_s=0.01), 4.0, tokens_of_a_step(3, 0.5), None)
    assert Placed(table).figures(Step(decode_count=5.0, context_tokens=9.0))[0] == pytest.approx(1.0 + 0.01 * 20)
    assert tokens_of_a_step(3, 0.5) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
