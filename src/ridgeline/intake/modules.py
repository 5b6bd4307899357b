"""Paths under which checkpoints keep the matrices that Ridgeline names in a few words.

Quantisation recipes name modules by path (`model.layers.3.self_attn.q_proj`). Families write these differently; a
matrix is looked up under all the spellings that are in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

_PREFIXES = ("model.", "", "language_model.model.", "model.language_model.", "language_model.", "backbone.")
HEAD_PATHS = ("lm_head", "language_model.lm_head", "head", "model.lm_head")


def _attention(*names: str) -> tuple[str, ...]:
    return tuple(f"{holder}.{name}" for name in names for holder in ("self_attn", "attn", "mixer", "attention"))


def _inner(*names: str) -> tuple[str, ...]:
    return tuple(f"{holder}.{name}" for name in names for holder in ("mlp", "feed_forward", "ffn", "mixer"))


def _experts(*names: str) -> tuple[str, ...]:
    """Experts as one fused module, as a list of modules (the first stands for all), and as fused matrices."""
    holders = (
        "mlp.experts",
        "block_sparse_moe.experts",
        "feed_forward.experts",
        "ffn.experts",
        "mixer.experts",
        "moe.experts",
    )
    return _expert_paths(holders, names)


def _expert_paths(holders: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    single = [f"{holder}.0.{name}" for holder in holders for name in names]
    fused = [f"{holder}.gate_up_proj" for holder in holders if "down_proj" not in names]
    fused += [f"{holder}.down_proj" for holder in holders if "down_proj" in names]
    return (*single, *fused, *holders)


def _shared(*names: str) -> tuple[str, ...]:
    holders = (
        "mlp.shared_experts",
        "mlp.shared_expert",
        "block_sparse_moe.shared_experts",
        "feed_forward.shared_expert",
        "ffn.shared_experts",
        "mixer.shared_experts",
        "share_expert",
    )
    return tuple(f"{holder}.{name}" for holder in holders for name in names)


_LINEAR = tuple(f"{holder}." for holder in ("linear_attn", "self_attn", "mixer", "mamba"))


def _recurrent(*names: str) -> tuple[str, ...]:
    return tuple(holder + name for holder in _LINEAR for name in names)


_NAMES: dict[str, tuple[str, ...]] = {
    "q": _attention("q_proj", "qkv_proj", "query_key_value", "c_attn", "Wqkv"),
    "k": _attention("k_proj", "qkv_proj", "query_key_value", "c_attn", "Wqkv"),
    "v": _attention("v_proj", "qkv_proj", "query_key_value", "c_attn", "Wqkv"),
    "o": _attention("o_proj", "out_proj", "dense", "c_proj"),
    "output-gate": _attention("q_proj", "g_proj", "qkv_proj"),
    "head-gate": _attention("g_proj"),
    "q-a": _attention("q_a_proj", "wq_a"),
    "q-b": _attention("q_b_proj", "wq_b"),
    "kv-a": _attention("kv_a_proj_with_mqa", "wkv"),
    "kv-b": _attention("kv_b_proj"),
    "kv": _attention("kv_proj", "wkv"),
    "o-a": _attention("o_a_proj", "wo_a"),
    "o-b": _attention("o_b_proj", "wo_b"),
    "index-q": _attention("indexer.wq_b", "index_q_proj", "indexer.q_proj"),
    "index-k": _attention("indexer.wk", "index_k_proj", "indexer.k_proj"),
    "index-weights": _attention("indexer.weights_proj"),
    "gate": _inner("gate_proj", "w1", "gate_up_proj"),
    "up": _inner("up_proj", "w3", "gate_up_proj", "fc1", "dense_h_to_4h"),
    "down": _inner("down_proj", "w2", "fc2", "dense_4h_to_h"),
    "expert-gate": _experts("gate_proj", "w1"),
    "expert-up": _experts("up_proj", "w3"),
    "expert-down": _experts("down_proj", "w2"),
    # Experts that stand beside an MLP of the same layer (Gemma 4).
    "side-expert-gate": _expert_paths(("experts",), ("gate_proj",)),
    "side-expert-up": _expert_paths(("experts",), ("up_proj",)),
    "side-expert-down": _expert_paths(("experts",), ("down_proj",)),
    "shared-gate": _shared("gate_proj", "w1", "gate_up_proj"),
    "shared-up": _shared("up_proj", "w3", "gate_up_proj"),
    "shared-down": _shared("down_proj", "w2"),
    "ssm-in": _recurrent("in_proj"),
    "ssm-out": _recurrent("out_proj"),
    "ssm-x": _recurrent("x_proj"),
    "ssm-dt": _recurrent("dt_proj"),
    "delta-q": _recurrent("in_proj_qkv", "in_proj_qkvz", "q_proj"),
    "delta-k": _recurrent("in_proj_qkv", "in_proj_qkvz", "k_proj"),
    "delta-v": _recurrent("in_proj_qkv", "in_proj_qkvz", "v_proj"),
    "delta-gate": _recurrent("in_proj_z", "in_proj_qkvz", "g_proj"),
    "delta-write": _recurrent("in_proj_b", "in_proj_ba", "b_proj"),
    "delta-decay": _recurrent("in_proj_a", "in_proj_ba"),
    "delta-decay-a": _recurrent("f_a_proj"),
    "delta-decay-b": _recurrent("f_b_proj"),
    "delta-gate-a": _recurrent("g_a_proj"),
    "delta-gate-b": _recurrent("g_b_proj"),
    "delta-out": _recurrent("out_proj", "o_proj"),
    "linear-q": _recurrent("qkv_proj"),
    "linear-k": _recurrent("qkv_proj"),
    "linear-v": _recurrent("qkv_proj"),
    "linear-gate": _recurrent("output_gate"),
    "linear-out": _recurrent("out_proj"),
    "conv-in": ("conv.in_proj",),
    "conv-out": ("conv.out_proj",),
    "latent-down": _inner("fc1_latent_proj"),
    "latent-up": _inner("fc2_latent_proj"),
}


def prefixes_of(names: Iterable[str]) -> frozenset[str]:
    """What stands before `layers.` in module names of a file, of the prefixes that are in use.

    >>> sorted(prefixes_of(["lm_head", "model.layers.0.mlp.gate", "backbone.layers.1.mixer*"]))
    ['backbone.', 'model.']
    """
    found = {name.split("layers.")[0] for name in names if "layers." in name}
    return frozenset(found & set(_PREFIXES))


@cache
def paths_of(name: str, layer: int | None, prefixes: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """All spellings of the path of the matrix `name` in layer `layer`, under `prefixes` (none: the common one).

    >>> paths_of("o", 3)[:2]
    ('model.layers.3.self_attn.o_proj', 'model.layers.3.attn.o_proj')
    """
    if layer is None:
        return (name,)
    locals_ = _NAMES.get(name, (name,))
    chosen = sorted(prefixes) or _PREFIXES[:1]
    return tuple(f"{prefix}layers.{layer}.{local}" for local in locals_ for prefix in chosen)
