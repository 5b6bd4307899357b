"""Sizing Qwen3-32B on 32 H200: 4,000 tokens in, 1,000 out, first token within 2 s, 30 ms a token (both at p95).

    python benchmarks/size_qwen3_32b.py [--json] [--devices 32] [--precision fp8] [--kv bf16] [--closed-form]

Engines that do everything and pools of prefill and decode engines; the best of each is simulated. Ends with one JSON
line (alone with --json):
`elapsed_s` counts from the start of this file, imports and catalogue included; `search_s` is the sizing alone;
`process_cpu_s` processor time of all of it, which the limit is held against (others may use the machine);
`peak_bytes` the largest resident size of the process.
"""

from __future__ import annotations

import time

STARTED_S = time.perf_counter()

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402

LIMIT_S = 5.0


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    parser.add_argument("--devices", type=int, default=32)
    parser.add_argument("--model", default="qwen3-32b")
    parser.add_argument("--system", default="dgx-h200")
    parser.add_argument("--engine", default="tensorrt-llm")
    parser.add_argument("--precision", action="append", help="format of the weights; may be repeated (fp8)")
    parser.add_argument("--kv", action="append", help="format of the cache; may be repeated (that of the activations)")
    parser.add_argument("--closed-form", action="store_true", help="do not put both winners to the event simulation")
    return parser.parse_args()


def main() -> int:
    """Size, print."""
    chosen = arguments()
    from ridgeline.catalog import load_catalog
    from ridgeline.scenario import load_scenario
    from ridgeline.scenario.sizing import size

    catalog = load_catalog(plugins=False)
    sizing = {"precisions": chosen.precision or ["fp8"], "simulate": not chosen.closed_form}
    sizing |= {"kv": chosen.kv} if chosen.kv else {}
    load = {"input": 4000, "output": 1000, "ttft_p95": "2 s", "tpot_p95": "30 ms", "engine": chosen.engine}
    scenario = load_scenario(
        {
            "workload": {
                "model": chosen.model,
                "serve": {**load, "sizing": sizing, "precision": sizing["precisions"][0]},
            },
            "candidates": [{"system": chosen.system, "devices": chosen.devices}],
            "objective": "devices",
        },
        catalog=catalog,
    )
    before_s = time.perf_counter()
    answer = size(scenario)
    search_s = time.perf_counter() - before_s
    found = answer.sizing
    everything = {
        "benchmark": "size_qwen3_32b",
        "devices": chosen.devices,
        **{mode: summary(found.best(mode)) for mode in ("aggregated", "disaggregated")},
        "candidates_count": found.tried_count,
        "finalists_count": found.finalists_count,
        "front_count": len(found.front),
        "search_s": round(search_s, 3),
        "elapsed_s": round(time.perf_counter() - STARTED_S, 3),
        "process_cpu_s": round(time.process_time(), 3),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    # One thread: on a machine that does nothing else the wall time is the processor time.
    everything["ok"] = everything["process_cpu_s"] < LIMIT_S and len(found.options) == 2
    if not chosen.json:
        from rich.console import Console

        from ridgeline.report.sizing import sizing_report

        console = Console(highlight=False)
        for part in sizing_report(answer):
            console.print(part)
    print(json.dumps(everything))
    return 0 if everything["ok"] else 1


def summary(option) -> dict[str, object] | None:
    """The figures of one way to serve that are compared with others'."""
    if option is None:
        return None
    return {
        "layout": option.layout,
        "devices": option.devices_count,
        "tokens_per_s_per_device": round(option.device_tokens_per_s, 1),
        "tokens_per_s_per_user": round(1.0 / option.latencies.tpot_s.best, 1),
        "ttft_p95_s": round(option.latencies.ttft_p95_s, 4),
        "tpot_p95_s": round(option.latencies.tpot_p95_s, 5),
        "simulated": None if option.simulated is None else option.simulated.to_dict(),
        "at_once": round(option.requests_per_s.best * option.latencies.e2e_p95_s, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
