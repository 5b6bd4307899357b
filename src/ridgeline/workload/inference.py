"""Operations of one engine step on one device: sequences that each make a token, and prompts that are read in.

A step is what every serving engine repeats: all running sequences advance by one token and some prompts (or pieces of
them) are processed beside them. Matrices see all tokens of the step together; attention sees sequences and prompts
apart, with their own contexts. Encoders are steps with prompts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from ridgeline.specs import (
    EngineProfile,
    Layer,
    Linear,
    RankGroup,
    ServingPlan,
    Stack,
    Transformer,
    bytes_per_element,
)
from ridgeline.workload.engine_step import Setting, Step, expand_ops, quantise_ops, small_kernel
from ridgeline.workload.inference_moe import expert_ops
from ridgeline.workload.mixers import mixer_ops
from ridgeline.workload.ops import Collective, Elementwise, Gemm, Op, Repeated
from ridgeline.workload.placement import (
    attention_tensor_count,
    local_linear,
    math_precision,
    weight_precision,
    wide_precision,
)

# An add-and-norm kernel reads the hidden state and the residual and writes both (a norm alone reads and writes one); a
# gated activation reads two branches and writes one; sampling reads logits in fp32 for scaling, soft-maximum, choice.
_ADD_NORM_PASSES = 4.0  # src: rl-derivation
_NORM_PASSES = 2.0
_SAMPLING_PASSES = 3.0  # src: rl-derivation


def inference_ops(model: Transformer, plan: ServingPlan, engine: EngineProfile, step: Step) -> tuple[Repeated, ...]:
    """Operations of one step on one device, all layers of the model in order, equal ones counted together.

    With pipeline parallelism these are the operations that one micro-batch meets on its way through all stages
    (each stage has its share of them), sends between stages included.

    >>> from ridgeline.specs import LayerRun
    >>> up = Linear(name="up", role="mlp", inputs_count=4, outputs_count=8)
    >>> stack = Stack(role="decoder", hidden_count=4, runs=(LayerRun(layer=Layer(linears=(up,)), repeat_count=3),))
    >>> toy = Transformer(id="toy", family="toy", main=stack, hidden_count=4, vocab_count=8,
    ...                   embedding_parameters_count=32)
    >>> ops = inference_ops(toy, ServingPlan(), EngineProfile(id="e"), Step(decode_count=2))
    >>> [(r.op.m, r.count) for r in ops if isinstance(r.op, Gemm)]
    [(2.0, 3.0)]
    """
    setting = Setting(model=model, plan=plan, engine=engine, whole=step, group=step.of_group(plan.attention_data_count))
    found: dict[Op, float] = {}
    for op, count in _all_ops(setting):
        if count > 0:
            found[op] = found.get(op, 0.0) + count
    return tuple(Repeated(op=op, count=count) for op, count in found.items())


def _all_ops(setting: Setting) -> Iterator[tuple[Op, float]]:
    step = setting.group
    yield _embedding(setting), 1.0
    yield from _narrowing(setting)
    for stack in setting.model.others:
        if step.encoder_tokens > 0 and step.prompt_count > 0:
            tower = replace(
                setting,
                whole=_encoder_step(setting.whole),
                group=_encoder_step(step),
            )
            yield from _stack_ops(stack, tower)
    yield from _stack_ops(setting.model.main, setting)
    yield from _head_ops(setting)
    yield from _send_ops(setting)


def _encoder_step(step: Step) -> Step:
    return Step(prompt_count=step.prompt_count, prompt_tokens=step.encoder_tokens)


def _stack_ops(stack: Stack, setting: Setting) -> Iterator[tuple[Op, float]]:
    for linear in stack.linears:
        yield _gemm((linear,), setting, _rows(linear, setting), linear.name), 1.0
    for layer, repeats in _distinct_layers(stack):
        for op, count in _layer_ops(layer, stack, setting):
            yield op, count * repeats


@lru_cache(maxsize=1024)
def _distinct_layers(stack: Stack) -> tuple[tuple[Layer, int], ...]:
    """Different layers and how often each occurs: layers that alternate are many runs of few kinds."""
    found: dict[Layer, int] = {}
    for run in stack.runs:
        found[run.layer] = found.get(run.layer, 0) + run.repeat_count
    return tuple(found.items())


def _layer_ops(layer: Layer, stack: Stack, setting: Setting) -> Iterator[tuple[Op, float]]:
    tokens = setting.group.tokens
    norms = layer.norms_count
    passes = _NORM_PASSES if setting.engine.fused_epilogues else _ADD_NORM_PASSES
    width = (passes - 1.0) * setting.wide_bytes + _fed_bytes(layer, "column", setting)
    moved = norms * tokens * stack.hidden_count * layer.stream_frac * width
    yield small_kernel("norm", "norm", moved, norms, setting), 1.0
    for group in _fused(layer.linears, setting.engine.fused_projections):
        if group[0].role != "expert":
            rows = _rows(group[0], setting)
            if rows > 0:
                product = _gemm(group, setting, rows, _label(group))
                yield from quantise_ops(product.m * product.k, product.activation_precision, setting)
                yield from expand_ops(product, setting)
    yield from mixer_ops(layer, setting)
    yield from expert_ops(layer, stack.hidden_count, setting)
    yield from _activation(layer, setting)
    yield from _layer_reductions(layer, stack, setting)


def _fused(linears: Iterable[Linear], fuse: bool) -> list[tuple[Linear, ...]]:
    """Neighbouring matrices that one GEMM computes: same input, same cut, same storage."""
    groups: list[list[Linear]] = []
    for linear in linears:
        if fuse and groups and _joins(groups[-1][0], linear):
            groups[-1].append(linear)
        else:
            groups.append([linear])
    return [tuple(group) for group in groups]


def _joins(first: Linear, other: Linear) -> bool:
    def key(linear: Linear) -> tuple[object, ...]:
        kind = "attention" if linear.role in ("attention", "mixer") else linear.role
        cut = (linear.inputs_count, linear.split, linear.experts_count, linear.rows_per_token)
        return (kind, *cut, linear.precision, linear.from_encoder)

    return first.split != "row" and key(first) == key(other)


def _label(group: tuple[Linear, ...]) -> str:
    return "+".join(linear.name for linear in group)


def _rows(linear: Linear, setting: Setting) -> float:
    """Rows of A that the matrix sees: tokens, or the encoder's tokens for keys and values of cross-attention."""
    step = setting.group
    if linear.from_encoder:
        return step.prompt_count * step.encoder_tokens
    return linear.rows_per_token * step.tokens


