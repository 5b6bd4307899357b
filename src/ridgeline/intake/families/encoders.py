"""Encoder-only models of text: BERT and its relatives, ALBERT, DeBERTa, ModernBERT.

BERT and RoBERTa (and models with their code) are counted as the base model with its pooler, whatever task head the
file names; the others with the head that `architectures` names. Source: `transformers-5.24`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, encoder_attention, join, linear, mlp
from ridgeline.intake.families import patterns
from ridgeline.intake.families.decoder import heads_of
from ridgeline.intake.reader import MAX_VOCAB, Config, shown
from ridgeline.intake.shell import Shell
from ridgeline.specs import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRules:
    """What a BERT-like family fixes in code.

    `pooled`: counted as base model with pooler. `types`: default number of segment types (0: no table).
    `embedding_width`: the key of a narrower embedding. `relative`: buckets of a relative position table in place of
    absolute positions' (MPNet keeps both). `before`: norms stand before the blocks, with one more at the end.
    """

    pooled: bool = False
    types: int = 2
    embedding_width: str = ""
    gated: bool = False
    bias: bool = True
    qkv_bias: bool = True
    positions: bool = True
    relative_key: str = ""
    before: bool = False
    shared: bool = False


def encoder(rules: EncoderRules) -> Callable[[Config], Shell]:
    """A builder for a BERT-like family."""

    def build(config: Config) -> Shell:
        hidden, count = config.width(*reader.HIDDEN), config.layers()
        heads = heads_of(config, hidden, head_dim=False)
        parts = (
            encoder_attention(heads, qkv_bias=rules.qkv_bias, out_bias=rules.qkv_bias),
            mlp(hidden, config.width(*reader.FFN), gated=rules.gated, bias=rules.bias),
        )
        layer = join(parts, norm_parameters_count=4 * hidden, gated=rules.gated, rope=not rules.positions)
        tables, linears, width = _embedding(config, rules, hidden)
        extra = 2 * hidden if rules.before else 0
        if rules.relative_key:
            extra += config.width(rules.relative_key) * heads.heads_count
        shell = Shell(
            layers=(layer,) * count,
            hidden_count=hidden,
            vocab_count=config.vocab(),
            tied=True,
            role="encoder",
            linears=linears,
            other_count=extra,
            embedding_count=tables,
            headless=True,
            context_tokens=config.context(),
            shared=rules.shared,
        )
        return _with_pooler(shell) if rules.pooled else with_task_head(config, shell, width)

    return build


def _embedding(config: Config, rules: EncoderRules, hidden: int) -> tuple[int, tuple[Linear, ...], int]:
    """Parameters of the tables with their norm, the matrix from a narrower embedding, and the embedding's width."""
    width = config.width(rules.embedding_width, default=hidden) if rules.embedding_width else hidden
    types = config.whole("type_vocab_size", high=1024, default=rules.types) if rules.types else 0
    context = config.context()
    if rules.positions and context is None:
        config.missing(*reader.CONTEXT)
    rows = config.vocab() + types + (context or 0 if rules.positions else 0)
    norm = 0 if rules.before else 2 * width
    wider = (linear("embedding-up", "other", width, hidden, bias=True),) if width != hidden or rules.shared else ()
    return rows * width + norm, wider, width


def _with_pooler(shell: Shell) -> Shell:
    pooler = linear("pooler", "other", shell.hidden_count, shell.hidden_count, bias=True, rows_per_token=0.0)
    return replace(shell, linears=(*shell.linears, pooler))


def task_of(config: Config) -> str:
    """The task that the first of `architectures` names ("MaskedLM", "SequenceClassification"...), "" for none."""
    names = config.items("architectures", default=[])
    if not names or not isinstance(names[0], str) or "For" not in names[0]:
        return ""
    return names[0].rsplit("For", 1)[1]


def labels_count(config: Config, default: int = 2) -> int:
    """Classes that a file gives; a pair of placeholder labels (LABEL_0, LABEL_1) says nothing."""
    labels = config.get("id2label")
    if isinstance(labels, dict) and labels and not _placeholder(labels):
        return len(labels)
    if isinstance(labels, list) and labels:
        return len(labels)
    return config.whole("num_labels", "num_classes", low=1, high=MAX_VOCAB, default=default)


def _placeholder(labels: dict[object, object]) -> bool:
    return set(map(str, labels.values())) == {"LABEL_0", "LABEL_1"}


def with_task_head(config: Config, shell: Shell, width: int) -> Shell:
    """The head of the task: a transform and a tied matrix to the vocabulary, or a classifier."""
    task, hidden = task_of(config), shell.hidden_count
    if task in ("MaskedLM", "CausalLM"):
        transform = linear("transform", "head", hidden, width, bias=True)
        norm = 2 * width
        return replace(
            shell,
            linears=(*shell.linears, transform),
            other_count=shell.other_count + norm + shell.vocab_count,
            head=linear("head", "head", width, shell.vocab_count),
            headless=False,
        )
    if task in ("SequenceClassification", "TokenClassification", "MultipleChoice"):
        classes = labels_count(config)
        rows = 1.0 if task == "TokenClassification" else 0.0
        parts = [linear("classifier", "head", hidden, classes, bias=True, rows_per_token=rows)]
        if task == "SequenceClassification":
            parts.insert(0, linear("pre-classifier", "other", hidden, hidden, bias=True, rows_per_token=0.0))
        return replace(shell, linears=(*shell.linears, *parts))
    if task == "QuestionAnswering":
        return replace(shell, linears=(*shell.linears, linear("spans", "head", hidden, 2, bias=True)))
    if task == "PreTraining":
        parts = [
            linear("detect", "head", hidden, hidden, bias=True),
            linear("detect-out", "head", hidden, 1, bias=True),
        ]
        return replace(shell, linears=(*shell.linears, *parts))
    if task:
        config.fail("architectures", f"got {shown(task)}, expected MaskedLM, a classification or the base model")
    return shell


