"""Number formats of a serving row: what its columns, its benchmark or its engine's defaults say."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.specs import Chip, EngineProfile, Transformer
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_engines import mlperf_round

# How much a filled format widens the interval (log standard deviation): half of the usual gain of 8 over 16 bits.
FORMAT_SIGMA = 0.2
# Text of a precision column to (stored format, format of the activations; "" is the wide one of the device).
FORMATS: dict[str, tuple[str, str]] = {
    "fp8": ("fp8", "fp8"),
    "float8": ("fp8", "fp8"),
    "fp4": ("nvfp4", "nvfp4"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "mxfp4": ("mxfp4", "mxfp4"),
    "fp16": ("fp16", ""),
    "f16": ("fp16", ""),
    "float16": ("fp16", ""),
    "bf16": ("bf16", ""),
    "bfloat16": ("bf16", ""),
    "fp32": ("fp32", ""),
    "int8": ("int8", "int8"),
    "int8-cw": ("int8", ""),
    "w8a16": ("int8", ""),
    "w8a8": ("int8", "int8"),
    "int4": ("int4_g128", ""),
    "uint4": ("int4_g128", ""),
    "int4-mixed": ("int4_g128", ""),
    "w4a16": ("int4_g128", ""),
    "awq": ("int4_g128", ""),
    "gptq": ("int4_g128", ""),
    "q4_0": ("q4_0", ""),
    "q4_k_m": ("q4_k_m", ""),
    "q5_k_m": ("q5_k_m", ""),
    "q6_k": ("q6_k", ""),
    "q8_0": ("q8_0", ""),
}
# What NVIDIA and AMD ran where their MLPerf system files declare 16-bit weights: their own reports of these rounds
# name FP8 on Hopper, Ada and CDNA 3 and FP4 on Blackwell (nvidia-mlperf-4.1, amd-mlperf-4.1).
MLPERF_16_BIT: dict[str, str] = {"hopper": "fp8", "ada": "fp8", "cdna3": "fp8", "blackwell": "nvfp4"}
_NARROW = frozenset({"fp8", "mxfp8", "nvfp4", "mxfp4", "fp4"})
_WEIGHT_ONLY_ENGINES = frozenset({"neuron", "neuron-vllm", "llama-cpp", "llama-cpp-b6300", "exllamav2", "mlc-llm"})


@dataclass(frozen=True, slots=True)
class Formats:
    """Stored weights, activations and cache; `checkpoint` where the weights are as the model's record has them."""

    weight: str
    activation: str
    cache: str
    checkpoint: bool = False
    fills: tuple[tuple[str, float], ...] = ()


def wide_of(chip: Chip, wanted: str = "") -> str:
    """The 16-bit format of a chip, `wanted` where it is one; fp32 where the chip has no 16-bit rate."""
    if wanted in ("fp16", "bf16", "fp32") and chip.has_peak(wanted):
        return wanted
    return next((name for name in ("bf16", "fp32") if chip.has_peak(name)), "fp32")


def formats_of(row: Row, chip: Chip, engine: EngineProfile, model: Transformer) -> Formats:
    """Formats of a row; `Unscored` for a format that has no meaning here."""
    text = row.text("weight_precision").lower()
    fills: list[tuple[str, float]] = []
    if not text:
        return _blank(row, chip, engine, model)
    if text not in FORMATS:
        raise Unscored(f"weight precision {row.text('weight_precision')!r} is not known")
    stored, fed = FORMATS[text]
    if stored == "nvfp4" and chip.architecture.startswith("cdna"):
        stored = fed = "mxfp4"
    if mlperf_round(row) and text in ("fp16", "bf16") and (narrow := MLPERF_16_BIT.get(chip.architecture)):
        stored = fed = narrow
        fills.append((f"{narrow} weights, as its maker reports where the system file says {text}", FORMAT_SIGMA / 2))
    if stored == "int8" and engine.id in _WEIGHT_ONLY_ENGINES:
        fed = ""
    if fed and not chip.has_peak(fed):
        fed = ""
    wide = wide_of(chip, stored)
    # A checkpoint of this format says itself which matrices it narrows.
    kept = stored in model.precisions.values() and stored in _NARROW
    cache = _cache(row, engine, stored, wide, fills)
    return Formats(stored, fed or wide, cache, checkpoint=kept, fills=tuple(fills))


def _cache(row: Row, engine: EngineProfile, stored: str, wide: str, fills: list[tuple[str, float]]) -> str:
    text = row.text("kv_precision").lower()
    if text:
        if text not in FORMATS:
            raise Unscored(f"cache precision {row.text('kv_precision')!r} is not known")
        return FORMATS[text][0]
    recipes = engine.id.startswith("tensorrt-llm") or bool(mlperf_round(row))
    if stored in _NARROW and recipes:
        fills.append(("fp8 cache, as recipes for narrow weights of this engine have it", FORMAT_SIGMA / 4))
        return "fp8"
    return wide


def _blank(row: Row, chip: Chip, engine: EngineProfile, model: Transformer) -> Formats:
    """No precision stated: the checkpoint's own, the default download of desktop engines, else 16 bits."""
    wide = wide_of(chip)
    if model.precisions:
        stored = next((x for x in model.precisions.values() if x not in ("bf16", "fp16", "fp32")), wide)
        fed = stored if stored in _NARROW and chip.has_peak(stored) and engine.id not in _WEIGHT_ONLY_ENGINES else wide
        return Formats(
            wide, fed, wide, checkpoint=True, fills=((f"{stored} weights, as the checkpoint has them", 0.05),)
        )
    if "compression" in row.text("engine").lower():
        return Formats("int4_g64", wide, "int4_g64", fills=(("4-bit weights and cache, as compression means", 0.1),))
    if engine.id.startswith("llama-cpp"):
        return Formats("q4_k_m", wide, wide, fills=(("Q4_K_M weights, the default of Ollama's library", FORMAT_SIGMA),))
    return Formats(wide, wide, wide, fills=((f"{wide} weights, the default where none are named", FORMAT_SIGMA),))