def _gemm(group: tuple[Linear, ...], setting: Setting, rows: float, name: str) -> Gemm:
    plan = setting.plan
    locals_ = [local_linear(linear, plan) for linear in group]
    stored = weight_precision(group[0], setting.model, plan)
    used = math_precision(stored, plan)
    return Gemm(
        name=name,
        m=rows,
        n=sum(item.outputs_count for item in locals_),
        k=locals_[0].inputs_count,
        math_precision=used,
        weight_precision=stored,
        activation_precision=used,
        output_precision=wide_precision(plan),
    )


def _activation(layer: Layer, setting: Setting) -> Iterator[tuple[Op, float]]:
    # A product can finish one branch of a gated activation, not the other.
    if layer.activation_count <= 0 or (setting.engine.fused_epilogues and not layer.gated):
        return
    branches = 2.0 if layer.gated else 1.0
    share = layer.activation_count / _mlp_degree(layer, setting.plan)
    tokens = setting.whole.tokens if layer.experts_count else setting.group.tokens
    moved = tokens * share * (branches * setting.wide_bytes + _fed_bytes(layer, "row", setting))
    yield small_kernel("activation", "activation", moved, 1.0, setting), 1.0


def _fed_bytes(layer: Layer, split: str, setting: Setting) -> float:
    """Bytes an element of what a norm (before column splits) or an activation (before row splits) writes: that of the
    products it feeds where the kernel quantises as well, else that of hidden states."""
    fed = [
        linear for linear in layer.linears if linear.split == split and linear.role in ("mlp", "expert", "attention")
    ]
    if not fed or not setting.engine.fused_quantisation:
        return setting.wide_bytes
    stored = weight_precision(fed[-1], setting.model, setting.plan)
    return min(setting.wide_bytes, bytes_per_element(math_precision(stored, setting.plan)))


