"""Operations of the routed experts of one layer on one device: who is touched, what is moved, what is exchanged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

from ridgeline.core import model as formula
from ridgeline.specs import Layer, Linear, RankGroup, bytes_per_element
from ridgeline.workload.engine_step import Setting, quantise_ops
from ridgeline.workload.ops import Collective, Elementwise, GroupedGemm, Op
from ridgeline.workload.placement import local_linear, math_precision, weight_precision, wide_precision


@formula(id="touched-experts", sources=("rl-derivation",), valid={"tokens": (0, 2**24)})
def touched_experts_count(experts_count: float, active_count: float, tokens: float) -> float:
    """Expected distinct experts that `tokens` touch when each picks `active_count` of `experts_count` at random.

    E (1 - (1 - k/E)^n). Assumes independent, even routing; uneven routing touches fewer.

    >>> touched_experts_count(8, 2, 1)
    2.0
    >>> round(touched_experts_count(256, 8, 64), 1)
    222.4
    """
    if experts_count <= 0:
        return 0.0
    miss = max(0.0, 1.0 - active_count / experts_count)
    touched: float = experts_count * (1.0 - miss**tokens)
    return touched


@formula(id="fullest-rank", sources=("raab-steger-1998",))
def fullest_rank_frac(rows: float, rank_count: float) -> float:
    """How far the fullest of `rank_count` ranks is above the mean when `rows` independent rows fall on them.

    Normal approximation of the largest of so many binomial loads: sqrt(2 ln(ranks) ranks / rows).

    >>> round(fullest_rank_frac(8192, 8), 3)
    0.064
    """
    if rank_count <= 1 or rows <= 0:
        return 0.0
    return math.sqrt(2.0 * math.log(rank_count) * rank_count / rows)


# Spread of the popularity of experts (standard deviation over mean) under real inputs without a balancer: assumed, 0.5
# to 1.5; kernel tables of mixtures are published for power laws that lie at the upper end.
_POPULARITY_SPREAD = 1.0  # src: aiconfigurator-core


@formula(id="fullest-rank-rows", sources=("blom-1958", "rl-derivation", "aiconfigurator-core"))
def fullest_rows_frac(rows: float, experts_count: float, rank_count: float) -> float:
    """How far the rows of the fullest of `rank_count` ranks are above the mean, when experts differ in popularity.

    The load of a rank varies by chance, R / rows, and with the popularity of its E / R experts, c^2 R / E (variances
    over the squared mean); the largest of R is z above, z = Phi^-1((R - 3/8) / (R + 1/4)).

    >>> fullest_rows_frac(8192, 128, 1), round(fullest_rows_frac(65536, 128, 8), 2)
    (0.0, 0.36)
    """
    if rank_count <= 1 or rows <= 0 or experts_count <= 0:
        return 0.0
    above = NormalDist().inv_cdf((rank_count - 0.375) / (rank_count + 0.25))  # src: blom-1958
    return above * math.sqrt(rank_count / rows + _POPULARITY_SPREAD**2 * rank_count / experts_count)


@formula(id="fullest-rank-experts", sources=("blom-1958", "rl-derivation"))
def fullest_touched_count(experts_count: float, touched_count: float, rank_count: float) -> float:
    """Expected touched experts of the rank that has most of them: all ranks wait for it in every layer.

    Each of the E/R experts of a rank is touched with chance p = T/E: mean (E/R) p, variance (E/R) p (1 - p). The mean
    of the largest of R normal variables is z sigma above, z = Phi^-1((R - 3/8) / (R + 1/4)).

    >>> round(fullest_touched_count(128, 50, 4), 1), fullest_touched_count(8, 8, 4), fullest_touched_count(8, 2, 1)
    (15.4, 2.0, 2)
    """
    if rank_count <= 1 or experts_count <= 0:
        return touched_count
    held = experts_count / rank_count
    chance = min(1.0, touched_count / experts_count)
    above = NormalDist().inv_cdf((rank_count - 0.375) / (rank_count + 0.25))  # src: blom-1958
    return min(held, touched_count, held * chance + above * math.sqrt(held * chance * (1.0 - chance)))


def expert_ops(layer: Layer, hidden_count: int, setting: Setting) -> Iterator[tuple[Op, float]]:
    """Grouped products of one layer, the kernels that sort tokens for them, and the exchange between devices."""
    experts = [linear for linear in layer.linears if linear.role == "expert"]
    tokens = setting.whole.tokens
    if not experts or tokens <= 0:
        return
    first, plan = experts[0], setting.plan
    spread = plan.expert_count
    rows, touched = _loads(first, spread, setting)
    for group in _pairs(experts, setting.engine.fused_projections):
        product = _grouped(group, rows, min(touched, rows), setting)
        yield from quantise_ops(rows * product.k, product.activation_precision, setting)
        yield product, 1.0
    yield from _sorting(rows, hidden_count, setting)
    yield from _masked(experts, rows, hidden_count, setting)
    yield from _exchange(first, tokens, hidden_count, setting)


def _loads(first: Linear, spread: int, setting: Setting) -> tuple[float, float]:
    """Rows and touched experts of the fullest of `spread` ranks."""
    tokens, count = setting.whole.tokens, float(first.experts_count)
    rows = tokens * first.active_count
    if setting.engine.all_experts:
        if setting.whole.prompt_count > 0 or rows >= count:
            return tokens * count / spread, count / spread
        return rows / spread, rows / spread
    touched = touched_experts_count(count, first.active_count, tokens)
    full = min(rows, rows / spread * (1.0 + fullest_rows_frac(rows, count, spread)))
    return full, fullest_touched_count(count, touched, spread)


def _pairs(experts: list[Linear], fuse: bool) -> list[tuple[Linear, ...]]:
    wide = tuple(linear for linear in experts if linear.split != "row")
    rest = [(linear,) for linear in experts if linear.split == "row"]
    return [wide, *rest] if fuse and wide else [(linear,) for linear in experts]


def _grouped(group: tuple[Linear, ...], rows: float, touched: float, setting: Setting) -> GroupedGemm:
    local = [local_linear(linear, setting.plan) for linear in group]
    stored = weight_precision(group[0], setting.model, setting.plan)
    used = math_precision(stored, setting.plan)
    return GroupedGemm(
        name="experts " + "+".join(linear.name for linear in group),
        rows_count=rows,
        experts_count=local[0].experts_count,
        touched_count=touched,
        n=sum(item.outputs_count for item in local),
        k=local[0].inputs_count,
        imbalance_frac=fullest_rank_frac(rows, local[0].experts_count),
        math_precision=used,
        weight_precision=stored,
        activation_precision=used,
        output_precision=wide_precision(setting.plan),
    )


def _sorting(rows: float, hidden_count: int, setting: Setting) -> Iterator[tuple[Op, float]]:
    """Choice of experts, gathering of rows before, weighted sum after: each moves every row in and out once; counts
    and prefix sums of the order wait for each other."""
    moved = 2.0 * 2.0 * rows * hidden_count * setting.wide_bytes
    launches = 3.0 * setting.engine.launches_frac  # src: rl-derivation
    chain_s = setting.engine.expert_sort_s
    yield Elementwise(name="expert sorting", kind="other", bytes=moved, launches_count=launches, chain_s=chain_s), 1.0


def _masked(experts: list[Linear], rows: float, hidden_count: int, setting: Setting) -> Iterator[tuple[Op, float]]:
    """What kernels that mask experts move for the rows of those that live elsewhere, on top of their own rows.

    Both products write zeros for them, the activation reads and writes them, a quantisation of its own does so again,
    the weighted sum reads them. The kernels run anyway: bytes without launches.
    """
    others = setting.whole.tokens * experts[0].active_count - rows
    if not setting.engine.masked_experts or setting.plan.expert_count <= 1 or others <= 0:
        return
    local = [local_linear(linear, setting.plan) for linear in experts]
    entered = sum(item.outputs_count for item, linear in zip(local, experts, strict=True) if linear.split != "row")
    inner = sum(item.inputs_count for item, linear in zip(local, experts, strict=True) if linear.split == "row")
    wide = setting.wide_bytes
    used = math_precision(weight_precision(experts[0], setting.model, setting.plan), setting.plan)
    narrow = min(wide, bytes_per_element(used))
    written = inner * (narrow if setting.engine.fused_quantisation or narrow >= wide else 2.0 * wide + narrow)
    moved = others * (2.0 * entered * wide + written + 2.0 * hidden_count * wide)
    yield Elementwise(name="rows of experts elsewhere", kind="other", bytes=moved, launches_count=0.0), 1.0


def _exchange(first: Linear, tokens: float, hidden_count: int, setting: Setting) -> Iterator[tuple[Op, float]]:
    """Tokens to their experts and back, where attention groups hold different tokens: copies to the devices of the
    chosen experts, or all tokens to all devices and the sum of their outputs back."""
    plan = setting.plan
    if plan.attention_data_count <= 1:
        return
    if setting.engine.gather_exchange:
        count = plan.attention_data_count
        ranks = RankGroup(size_count=count, stride_count=max(1, plan.tensor_count // count))
        message = tokens * hidden_count * setting.wide_bytes
        yield Collective(name="token all-gather", kind="all_gather", message_bytes=message, group=ranks), 1.0
        yield Collective(name="expert reduce-scatter", kind="reduce_scatter", message_bytes=message, group=ranks), 1.0
        return
    sent = tokens / plan.tensor_count * min(first.active_count, float(plan.expert_count))
    there = bytes_per_element(math_precision(weight_precision(first, setting.model, plan), plan))
    group = RankGroup(size_count=plan.tensor_count)
    for name, element_bytes in (("expert dispatch", there), ("expert combine", setting.wide_bytes)):
        message = sent * hidden_count * element_bytes
        yield Collective(name=name, kind="all_to_all", message_bytes=message, group=group), 1.0
