"""Speech encoders on raw sound: wav2vec 2.0, HuBERT. Source: `transformers-5.24`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import encoder_attention, join, linear, mlp
from ridgeline.intake.families.decoder import heads_of
from ridgeline.intake.families.encoders import labels_count, task_of
from ridgeline.intake.reader import Config, shown
from ridgeline.intake.shell import Shell
from ridgeline.specs import Linear


def wav2vec2(config: Config) -> Shell:
    """wav2vec 2.0: strided convolutions over samples, a wide grouped one for positions, then an encoder.

    A token is a frame after the convolutions (20 ms in the published models).
    """
    hidden = config.width("hidden_size")
    layer = join(
        (
            encoder_attention(heads_of(config, hidden, head_dim=False)),
            mlp(hidden, config.width("intermediate_size"), gated=False, bias=True),
        ),
        norm_parameters_count=4 * hidden,
        gated=False,
        rope=False,
    )
    frontend, frontend_norms, channels = _frontend(config)
    kernel = config.whole("num_conv_pos_embeddings", low=1, high=4096)
    groups = config.divides(
        config.width("num_conv_pos_embedding_groups"), hidden, "num_conv_pos_embedding_groups", "hidden_size"
    )
    positions = linear("positions", "other", kernel * groups, hidden, bias=True)
    projection = linear("feature-projection", "other", channels, hidden, bias=True)
    # Weight norm keeps one gain for each tap; the masking vector is learned.
    others = frontend_norms + 2 * channels + 2 * hidden + kernel + hidden
    shell = Shell(
        layers=(layer,) * config.layers("num_hidden_layers"),
        hidden_count=hidden,
        vocab_count=0,
        role="audio",
        linears=(*frontend, projection, positions),
        other_count=others,
        embedding_count=0,
        headless=True,
    )
    return _with_head(config, shell, channels)


def _frontend(config: Config) -> tuple[list[Linear], int, int]:
    """The convolutions as matrices with their rows for each frame, parameters of their norms, and their width."""
    widths = config.wholes("conv_dim", low=1)
    kernels, strides = config.wholes("conv_kernel", low=1), config.wholes("conv_stride", low=1)
    if not len(widths) == len(kernels) == len(strides) or not widths:
        config.fail("conv_dim", f"got {len(widths)} layers, expected as many as conv_kernel and conv_stride have")
    bias = config.flag("conv_bias", default=False)
    kind = config.text("feat_extract_norm", default="group", allowed=("group", "layer"))
    parts, norms, rows, inputs = [], 0, 1.0, [1, *widths[:-1]]
    for index in reversed(range(len(widths))):
        parts.append(
            linear(
                f"conv-{index}", "other", kernels[index] * inputs[index], widths[index], bias=bias, rows_per_token=rows
            )
        )
        rows *= strides[index]
        if kind == "layer" or index == 0:
            norms += 2 * widths[index]
    return parts[::-1], norms, widths[-1]


def _with_head(config: Config, shell: Shell, channels: int) -> Shell:
    task, hidden = task_of(config), shell.hidden_count
    if task == "CTC":
        vocab = config.whole(*reader.VOCAB, low=1, high=reader.MAX_VOCAB)
        return replace(shell, vocab_count=vocab, head=linear("head", "head", hidden, vocab, bias=True), headless=False)
    if task == "PreTraining":
        groups, entries = config.width("num_codevector_groups"), config.width("num_codevectors_per_group")
        width, joint = config.width("codevector_dim"), config.width("proj_codevector_dim")
        parts = (
            linear("quantise", "other", channels, groups * entries, bias=True),
            linear("project-hidden", "other", hidden, joint, bias=True),
            linear("project-code", "other", width, joint, bias=True),
        )
        return replace(shell, linears=(*shell.linears, *parts), other_count=shell.other_count + entries * width)
    if task == "SequenceClassification":
        width = config.width("classifier_proj_size", default=256)
        ends = (
            linear("classifier-in", "other", hidden, width, bias=True),
            linear("classifier", "head", width, labels_count(config), bias=True, rows_per_token=0.0),
        )
        return replace(shell, linears=(*shell.linears, *ends))
    if task:
        config.fail("architectures", f"got {shown(task)}, expected CTC, PreTraining or SequenceClassification")
    return shell


AUDIO_BUILDERS: dict[str, Callable[[Config], Shell]] = {"wav2vec2": wav2vec2, "hubert": wav2vec2}
