"""Recorded requests of a scenario: the file is read once, and closed forms get its means."""

from __future__ import annotations

import os
from pathlib import Path

from ridgeline.errors import BadRequests, ScenarioError
from ridgeline.intake import Trace, load_requests
from ridgeline.scenario.schema import ScenarioFile


def with_trace(file: ScenarioFile, folder: Path, spot: str) -> tuple[ScenarioFile, Trace | None]:
    """The trace that `workload.serve.traffic` names, and the file with what it leaves out taken from it.

    Lengths that are not given are the means of the trace, the rate is the trace's own where neither a rate nor a
    concurrency is given and it has arrivals.
    """
    serve = file.workload.serve
    if serve is None or serve.traffic.trace is None:
        return file, None
    try:
        trace = load_requests(folder / os.path.expanduser(serve.traffic.trace))
    except BadRequests as error:
        raise ScenarioError(f"{spot}: {error}") from None
    found = trace.requests
    changes: dict[str, object] = {}
    if not serve.input:
        changes["input"] = max(1, round(float(found.input_tokens.mean())))
    if "output" not in serve.model_fields_set:
        changes["output"] = round(float(found.output_tokens.mean()))
    if serve.rate is None and serve.concurrency is None and trace.timed and found.span_s > 0:
        changes["rate"] = found.rate_per_s
    served = serve.model_copy(update=changes)
    return file.model_copy(update={"workload": file.workload.model_copy(update={"serve": served})}), trace
