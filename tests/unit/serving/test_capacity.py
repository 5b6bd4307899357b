"""Memory of one device as engines divide it, and the sequences that fit."""

from __future__ import annotations

import math

import pytest

from ridgeline.errors import OutOfMemory
from ridgeline.serving import capacity, estimate_serving
from ridgeline.serving.capacity import pool_bytes, sequence_cache_bytes, token_budget_count
from ridgeline.specs import EngineProfile, Load, ServingPlan

TOKEN = 32 * 2 * 8 * 128 * 2  # bytes a token of the toy model: layers, K and V, key heads, width, 2 bytes


def engine(**changes):
    return EngineProfile(id="e", **changes)


@pytest.mark.parametrize(
    ("basis", "expected"),
    [
        ("total", 0.9 * 80 - 16 - 4),
        ("free", 0.9 * (80 - 16 - 4)),
        ("static", min(0.9 * 80 - 16, 80 - 16 - 4)),
        ("none", 80 - 16 - 4),
    ],
)
def test_rules_of_the_pool(basis, expected):
    assert pool_bytes(basis, 0.9, 80.0, 16.0, 4.0) == pytest.approx(expected)


def test_memory_adds_up_to_what_the_driver_offers(toy):
    room = capacity(toy.job(engine=engine(pool_basis="free", pool_frac=0.9, context_bytes=2e9)))
    assert room.memory.check() == []
    assert room.memory.value == pytest.approx(85.5e9)
    assert room.memory.find("weights").value == pytest.approx(2 * toy.job().model.parameters_count)
    assert room.memory.find("unused").value == pytest.approx(room.pool_bytes / 9)


def test_sequences_reserve_their_whole_length_or_their_mean(toy):
    load = Load(input_tokens=1000, output_tokens=600)
    keep = capacity(toy.job(engine=engine(), load=load))
    assert keep.cache_bytes_per_sequence == 1600 * TOKEN
    assert keep.running_count == math.floor(keep.pool_bytes / (1600 * TOKEN))
    assert keep.binding == "key-value pool"
    evicting = capacity(toy.job(engine=engine(admission="evict"), load=load))
    assert evicting.cache_bytes_per_sequence == 1300 * TOKEN
    assert keep.cache_tokens_count == pytest.approx(keep.pool_bytes / TOKEN)


def test_blocks_round_up(toy):
    assert sequence_cache_bytes(toy.job(engine=engine(block_tokens=64)), 1001) == 1024 * TOKEN


def test_scheduler_limits_bind(toy):
    few = capacity(toy.job(engine=engine(max_batch_count=16)))
    assert (few.running_count, few.binding) == (16, "max batch")
    budget = toy.job(engine=engine(max_batch_tokens=1100), load=Load(input_tokens=1000, output_tokens=100))
    assert token_budget_count(budget) == pytest.approx(1100 / 11)
    assert capacity(budget).binding == "token budget"
    planned = capacity(toy.job(engine=engine(max_batch_count=16), plan=ServingPlan(max_batch_count=4)))
    assert planned.running_count == 4


def test_small_devices_get_small_limits(toy):
    both = engine(
        max_batch_count=1024,
        max_batch_tokens=8192,
        small_batch_count=256,
        small_batch_tokens=2048,
        large_device_bytes=75e9,
        small_architectures=("ampere",),
    )
    assert both.batch_limits(toy.chip) == (1024, 8192)
    from dataclasses import replace

    assert both.batch_limits(replace(toy.chip, architecture="ampere")) == (256, 2048)
    assert both.batch_limits(replace(toy.chip, memory_usable_bytes=48e9)) == (256, 2048)


def test_attention_groups_have_pools_of_their_own(toy):
    dims = toy.Dims(experts=8, active=2, inner=2048)
    model = toy.decoder(dims)
    whole = capacity(toy.job(model, plan=ServingPlan(tensor_count=8, expert_count=8)))
    grouped = capacity(toy.job(model, plan=ServingPlan(tensor_count=8, expert_count=8, attention_data_count=8)))
    # Each of 8 devices holds all key heads of an eighth of the sequences: as many sequences, less the weights' copies.
    assert grouped.cache_bytes_per_sequence == 8 * whole.cache_bytes_per_sequence
    assert grouped.running_count < whole.running_count
    assert grouped.running_count == pytest.approx(whole.running_count, rel=0.1)


def test_too_large_weights_and_too_small_pools_say_so(toy):
    big = toy.decoder(toy.Dims(layers=400), id="big")
    with pytest.raises(OutOfMemory, match=r"big tp1 .* weights .* are missing"):
        estimate_serving(toy.job(big))
    long = Load(input_tokens=10**6, output_tokens=100)
    with pytest.raises(OutOfMemory, match="too small for one request"):
        estimate_serving(toy.job(engine=engine(max_batch_tokens=8192), load=long))
    assert not capacity(toy.job(big)).fits
    assert capacity(toy.job(big)).memory.check() == []
