"""Which layers see a window, which have experts, which are recurrent: the patterns that families use.

Each rule reads the keys of its family and answers for every layer. Explicit lists in the file come first; a pattern
in code (every sixth layer is global) applies where the file has none. All from `transformers-5.24`.
"""

from __future__ import annotations

from ridgeline.intake.families.rules import WindowRule
from ridgeline.intake.reader import MAX_LAYERS, MAX_TOKENS, Config, shown

_WINDOWED = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
_WHOLE = ("full_attention", "global_attention")


def layer_types(config: Config, count: int, allowed: tuple[str, ...], name: str = "layer_types") -> list[str] | None:
    """The list `name`, each entry one of `allowed`; None where the file has none."""
    if not config.has(name):
        return None
    kinds = config.items(name, count=count)
    for index, kind in enumerate(kinds):
        if kind not in allowed:
            config.fail(f"{name}[{index}]", f"got {shown(kind)}, expected {' or '.join(allowed)}")
    return kinds


def window_size(config: Config, name: str = "sliding_window", default: int | None = None) -> int | None:
    """A window in tokens; None where it is absent, null or not positive."""
    value = config.get(name)
    if value is None:
        value = default
    if value is None or (isinstance(value, (int, float)) and value <= 0):
        return None
    return config.whole(name, low=1, high=MAX_TOKENS, default=default)


def listed_windows(config: Config, count: int) -> list[int | None] | None:
    """Windows by the file's own `layer_types`."""
    kinds = layer_types(config, count, (*_WINDOWED, *_WHOLE))
    if kinds is None:
        return None
    windows: list[int | None] = []
    for kind in kinds:
        key = _WINDOWED.get(kind)
        windows.append(config.whole(key, low=1, high=MAX_TOKENS) if key else None)
    return windows


def every_layer(config: Config, count: int) -> list[int | None]:
    """All layers have the window of `sliding_window`."""
    return listed_windows(config, count) or [window_size(config)] * count


def switched(config: Config, count: int) -> list[int | None]:
    """Layers from `max_window_layers` on have the window where `use_sliding_window` says so (Qwen2)."""
    listed = listed_windows(config, count)
    if listed is not None:
        return listed
    size = window_size(config) if config.flag("use_sliding_window", default=False) else None
    first = config.whole("max_window_layers", high=MAX_LAYERS, default=0) if size else 0
    return [size if index >= first else None for index in range(count)]


def alternating(config: Config, count: int) -> list[int | None]:
    """Every other layer has the window, the first one too (Gemma 2, gpt-oss)."""
    return listed_windows(config, count) or _periodic(window_size(config), 2, count)


def global_every(period: int) -> WindowRule:
    """All but each `period`-th layer have the window; `sliding_window_pattern` in the file sets the period."""

    def rule(config: Config, count: int) -> list[int | None]:
        listed = listed_windows(config, count)
        if listed is not None:
            return listed
        pattern = config.get("sliding_window_pattern", "_sliding_window_pattern")
        if isinstance(pattern, str):
            if not pattern or set(pattern) - set("LG"):
                key = config.key_of("sliding_window_pattern", "_sliding_window_pattern")
                config.fail(key, f"got {shown(pattern)}, expected letters L (window) and G (all) such as LLLG")
            size = window_size(config)
            return [size if pattern[i % len(pattern)] == "L" and i != count - 1 else None for i in range(count)]
        names = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        step = config.whole(*names, low=1, high=MAX_LAYERS, default=period)
        return _periodic(window_size(config), step, count)

    return rule


def _periodic(size: int | None, period: int, count: int) -> list[int | None]:
    return [size if (index + 1) % period else None for index in range(count)]


