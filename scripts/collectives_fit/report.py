"""The catalogue file and the accuracy page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from collectives_fit.rows import Row
from collectives_fit.solve import EXCHANGES, NVLINKS, Fit, apes, errors

_UNUSED_WITHOUT_SWITCH = ("switch_base_s", "switch_frac", "switch_power")


def write_yaml(fits: Sequence[Fit], path: Path) -> None:
    """All laws as one record of the catalogue."""
    lines = [
        "# Written by scripts/fit_collectives.py; the form of the laws is in ridgeline/network/laws.py.",
        "id: collectives",
        "level: universal",
        "name: Laws of collectives by link and by family of links",
        "laws:",
    ]
    for item in fits:
        lines += [f"  {item.key}:", f"    src: [{', '.join(item.sources)}]", f"    kind: {item.kind}"]
        if item.note:
            lines.append(f'    from: "{item.note}"' if item.kind == "derived" else f'    note: "{item.note}"')
        inner = ", ".join(f"{name}: {_number(value)}" for name, value in item.parameters.items())
        lines += [f"    parameters: {{{inner}}}", f"    ape_p50: {item.p50:.3f}", f"    ape_p90: {item.p90:.3f}"]
        if item.count:
            lines.append(f"    rows: {item.count}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _number(value: float) -> str:
    if value == 0 or abs(value) < 1e-8:
        return "0.0"
    text = f"{value:.4g}"
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


def _pair(residuals: object) -> str:
    p50, p90 = apes(residuals)  # type: ignore[arg-type]
    return f"{100 * p50:.1f} / {100 * p90:.1f}"


def write_page(fits: Sequence[Fit], table: Sequence[Row], path: Path) -> None:
    """The accuracy page."""
    by_key = {item.key: item for item in fits}
    lines = [
        "# How well collectives are predicted",
        "",
        "Made by `python scripts/fit_collectives.py --shared ../shared`. Errors are |predicted / measured - 1| of the",
        "time, median / 90th percentile in percent. A law is fitted to one link and kind; the errors are those of",
        "message sizes that the fit did not see (every second size is left out, both ways round). Sizes run from 512 B",
        "to 512 MB and on to 16 GB where published. Kernel times, not host launches.",
        "",
        "## Inside a node, by link and kind (rows that the fit did not see)",
        "",
        "| link | " + " | ".join(kind.replace("_", "-") for kind in EXCHANGES) + " | send |",
        "|---|" + "---|" * 5,
    ]
    for link in (*NVLINKS, "pcie5-x16", "pcie4-x16"):
        cells = []
        for kind in (*EXCHANGES, "send"):
            item = by_key.get(f"collective.{link}.{kind}")
            cells.append("-" if item is None else f"{100 * item.p50:.1f} / {100 * item.p90:.1f}")
        lines.append(f"| {link} | " + " | ".join(cells) + " |")
    lines += [
        "",
        *_devices(fits, table),
        "",
        *_families(fits),
        "",
        *_peers(by_key),
        "",
        *_between(fits, table),
        "",
        _GAPS,
    ]
    path.write_text("\n".join(lines) + "\n")


def _devices(fits: Sequence[Fit], table: Sequence[Row]) -> list[str]:
    """Each device under the law of its link (in sample: the law is shared by devices of one link)."""
    laws = {item.key: item.parameters for item in fits}
    lines = [
        "## By device, under the law of its link (in sample)",
        "",
        "| device | " + " | ".join(kind.replace("_", "-") for kind in EXCHANGES) + " |",
        "|---|" + "---|" * 4,
    ]
    labels = dict.fromkeys(r.label for r in table if r.source == "nccl-table")
    for label in labels:
        cells = []
        for kind in EXCHANGES:
            rows = [r for r in table if r.label == label and r.kind == kind and r.source == "nccl-table"]
            cells.append(_pair(errors(rows, laws)))
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "`l40s` is a host without peer access between more than two devices: its 4 and 8 device rows were not fitted",
        "and are shown to say how far off such a host is.",
        "",
        "Rows of another collection, not used in any fit (eager timing, jitter of tens of microseconds on small",
        "messages):",
        "",
        "| rows | all sizes | 4 MB and above |",
        "|---|---|---|",
    ]
    for label in ("a100_dgx", "h100_dgx", "h100_pairwise_nvlink"):
        rows = [r for r in table if r.label == label and r.kind == "all_reduce"]
        large = [r for r in rows if r.message_bytes >= 4e6]
        both = f"{_pair(errors(rows, laws))} | {_pair(errors(large, laws))}"
        lines.append(f"| {label} all-reduce, {len(rows)} rows | {both} |")
    return lines


def _families(fits: Sequence[Fit]) -> list[str]:
    lines = [
        "## How far does it carry: one link left out",
        "",
        "A law pooled over the other links, on a link that it has not seen, with nothing but that link's datasheet",
        "rate. Small: below 1 MiB; large: 16 MiB and above. Start-up times differ up to two-fold between devices,",
        "shares of the rate much less: on an unseen NVLink trust large messages to about 20 %, small ones to a factor",
        "of two. Hosts with PCIe differ by a factor of two in the rate as well.",
        "",
        "| family law | rows | all | left out: median / p90 |",
        "|---|---|---|---|",
    ]
    for item in fits:
        if item.extra:
            words = "; ".join(f"{name}: {value}" for name, value in item.extra.items())
            lines.append(f"| {item.key} | {item.count} | {100 * item.p50:.0f} / {100 * item.p90:.0f} | {words} |")
    return lines


def _peers(by_key: dict[str, Fit]) -> list[str]:
    lines = [
        "## All-reduce over peer memory (inference engines, up to 4 MiB)",
        "",
        "| link | pooled | TensorRT-LLM | vLLM | SGLang |",
        "|---|---|---|---|---|",
    ]
    for link in NVLINKS:
        base = f"collective.{link}.peer_all_reduce"
        items = [by_key[base], *(by_key[f"{base}.{engine}"] for engine in ("trtllm", "vllm", "sglang"))]
        cells = " | ".join(f"{100 * item.p50:.1f} / {100 * item.p90:.1f}" for item in items)
        lines.append(f"| {link} | {cells} |")
    return lines


def _between(fits: Sequence[Fit], table: Sequence[Row]) -> list[str]:
    laws = {item.key: item.parameters for item in fits}
    lines = [
        "## Between nodes",
        "",
        "In sample. The last column is the bus bandwidth at the largest message.",
        "",
        "| machine | devices | rows | kind | median / p90 | predicted, measured |",
        "|---|---|---|---|---|---|",
    ]
    places = dict.fromkeys(
        (r.label, r.group.size_count, r.kind)
        for r in table
        if r.source in ("published", "old") and r.link.startswith(("ib", "efa", "roce"))
    )
    for label, ranks, kind in places:
        rows = [r for r in table if (r.label, r.group.size_count, r.kind) == (label, ranks, kind)]
        found = errors(rows, laws)
        last = max(range(len(rows)), key=lambda i: rows[i].message_bytes)
        bus = rows[last].bus_bytes_per_s / 1e9
        place = f"| {label} | {ranks} | {len(rows)} | {kind.replace('_', '-')} "
        lines.append(f"{place}| {_pair(found)} | {bus / math.exp(found[last]):.0f}, {bus:.0f} GB/s |")
    return lines


_GAPS = """## Known gaps

