"""What a quantised checkpoint stores: `quantization_config` as a precision of each role, with exceptions by matrix.

Understood: fp8 (block and tensor scales), NVIDIA modelopt (FP8, NVFP4, MXFP8, mixed), compressed-tensors, GPTQ, AWQ,
mxfp4 (gpt-oss) and bitsandbytes. Routers, embeddings, norms and image or sound towers stay in the checkpoint's wide
format: they are not the kind of module that these tools replace, or are left out in every published checkpoint. The
head stays wide too, unless the recipe names it.
Parameter counts never change: they are those of the architecture.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.intake.modules import HEAD_PATHS, paths_of, prefixes_of
from ridgeline.intake.reader import Config, shown
from ridgeline.specs import Linear

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_ALGORITHMS = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8",
    "W8A8_FP8": "fp8",
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "INT8_SQ": "int8",
    "W4A16_AWQ": "int4_g128",
    "W4A16": "int4_g128",
}
_KEPT_WIDE = frozenset({"router", "embedding"})
_METHODS = ("fp8", "modelopt", "compressed-tensors", "gptq", "awq", "mxfp4", "bitsandbytes")


@dataclass(frozen=True, slots=True)
class Names:
    """A set of module names and patterns, matched as the tools match them.

    A plain name matches a module of that path, everything below it, and every path that ends in it; `*` stands for
    anything; "re:" starts a regular expression. `prefixes`: what stands before `layers.` in names of this file.
    """

    plain: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    prefixes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """From a list as it stands in a file."""
        plain, patterns = set(), []
        listed = [str(name) for name in names]
        for name in listed:
            if name.startswith("re:"):
                patterns.append(name[3:])
            elif "*" in name:
                patterns.append(fnmatch.translate(name))
            else:
                plain.add(name)
        joined = re.compile("|".join(f"(?:{item})" for item in patterns)) if patterns else None
        return cls(frozenset(plain), joined, prefixes_of(listed))

    def match(self, path: str) -> bool:
        """Whether `path` is meant.

        >>> names = Names.of(["lm_head", "gate", "re:.*self_attn.*", "*.shared_expert.*"])
        >>> [names.match(p) for p in ("lm_head", "model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj")]
        [True, True, False]
        """
        if self.plain:
            parts = path.split(".")
            if any(".".join(parts[:end]) in self.plain for end in range(1, len(parts) + 1)):
                return True
            if any(".".join(parts[start:]) in self.plain for start in range(1, len(parts))):
                return True
        return bool(self.pattern and self.pattern.match(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How a checkpoint stores its matrices.

    `wide`: format of everything else; `base`: format of all linear modules that `kept` does not name ("": none);
    `named`: formats of modules that the file lists one by one; `expert`: format of routed experts where they have
    their own; `only_experts`: nothing else is narrow; `head`: the head counts among the linear modules.
    """

    wide: str = "bf16"
    base: str = ""
    kept: Names = Names()
    named: Mapping[str, str] = field(default_factory=dict)
    expert: str = ""
    only_experts: bool = False
    head: bool = False
    prefixes: frozenset[str] = frozenset()

    def stored(self, item: Linear, layer: int | None) -> str:
        """Stored format of one matrix of layer `layer` (None: outside the layers)."""
        if item.role in _KEPT_WIDE or item.role == "other" or (item.role == "head" and layer is not None):
            return self.wide
        paths = HEAD_PATHS if item.role == "head" else paths_of(item.name, layer, self.prefixes)
        for path in paths:
            if path in self.named:
                return self.named[path]
        if item.role == "expert" and self.expert:
            return self.expert
        if self.only_experts or not self.base or (item.role == "head" and not self.head):
            return self.wide
        return self.wide if any(self.kept.match(path) for path in paths) else self.base


def scheme_of(config: Config) -> Scheme | None:
    """The scheme that a configuration states; None for a checkpoint that is not quantised."""
    holder = config
    if not config.has("quantization_config") and config.has("text_config"):
        holder = config.section("text_config")
    if not holder.has("quantization_config"):
        return None
    section = holder.section("quantization_config")
    wide = _wide(config)
    default = "modelopt" if section.has("quant_algo") else None
    method = section.text("quant_method", default=default, allowed=_METHODS)
    if method == "fp8":
        return _fp8(section, config, wide)
    if method in ("modelopt", "compressed-tensors"):
        return _by_groups(section, wide)
    if method == "mxfp4":
        return Scheme(wide=wide, expert="mxfp4", only_experts=True)
    if method == "bitsandbytes":
        base = "nf4" if section.flag("load_in_4bit", "_load_in_4bit", default=False) else "int8"
        kept = section.items("llm_int8_skip_modules", default=[])
        return _scheme(kept, {}, wide=wide, base=base)
    return _integers(section, wide)