def modernbert(config: Config) -> Shell:
    """ModernBERT: rotary positions, gated MLP, no biases, a window in two of three layers."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    heads = heads_of(config, hidden, head_dim=False)
    bias, mlp_bias = config.flag("attention_bias", default=False), config.flag("mlp_bias", default=False)
    norm = (2 if config.flag("norm_bias", default=False) else 1) * hidden
    kinds = patterns.layer_types(config, count, ("full_attention", "sliding_attention"))
    if kinds is None:
        step = config.whole("global_attn_every_n_layers", low=1, high=reader.MAX_LAYERS, default=3)
        kinds = ["sliding_attention" if index % step else "full_attention" for index in range(count)]
    window = config.whole("local_attention", low=1, high=reader.MAX_TOKENS)
    inner = mlp(hidden, config.width(*reader.FFN), bias=mlp_bias)
    layers = []
    for index, kind in enumerate(kinds):
        local = window if kind == "sliding_attention" else None
        part = encoder_attention(heads, qkv_bias=bias, out_bias=bias, window_tokens=local)
        norms = 2 if index else 1
        layers.append(join((part, inner), norm_parameters_count=norms * norm, norms_count=norms))
    vocab = config.vocab()
    shell = Shell(
        layers=tuple(layers),
        hidden_count=hidden,
        vocab_count=vocab,
        tied=True,
        role="encoder",
        other_count=norm,
        embedding_count=vocab * hidden + norm,
        headless=True,
        context_tokens=config.context(),
    )
    task = task_of(config)
    if not task:
        return shell
    transform = linear("transform", "head", hidden, hidden, bias=config.flag("classifier_bias", default=False))
    shell = replace(shell, linears=(transform,), other_count=shell.other_count + norm)
    if task == "MaskedLM":
        biases = vocab if config.flag("decoder_bias", default=True) else 0
        head = linear("head", "head", hidden, vocab)
        return replace(shell, other_count=shell.other_count + biases, head=head, headless=False)
    classes = labels_count(config)
    return replace(shell, linears=(transform, linear("classifier", "head", hidden, classes, bias=True)))


def deberta(config: Config) -> Shell:
    """DeBERTa v2 and v3: relative positions in a table of their own, which every layer projects and scores."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    heads = heads_of(config, hidden, head_dim=False)
    relative = config.flag("relative_attention", default=False)
    kinds = config.get("pos_att_type")
    words = [part.strip() for part in kinds.split("|")] if isinstance(kinds, str) else list(kinds or [])
    extra: list[Linear] = []
    if relative and not config.flag("share_att_key", default=False):
        names = [name for word, name in (("c2p", "position-k"), ("p2c", "position-q")) if word in words]
        extra = [linear(name, "attention", hidden, hidden, bias=True, rows_per_token=0.0) for name in names]
    context = config.context()
    if context is None:
        config.missing(*reader.CONTEXT)
    products = sum(word in words for word in ("c2p", "p2c")) if relative else 0
    positions = _relative_positions(config, context) if products else 0
    parts = (
        encoder_attention(heads, relative_products_count=products, relative_positions_count=positions),
        Block(linears=tuple(extra)),
        mlp(hidden, config.width(*reader.FFN), gated=False, bias=True),
    )
    layer = join(parts, norm_parameters_count=4 * hidden, gated=False, rope=False)
    width = config.width("embedding_size", default=hidden)
    types = config.whole("type_vocab_size", high=1024, default=0)
    biased = config.flag("position_biased_input", default=True)
    rows = config.vocab() + types + (context if biased else 0)
    others = _relative_tables(config, hidden, context) if relative else 0
    kernel = config.whole("conv_kernel_size", high=64, default=0)
    others += hidden * hidden * kernel + 3 * hidden if kernel else 0
    shell = Shell(
        layers=(layer,) * count,
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=True,
        role="encoder",
        linears=(linear("embedding-up", "other", width, hidden),) if width != hidden else (),
        other_count=others,
        embedding_count=rows * width + 2 * hidden,
        headless=True,
        context_tokens=context,
    )
    return with_task_head(config, shell, width)


def _relative_positions(config: Config, context: int) -> int:
    """Rows of the table of relative positions: both directions of the span, or its buckets."""
    spans = config.whole("max_relative_positions", low=-1, high=reader.MAX_TOKENS, default=-1)
    spans = context if spans < 1 else spans
    buckets = config.whole("position_buckets", low=-1, high=reader.MAX_TOKENS, default=-1)
    return 2 * (buckets if buckets > 0 else spans)


def _relative_tables(config: Config, hidden: int, context: int) -> int:
    rows = _relative_positions(config, context)
    norm = 2 * hidden if "layer_norm" in config.text("norm_rel_ebd", default="none") else 0
    return rows * hidden + norm


_BERT = encoder(EncoderRules(pooled=True))
ENCODER_BUILDERS: dict[str, Callable[[Config], Shell]] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "distilbert": encoder(EncoderRules(types=0)),
    "electra": encoder(EncoderRules(embedding_width="embedding_size")),
    "albert": encoder(EncoderRules(embedding_width="embedding_size", shared=True)),
    "megatron-bert": encoder(EncoderRules(before=True)),
    "mpnet": encoder(EncoderRules(types=0, relative_key="relative_attention_num_buckets")),
    "nomic_bert": encoder(EncoderRules(gated=True, bias=False, qkv_bias=False, positions=False)),
    "modernbert": modernbert,
    "deberta-v2": deberta,
}
