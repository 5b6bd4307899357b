"""What is alive at the peak beside states and kept activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.specs import SoftwareProfile, TrainingPlan, Transformer
from ridgeline.training.memory import ActivationTerms, stage_memory
from ridgeline.workload.stages import stages_of

PLAIN = SoftwareProfile(id="plain", fragmentation_frac=0.0, context_bytes=0.0)


def terms(**changes: float) -> ActivationTerms:
    base = {"kept": 0.0, "largest": 0.0, "working": 3.0, "moving": 2.0, "stream": 1.0, "logits": 10.0}
    return ActivationTerms(**(base | changes))


def test_loss_and_layers_take_turns() -> None:
    assert terms().beside(head=True) == 12.0  # logits and twice the stream, no layer at work
    assert terms().beside(head=False) == 5.0
    assert terms(logits=1.0).beside(head=True) == 5.0


def test_buckets_are_held_where_there_is_anybody_to_exchange_with(make_gpt: Callable[..., Transformer]) -> None:
    model = make_gpt(8, 1024, 8)
    held = replace(PLAIN, exchange_buffer_bytes=2e9)
    for devices, more in ((1, 0.0), (4, 2e9)):
        plan = TrainingPlan(sequence_tokens=1024, precision="bf16", data_count=devices, global_batch_count=8)
        (stage,) = stages_of(model, plan)
        sizes = [stage_memory(model, stage, plan, software).value for software in (PLAIN, held)]
        assert sizes[1] - sizes[0] == more


def test_full_sharding_keeps_what_its_software_lets_live(make_gpt: Callable[..., Transformer]) -> None:
    model = make_gpt(8, 1024, 8)
    plan = TrainingPlan(sequence_tokens=1024, precision="bf16", data_count=8, global_batch_count=8, sharding="zero3")
    (stage,) = stages_of(model, plan)
    one, all_of_it, more = (
        stage_memory(model, stage, plan, replace(PLAIN, live_parameters_count=count)).value
        for count in (0.0, 5e7, 1e12)
    )
    assert one < all_of_it < more
    assert more - one <= 2 * model.parameters_count  # never more than the whole model in 16 bits