def _scheme(kept: Iterable[object], named: Mapping[str, str], **rest: Any) -> Scheme:
    """A scheme with the names that a file gives."""
    names = Names.of(map(str, kept))
    return Scheme(kept=names, named=named, prefixes=names.prefixes | prefixes_of(named), **rest)


def _wide(config: Config) -> str:
    holders = [config]
    if config.has("text_config"):
        holders.append(config.section("text_config"))
    for holder in holders:
        if holder.has("torch_dtype", "dtype"):
            return _DTYPES[holder.text("torch_dtype", "dtype", allowed=_DTYPES)]
    return "bf16"


def _fp8(section: Config, config: Config, wide: str) -> Scheme:
    """fp8 with 128 x 128 blocks or one scale a tensor; experts may be in 4 bits beside it (DeepSeek-V4)."""
    kept = section.items("modules_to_not_convert", default=[]) or section.items("ignored_layers", default=[])
    named = _listed(section)
    expert = config.text("expert_dtype", default="", allowed=("", "fp4", "fp8"))
    narrow = {"": "", "fp4": "mxfp4", "fp8": "fp8"}[expert]
    if named and section.has("moe_quant_algo"):
        narrow = _algorithm(section, "moe_quant_algo", section.get("moe_quant_algo"))
    return _scheme(kept, named, wide=wide, base="fp8", expert=narrow)


def _by_groups(section: Config, wide: str) -> Scheme:
    """modelopt and compressed-tensors: groups of targets with their number formats, and modules left out."""
    kept = section.items("ignore", default=[]) or section.items("exclude_modules", default=[])
    named = dict(_listed(section))
    base = ""
    algorithm = section.get("quant_algo")
    if algorithm is not None and algorithm != "MIXED_PRECISION":
        base = _algorithm(section, "quant_algo", algorithm)
    groups = section.section("config_groups", required=False)
    for name in groups.data:
        group = groups.section(name)
        stored = _weights(group.section("weights"), section)
        targets = group.items("targets", default=["Linear"])
        if "Linear" in targets:
            base = stored
        elif not section.has("quantized_layers"):
            named |= dict.fromkeys(map(str, targets), stored)
    if not base and not named:
        section.missing("quant_algo", "config_groups")
    return _scheme(kept, named, wide=wide, base=base)


def _listed(section: Config) -> dict[str, str]:
    """Formats of the modules under `quantized_layers`."""
    entries = section.get("quantized_layers")
    if entries is None:
        return {}
    if not isinstance(entries, Mapping):
        section.fail("quantized_layers", f"got {type(entries).__name__}, expected a mapping of modules")
    found = {}
    for module, entry in entries.items():
        algorithm = entry.get("quant_algo") if isinstance(entry, Mapping) else None
        found[str(module)] = _algorithm(section, f"quantized_layers.{module}", algorithm)
    return found


def _algorithm(section: Config, key: str, name: Any) -> str:
    if not isinstance(name, str) or name not in _ALGORITHMS:
        section.fail(key, f"got {shown(name)}, expected {' or '.join(_ALGORITHMS)}")
    return _ALGORITHMS[name]


def _weights(weights: Config, section: Config) -> str:
    """Format of a group's weights by its bits, kind and group."""
    bits = weights.whole("num_bits", low=1, high=16)
    kind = weights.text("type", default="int", allowed=("int", "float"))
    group = weights.get("group_size")
    if kind == "float" and bits == 8:
        return "mxfp8" if group == 32 else "fp8"
    if kind == "float" and bits == 4:
        packed = str(section.get("format") or "")
        return "mxfp4" if "mxfp4" in packed or group == 32 else "nvfp4"
    return _integer(weights, "num_bits", bits, group)


def _integers(section: Config, wide: str) -> Scheme:
    """GPTQ and AWQ: integers in groups; the modules that they name stay wide."""
    bits = section.whole("bits", "w_bit", low=1, high=16)
    group = section.get("group_size", "q_group_size")
    kept = section.items("modules_to_not_convert", default=[])
    head = section.flag("lm_head", default=False)
    return _scheme(kept, {}, wide=wide, base=_integer(section, "bits", bits, group), head=head)


def _integer(section: Config, key: str, bits: int, group: Any) -> str:
    if bits == 8:
        return "int8"
    sizes: dict[float | None, str] = {None: "int4", -1: "int4", 32: "int4_g32", 64: "int4_g64", 128: "int4_g128"}
    if bits != 4:
        section.fail(key, f"got {bits}, expected 4 or 8 bits")
    if not isinstance(group, (int, float, type(None))) or group not in sizes:
        section.fail(section.key_of("group_size", "q_group_size"), f"got {shown(group)}, expected 32, 64, 128 or -1")
    return sizes[group]
