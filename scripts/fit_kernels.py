"""Fits the kernel laws to measured tables and reports how far they are from rows that they have not seen.

    python scripts/fit_kernels.py --write     # catalogue records: src/ridgeline/catalog/data/efficiency/kernels-*.yaml
    python scripts/fit_kernels.py --report    # docs/accuracy-kernels.md

Needs `pip install ridgeline[fit,silicon]` and, for element-wise work, a folder with vidur_mlp_ops.csv (environment
variable RIDGELINE_CORPUS). About ten minutes on one core; both options together fit only once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "src")]

from kernelfit import attention, elementwise, gemm, moe, published  # noqa: E402
from kernelfit.least import Fitted  # noqa: E402
from kernelfit.records import write_records  # noqa: E402
from kernelfit.report import report  # noqa: E402


def everything() -> tuple[list[Fitted], dict[str, list[dict]]]:
    """All laws to ship and all rows of the report."""
    laws, rows = [], {}
    parts = {"gemm": gemm.fit_all}
    parts |= {f"gemm.{law}": (lambda law=law: gemm.fit_narrow(law)) for law in gemm.DTYPES}
    parts |= {
        "prefill": lambda: attention.fit_phase("prefill", "bfloat16"),
        "decode": lambda: attention.fit_phase("decode", "bfloat16"),
        "decode.fp8": lambda: attention.fit_phase("decode", "fp8"),
        "latent": lambda: attention.fit_phase("decode-latent", "bfloat16"),
        "latent.fp8": lambda: attention.fit_phase("decode-latent", "fp8"),
    }
    parts |= {f"moe.{law}": (lambda law=law: moe.fit_all(law)) for law in moe.DTYPES}
    parts["elementwise"] = elementwise.fit_all
    for name, make in parts.items():
        found, rows[name] = make()
        laws += found
    named = {law.scope: law for law in laws if law.kind == "gemm.bf16"}
    laws += published.laws(named)
    rows["rates"] = published.check(laws)
    rows["projections"] = elementwise.check_projections(named)
    return laws, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the catalogue records")
    parser.add_argument("--report", action="store_true", help="write docs/accuracy-kernels.md")
    options = parser.parse_args()
    if not (options.write or options.report):
        parser.error("nothing to do: give --write, --report or both")
    laws, rows = everything()
    if options.write:
        write_records(laws, ROOT / "src" / "ridgeline" / "catalog" / "data" / "efficiency")
    if options.report:
        (ROOT / "docs" / "accuracy-kernels.md").write_text(report(laws, rows))


if __name__ == "__main__":
    main()