def _mlp_degree(layer: Layer, plan: ServingPlan) -> int:
    return plan.tensor_count if layer.experts_count else attention_tensor_count(plan)


def _layer_reductions(layer: Layer, stack: Stack, setting: Setting) -> Iterator[tuple[Op, float]]:
    """One all-reduce of the hidden state after the mixer and one after the feed-forward part (one where they run in
    parallel on the same norm); the routed part of a mixture under data-parallel attention exchanges tokens instead."""
    degree = attention_tensor_count(setting.plan)
    if degree <= 1:
        return
    spread = layer.experts_count > 0 and setting.plan.attention_data_count > 1
    mixer_ends = any(x.split == "row" and x.role in ("attention", "mixer") for x in layer.linears)
    mlp_ends = any(x.split == "row" and x.role in ("mlp", "shared-expert") for x in layer.linears)
    mlp_ends = mlp_ends or (layer.experts_count > 0 and not spread)
    count = float(mixer_ends) + float(mlp_ends)
    if layer.norms_count == 1:
        count = min(count, 1.0)
    message = setting.group.tokens * stack.hidden_count * layer.stream_frac * setting.wide_bytes
    group = RankGroup(size_count=degree)
    if count > 0:
        yield Collective(name="tensor all-reduce", kind="all_reduce", message_bytes=message, group=group), count


def _embedding(setting: Setting) -> Elementwise:
    moved = 2.0 * setting.group.tokens * setting.model.hidden_count * setting.wide_bytes
    return small_kernel("embedding", "embedding", moved, 1.0, setting)


def _head_ops(setting: Setting) -> Iterator[tuple[Op, float]]:
    model, step = setting.model, setting.group
    rows = step.decode_count + step.finishing_count
    if model.head is None or rows <= 0:
        return
    yield _gemm((model.head,), setting, rows, "head"), 1.0
    degree = attention_tensor_count(setting.plan)
    logits = rows * model.head.outputs_count
    moved = _SAMPLING_PASSES * logits * bytes_per_element("fp32")
    yield small_kernel("sampling", "softmax", moved, _SAMPLING_PASSES, setting), 1.0
    if degree > 1:
        message = logits * setting.wide_bytes
        group = RankGroup(size_count=degree)
        yield Collective(name="logits all-gather", kind="all_gather", message_bytes=message, group=group), 1.0


def _narrowing(setting: Setting) -> Iterator[tuple[Op, float]]:
    """Automatic mixed precision reads the stored weights and writes narrow ones at every call, a kernel a matrix."""
    stored = setting.engine.stored_precision
    if not stored:
        return
    for stack in (*setting.model.others, setting.model.main):
        for run in stack.runs:
            for linear in run.layer.linears:
                local = local_linear(linear, setting.plan)
                used = bytes_per_element(weight_precision(linear, setting.model, setting.plan))
                moved = local.inputs_count * local.outputs_count * (bytes_per_element(stored) + used)
                yield Elementwise(name="narrow weights", kind="cast", bytes=moved), float(run.repeat_count)


def _send_ops(setting: Setting) -> Iterator[tuple[Op, float]]:
    plan = setting.plan
    if plan.pipeline_count <= 1:
        return
    message = setting.group.tokens * setting.model.hidden_count * setting.wide_bytes / attention_tensor_count(plan)
    group = RankGroup(size_count=2, stride_count=plan.tensor_count)
    yield (
        Collective(name="pipeline send", kind="send", message_bytes=message, group=group),
        plan.pipeline_count - 1.0,
    )
