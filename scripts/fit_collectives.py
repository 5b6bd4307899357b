"""Fit the laws of collectives to measured tables; write the catalogue file and the accuracy page.

    python scripts/fit_collectives.py --shared ../shared

Reads NCCL and engine all-reduce tables of the PyPI package aiconfigurator-core (message_size there counts elements of
two bytes), `facts/collectives.csv` and `corpus/vidur_collectives.csv` of the shared folder. Needs the extras `fit` and
`silicon`. Writes `src/ridgeline/catalog/data/efficiency/collectives.yaml` and `docs/accuracy-collectives.md`.

Rules: a law is fitted on the rows of its own link and kind; its stated error is that of rows that the fit did not see
(every second message size, both ways round). Family laws are pooled over links and stated with one link left out.
Acceptance thresholds, hosts without peer access and rows whose metric is not defined are not fitted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from collectives_fit import report, rows, solve


def main() -> None:
    """Read, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with facts/ and corpus/")
    parser.add_argument("--package", type=Path, default=None, help="folder that holds aiconfigurator_core")
    parser.add_argument("--out", type=Path, default=Path("src/ridgeline/catalog/data/efficiency/collectives.yaml"))
    parser.add_argument("--page", type=Path, default=Path("docs/accuracy-collectives.md"))
    options = parser.parse_args()
    table = rows.load(options.shared, options.package)
    fits = solve.fit_all(table)
    report.write_yaml(fits, options.out)
    report.write_page(fits, table, options.page)


if __name__ == "__main__":
    main()
