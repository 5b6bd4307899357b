"""Fit of the attention laws to one engine's own kernels: TensorRT-LLM ("trtllm"), prefill and decode.

An engine that brings its own kernels is not described by those of another on the same chip: with an 8-bit cache,
TensorRT-LLM reaches 83-87 % of the bandwidth of a Hopper part in decode, the FA3 kernels of vLLM 61-79 %.
"""

from __future__ import annotations

from functools import cache

from kernelfit import attention
from kernelfit.attention import DECODE, PREFILL, WIDTH, Data, parameters, predict_decode, predict_prefill
from kernelfit.chips import chip as chip_of
from kernelfit.chips import stand_ins
from kernelfit.least import Fitted, fit, scores
from kernelfit.tables import split, table

FAMILY = "trtllm"
# Rows of queries of a block, and packing of short groups into one.
attention.SHAPE[FAMILY] = (128.0, 0.0)
# Devices whose tables are fitted; their architectures' laws serve the others.
DEVICES = ("a100-sxm4-80", "h100-sxm5-80", "h200-sxm-141", "b200-sxm", "gb200", "l40s", "rtx-pro-6000-server")
FITTED_ROWS = 700
# Decode: beyond so many query heads a key head the table shows another kernel (2-6 % of bandwidth), and below so many
# bytes the replay of the benchmark's graph is most of the time.
MOST_HEADS = 16
LEAST_BYTES = 2e7
# Decode of grouped queries in this table moves keys faster than the memory of the part can: another quantity.
EXCLUDED = {("a100-sxm4-80", "decode"), ("a100-sxm4-80", "decode-mha")}
DOMAIN = {
    "prefill": "",
    "decode": f", 2 to {MOST_HEADS} query heads a key head, over {LEAST_BYTES / 1e6:.0f} MB read",
    "decode-mha": f", one query head a key head, over {LEAST_BYTES / 1e6:.0f} MB read",
}
PHASES = {
    "prefill": ("context", predict_prefill, PREFILL),
    "decode": ("generation", predict_decode, DECODE),
    "decode-mha": ("generation", predict_decode, DECODE),
}


@cache
def load(device: str, phase: str, kv_dtype: str) -> tuple[Data, Data] | None:
    """Rows to fit and rows to score, without windows."""
    if (device, phase) in EXCLUDED:
        return None
    frame = table(device, "attention", "trtllm", f"{PHASES[phase][0]}_attention_perf.parquet")
    if not len(frame):
        return None
    keep = (frame["attn_dtype"] == "bfloat16") & (frame["kv_cache_dtype"] == kv_dtype) & (frame["head_dim"] <= 256)
    keep &= (frame["window_size"] <= 0) & (frame["kernel_source"] == "torch_flow") & (frame["beam_width"] <= 1)
    group = frame["num_heads"] / frame["num_key_value_heads"]
    if phase == "prefill":
        keep &= (frame["isl"] > 1) & (frame["step"] <= 0)
    else:
        read = frame["batch_size"] * (frame["step"] + 1.0) * frame["num_key_value_heads"] * 2.0 * frame["head_dim"]
        grouped = (group > 1) & (group <= MOST_HEADS) if phase == "decode" else group == 1
        keep &= grouped & (read * WIDTH[kv_dtype] > LEAST_BYTES)
    frame = frame[keep]
    if len(frame) < 500:
        return None
    one, two = split(frame, FITTED_ROWS, 4000)
    return Data(device, FAMILY, WIDTH[kv_dtype], one), Data(device, FAMILY, WIDTH[kv_dtype], two)


@cache
def fitted(devices: tuple[str, ...], phase: str, kv_dtype: str) -> dict[str, float]:
    """Parameters that the devices share."""
    sets = [pair[0] for d in devices if (pair := load(d, phase, kv_dtype))]
    return fit(PHASES[phase][1], sets, PHASES[phase][2], attention.F_SCALE)


def fit_phase(phase: str, kv_dtype: str) -> list[Fitted]:
    """Laws of one phase by device, and by architecture for siblings that were not measured."""
    laws: list[Fitted] = []
    suffix = ".fp8" if kv_dtype == "fp8" else ""
    kind = f"attention-decode.{FAMILY}-mha{suffix}" if phase == "decode-mha" else f"attention-{phase}.{FAMILY}{suffix}"
    groups: dict[str, list[str]] = {}
    left: dict[str, list[tuple[float, float, float]]] = {}
    for device in DEVICES:
        found = load(device, phase, kv_dtype)
        if found is None:
            continue
        values = fitted((device,), phase, kv_dtype)
        s = scores(PHASES[phase][1](found[1], values), found[1].seconds)
        basis = f"least squares on the TensorRT-LLM table ({kv_dtype} cache{DOMAIN[phase]}); scored on other rows"
        shipped = parameters(device, FAMILY, phase.removesuffix("-mha"), values) | stand_ins(device)
        laws.append(Fitted(kind, "device", device, shipped, s[0], s[2], len(found[0].seconds), basis))
        architecture = chip_of(device).architecture
        groups.setdefault(architecture, []).append(device)
        print(device, phase, kv_dtype, [round(100 * x, 1) for x in s], flush=True)
    for architecture, devices in groups.items():
        for device in devices:
            others = tuple(d for d in devices if d != device)
            if others:
                values = fitted(others, phase, kv_dtype)
                rows = load(device, phase, kv_dtype)[1]
                left.setdefault(architecture, []).append(scores(PHASES[phase][1](rows, values), rows.seconds))
        laws.append(_of_architecture(kind, phase, kv_dtype, architecture, devices, left.get(architecture, [])))
    return laws


def _of_architecture(
    kind: str, phase: str, kv_dtype: str, architecture: str, devices: list[str], left: list[tuple[float, float, float]]
) -> Fitted:
    values = fitted(tuple(devices), phase, kv_dtype)
    p50 = sum(s[0] for s in left) / len(left) if left else 0.25
    p90 = sum(s[2] for s in left) / len(left) if left else 0.6
    note = "error: measured sibling left out" if left else "error assumed: one device measured"
    rows = FITTED_ROWS * len(devices)
    basis = f"fit of {', '.join(devices)}"
    own = parameters(devices[0], FAMILY, phase.removesuffix("-mha"), values)
    return Fitted(kind, "architecture", architecture, own, p50, p90, rows, basis, note)


def fit_all() -> list[Fitted]:
    """Every law of the engine."""
    cases = [(phase, dtype) for phase in ("decode", "decode-mha") for dtype in ("fp8", "bfloat16")]
    cases.append(("prefill", "bfloat16"))
    return [law for case in cases for law in fit_phase(*case)]