def local_pairs(config: Config, count: int) -> list[int | None]:
    """GPT-Neo: `attention_types` lists ([kinds], repeats); "local" layers have `window_size`."""
    kinds: list[str] = []
    for entry in config.items("attention_types", default=[[["global", "local"], count // 2]]):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], list):
            config.fail("attention_types", f"got {shown(entry)}, expected [[kinds], repeats]")
        times = entry[1]
        if isinstance(times, bool) or not isinstance(times, int) or not 0 <= times <= MAX_LAYERS:
            config.fail("attention_types", f"got {shown(times)} repeats, expected a whole number up to {MAX_LAYERS}")
        kinds.extend(list(entry[0]) * times)
    if len(kinds) != count:
        config.fail("attention_types", f"describes {len(kinds)} layers, expected {count}")
    size = window_size(config, "window_size", default=256)
    return [size if kind == "local" else None for kind in kinds]


def chunked_but_every(period: int) -> WindowRule:
    """Llama 4: chunks of `attention_chunk_size`, but every `period`-th layer sees everything.

    Chunks are taken as windows of that size: the cache never holds more, and reads are at most that.
    """

    def rule(config: Config, count: int) -> list[int | None]:
        listed = listed_windows(config, count)
        if listed is not None:
            return listed
        size = window_size(config, "attention_chunk_size")
        marks = config.items("no_rope_layers", default=[])
        if len(marks) == count:
            return [size if mark else None for mark in marks]
        step = config.whole("no_rope_layer_interval", low=1, high=MAX_LAYERS, default=period)
        return _periodic(size, step, count)

    return rule


def every_has_experts(config: Config, count: int) -> list[bool]:
    """All layers are mixtures."""
    del config
    return [True] * count


def after_first(config: Config, count: int) -> list[bool]:
    """`mlp_layer_types`, or all but the first `first_k_dense_replace` layers, at `moe_layer_freq` (DeepSeek)."""
    kinds = layer_types(config, count, ("dense", "sparse"), "mlp_layer_types")
    config.skip("first_k_dense_replace", "moe_layer_freq")
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):
        return [bool(mark) for mark in config.wholes("moe_layer_freq", high=1, count=count)]
    first = config.whole("first_k_dense_replace", high=MAX_LAYERS, default=0)
    step = config.whole("moe_layer_freq", low=1, high=MAX_LAYERS, default=1)
    return [index >= first and index % step == 0 for index in range(count)]


def qwen_sparse(config: Config, count: int) -> list[bool]:
    """Each `decoder_sparse_step`-th layer that is not in `mlp_only_layers` (Qwen2-MoE and later)."""
    step = config.whole("decoder_sparse_step", low=1, high=MAX_LAYERS, default=1)
    dense = set(config.wholes("mlp_only_layers", high=MAX_LAYERS)) if config.has("mlp_only_layers") else set()
    return [index not in dense and (index + 1) % step == 0 for index in range(count)]


def llama4_sparse(config: Config, count: int) -> list[bool]:
    """`moe_layers`, or each `interleave_moe_layer_step`-th layer."""
    if config.has("moe_layers"):
        chosen = set(config.wholes("moe_layers", high=MAX_LAYERS))
        return [index in chosen for index in range(count)]
    step = config.whole("interleave_moe_layer_step", low=1, high=MAX_LAYERS, default=1)
    return [index % step == step - 1 for index in range(count)]


def ernie_sparse(config: Config, count: int) -> list[bool]:
    """Layers from `moe_layer_start_index` to `moe_layer_end_index` (-1: the last) at `moe_layer_interval`."""
    first = config.whole("moe_layer_start_index", high=MAX_LAYERS, default=1)
    last = config.whole("moe_layer_end_index", low=-1, high=MAX_LAYERS, default=-1)
    step = config.whole("moe_layer_interval", low=1, high=MAX_LAYERS, default=1)
    last = count - 1 if last == -1 else last
    return [first <= index <= last and (index + 1) % step == 0 for index in range(count)]


def step_sparse(config: Config, count: int) -> list[bool]:
    """`moe_layers_enum` (text "3,4,5"), else as `after_first` (Step 3)."""
    chosen = config.get("moe_layers_enum")
    if chosen is None:
        return after_first(config, count)
    parts = chosen.split(",") if isinstance(chosen, str) else chosen
    try:
        layers = {int(part) for part in parts}
    except (TypeError, ValueError):
        config.fail("moe_layers_enum", f"got {shown(chosen)}, expected layer numbers separated by commas")
    return [index in layers for index in range(count)]
