"""Fits attention and expert products of engines that bring their own kernels, and writes catalogue records.

    python scripts/fit_engine_kernels.py      # catalogue records: efficiency/engine-kernels-*.yaml

Needs `pip install ridgeline[fit,silicon]`. About ten minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "src")]

from kernelfit import engine_attention, engine_moe, older_moe  # noqa: E402
from kernelfit.least import Fitted  # noqa: E402
from kernelfit.records import _record  # noqa: E402

FOLDER = ROOT / "src" / "ridgeline" / "catalog" / "data" / "efficiency"


def main() -> None:
    groups: dict[tuple[str, str, str], list[Fitted]] = {}
    for law in (*engine_attention.fit_all(), *engine_moe.fit_all()):
        groups.setdefault(("", law.level, law.scope), []).append(law)
    for law in older_moe.fit_all():
        groups.setdefault(("older-", law.level, law.scope), []).append(law)
    for old in FOLDER.glob("engine-kernels-*.yaml"):
        old.unlink()
    for (age, level, scope), laws in groups.items():
        name = f"engine-kernels-{age}{'arch-' if level == 'architecture' else ''}{scope}"
        text = _record(name, level, scope, laws).replace("scripts/fit_kernels.py", "scripts/fit_engine_kernels.py")
        (FOLDER / f"{name}.yaml").write_text(text)


if __name__ == "__main__":
    main()
