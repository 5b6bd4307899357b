"""Blocks that keep a state of fixed size: state-space mixers, delta-rule and decayed linear attention.

Work of a scan is counted as its recurrence for each element of the state: decay (1), update (2), read-out (2), and
for delta rules the correction (2). That is what every algorithm has to do; chunked kernels do more in matrix units.
`megatron-lm-flops` counts 7 for Mamba-2, which is taken for state-space mixers too (their update also scales by the
step). The short convolution costs 2 a tap and channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.intake.blocks import Block, linear
from ridgeline.intake.reader import Config
from ridgeline.specs import Linear, Recurrence

_SCAN_FLOP = 7.0  # megatron-lm-flops: per element of a state-space state and token
_DELTA_FLOP = 7.0  # decay, correction, update, read-out
_DECAYED_FLOP = 5.0  # decay, update, read-out
_TAP_FLOP = 2.0

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def state_precision(config: Config, default: str) -> str:
    """Format of the recurrent state: what the file says for it, else `default`."""
    names = ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    return _DTYPES[config.text(*names, allowed=_DTYPES)] if config.has(*names) else default


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """A Mamba-2 mixer: `heads_count` heads of `head_count` channels, `state_count` states a channel."""

    hidden_count: int
    heads_count: int
    head_dim_count: int
    groups_count: int
    state_count: int
    taps_count: int
    conv_bias: bool = True
    bias: bool = False
    normed: bool = True
    precision: str = "bf16"

    @property
    def inner_count(self) -> int:
        """All channels."""
        return self.heads_count * self.head_dim_count


def mamba2(shape: Mamba2) -> Block:
    """The block: one projection to gate, channels, B, C and step; convolution; scan; norm; projection back."""
    inner = shape.inner_count
    mixed = inner + 2 * shape.groups_count * shape.state_count
    parts = (
        linear("ssm-in", "mixer", shape.hidden_count, inner + mixed + shape.heads_count, bias=shape.bias),
        linear("ssm-out", "mixer", inner, shape.hidden_count, bias=shape.bias, split="row"),
    )
    other = mixed * (shape.taps_count + (1 if shape.conv_bias else 0)) + 3 * shape.heads_count
    other += inner if shape.normed else 0
    state = inner * shape.state_count
    scan = Recurrence(
        kind="mamba2",
        state_per_sequence_count=state,
        per_token_flop=_SCAN_FLOP * state + _TAP_FLOP * shape.taps_count * mixed,
        state_precision=shape.precision,
        elementwise_per_token_count=float(2 * inner + mixed),
        tail_per_sequence_count=(shape.taps_count - 1) * mixed,
    )
    return Block(linears=parts, mixers=(scan,), other_count=other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """A Mamba mixer: `inner_count` channels of `state_count` states, steps through a rank of `rank_count`."""

    hidden_count: int
    inner_count: int
    state_count: int
    taps_count: int
    rank_count: int
    conv_bias: bool = True
    bias: bool = False
    normed: bool = False
    precision: str = "bf16"


def mamba1(shape: Mamba1) -> Block:
    """The block; `normed`: steps, B and C are normalised (Jamba)."""
    inner, state = shape.inner_count, shape.state_count
    parts: tuple[Linear, ...] = (
        linear("ssm-in", "mixer", shape.hidden_count, 2 * inner, bias=shape.bias),
        linear("ssm-x", "mixer", inner, shape.rank_count + 2 * state, split="row"),
        linear("ssm-dt", "mixer", shape.rank_count, inner, bias=True),
        linear("ssm-out", "mixer", inner, shape.hidden_count, bias=shape.bias, split="row"),
    )
    other = inner * (state + 1) + inner * (shape.taps_count + (1 if shape.conv_bias else 0))
    other += shape.rank_count + 2 * state if shape.normed else 0
    scan = Recurrence(
        kind="mamba",
        state_per_sequence_count=inner * state,
        per_token_flop=_SCAN_FLOP * inner * state + _TAP_FLOP * shape.taps_count * inner,
        state_precision=shape.precision,
        elementwise_per_token_count=float(3 * inner),
        tail_per_sequence_count=(shape.taps_count - 1) * inner,
    )
    return Block(linears=parts, mixers=(scan,), other_count=other)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """Linear attention with a gated delta rule: key and value heads, each value head with a matrix of state.

    `per_channel`: decay of each key channel, through a low rank (Kimi Delta Attention), instead of each head;
    `full_gate`: the output gate is a full matrix there, not a low rank.
    """

    hidden_count: int
    key_heads_count: int
    value_heads_count: int
    key_dim_count: int
    value_dim_count: int
    taps_count: int
    per_channel: bool = False
    full_gate: bool = True
    precision: str = "fp32"


def delta_net(shape: DeltaNet) -> Block:
    """The block: q, k, v, output gate, decay and write strength; convolution; scan; norm; projection back."""
    hidden = shape.hidden_count
    keys = shape.key_heads_count * shape.key_dim_count
    values = shape.value_heads_count * shape.value_dim_count
    heads = shape.value_heads_count
    parts = [
        linear("delta-q", "mixer", hidden, keys, head_count=shape.key_heads_count),
        linear("delta-k", "mixer", hidden, keys, head_count=shape.key_heads_count),
        linear("delta-v", "mixer", hidden, values, head_count=heads),
        linear("delta-write", "mixer", hidden, heads, head_count=heads),
    ]
    rank = shape.value_dim_count
    if shape.per_channel:
        parts.append(linear("delta-decay-a", "mixer", hidden, rank, split="replicated"))
        parts.append(linear("delta-decay-b", "mixer", rank, keys, head_count=heads))
        decay = keys + heads
    else:
        parts.append(linear("delta-decay", "mixer", hidden, heads, head_count=heads))
        decay = 2 * heads
    if shape.full_gate:
        parts.append(linear("delta-gate", "mixer", hidden, values, head_count=heads))
    else:
        parts.append(linear("delta-gate-a", "mixer", hidden, rank, split="replicated"))
        parts.append(linear("delta-gate-b", "mixer", rank, values, head_count=heads))
    parts.append(linear("delta-out", "mixer", values, hidden, split="row", head_count=heads))
    mixed = 2 * keys + values
    state = heads * shape.key_dim_count * shape.value_dim_count
    scan = Recurrence(
        kind="delta-rule",
        state_per_sequence_count=state,
        per_token_flop=_DELTA_FLOP * state + _TAP_FLOP * shape.taps_count * mixed,
        state_precision=shape.precision,
        elementwise_per_token_count=float(mixed + 2 * values),
        tail_per_sequence_count=(shape.taps_count - 1) * mixed,
    )
    other = mixed * shape.taps_count + decay + shape.value_dim_count
    return Block(linears=tuple(parts), mixers=(scan,), other_count=other)


def lightning(hidden_count: int, heads_count: int, width_count: int) -> Block:
    """Lightning attention (MiniMax-01): decayed linear attention with an output gate and a norm."""
    inner = heads_count * width_count
    parts = (
        linear("linear-q", "mixer", hidden_count, inner, head_count=heads_count),
        linear("linear-k", "mixer", hidden_count, inner, head_count=heads_count),
        linear("linear-v", "mixer", hidden_count, inner, head_count=heads_count),
        linear("linear-gate", "mixer", hidden_count, inner, head_count=heads_count),
        linear("linear-out", "mixer", inner, hidden_count, split="row", head_count=heads_count),
    )
    state = heads_count * width_count * width_count
    scan = Recurrence(
        kind="linear-attention",
        state_per_sequence_count=state,
        per_token_flop=_DECAYED_FLOP * state,
        elementwise_per_token_count=float(4 * inner),
    )
    return Block(linears=parts, mixers=(scan,), other_count=inner)
