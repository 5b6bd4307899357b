"""Simulating Llama-2-7B on one A100 behind vLLM, request by request: requests a second of the simulator, and memory.

    python benchmarks/serve_10k.py [--json] [--requests 10000] [--trace FILE] [--rate R] [--repeat 3]

Requests come from a file with `arrived_at`, `num_prefill_tokens`, `num_decode_tokens` (or the columns of the Azure
traces): the one asked for, else `vidur_splitwise_conv.csv` among the shared inputs beside the repository; where there
is none they are drawn with the means of the published conversation trace. More requests than the file has repeat it.
Ends with one JSON line (alone with --json). `elapsed_s` counts tables of step times and simulation; `table_s` is the
first alone. `compile_s` is what the first run took longer than the best: compilation by numba, or reading what an
earlier process compiled; 0 without numba.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

LIMITS = {True: 50_000.0, False: 3_000.0}
LIMIT_S, LIMIT_BYTES = 60.0, 2e9
# Means of the published conversation trace (19,366 requests in an hour).  # src: azure-llm-2023
INPUT_MEAN, OUTPUT_MEAN, RATE_PER_S = 1155.0, 211.0, 5.4
CONTEXT_TOKENS = 4096
SHARED = Path(__file__).resolve().parents[2] / "shared" / "inputs" / "requests" / "vidur_splitwise_conv.csv"


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--trace", type=Path, help="file of requests (default: see above)")
    parser.add_argument("--rate", type=float, help="mean arrivals a second (default: as recorded)")
    parser.add_argument("--repeat", type=int, default=3, help="runs; the fastest counts")
    parser.add_argument("--model", default="llama-2-7b")
    parser.add_argument("--system", default="dgx-a100")
    parser.add_argument("--engine", default="vllm")
    return parser.parse_args()


def recorded(path: Path, count: int):
    """Arrivals and lengths of the first `count` requests of a file, repeated one after another where it has fewer."""
    import csv
    from datetime import datetime

    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if "arrived_at" in rows[0]:
        arrived = np.array([float(row["arrived_at"]) for row in rows])
        names = ("num_prefill_tokens", "num_decode_tokens")
    else:
        stamps = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
        arrived = np.array([(stamp - stamps[0]).total_seconds() for stamp in stamps])
        names = ("ContextTokens", "GeneratedTokens")
    lengths = np.array([[int(row[name]) for name in names] for row in rows])
    turn, index = np.divmod(np.arange(count), len(rows))
    span = arrived[-1] + arrived[-1] / len(rows)
    return arrived[index] + turn * span, lengths[index, 0], lengths[index, 1]


def drawn(count: int):
    """Poisson arrivals and log-normal lengths with the published means."""
    generator = np.random.default_rng(1)
    spread = 1.0
    arrived = np.cumsum(generator.exponential(1.0 / RATE_PER_S, count))
    inputs, outputs = (
        generator.lognormal(np.log(mean) - spread**2 / 2, spread, count) for mean in (INPUT_MEAN, OUTPUT_MEAN)
    )
    return arrived, inputs, outputs


def main() -> int:
    """Prepare, run, print."""
    chosen = arguments()
    from ridgeline.catalog import load_catalog
    from ridgeline.des.compiled import can_compile
    from ridgeline.intake import load_model
    from ridgeline.serving import ServingJob
    from ridgeline.simulation.engine import prepare
    from ridgeline.simulation.options import Pool
    from ridgeline.specs import Load, ServingPlan
    from ridgeline.specs.requests import Requests

    catalog = load_catalog(plugins=False)
    system = catalog.system(chosen.system)
    job = ServingJob(
        model=load_model(chosen.model, catalog),
        plan=ServingPlan(),
        system=system,
        calibration=catalog.calibration(system.chip.id),
        engine=catalog.engine(chosen.engine),
        load=Load(input_tokens=INPUT_MEAN, output_tokens=OUTPUT_MEAN),
    )
    path = chosen.trace or (SHARED if SHARED.exists() else None)
    given = recorded(path, chosen.requests) if path else drawn(chosen.requests)
    inputs = np.clip(np.round(given[1]), 1, CONTEXT_TOKENS - 1).astype(np.int64)
    outputs = np.clip(np.round(given[2]), 1, CONTEXT_TOKENS - inputs).astype(np.int64)
    requests = Requests(arrived_s=given[0], input_tokens=inputs, output_tokens=outputs)
    if chosen.rate:
        requests = requests.rescaled(chosen.rate)
    tables, runs, compiled = [], [], can_compile()
    for _ in range(max(2, chosen.repeat)):
        before_s = time.perf_counter()
        prepared = prepare((Pool(job=job),), requests)
        tables.append(time.perf_counter() - before_s)
        before_s = time.perf_counter()
        trace = prepared.run(compiled)
        runs.append(time.perf_counter() - before_s)
    elapsed_s = min(tables) + min(runs)
    e2e_s, ttft_s = trace.finished_s - trace.arrived_s, trace.first_token_s - trace.arrived_s
    everything = {
        "benchmark": "serve_10k",
        "requests_count": requests.count,
        "requests_per_s": round(requests.count / elapsed_s, 1),
        "elapsed_s": round(elapsed_s, 4),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "table_s": round(min(tables), 4),
        "simulation_s": round(min(runs), 4),
        "simulated_per_s": round(requests.count / min(runs), 1),
        "compiled": compiled,
        "compile_s": round(runs[0] - min(runs), 3) if compiled else 0.0,
        "steps_count": trace.steps_count,
        "events_count": trace.runs_count,
        "simulated_s": round(trace.end_s, 1),
        "served_per_s": round(trace.requests_per_s, 3),
        "ttft_median_s": round(float(np.nanmedian(ttft_s)), 4),
        "e2e_median_s": round(float(np.nanmedian(e2e_s)), 4),
        "preemptions_count": int(trace.preemptions.sum()),
        "source": path.name if path else "drawn",
    }
    limit = LIMITS[compiled] if requests.count <= 100_000 else requests.count / LIMIT_S
    everything["ok"] = everything["requests_per_s"] > limit and everything["peak_bytes"] < LIMIT_BYTES
    print(json.dumps(everything))
    return 0 if everything["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
