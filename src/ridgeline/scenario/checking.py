"""From a file (or dict) and its settings to a checked scenario, before any catalogue is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ridgeline.errors import nearest_names, shown
from ridgeline.scenario.problems import fail, messages, place
from ridgeline.scenario.reading import read_mapping
from ridgeline.scenario.schema import Leaf, PipelineFile, ScenarioFile, ServeFile, Shape, children
from ridgeline.scenario.settings import Path as KeyPath
from ridgeline.scenario.settings import apply_settings


def read_scenario(
    source: str | Path | Mapping[str, Any], sets: Sequence[str] = ()
) -> tuple[ScenarioFile, str, Path, tuple[KeyPath, ...]]:
    """The file as checked by the schema, its name for messages, its folder, and the paths that `--set` gave.

    No catalogue is read: whatever is wrong with the file itself is said at once, all of it.
    """
    if isinstance(source, Mapping):
        data, where, folder = dict(source), "scenario", Path.cwd()
    else:
        data, where, folder = read_mapping(source), str(source), Path(source).resolve().parent
    changed, set_paths = apply_settings(data, sets, ScenarioFile)
    try:
        file = ScenarioFile.model_validate(_without_nulls(changed, ScenarioFile))
    except ValidationError as error:
        raise fail(messages(error, where, set_paths)) from None
    problems = list(_contradictions(file, where, tuple(set_paths)))
    if problems:
        raise fail(problems)
    return file, where, folder, tuple(set_paths)


def _contradictions(file: ScenarioFile, where: str, set_paths: tuple[KeyPath, ...]) -> list[str]:
    """What is wrong between fields that are each right."""
    found = []
    workload = file.workload
    spot = place(where, ("workload",), set_paths)
    if workload.pipeline is not None:
        if workload.train is not None or workload.serve is not None:
            found.append(f"{spot}: has a `pipeline` beside `train` or `serve`; a scenario has one of them")
        if file.calibration:
            at = place(where, ("calibration",), set_paths)
            found.append(f"{at}: laws of one's own are not used by a pipeline of stages; leave it out")
        return [*found, *_stage_contradictions(workload.pipeline, lambda *path: place(where, path, set_paths))]
    if workload.train is None and workload.serve is None:
        found.append(f"{spot}: has neither `train` nor `serve`; give one of them")
    if workload.train is not None and workload.serve is not None:
        found.append(f"{spot}: has both `train` and `serve`; a scenario has one of them")
    if workload.train is not None:
        train = workload.train
        step = train.sequence * train.global_batch
        if train.tokens < step:
            at = place(where, ("workload", "train", "tokens"), set_paths)
            found.append(f"{at}: got {train.tokens:g}, less than one step of sequence x global_batch = {step:,} tokens")
        document, given = train.packing.document, train.input
        if document is not None and document > train.sequence:
            at = place(where, ("workload", "train", "packing", "document"), set_paths)
            found.append(f"{at}: got {document}, longer than the sequence of {train.sequence} that it is packed in")
        if (given.sample is None) != (given.storage is None):
            at = place(where, ("workload", "train", "input"), set_paths)
            found.append(
                f"{at}: `sample` and `storage` belong together: bytes of a sequence, and the rate they come at"
            )
        if train.micro_batch is not None and train.global_batch % train.micro_batch:
            at = place(where, ("workload", "train", "micro_batch"), set_paths)
            found.append(f"{at}: got {train.micro_batch}, does not divide the global_batch {train.global_batch}")
    if workload.serve is not None:
        serve = workload.serve
        found += _traffic_contradictions(serve, lambda *path: place(where, ("workload", "serve", *path), set_paths))
        if serve.rate is not None and serve.concurrency is not None:
            at = place(where, ("workload", "serve"), set_paths)
            found.append(f"{at}: has both `rate` and `concurrency`; give one of them (or neither for the maximum)")
        told = "output" in serve.model_fields_set or serve.traffic.trace is None
        if told and serve.output == 0 and serve.tpot_p95 is not None:
            at = place(where, ("workload", "serve", "tpot_p95"), set_paths)
            found.append(f"{at}: is a limit on generated tokens, but workload.serve.output is 0")
    return found


def _traffic_contradictions(serve: ServeFile, spot: Callable[..., str]) -> list[str]:
    """What is wrong between the traffic and the rest of `workload.serve`."""
    traffic, found = serve.traffic, []
    if not serve.input and traffic.trace is None:
        found.append(f"{spot('input')}: is missing; the input length in tokens, such as 1024")
    if traffic.think is not None and serve.concurrency is None:
        found.append(f"{spot('traffic', 'think')}: users think in a closed loop only; give workload.serve.concurrency")
    if traffic.cv is not None and serve.concurrency is not None:
        found.append(f"{spot('traffic', 'cv')}: users of a closed loop (`concurrency`) have no times between arrivals")
    if traffic.trace is not None:
        for name in ("input_cv", "output_cv"):
            if getattr(traffic, name) is not None:
                found.append(f"{spot('traffic', name)}: the lengths are those of the trace; leave one of them out")
    scheduler = serve.scheduler
    for name, other in (("draft_tokens", "accepted"), ("accepted", "draft_tokens"), ("scale_startup", "scale_target")):
        if getattr(scheduler, name) is not None and getattr(scheduler, other) is None:
            found.append(f"{spot('scheduler', name)}: needs {other} beside it")
    batching = serve.batching
    if batching.max is not None and any(size > batching.max for size in batching.preferred):
        found.append(f"{spot('batching', 'preferred')}: got {max(batching.preferred)}, beyond the max {batching.max}")
    return found


_USUAL = {"decode": "video", "model": "accelerator"}
_ON = {"decode": ("video", "cpu"), "model": ("accelerator",)}


def _stage_contradictions(pipeline: PipelineFile, spot: Callable[..., str]) -> list[str]:
    """What is wrong within and between the stages of a pipeline."""
    found, names = [], [stage.name for stage in pipeline.stages]
    for index, stage in enumerate(pipeline.stages):
        at = ("workload", "pipeline", "stages", index)
        if stage.name in names[:index]:
            found.append(f"{spot(*at, 'name')}: two stages are called {stage.name!r}")
        for name in stage.after or ():
            if name not in names[:index]:
                near = nearest_names(name, names[:index])
                ahead = f"; stages ahead: {', '.join(names[:index]) or 'none'}"
                hint = f"; nearest: {', '.join(near)}" if near else ahead
                found.append(f"{spot(*at, 'after')}: no stage {shown(name)} ahead of this one{hint}")
        allowed = _ON.get(stage.kind, ("cpu", "accelerator"))
        if stage.on is not None and stage.on not in allowed:
            found.append(f"{spot(*at, 'on')}: a stage of kind {stage.kind} runs on {' or '.join(allowed)}")
        if stage.system is not None and (stage.on or _USUAL.get(stage.kind, "cpu")) == "cpu":
            found.append(f"{spot(*at, 'system')}: cores are those of the host; give `on: accelerator` beside it")
        for key, kind in (("time", "work"), ("model", "model")):
            if stage.kind == kind and getattr(stage, key) is None:
                found.append(f"{spot(*at, key)}: is missing; a stage of kind {kind} needs it")
        if stage.kind != "model" and stage.model is not None:
            found.append(f"{spot(*at, 'model')}: a stage of kind {stage.kind} has no model")
        if stage.kind == "resize" and (stage.width is None or stage.height is None):
            found.append(f"{spot(*at, 'width')}: a resize needs the width and height that it makes")
    return found


def _without_nulls(data: Any, shape: Shape) -> Any:
    """A known key with nothing behind it counts as left out; an unknown one stays, to be refused.

    So that `{pue: 1,200}`, which YAML reads as a key `200` beside `pue: 1`, does not pass.
    """
    if isinstance(data, Mapping) and not isinstance(shape, (Leaf, list)):
        known = children(shape)
        return {
            key: _without_nulls(value, known.get(key, Leaf()))
            for key, value in data.items()
            if value is not None or key not in known
        }
    if isinstance(data, list) and isinstance(shape, list):
        return [_without_nulls(item, shape[0]) for item in data]
    return data
