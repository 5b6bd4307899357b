"""Every layout of GPT-3 175B on 4,096 A100: how many there are, how long the search takes, what it finds and why.

    python benchmarks/search_gpt3_175b.py [--json] [--devices 4096] [--batch 4096] [--software megatron-core]

Ends with one JSON line (alone with --json). Processor time counts from before the catalogue is loaded to after the
winner is explained; `elapsed_cpu_s` is that of the search alone, `peak_bytes` the largest resident size of the process.
The space is described in docs/background/search.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

LIMIT_S = 10.0
LIMIT_BYTES = 2e9
STRATEGIES = 7_126_368


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    parser.add_argument("--devices", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4096, help="global batch in sequences")
    parser.add_argument("--model", default="gpt3-175b")
    parser.add_argument("--system", default="dgx-a100")
    parser.add_argument("--software", default="megatron-core")
    return parser.parse_args()


def bar(done: int, total: int, best_s: float) -> None:
    """A progress bar on stderr where that is a terminal."""
    if sys.stderr.isatty():
        filled = 40 * done // total
        ending = "\n" if done == total else ""
        print(f"\r[{'#' * filled}{' ' * (40 - filled)}] best {best_s:.3f} s", end=ending, file=sys.stderr)


def main() -> int:
    """Search, explain, print."""
    started_s = time.process_time()
    chosen = arguments()
    from ridgeline.catalog import load_catalog
    from ridgeline.intake import load_model
    from ridgeline.scenario.assumptions import ranged_facts
    from ridgeline.search.exhaustive import search_space
    from ridgeline.search.explain import explain
    from ridgeline.search.space import Space
    from ridgeline.specs import TrainingPlan

    catalog = load_catalog(plugins=False)
    system, software = catalog.system(chosen.system), catalog.software(chosen.software)
    calibration = catalog.calibration(system.chip.id)
    space = Space(
        model=load_model(chosen.model, catalog),
        system=system,
        software=software,
        devices_counts=(chosen.devices,),
        base=TrainingPlan(sequence_tokens=2048, global_batch_count=chosen.batch),
    )
    before_s, before_wall_s = time.process_time(), time.perf_counter()
    result = search_space(space, calibration, None if chosen.json else bar)
    search_s, wall_s = time.process_time() - before_s, time.perf_counter() - before_wall_s
    found = explain(space, result, calibration, ranged_facts(catalog, system, software))
    everything = {
        "benchmark": "search_gpt3_175b",
        **{key: value for key, value in result.to_dict().items() if key != "front"},
        "front_count": len(result.front),
        "elapsed_cpu_s": round(search_s, 3),
        "elapsed_s": round(wall_s, 3),
        "process_cpu_s": round(time.process_time() - started_s, 3),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    everything["ok"] = (
        result.strategies_count >= STRATEGIES
        and search_s < LIMIT_S
        and everything["peak_bytes"] < LIMIT_BYTES
        and result.complete
    )
    if not chosen.json and found is not None:
        print("\n".join(found.lines()))
        print("rejected: " + ", ".join(f"{count} {reason}" for reason, count in result.rejected.items()))
    print(json.dumps(everything))
    return 0 if everything["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
