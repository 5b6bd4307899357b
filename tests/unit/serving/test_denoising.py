"""Diffusion transformers: work by hand, what sharing a sequence buys, what binds small batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.errors import BadPlan
from ridgeline.serving.denoising import DenoisingJob, estimate_denoising
from ridgeline.workload.convnets.transformers import DENOISING, decoder
from ridgeline.workload.denoising import SequenceSplit, denoiser_ops
from ridgeline.workload.ops import AttentionPrefill, Collective, Gemm

CATALOG = load_catalog()


def job(**changes: object) -> DenoisingJob:
    system = CATALOG.system("dgx-h100")
    made = DenoisingJob(
        model=DENOISING["flux.1-dev"],
        decoder=decoder("image-decoder", (128, 128)),
        batch_count=4.0,
        steps_count=10.0,
        picture_tokens=4096.0,
        split=SequenceSplit(),
        system=system,
        calibration=CATALOG.calibration(system.chip.id),
        engine=CATALOG.engine("xdit"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def flop(name: str, tokens: float, split: SequenceSplit | None = None) -> float:
    total = 0.0
    for item in denoiser_ops(DENOISING[name], 1.0, tokens, split or SequenceSplit()):
        if isinstance(item.op, Gemm):
            total += item.count * item.op.flop
        elif isinstance(item.op, AttentionPrefill):
            op = item.op
            total += (
                item.count * 4 * op.batch_count * op.heads_count * op.query_tokens * op.key_tokens * op.key_dim_count
            )
    return total


def test_products_of_flux_by_hand() -> None:
    # 19 layers of 24 h^2 weights, half on 4,096 picture tokens and half on 512 of text; 38 of 12 h^2 on both; published
    # elsewhere as 59.5e12 for a step without attention. Attention: 57 layers of 4 n^2 h.
    h, n = 3072.0, 4608.0
    products = 2 * h * h * (19 * 12 * n + 38 * 12 * n)
    assert products == pytest.approx(59.5e12, rel=0.01)
    assert flop("flux.1-dev", 4096.0) == pytest.approx(products + 57 * 4 * n * n * h, rel=1e-6)


def test_a_split_sequence_divides_the_work_and_adds_exchanges() -> None:
    whole = flop("wan2.1-14b", 32760.0)
    for ulysses, ring in ((8, 1), (2, 4), (1, 8)):
        split = SequenceSplit(ulysses_count=ulysses, ring_count=ring)
        # keys and values of the text are made on every device
        assert flop("wan2.1-14b", 32760.0, split) == pytest.approx(whole / 8, rel=0.03)
        ops = denoiser_ops(DENOISING["wan2.1-14b"], 1.0, 32760.0, split)
        kinds = {item.op.kind for item in ops if isinstance(item.op, Collective)}
        assert kinds == ({"all_to_all"} if ulysses > 1 else set()) | ({"send"} if ring > 1 else set())


def test_tokens_of_films() -> None:
    # 129 frames: 33 latent frames of 45 x 80 tokens; CogVideoX 1.5 takes two latent frames a token.
    assert DENOISING["hunyuanvideo"].picture_tokens(720, 1280, 129) == 33 * 45 * 80
    assert DENOISING["cogvideox-1.5-5b"].picture_tokens(768, 1360, 81) == 11 * 48 * 85


def test_time_adds_up_and_grows_with_steps_and_batch() -> None:
    base = estimate_denoising(job())
    assert base.time.value == pytest.approx(sum(part.value for part in base.time.parts))
    assert base.latency_s.low < base.latency_s.best < base.latency_s.high
    assert estimate_denoising(job(steps_count=20.0)).latency_s.best > 1.8 * base.latency_s.best
    assert estimate_denoising(job(batch_count=8.0)).latency_s.best > 1.8 * base.latency_s.best


def test_many_devices_leave_small_batches_to_the_host() -> None:
    split = SequenceSplit(ulysses_count=8)
    one = estimate_denoising(job(batch_count=1.0, split=split))
    assert one.time.value_of("launches") > 0.3 * one.time.value
    assert estimate_denoising(job(batch_count=16.0, split=split)).time.value_of("launches") == 0.0


def test_nothing_to_make() -> None:
    with pytest.raises(BadPlan):
        estimate_denoising(job(batch_count=0.0))