- **1,440 devices on 20 racks** (not fitted): measured bus bandwidth is half of what the links allow at 16 GB and a
  quarter at 512 MB. Two racks (144 devices) are predicted within 11 % for 2 GB and above. No source says which
  algorithm ran or how the racks are joined, so the fall is written down here and not fitted.
- **256 devices over RoCE, all-gather 2 GB** (not fitted): 200 GB/s measured, more predicted. The same report has one
  iteration and one queue pair a connection.
- **Beyond 8 nodes** only single rows are public. The step between nodes (41 us on InfiniBand) is fitted to runs on 2 to
  8 nodes and counts once a node in a ring: gathers of a few hundred MB over 64 nodes hang on it.
- **Old software**: 2022 EFA rows for 3 and 4 nodes reach 60 % of the card rate, a third below today's law.
- **All-gather, reduce-scatter, all-to-all and send between nodes** take the law of the all-reduce: no public sweep.
- **TCP, TPU, xGMI, Gaudi**: a handful of published figures; the laws are marked `derived` or `assumed`, with wide
  ranges.
- **PCIe**: one host (8 devices, generation 5, peer access) and one pair; a host without peer access is 5 to 10 times
  slower.
- NCCL changes protocol by size thresholds that are not always the best choice: single sizes near the change are up to
  50 % slower than the smooth law."""
