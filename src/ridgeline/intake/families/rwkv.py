"""RWKV 4 and 5: token shift, then a recurrence in place of attention. RWKV 6 and 7 are other architectures.

Source: RWKV 4 `transformers-5.24`; RWKV 5 the code that its models' repositories carry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.intake.blocks import Block, join, linear
from ridgeline.intake.families.hybrid import finished
from ridgeline.intake.reader import MAX_TOKENS, Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Linear, Recurrence

_DECAYED_FLOP = 5.0  # decay, update and read-out of one element of state


def _mixing(hidden: int, inner: int, *, gated: bool) -> tuple[Linear, ...]:
    names = ("receptance", "key", "value", *(("gate",) if gated else ()))
    upper = [linear(f"time-{name}", "mixer", hidden, inner) for name in names]
    return (*upper, linear("time-output", "mixer", inner, hidden, split="row"))


def _channels(hidden: int, inner: int) -> tuple[Linear, ...]:
    return (
        linear("channel-key", "mlp", hidden, inner),
        linear("channel-receptance", "mlp", hidden, hidden, split="replicated"),
        linear("channel-value", "mlp", inner, hidden, split="row"),
    )


def rwkv(version: int) -> Callable[[Config], Shell]:
    """A builder for RWKV 4 (a state of a few vectors) or 5 (a matrix of state for each head)."""

    def build(config: Config) -> Shell:
        hidden = config.width("hidden_size")
        inner = config.width("attention_hidden_size", default=hidden)
        if version == 4:
            channel = config.width("intermediate_size", default=4 * hidden)
            state, extra = 3 * inner, 2 * inner + 3 * hidden
        else:
            head = config.width("head_size", "head_dim", default=64)
            config.divides(head, inner, "head_size", "attention_hidden_size")
            channel = config.width("intermediate_size", default=int(hidden * 3.5 // 32 * 32))
            state, extra = inner * head, 2 * inner + 2 * inner + 4 * hidden
        scan = Recurrence(
            kind="rwkv",
            state_per_sequence_count=state,
            per_token_flop=_DECAYED_FLOP * state,
            elementwise_per_token_count=float(4 * inner),
            tail_per_sequence_count=2 * hidden,
        )
        block = Block(linears=_mixing(hidden, inner, gated=version > 4), mixers=(scan,), other_count=extra)
        inner_block = Block(linears=_channels(hidden, channel), other_count=2 * hidden, activation_count=channel)
        layer = join((block, inner_block), norm_parameters_count=4 * hidden, gated=False, rope=False)
        layers = [layer] * config.layers()
        layers[0] = replace(layer, other_parameters_count=layer.other_parameters_count + 2 * hidden, norms_count=3)
        shell = finished(config, layers, other_count=2 * hidden)
        context = config.whole("context_length", low=1, high=MAX_TOKENS) if config.has("context_length") else None
        return replace(shell, context_tokens=context)

    return build


RWKV_BUILDERS: dict[str, Callable[[Config], Shell]] = {"rwkv": rwkv(4), "rwkv5": rwkv(5)}
