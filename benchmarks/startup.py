"""How long the command line takes to answer and how much room a core install needs, as JSON lines.

    python benchmarks/startup.py [--install]

Processor time (user + system) of fresh processes, the least of several runs, with bytecode compiled first (a cold
start compiles once). `--install` also builds a wheel environment from nothing in a temporary folder and measures its
site-packages with bytecode; that needs a package registry.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"help": 0.4, "plan": 5.0, "install_bytes": 150e6}
RUNS = 5


def processor_s(words: list[str], runs: int) -> float:
    """Least processor time of one run of `words`, children included."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def report(name: str, value: float, unit: str, limit: float) -> bool:
    """One JSON line; whether the value keeps the limit."""
    kept = value <= limit
    print(json.dumps({"benchmark": name, "value": round(value, 4), "unit": unit, "limit": limit, "ok": kept}))
    return kept


def folder_bytes(folder: Path) -> int:
    """Size of all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def install_bytes() -> int:
    """Size of the site-packages of a fresh environment with the core of ridgeline, without pip, bytecode included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "env"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        python = folder / "bin" / "python"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
        subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"], check=False)
        packages = next((folder / "lib").glob("python*/site-packages"))
        compileall.compile_dir(str(packages), quiet=2)
        return folder_bytes(packages)


def main() -> int:
    """Measure, print, and fail where a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", help="measure a fresh install too")
    arguments = parser.parse_args()
    compileall.compile_dir(str(ROOT / "src"), quiet=2)
    command = [sys.executable, "-m", "ridgeline"]
    scenario = str(ROOT / "examples" / "train-70b.yaml")
    processor_s([*command, "--version"], 1)
    kept = [
        report("ridgeline --help", processor_s([*command, "--help"], RUNS), "s", LIMITS["help"]),
        report(
            "ridgeline plan examples/train-70b.yaml", processor_s([*command, "plan", scenario], 3), "s", LIMITS["plan"]
        ),
    ]
    if arguments.install:
        kept.append(report("core install", float(install_bytes()), "B", LIMITS["install_bytes"]))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
