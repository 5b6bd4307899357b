"""The laws that the catalogue ships can be read by the kernels that they are for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.catalog.loader import load_catalog
from ridgeline.device import op_time
from ridgeline.device.attention import decode_law, flat_law, prefill_law
from ridgeline.device.elementwise import elementwise_law
from ridgeline.device.gemm import systolic_law, tile_law
from ridgeline.errors import MissingFact
from ridgeline.specs import Law
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, Elementwise, Gemm, GroupedGemm

OPS = (
    Gemm(name="gemm", m=4096, n=4096, k=4096),
    GroupedGemm(name="experts", rows_count=512, experts_count=16, touched_count=16, n=2048, k=4096),
    AttentionPrefill(
        name="prefill",
        batch_count=1,
        query_tokens=2048,
        key_tokens=2048,
        heads_count=32,
        kv_heads_count=8,
        key_dim_count=128,
        value_dim_count=128,
    ),
    AttentionDecode(
        name="decode",
        batch_count=16,
        context_tokens=2048,
        heads_count=32,
        kv_heads_count=8,
        key_dim_count=128,
        value_dim_count=128,
        cached_per_token_count=2048,
    ),
    AttentionDecode(
        name="latent",
        batch_count=16,
        context_tokens=2048,
        heads_count=128,
        kv_heads_count=1,
        key_dim_count=576,
        value_dim_count=512,
        cached_per_token_count=576,
    ),
    Elementwise(name="norm", kind="norm", bytes=1e8),
)
CATALOG = load_catalog()
DEVICES = CATALOG.ids("devices")


def readable(law: Law) -> bool:
    """Whether the record form of the law can be made of its parameters."""
    if law.kind == "elementwise":
        return elementwise_law(law, "norm", True).memory_frac > 0 and elementwise_law(law, "cast", False).launch_s > 0
    if law.kind.startswith(("gemm", "moe")):
        return (tile_law if "launch_cycles" in law.parameters else systolic_law)(law).compute_frac > 0
    if "launch_cycles" not in law.parameters:
        return flat_law(law).compute_frac > 0
    return (prefill_law if "prefill" in law.kind else decode_law)(law).memory_frac > 0


@pytest.mark.parametrize("device", DEVICES)
def test_laws_of_every_device_are_readable_and_physical(device: str) -> None:
    for law in CATALOG.calibration(device).laws.values():
        if law.kind == "elementwise" or law.kind.startswith(("gemm", "moe", "attention")):
            assert readable(law), law.kind
            assert 0 < law.ape_p50_frac <= law.ape_p90_frac
            assert all(
                value <= 1 for name, value in law.parameters.items() if name.endswith(("compute_frac", "memory_frac"))
            )


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_answers_or_names_the_missing_figure(device: str) -> None:
    chip, calibration = CATALOG.chip(device), CATALOG.calibration(device)
    missing = []
    for op in OPS:
        try:
            found = op_time(op, chip, calibration)
        except MissingFact as error:
            missing.append(error.fact_id)
            continue
        assert found.time_s > 0
        assert found.bound in ("compute", "memory", "latency")
        assert found.limiter
        assert found.uses
    assert all(fact.startswith(device) for fact in missing)


@pytest.mark.parametrize("device", ["a100-sxm4-80", "h100-sxm5-80", "b200-sxm", "l40s", "rtx-pro-6000-server"])
def test_measured_devices_use_their_own_laws(device: str) -> None:
    chip, calibration = CATALOG.chip(device), CATALOG.calibration(device)
    assert {op_time(op, chip, calibration).level for op in OPS[:4]} == {"device"}


@pytest.mark.parametrize(("device", "faster"), [("l40s", True), ("h100-sxm5-80", True), ("mi300x", False)])
def test_what_neighbours_have_just_read_comes_from_a_cache_that_is_known(device: str, faster: bool) -> None:
    catalog = load_catalog(plugins=False)
    chip, laws = catalog.chip(device), catalog.calibration(device)
    decode = AttentionDecode(
        name="beams",
        batch_count=1024,
        context_tokens=900,
        heads_count=16,
        kv_heads_count=16,
        key_dim_count=256,
        value_dim_count=256,
        cached_per_token_count=8192,
    )
    alone = op_time(decode, chip, laws).time_s
    beside = op_time(replace(decode, repeated_frac=0.75), chip, laws).time_s
    assert (beside < 0.8 * alone) if faster else beside == alone
