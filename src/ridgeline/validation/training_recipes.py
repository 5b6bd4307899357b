"""What a published run's own recipe says of its dispatcher, graphs, overlap and recompute, where its table does not.

NVIDIA publishes the recipes of the runs in its performance tables beside the software; each names a graphics card, a
format and a variant. Only what a row leaves open is taken from there, and each is a fill of that row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ridgeline.specs import Transformer
from ridgeline.specs.plan import Recompute
from ridgeline.specs.software import ExpertOverlap, SoftwareProfile
from ridgeline.validation.corpus import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of one recipe.

    `graphs`: attention is captured (graphs of the router alone leave the host as busy as none); `flex`: tokens go
    through Hybrid-EP or DeepEP (else by all-to-all of the framework's library); `overlap`: their exchange runs behind
    another micro-batch; `cheap_recompute`: norms and activations are made again; `remade_experts`: so is every block of
    experts as a whole.
    """

    graphs: bool = False
    flex: bool = True
    overlap: bool = False
    cheap_recompute: bool = False
    remade_experts: bool = False


_PLAIN, _GRAPHS = Recipe(), Recipe(graphs=True)
_LIBRARY = Recipe(flex=False)
_WHOLE = Recipe(graphs=True, remade_experts=True)
_AGAIN = Recipe(flex=False, cheap_recompute=True)

# (model, device, format or "") in the recipes, first match from the most to the least exact.
# src: megatron-bridge-recipes-qwen, megatron-bridge-recipes-gpt-oss, megatron-bridge-recipes-nemotron,
# megatron-bridge-recipes
_RECIPES: dict[tuple[str, str, str], Recipe] = {
    ("qwen3-30b-a3b", "H100-SXM-80GB", ""): _PLAIN,
    ("qwen3-30b-a3b", "GB300", ""): _PLAIN,
    ("qwen3-30b-a3b", "B300", ""): _PLAIN,
    ("qwen3-30b-a3b", "GB200", "bf16"): _GRAPHS,
    ("qwen3-30b-a3b", "GB200", "fp8"): _PLAIN,
    ("qwen3-30b-a3b", "B200", ""): _GRAPHS,
    ("qwen3-235b-a22b", "H100-SXM-80GB", ""): Recipe(flex=False, overlap=True),
    ("qwen3-235b-a22b", "B200", ""): _LIBRARY,
    ("qwen3-235b-a22b", "B300", ""): _LIBRARY,
    ("qwen3-235b-a22b", "GB200", ""): _GRAPHS,
    ("qwen3-235b-a22b", "GB300", ""): _GRAPHS,
    ("gpt-oss-120b", "H100-SXM-80GB", ""): _AGAIN,
    ("gpt-oss-120b", "B200", ""): _AGAIN,
    ("gpt-oss-120b", "GB200", ""): Recipe(flex=False, overlap=True, cheap_recompute=True),
    ("gpt-oss-120b", "GB300", ""): Recipe(graphs=True, flex=False),
    ("gpt-oss-120b", "B300", ""): _GRAPHS,
    ("deepseek-v3", "H100-SXM-80GB", ""): _PLAIN,
    ("deepseek-v3", "B200", ""): _PLAIN,
    ("deepseek-v3", "B300", ""): _GRAPHS,
    ("deepseek-v3", "GB200", ""): _GRAPHS,
    ("deepseek-v3", "GB300", "fp8"): _PLAIN,
    ("deepseek-v3", "GB300", "bf16"): _GRAPHS,
    ("kimi-k2", "GB300", ""): _PLAIN,
    ("nemotron-3-nano-30b-a3b", "H100-SXM-80GB", ""): _WHOLE,
    ("nemotron-3-super-120b-a12b", "GB200", "fp8"): _WHOLE,
}
# DeepSeek-V3 on B200 in 8 bits has a second variant with 32 devices to a set of experts.
_WIDE_B200 = Recipe(graphs=True, overlap=True)  # src: megatron-bridge-recipes
_WIDE_COUNT = 32  # src: megatron-bridge-recipes


def recipe_of(row: Row, model_id: str) -> Recipe | None:
    """The recipe of a row of Megatron Bridge's tables, or None where none is known."""
    device, precision = row.text("device"), row.text("precision")
    if (model_id, device, row.count("ep")) == ("deepseek-v3", "B200", _WIDE_COUNT):
        return _WIDE_B200
    return _RECIPES.get((model_id, device, precision)) or _RECIPES.get((model_id, device, ""))


def as_in_recipe(
    row: Row, model_id: str, software: SoftwareProfile, fills: list[str]
) -> tuple[SoftwareProfile, Recompute | None]:
    """The software as the row's recipe sets it, and the recompute that the recipe names (None: left open).

    Releases whose recipes hold a whole step in one graph have no other settings to look up for narrow formats; recipes
    of releases before them are known from 2026 on.
    """
    known = "megatron-bridge" in row.text("framework").lower() and software.graphs and software.deduplicated_dispatch
    whole = software.whole_graphs and row.text("precision") != "bf16"
    found = recipe_of(row, model_id) if known and not whole else None
    if found is None:
        return software, None
    fills.append("graphs, dispatcher and overlap of experts as the recipe of the framework has them")
    overlap: ExpertOverlap = "all" if found.overlap else "none"
    changed = replace(software, graphs=found.graphs, deduplicated_dispatch=found.flex, expert_overlap=overlap)
    if found.remade_experts:
        return changed, "full"
    return changed, "selective" if found.cheap_recompute else None


def remade_frac(model: Transformer) -> float:
    """Share of a model's layers that hold experts: what full recompute of a recipe covers.

    All layers are taken alike, so that experts that take longer than other blocks are made again too fast.
    """
    layers = [(run.repeat_count, run.layer) for run in model.main.runs]
    held = sum(count for count, layer in layers if layer.experts_count)
    return held / sum(count for count, _ in layers)
