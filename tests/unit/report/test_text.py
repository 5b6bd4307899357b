"""Text answers: trees add up on the screen, data prints as tables, nothing is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, RenderableType

from ridgeline.core import Interval, leaf, total
from ridgeline.report import cite_report, data_report, list_report
from ridgeline.report.layout import Keyed, large, ranged, scale_of, significant, table
from ridgeline.report.trees import tree_table


def printed(parts: Sequence[RenderableType], width: int = 120) -> list[str]:
    """Lines as they appear in `width` columns."""
    buffer = StringIO()
    console = Console(file=buffer, width=width, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


TREE = total(
    "step",
    "s",
    [
        total("forward", "s", [leaf("products", 0.9, "s"), leaf("a", 0.001, "s"), leaf("b", 0.002, "s")]),
        leaf("exchange", 0.2, "s"),
        leaf("exchange hidden", -0.103, "s"),
    ],
)


def test_a_tree_shows_values_shares_and_lumps_what_is_small() -> None:
    lines = printed([tree_table(TREE, "time of a step")])
    text = "\n".join(lines)
    assert lines[0].startswith("time of a step")
    assert "products" in text
    assert "90.0 %" in text
    assert "2 smaller parts" in text
    assert "-103 ms" in text
    assert lines[-1].split() == ["total", "1.00", "s", "100.0", "%"]
    everything = "\n".join(printed([tree_table(TREE, "time", everything=True)]))
    assert "smaller parts" not in everything
    assert "1.00 ms" in everything


def test_numbers_read_as_people_write_them() -> None:
    assert ranged(Interval(7.21, 8.4, 9.87)) == "8.40 (7.21-9.87)"
    assert ranged(Interval.exact(3.0)) == "3.00"
    assert ranged(None) == "-"
    assert [significant(x) for x in (0.00285, 1234.5, 1e12, -0.5)] == ["0.00285", "1,234", "1e+12", "-0.500"]
    assert [large(x) for x in (999, 1.5e6, 70.56e9, 1e12)] == ["999", "1.5 M", "70.6 B", "1 T"]
    assert scale_of([None, 2.5e6], ((1e6, "M"), (1.0, ""))) == (1e6, "M")


def test_data_prints_as_lines_and_tables() -> None:
    data = {
        "scored": 1952,
        "median_ape": 0.12345,
        "weight_bytes": 141_107_412_992,
        "nothing": None,
        "skipped": [{"reason": "no batch size", "count": 70}],
        "by": {"a100": {"scored": 10, "baseline": {"p50": 0.5}}, "h100": {"scored": 20, "baseline": {"p50": 0.25}}},
    }
    lines = printed(data_report(data))
    assert "scored: 1,952" in lines
    assert "median_ape: 0.1235" in lines
    assert "weight_bytes: 141,107,412,992  (141 GB)" in lines
    assert not any("nothing" in line for line in lines)
    assert any(line.split() == ["no", "batch", "size", "70"] for line in lines)
    assert any(line.split() == ["by", "scored", "baseline", "p50"] for line in lines)
    assert any(line.split() == ["h100", "20", "0.2500"] for line in lines)


def test_square_brackets_are_text() -> None:
    lines = table("name [bold]", left=(0,))
    assert printed([lines]) == ["name [bold]"]


def test_ids_are_never_cut_whatever_stands_beside_them() -> None:
    ids = [f"a-provider-with-a-long-name.purchase.2026-{month:02}" for month in range(1, 13)]
    long = "a reason in many words " * 8
    for width in (44, 80, 120):
        lines = printed([Keyed(("id", "value", "why"), [(id, "{'a': 1.0}" * 9, long) for id in ids])], width)
        assert [id for id in ids if not any(line.split(" ")[0] == id for line in lines)] == []
        assert "".join("".join(lines).split()).count("wordsareasoninmanywords") >= 1
    listed = {"kind": "sources", "records": [{"id": id, "name": long, "aliases": [long]} for id in ids]}
    assert [id for id in ids if not any(line.startswith(id) for line in printed(list_report(listed)))] == []


def test_a_law_is_cited_by_where_to_see_it() -> None:
    figure = {"id": "power.base_frac", "value": 0.45, "unit": "", "low": 0.3, "high": 0.6, "why": "a busy chip"}
    law = {
        "id": "kernels-published-tpu.attention-prefill.compiled",
        "value": {"compute_frac": 0.5, "memory_frac": 0.8, "launch_s": 5e-6},
        "unit": "",
        "basis": "no kernel rate published",
        "record": "kernels-published-tpu",
    }
    cited = {"assumed": [figure, law], "secondary": [], "sources": [], "models": []}
    lines = printed(cite_report(cited))
    assert any(line.split()[:3] == ["power.base_frac", "0.45", "0.3"] and "a busy chip" in line for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "kernels-published-tpu.attention-prefill.compiled" in text
    assert "compute_frac" not in text
    assert "see `ridgeline show kernels-published-tpu`; no kernel rate published" in text
