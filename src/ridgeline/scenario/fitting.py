"""What a workload asks of its model that the model cannot do, or was not made for."""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.core import Note
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.problems import fail


def require_fitting(scenario: Scenario) -> None:
    """`ScenarioError` where tokens are asked of a model that generates none, or a batcher of one that generates."""
    serve, model = scenario.file.workload.serve, scenario.model
    if serve is None:
        return
    if model.main.role == "decoder":
        if serve.batching.model_fields_set:
            spot = scenario.place("workload", "serve", "batching")
            raise fail([f"{spot}: {model.id} generates tokens, its engine batches them; use workload.serve.scheduler"])
        return
    found = []
    spot = scenario.place("workload", "serve", "output")
    if serve.output > 0:
        found.append(f"{spot}: got {serve.output}, but {model.id} generates nothing ({model.main.role}); allowed 0")
    elif serve.tpot_p95 is not None:
        found.append(f"{scenario.place('workload', 'serve', 'tpot_p95')}: {model.id} generates no tokens; leave it out")
    if found:
        raise fail(found)


def length_notes(scenario: Scenario) -> Iterator[Note]:
    """Remarks on lengths beyond what the model states, and on lengths that its input does not take."""
    train, serve, model = scenario.file.workload.train, scenario.file.workload.serve, scenario.model
    asked = train.sequence if train is not None else serve.input + serve.output if serve is not None else 0
    key = "workload.train.sequence" if train is not None else "workload.serve.input with output"
    if model.max_context_tokens is not None and asked > model.max_context_tokens:
        stated = f"the {model.max_context_tokens:,} tokens that {model.id} states"
        yield Note("out-of-range", f"{key}: {asked:,} tokens, beyond {stated}")
    fixed = model.encoder_tokens if model.main.role == "vision" else None
    if train is not None and fixed is not None and train.sequence not in (1, fixed):
        text = f"an input of {model.id} is {fixed:,} tokens whatever workload.train.sequence says ({train.sequence:,})"
        yield Note("out-of-range", f"{text}, which only counts the steps")
