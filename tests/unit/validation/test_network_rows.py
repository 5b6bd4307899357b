"""Names of published rows, and rows of layered networks with their predictions."""

from __future__ import annotations

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_networks import network_serving_job, score_network_row
from ridgeline.validation.network_names import NAMES, row_network
from ridgeline.validation.training_networks import network_job
from ridgeline.validation.training_networks import score_network_row as score_training
from ridgeline.workload.convnets.catalogue import NETWORKS

CATALOG = load_catalog()
TRAINING = {
    "id": "x-1",
    "model": "ResNet-50 v1.5",
    "family": "cnn",
    "device": "A100-SXM-80GB",
    "n_devices": "8",
    "framework": "MXNet+DALI",
    "precision": "fp16",
    "global_batch": "4096",
    "metric": "samples_per_s_total",
    "value": "26000",
    "year": "2022",
}
INFERENCE = {
    "id": "y-1",
    "model": "ResNet50 v1.5",
    "task": "image classification",
    "device": "A100 80GB",
    "source_title": "NVIDIA DeepLearningExamples",
    "engine": "Paddle-TRT",
    "precision": "FP16",
    "batch": "128",
    "scenario": "throughput",
    "metric": "samples_s",
    "value": "20000",
}


def row(cells: dict[str, str], **changes: str) -> Row:
    return Row({**cells, **changes}, 2)


def test_the_table_names_networks_that_exist() -> None:
    assert {name for name, _ in NAMES.values()} <= set(NETWORKS)


def test_names_are_exact_and_sizes_are_the_rows() -> None:
    assert row_network(row(TRAINING, model="ResNet-50 v1.6")) is None
    assert row_network(row(TRAINING, note="synthetic; 288px")).image.spatial == (288, 288)  # type: ignore[union-attr]
    assert row_network(row(INFERENCE, input_shape_or_seq="320x320x3")).image.spatial == (320, 320)  # type: ignore[union-attr]


def test_a_training_row_is_scored_with_its_interval() -> None:
    job, fills = network_job(row(TRAINING), CATALOG)
    assert job.batch_count == 512
    assert job.software.id == "mxnet-1.8"
    scored = score_training(row(TRAINING), CATALOG)
    assert scored.low < scored.predicted < scored.high
    assert scored.unit == "1/s"
    assert scored.fills == tuple(fills)


def test_fills_widen_and_missing_facts_skip() -> None:
    blank = score_training(row(TRAINING, global_batch=""), CATALOG)
    assert any("batch not stated" in fill for fill in blank.fills)
    with pytest.raises(Unscored, match="spatial"):
        network_job(row(TRAINING, global_batch="4"), CATALOG)
    with pytest.raises(Unscored, match="resolution"):
        network_job(row(TRAINING, note="resolution mix not in the table"), CATALOG)
    with pytest.raises(Unscored, match="number of devices"):
        network_job(row(TRAINING, n_devices=""), CATALOG)


def test_channels_first_is_slower() -> None:
    last, first = (score_training(row(TRAINING, note=note), CATALOG).predicted for note in ("", "contiguous layout"))
    assert last > first


def test_an_inference_row_is_scored() -> None:
    job, _ = network_serving_job(row(INFERENCE), CATALOG)
    assert (job.batch_count, job.engine.id, job.sustained) == (128.0, "paddle-trt", True)
    scored = score_network_row(row(INFERENCE), CATALOG)
    assert not scored.is_time
    late = score_network_row(row(INFERENCE, metric="p99_ms", value="6"), CATALOG)
    assert late.is_time
    assert late.unit == "ms"
    single, _ = network_serving_job(row(INFERENCE, batch="", scenario="singlestream", metric="latency_ms"), CATALOG)
    assert (single.batch_count, single.sustained) == (1.0, False)
