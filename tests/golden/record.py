"""Records the golden answers anew: python tests/golden/record.py "why the answers moved".

Prints every figure that moved by more than half a percent: these belong in the Numbers section of CHANGELOG.md.
"""

from __future__ import annotations

import datetime
import json
import math
import sys
from pathlib import Path

TOLERANCE = 0.005


def main() -> int:
    """Compute, compare, write."""
    if len(sys.argv) != 2 or len(sys.argv[1].split()) < 2:
        print(__doc__)
        return 2
    sys.path.insert(0, str(Path(__file__).parent))
    from golden import RECORDED, figures, recorded, scenarios

    old = recorded()
    answers = {name: figures(scenario) for name, scenario in scenarios().items()}
    for name, found in answers.items():
        for key, value in found.items():
            before = old.get("answers", {}).get(name, {}).get(key)
            same = before == value or (
                isinstance(value, float)
                and isinstance(before, (int, float))
                and math.isclose(value, before, rel_tol=TOLERANCE)
            )
            if not same:
                print(f"{name}.{key}: {before} -> {value}")
    entry = {"date": datetime.date.today().isoformat(), "reason": sys.argv[1]}
    history = [*old.get("history", []), entry]
    RECORDED.write_text(json.dumps({"history": history, "answers": answers}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
