"""Rows of fixed arrays (Hailo, Vitis DPU, Edge TPU, Cloud AI 100): operations and weights, batch, threads."""

from __future__ import annotations

import re

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.serving.array import ArrayWork, Mode, estimate_array
from ridgeline.specs.network import Network
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_encoders import TAIL_SIGMA, machine_of
from ridgeline.validation.inference_networks import MULTISTREAM_BATCH, SERVER_SIGMA
from ridgeline.validation.network_names import row_network
from ridgeline.validation.scores import ScoredRow
from ridgeline.workload.network_memory import largest_working_set_count

MILLI = 1e3
_ENGINES = ("hailort", "vitis ai dpu", "edgetpu", "edge tpu")
_STATED = re.compile(r"params ([\d.]+) M, ([\d.]+) GOPS")
_OPS = re.compile(r"([\d.]+)([GM]) ops per image|_([\d.]+)([GM])$")
_SHAPE = re.compile(r"(\d+)x(\d+)")
_SCALES = {"G": 1e9, "M": 1e6}
# Beginnings of names whose networks multiply feature maps by each other (their papers; from its tenth version on YOLO
# has a block of self-attention at the end of its backbone).
ATTENTION = (
    *("cas_vit", "deit", "detr", "efficientformer", "levit", "nextvit", "swin", "vit"),
    *("yolov10", "yolov11", "yolov12"),
)
# What is assumed of a network of which only the operations are stated (log standard deviation).
NO_GRAPH_SIGMA = 0.1


def is_array_row(row: Row) -> bool:
    """Whether the row ran on a fixed array."""
    engine = row.text("engine").lower()
    return engine.startswith(_ENGINES) or (engine.startswith("qualcomm") and row_network(row) is not None)


def score_array_row(row: Row, catalog: Catalog) -> ScoredRow:
    """One row with its prediction; `Unscored` with the reason where there is none."""
    metric, measured = row.text("metric"), row.number("value")
    if metric not in ("samples_s", "latency_ms", "p99_ms") or not measured or measured <= 0:
        raise Unscored("no value")
    system, copies = machine_of(row, catalog)
    chip = system.chip
    fills: list[tuple[str, float]] = []
    work = _work(row, fills)
    batch = row.number("batch") or (MULTISTREAM_BATCH if row.text("scenario").lower() == "multistream" else 1.0)
    estimate = estimate_array(work, chip, catalog.calibration(chip.id), batch, _mode(row))
    if row.text("scenario").lower() == "server":
        fills.append(("latency limit taken as not binding", SERVER_SIGMA))
    value = (
        estimate.samples_per_s.scaled((row.count("n_devices") or 1) * copies)
        if metric == "samples_s"
        else estimate.latency_s.scaled(MILLI)
    )
    if metric == "p99_ms":
        fills.append(("99th percentile read as the time of a batch", TAIL_SIGMA))
    predicted = Interval.from_sigma(value.best, quadrature(value.sigma, *(sigma for _, sigma in fills)))
    each_s = work.ops_count / (chip.peak("int8") / 2)
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=chip.id,
        family=row.text("task") or "image",
        metric=metric,
        unit="1/s" if metric == "samples_s" else "ms",
        measured=measured,
        predicted=predicted.best,
        low=predicted.low,
        high=predicted.high,
        baseline=1.0 / each_s if metric == "samples_s" else each_s * MILLI,
        is_time=metric != "samples_s",
        fills=tuple(text for text, _ in fills),
        notes=(f"{work.ops_count / 1e9:.3g} GOP, {work.weights_bytes / 1e6:.3g} MB of weights",),
    )


def _mode(row: Row) -> Mode:
    note = row.text("note")
    if row.text("engine").lower().startswith("hailort"):
        return "batch"
    if "multi-thread" in note or row.text("scenario").lower() in ("offline", "server"):
        return "threads"
    return "latency" if row.text("metric") != "samples_s" else "one-thread"


def _work(row: Row, fills: list[tuple[str, float]]) -> ArrayWork:
    """What the source states of the network, else its graph's figures."""
    network = row_network(row)
    shape = _SHAPE.match(row.text("input_shape_or_seq"))
    pixels = float(shape.group(1)) * float(shape.group(2)) if shape else 0.0
    stated = _STATED.search(row.text("note"))
    if stated:
        return ArrayWork(
            ops_count=float(stated.group(2)) * _SCALES["G"],
            weights_bytes=float(stated.group(1)) * _SCALES["M"],
            pixels_count=pixels,
            attention=row.text("model").startswith(ATTENTION),
        )
    if network is not None:
        return _of_graph(network, pixels)
    found = _OPS.search(row.text("note")) or _OPS.search(row.text("model"))
    if found is None:
        raise Unscored("neither operations nor graph of the network are known")
    count, scale = (found.group(1), found.group(2)) if found.group(1) else (found.group(3), found.group(4))
    fills.append(("operations as stated; weights and feature maps not known", NO_GRAPH_SIGMA))
    return ArrayWork(ops_count=float(count) * _SCALES[scale], pixels_count=pixels)


def _of_graph(network: Network, pixels: float) -> ArrayWork:
    maps = sum(
        2.0 * node.shape.elements_count * node.copies_count
        for _, node in network.active(training=False)
        if type(node.operator).__name__ in ("Convolution", "Combine")
    )
    return ArrayWork(
        ops_count=network.forward_flop(),
        weights_bytes=float(network.parameters_count),
        pixels_count=pixels or float(network.image.positions_count),
        moved_bytes=network.parameters_count + maps,
        widest_bytes=float(largest_working_set_count(network)),
        outputs_count=_outputs_count(network),
    )


def _outputs_count(network: Network) -> float:
    """Elements that no other layer reads."""
    nodes = [node for _, node in network.active(training=False)]
    read = {index for node in nodes for index in node.inputs}
    return float(sum(node.shape.elements_count for at, node in network.active(training=False) if at not in read))
