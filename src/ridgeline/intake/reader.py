"""Reads keys of somebody else's configuration file, and says which key is wrong and why when it cannot.

Every value goes through one of a few typed readers that know what is plausible. A reader takes all names under which
a key is written in the wild (`hidden_size`, `n_embd`, `d_model`); two of them with different values are an error, as
is a key that is needed and absent. Nothing is guessed: a default is used only where a family's code documents it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ridgeline import errors
from ridgeline.errors import BadModelFile, nearest_names

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "model_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads")
FFN = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "hidden_dim", "d_ff")
VOCAB = ("vocab_size", "padded_vocab_size")
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "n_ctx",
    "model_max_length",
)
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_k", "num_selected_experts", "top_k_experts")

# Largest figures that a network of this age can have; beyond them a file is broken, not ambitious.
MAX_WIDTH, MAX_LAYERS, MAX_HEADS, MAX_VOCAB = 1 << 20, 1 << 12, 1 << 13, 1 << 24
MAX_EXPERTS, MAX_TOKENS = 1 << 16, 1 << 32
# Keys that change what a model is. One that is set and that the family's code does not read means another family.
_STRUCTURAL = (
    *EXPERTS,
    *TOP_K,
    "moe_intermediate_size",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "kv_lora_rank",
    "q_lora_rank",
    "index_topk",
    "compress_ratios",
    "block_configs",
    "hybrid_override_pattern",
    "layers_block_type",
    "attn_layer_period",
    "attn_type_list",
    "linear_attn_config",
    "linear_num_key_heads",
    "mamba_d_state",
    "state_size",
    "ssm_state_size",
    "cross_attention_layers",
    "hidden_size_per_layer_input",
    "num_kv_shared_layers",
    "hc_mult",
    "word_embed_proj_dim",
)
_WORDS = {"true": True, "false": False, "null": None, "none": None}


class Config:
    """A configuration, or a section of one, with its place for messages and a record of what was read.

    >>> Config({"n_embd": 768}, where="config.json").width(*HIDDEN)
    768
    >>> Config({"n_embd": -1}, where="config.json").width(*HIDDEN)
    Traceback (most recent call last):
    ...
    ridgeline.errors.BadModelFile: config.json: n_embd: got -1, expected a whole number from 1 to 1048576
    """

    def __init__(
        self, data: Mapping[str, Any], *, where: str, path: str = "", defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.data = data
        self.where = where
        self.path = path
        self.defaults = dict(defaults or {})
        self.used: set[str] = set()

    def with_defaults(self, defaults: Mapping[str, Any]) -> Config:
        """The same section, where absent keys take a family's documented values."""
        copy = Config(self.data, where=self.where, path=self.path, defaults={**self.defaults, **defaults})
        copy.used = self.used
        return copy

    def overlaid(self, data: Mapping[str, Any]) -> Config:
        """The same section with some keys put in or replaced, for a family that derives them."""
        copy = Config({**self.data, **data}, where=self.where, path=self.path, defaults=self.defaults)
        copy.used = self.used
        return copy

    def fail(self, key: str, message: str) -> NoReturn:
        """Raise `BadModelFile` for `key`."""
        raise BadModelFile(f"{self.where}: {self.path}{key}: {message}")

    def get(self, *names: str) -> Any:
        """The value under any of `names`, else the family's default, else None.

        An explicit null stands for itself: it sets a family's default aside. Text such as "null" and "true", which
        some tools write, counts as what it stands for.
        """
        self.used.update(names)
        found = {name: _plain(self.data[name]) for name in names if name in self.data}
        given = {name: value for name, value in found.items() if value is not None}
        if not given:
            return None if found else next((self.defaults[name] for name in names if name in self.defaults), None)
        first, *others = given
        for other in others:
            if given[other] != given[first]:
                self.fail(
                    other, f"got {shown(given[other])}, but {first} is {shown(given[first])}: two names of one figure"
                )
        return given[first]

    def skip(self, *names: str) -> None:
        """Mark keys as understood that say nothing new or nothing that counts here."""
        self.used.update(names)

    def refuse_unread(self, family: str) -> None:
        """Fail for a structural key that is set and was not read: the count would be of another model."""
        for key in _STRUCTURAL:
            if key not in self.used and _plain(self.data.get(key)) not in (None, 0, False, [], {}):
                self.fail(key, f"got {shown(self.data[key])}, which the family {family!r} has no use for")

    def key_of(self, *names: str) -> str:
        """The name, of `names`, that the file uses; the first where it uses none."""
        return next((name for name in names if _plain(self.data.get(name)) is not None), names[0])

    def has(self, *names: str) -> bool:
        """Whether the file or the family gives one of `names` (null counts as absent)."""
        return self.get(*names) is not None

    def whole(self, *names: str, low: int = 0, high: int = MAX_WIDTH, default: int | None = None) -> int:
        """A whole number between `low` and `high`; `default` where absent, else an error naming the key."""
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            self.missing(*names)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or value != value
            or value in (math.inf, -math.inf)
        ):
            self.fail(self.key_of(*names), f"got {shown(value)}, expected a whole number from {low} to {high}")
        if value != int(value) or not low <= value <= high:
            self.fail(self.key_of(*names), f"got {shown(value)}, expected a whole number from {low} to {high}")
        return int(value)

    def width(self, *names: str, default: int | None = None) -> int:
        """A width: 1 or more elements."""
        return self.whole(*names, low=1, high=MAX_WIDTH, default=default)

    def layers(self, *names: str, default: int | None = None) -> int:
        """A number of layers, 1 or more."""
        return self.whole(*(names or LAYERS), low=1, high=MAX_LAYERS, default=default)

    def heads(self, *names: str, default: int | None = None) -> int:
        """A number of heads, 1 or more."""
        return self.whole(*(names or HEADS), low=1, high=MAX_HEADS, default=default)

    def vocab(self) -> int:
        """The vocabulary."""
        return self.whole(*VOCAB, low=1, high=MAX_VOCAB)

    def context(self) -> int | None:
        """Longest context that the file states; None where it states none or -1."""
        self.used.update(CONTEXT)
        for name in CONTEXT:
            value = _plain(self.data.get(name, self.defaults.get(name)))
            if value is None or value == -1:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= MAX_TOKENS:
                self.fail(name, f"got {shown(value)}, expected a number of tokens from 1 to {MAX_TOKENS}")
            return int(value)
        return None

    def number(self, *names: str, low: float = 0.0, high: float = 1e6, default: float | None = None) -> float:
        """A number between `low` and `high`."""
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            self.missing(*names)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            self.fail(self.key_of(*names), f"got {shown(value)}, expected a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, *names: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            self.missing(*names)
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            self.fail(self.key_of(*names), f"got {shown(value)}, expected true or false")
        return bool(value)

    def text(self, *names: str, default: str | None = None, allowed: Iterable[str] = ()) -> str:
        """A word; one of `allowed` where given."""
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            self.missing(*names)
        choices = tuple(allowed)
        if not isinstance(value, str) or (choices and value not in choices):
            self.fail(self.key_of(*names), f"got {shown(value)}, {among(value, choices)}")
        return value

    def items(self, name: str, *, count: int | None = None, default: list[Any] | None = None) -> list[Any]:
        """A list, of `count` entries (a longer one is cut to them) where given."""
        value = self.get(name)
        if value is None:
            if default is not None:
                return default
            self.missing(name)
        if not isinstance(value, (list, tuple)):
            self.fail(name, f"got {shown(value)}, expected a list")
        if count is not None and len(value) < count:
            self.fail(name, f"got {len(value)} entries, expected one for each of the {count} layers")
        return list(value)[: count if count is not None else len(value)]

    def wholes(self, name: str, *, low: int = 0, high: int = MAX_WIDTH, count: int | None = None) -> list[int]:
        """A list of whole numbers."""
        values = self.items(name, count=count)
        for index, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                self.fail(f"{name}[{index}]", f"got {shown(value)}, expected a whole number from {low} to {high}")
        return values

    def section(self, name: str, *, defaults: Mapping[str, Any] | None = None, required: bool = True) -> Config:
        """A nested mapping, read under its own path; an empty one where it is absent and not `required`."""
        value = self.get(name)
        if value is None:
            if required:
                self.missing(name)
            value = {}
        if not isinstance(value, Mapping):
            self.fail(name, f"got {type(value).__name__}, expected a mapping")
        return Config(value, where=self.where, path=f"{self.path}{name}.", defaults=defaults)

    def missing(self, *names: str) -> NoReturn:
        """Raise for a key that is needed and absent."""
        near = [key for key in nearest_names(names[0], map(str, self.data)) if key not in names]
        also = f" (also read as {', '.join(names[1:])})" if len(names) > 1 else ""
        hint = f"; nearest key in the file: {near[0]}" if near else ""
        self.fail(names[0], f"missing, and the family has no documented default{also}{hint}")

    def divides(self, part: int, whole: int, key: str, whole_key: str) -> int:
        """`whole` over `part`, which must be whole."""
        if whole % part:
            self.fail(key, f"got {part}, which does not divide {whole_key} = {whole}")
        return whole // part


def among(value: object, choices: Iterable[str]) -> str:
    """What was expected in place of `value`: the choices, or the nearest of many.

    >>> among("bf8", ("bf16", "fp16")), among(3, ())
    ('expected bf16 or fp16', 'expected text')
    """
    known = list(choices)
    if len(known) <= _LISTED:
        return f"expected {' or '.join(known) if known else 'text'}"
    near = nearest_names(str(value)[:_SHOWN], known)
    return f"expected one of {len(known)} known" + (f"; nearest: {', '.join(near)}" if near else "")


_LISTED = 16


def shown(value: object) -> str:
    """`value` for a message, cut where it is long.

    >>> shown([1] * 40)
    '[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,...'
    """
    return errors.shown(value, _SHOWN)


_SHOWN = 42


def _plain(value: Any) -> Any:
    """Text that some tools write for null and for truth values as what it stands for."""
    if isinstance(value, str):
        return _WORDS.get(value.lower(), value)
    return value
