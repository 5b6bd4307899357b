"""Published serving figures of one engine on one kind of machine, beside what is estimated for them.

The tolerances are wide and are not fitted: they say where a change would be a fault. What the estimates get is
printed (`pytest -s`). Sources: TensorRT-LLM's performance pages of releases 0.5 and 1.0.
"""

from __future__ import annotations

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.intake import transformer_from_config
from ridgeline.serving import ServingJob, estimate_max_load, estimate_static_batch
from ridgeline.specs import Load, ServingPlan


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def llama(layers, hidden, heads, kv_heads, inner, vocab):
    config = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    }
    return transformer_from_config(config, id="llama", where="test")


SEVEN = llama(32, 4096, 32, 32, 11008, 32000)
SEVENTY_2 = llama(80, 8192, 64, 8, 28672, 32000)
SEVENTY_3 = llama(80, 8192, 64, 8, 28672, 128256)
# model, system, tensor degree, weights, release, batch (None: maximum load), input, output, tokens/s a device.
ROWS = [
    ("70B FP8 2x H100", SEVENTY_3, "dgx-h100", 2, "fp8", "1.0", None, 1000, 1000, 2102.5),
    ("70B FP8 2x H100", SEVENTY_3, "dgx-h100", 2, "fp8", "1.0", None, 2048, 2048, 1541.0),
    ("70B FP8 2x H100", SEVENTY_3, "dgx-h100", 2, "fp8", "1.0", None, 2048, 128, 381.0),
    ("7B FP16 A100", SEVEN, "dgx-a100", 1, "fp16", "0.5", 64, 128, 128, 3486.0),
    ("7B FP16 A100", SEVEN, "dgx-a100", 1, "fp16", "0.5", 32, 128, 2048, 1459.0),
    ("7B FP8 H100", SEVEN, "dgx-h100", 1, "fp8", "0.5", 64, 128, 128, 9193.0),
    ("70B FP8 4x H100", SEVENTY_2, "dgx-h100", 4, "fp8", "0.5", 64, 128, 128, 3317.0),
]


def estimate(catalog, row):
    _, model, system_id, tensor, precision, release, batch, given, made, _ = row
    system = catalog.system(system_id)
    wide = "fp16"
    job = ServingJob(
        model=model,
        plan=ServingPlan(
            tensor_count=tensor,
            weight_precision=precision,
            activation_precision=precision,
            kv_precision="fp8" if precision == "fp8" else wide,
        ),
        system=system,
        calibration=catalog.calibration(system.chip.id),
        engine=catalog.engine("tensorrt-llm", release),
        load=Load(input_tokens=given, output_tokens=made),
    )
    return estimate_max_load(job) if batch is None else estimate_static_batch(job, batch)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[7]}-{row[8]}".replace(" ", "-"))
def test_published_rate(catalog, row):
    answer = estimate(catalog, row)
    measured = row[-1]
    # The four rows of 2023 are totals of the machine where the table says so: 4x H100 is the sum of four devices.
    rate = answer.output_tokens_per_s if row[0].startswith("70B FP8 4x") else answer.output_tokens_per_s_per_device
    error = rate.best / measured - 1
    print(f"\n{row[0]} {row[7]}/{row[8]}: {rate.best:.0f} against {measured:.0f} tokens/s ({error:+.1%})")
    assert abs(error) < 0.35
    assert rate.low < rate.best < rate.high
