"""One training step on a machine made by hand: what it is made of, and how its parts react."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ridgeline.errors import BadPlan, MissingFact
from ridgeline.specs import Calibration, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training import TrainingEstimate, TrainingJob, estimate_step
from ridgeline.training.clock import clock_for
from ridgeline.training.per_step import buckets_count
from ridgeline.workload.memory import local_parameters
from ridgeline.workload.stages import stages_of
from ridgeline.workload.training_flop import step_flop

Make = Callable[..., Transformer]
PLAIN = SoftwareProfile(id="plain", attention="fa2", gradient_precision="same", reduce_precision="same")


@pytest.fixture
def estimate(machine: System, calibration: Calibration, make_gpt: Make) -> Callable[..., TrainingEstimate]:
    model = make_gpt(8, 2048, 16)

    def run(software: SoftwareProfile = PLAIN, of: Transformer = model, **plan: object) -> TrainingEstimate:
        base: dict[str, object] = {"sequence_tokens": 2048, "global_batch_count": 32, "micro_batch_count": 1}
        job = TrainingJob(
            model=of,
            plan=TrainingPlan(**(base | plan)),  # type: ignore[arg-type]
            system=machine,
            calibration=calibration,
            software=software,
        )
        return estimate_step(job)

    return run


def test_trees_add_up_and_hold_the_headline(estimate: Callable[..., TrainingEstimate]) -> None:
    found = estimate(tensor_count=2, pipeline_count=2, data_count=4)
    assert found.time.check() == []
    assert found.memory.check() == []
    assert found.step_s.best == found.time.value
    assert found.step_s.low < found.step_s.best < found.step_s.high
    assert found.tokens_per_s == 32 * 2048 / found.step_s.best
    assert found.to_dict()["layout"] == "tp2 pp2 dp4 mb1 zero1"


def test_one_device_has_no_exchange_and_no_bubble(estimate: Callable[..., TrainingEstimate]) -> None:
    found = estimate()
    names = {node.name for node in found.time.walk()}
    assert not any("exchange" in name for name in names)
    assert found.bubble_frac == 0
    assert {"forward", "backward", "matrix products", "attention", "element-wise", "optimizer"} <= names


def test_step_is_proportional_to_micro_batches_but_for_what_is_done_once(
    estimate: Callable[..., TrainingEstimate],
) -> None:
    one, two = estimate(global_batch_count=32), estimate(global_batch_count=64)
    once = one.time.value_of("optimizer")
    assert two.step_s.best - once == pytest.approx(2 * (one.step_s.best - once))


def test_model_flop_are_6_n_a_token_and_attention(make_gpt: Make) -> None:
    """6 N without tables and norms, and 6 l s h a token for the causal half (12 l s h for the square)."""
    layers, hidden, sequence = 4, 1024, 2048
    model = make_gpt(layers, hidden, 8, vocab=1000)
    plan = TrainingPlan(sequence_tokens=sequence, global_batch_count=3)
    matrices = layers * 12 * hidden**2 + 1000 * hidden
    pairs = sequence * (sequence + 1) / 2
    expected = 3 * (6 * matrices * sequence + 3 * layers * 4 * pairs * hidden)
    assert step_flop(model, plan) == pytest.approx(expected)


def test_rate_and_utilisation_agree(estimate: Callable[..., TrainingEstimate]) -> None:
    found = estimate(data_count=8)
    assert found.mfu_frac == pytest.approx(found.model_flop_per_s_per_device / 300e12)
    assert 0 < found.mfu_frac < 1


def test_bubble_share_of_equal_stages(machine: System, calibration: Calibration, make_gpt: Make) -> None:
    """Without head, embedding and transfers a pipeline waits (P - 1)/(M + P - 1) of the rest of the step."""
    whole = make_gpt(8, 2048, 16)
    bare = replace(whole, head=None, vocab_count=0, embedding_parameters_count=0)
    plan = TrainingPlan(pipeline_count=4, global_batch_count=12, sequence_tokens=2048)
    job = TrainingJob(model=bare, plan=plan, system=machine, calibration=calibration, software=PLAIN)
    found = estimate_step(job)
    busy = found.time.value_of("forward") + found.time.value_of("backward")
    waiting = found.time.value_of("pipeline bubble")
    assert waiting / (busy + waiting) == pytest.approx(3 / (12 + 3))


def test_full_recompute_is_one_more_forward_pass_of_the_layers(estimate: Callable[..., TrainingEstimate]) -> None:
    none, full = estimate(tensor_count=2), estimate(tensor_count=2, recompute="full")
    again = full.time.find("recompute")
    assert again.value_of("attention") == full.time.find("forward").value_of("attention")
    assert full.step_s.best - none.step_s.best == pytest.approx(again.value)
    assert full.memory.value < none.memory.value


def test_half_of_the_layers_recompute_half(estimate: Callable[..., TrainingEstimate]) -> None:
    full, half = (estimate(recompute="full", recompute_layers_frac=share) for share in (1.0, 0.5))
    assert half.time.value_of("recompute") == pytest.approx(full.time.value_of("recompute") / 2)


@pytest.mark.parametrize("overlap", ["none", "backward", "pipelined"])
def test_hidden_time_is_a_negative_leaf_smaller_than_what_it_hides(
    estimate: Callable[..., TrainingEstimate], overlap: str
) -> None:
    software = replace(PLAIN, tensor_overlap=overlap, overlap_slowdown_frac=0.1)  # type: ignore[arg-type]
    found = estimate(software, tensor_count=8, sequence_parallel=True)
    for pass_name in ("forward", "backward"):
        part = found.time.find(pass_name)
        exchange = part.value_of("tensor exchange") + part.value_of("tensor exchange late")
        hidden = part.value_of("tensor exchange hidden") + part.value_of("tensor exchange late hidden")
        assert -exchange <= hidden <= 0
        assert (hidden < 0) == (overlap == "pipelined" or (overlap == "backward" and pass_name == "backward"))
        assert part.value_of("slowed by exchange") == pytest.approx(-0.1 * hidden)


def test_overlap_of_gradients_shortens_the_step(estimate: Callable[..., TrainingEstimate]) -> None:
    apart = estimate(data_count=16, global_batch_count=64)
    over = estimate(
        replace(PLAIN, data_overlap=True, gather_overlap=True, bucket_bytes=40e6), data_count=16, global_batch_count=64
    )
    assert over.step_s.best < apart.step_s.best
    assert over.time.value_of("gradient exchange hidden") < 0
    # the same bytes, but the latency of a collective comes again with every bucket
    again_s = over.time.value_of("gradient exchange") - apart.time.value_of("gradient exchange")
    finer = estimate(replace(PLAIN, bucket_bytes=10e6), data_count=16, global_batch_count=64)
    assert 0 < again_s < finer.time.value_of("gradient exchange") - apart.time.value_of("gradient exchange")


def test_buckets_in_parameters_grow_with_ranks_and_cut_the_first_stage_only(
    machine: System, calibration: Calibration, make_gpt: Make
) -> None:
    model = make_gpt(8, 2048, 16)
    software = replace(PLAIN, bucket_parameters_count=40_000_000, rank_bucket_parameters_count=1_000_000)
    clock = clock_for(machine, calibration, software)

    def buckets(data: int, pipeline: int = 1, interleave: int = 1, index: int = 0) -> float:
        plan = TrainingPlan(
            sequence_tokens=2048,
            global_batch_count=512,
            data_count=data,
            pipeline_count=pipeline,
            interleave_count=interleave,
        )
        stage = stages_of(model, plan)[index]
        return buckets_count(stage, local_parameters(model, stage, plan), plan, clock)

    assert buckets(16) == buckets(40) == pytest.approx(2 * buckets(80))
    assert buckets(16, pipeline=2, index=0) > 1 == buckets(16, pipeline=2, index=1)
    assert buckets(16, pipeline=2, interleave=2, index=1) == 2 < buckets(16, pipeline=2, interleave=2, index=0)


def test_full_sharding_gathers_twice_and_scatters_once_a_layer(
    estimate: Callable[..., TrainingEstimate], make_gpt: Make
) -> None:
    software = replace(PLAIN, states="master-only", prefetch_layers_count=0)
    found = estimate(software, data_count=8, sharding="zero3", global_batch_count=8)
    gathered = found.time.find("forward").value_of("sharding exchange")
    both = found.time.find("backward").value_of("sharding exchange")
    assert both > gathered > 0
    ahead = estimate(replace(software, prefetch_layers_count=1), data_count=8, sharding="zero3", global_batch_count=8)
    assert ahead.step_s.best < found.step_s.best


def test_an_owner_that_broadcasts_is_held_by_one_port(estimate: Callable[..., TrainingEstimate]) -> None:
    plan: dict[str, object] = {"data_count": 16, "sharding": "zero3", "global_batch_count": 16}
    software = replace(PLAIN, states="master-only", prefetch_layers_count=0)
    spread = estimate(software, **plan)
    owned = estimate(replace(software, owner_broadcast=True), **plan)
    layers_bytes = 8 * 12 * 2048**2 * 2  # 8 layers of 12 h^2 matrices in 16 bits: over a port of 25 GB/s at the best
    forward = owned.time.find("forward").value_of("sharding exchange")
    assert layers_bytes / 25e9 < forward < 2 * layers_bytes / 25e9
    assert owned.time.find("backward").value_of("sharding exchange") == pytest.approx(2 * forward, rel=0.02)
    assert forward > 2 * spread.time.find("forward").value_of("sharding exchange")


def test_zero2_scatters_gradients_after_every_micro_batch(estimate: Callable[..., TrainingEstimate]) -> None:
    one, two = (estimate(data_count=8, sharding=name, global_batch_count=32) for name in ("zero1", "zero2"))
    gathered = one.time.value_of("weight exchange")
    assert gathered == two.time.value_of("weight exchange") > 0
    assert two.time.value_of("gradient exchange") == pytest.approx(4 * one.time.value_of("gradient exchange"))


def test_slowest_device_and_real_values_cost_clocked_work_only(estimate: Callable[..., TrainingEstimate]) -> None:
    from ridgeline.core import FrozenMap

    slow = replace(PLAIN, spread_sigma_frac=0.02, real_data_frac=FrozenMap({"ampere": 0.9}))
    found = estimate(slow, data_count=8)
    part = found.time.find("forward")
    products = part.value_of("matrix products")
    assert part.value_of("power of real values") == pytest.approx(products * (1 / 0.9 - 1))
    clocked = products + part.value_of("attention")
    assert part.value_of("slowest device") == pytest.approx(clocked * 0.02 * 1.4236, rel=0.01)


def test_host_that_cannot_keep_up_sets_the_pace(estimate: Callable[..., TrainingEstimate], make_gpt: Make) -> None:
    tiny = make_gpt(4, 256, 4, vocab=1024, sequence=128)
    host = replace(PLAIN, host_launch_s=50e-6)
    found = estimate(host, tiny, sequence_tokens=128, global_batch_count=1)
    assert found.time.find("forward").value_of("host launches") > 0
    assert estimate(replace(host, graphs=True), tiny, sequence_tokens=128, global_batch_count=1).step_s.best < (
        found.step_s.best
    )


def test_offloaded_optimizer_crosses_the_host_link(estimate: Callable[..., TrainingEstimate]) -> None:
    found = estimate(offload_optimizer=True)
    assert found.time.value_of("host transfers") > 0
    assert "optimizer moments" not in {node.name for node in found.memory.walk()}


def test_tied_tables_are_summed_across_a_pipeline(estimate: Callable[..., TrainingEstimate], make_gpt: Make) -> None:
    apart = make_gpt(8, 2048, 16, tied=False)
    tied = estimate(pipeline_count=2, global_batch_count=4)
    free = estimate(PLAIN, apart, pipeline_count=2, global_batch_count=4)
    assert tied.time.value_of("gradient exchange") > free.time.value_of("gradient exchange") == 0


def test_experts_spread_exchange_tokens(estimate: Callable[..., TrainingEstimate], make_gpt: Make) -> None:
    mixture = make_gpt(4, 2048, 16, experts=8)
    spread = estimate(PLAIN, mixture, data_count=8, expert_count=8, global_batch_count=8)
    whole = estimate(PLAIN, mixture, data_count=8, expert_count=1, global_batch_count=8)
    assert spread.time.value_of("expert exchange") > 0 == whole.time.value_of("expert exchange")
    assert spread.memory.value < whole.memory.value
    assert any("evenly loaded" in note.text for note in spread.notes)


def test_context_ranks_exchange_keys_behind_attention(estimate: Callable[..., TrainingEstimate]) -> None:
    found = estimate(context_count=4, sequence_tokens=16384, global_batch_count=1)
    part = found.time.find("forward")
    assert part.value_of("context exchange") > 0 > part.value_of("context exchange hidden")


def test_the_interval_widens_with_the_release(estimate: Callable[..., TrainingEstimate]) -> None:
    sure, unsure = estimate(), estimate(replace(PLAIN, release_sigma=0.2))
    assert unsure.step_s.sigma > sure.step_s.sigma > 0
    assert unsure.step_s.best == sure.step_s.best


def test_facts_and_formulas_are_collected(estimate: Callable[..., TrainingEstimate]) -> None:
    found = estimate(tensor_count=2, pipeline_count=2)
    assert {"chip.peak_dense_flop_per_s.bf16", "chip.memory_bandwidth_bytes_per_s", "plain.gradient_precision"} <= set(
        found.uses
    )
    assert {"tiled-gemm", "pipeline-bubble", "activation-memory", "training-states"} <= set(found.models)


def test_missing_attention_law_of_a_generation_is_said(estimate: Callable[..., TrainingEstimate]) -> None:
    notes = estimate(replace(PLAIN, attention="fa9")).notes
    assert any(note.kind == "missing" and "fa9" in note.text for note in notes)


def test_a_batch_smaller_than_the_data_degree_is_refused(estimate: Callable[..., TrainingEstimate]) -> None:
    with pytest.raises(BadPlan, match="global batch 4 is less than data degree 8"):
        estimate(data_count=8, global_batch_count=4)


def test_a_precision_without_a_rate_names_the_missing_fact(estimate: Callable[..., TrainingEstimate]) -> None:
    with pytest.raises(MissingFact, match="fp8"):
        estimate(precision="fp8")


def test_exchange_of_tokens_hides_behind_another_micro_batch(
    estimate: Callable[..., TrainingEstimate], make_gpt: Make
) -> None:
    model = make_gpt(4, 1024, 8, experts=8)
    layout = {"tensor_count": 1, "data_count": 8, "expert_count": 8}
    apart, behind, outside = (
        estimate(replace(PLAIN, expert_overlap=kind), model, **layout).time for kind in ("none", "all", "outside")
    )
    assert apart.value_of("expert exchange hidden") == 0
    assert behind.value_of("expert exchange hidden") < 0
    assert behind.value < apart.value
    assert outside.value == apart.value  # the group does not leave the machine's innermost level


def test_one_graph_of_a_whole_step_takes_the_host_off_experts(
    estimate: Callable[..., TrainingEstimate], make_gpt: Make
) -> None:
    model = make_gpt(4, 256, 4, vocab=1024, sequence=128, experts=8)
    host = replace(PLAIN, graphs=True, host_launch_s=6e-6, routed_launch_s=50e-6, expert_launches=True)
    found = estimate(host, model, sequence_tokens=128, global_batch_count=1)
    assert found.time.value_of("host launches") > 0  # a graph holds all but the experts
    # no block-scaled products on this chip: nothing holds the experts
    whole = estimate(replace(host, whole_graphs=True), model, sequence_tokens=128, global_batch_count=1)
    assert whole.time.value == found.time.value
