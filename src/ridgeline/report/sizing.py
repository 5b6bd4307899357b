"""The text of sizing: ways to serve, the front of tokens a device against tokens a user, what batching buys."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ridgeline.report.layout import plain, table
from ridgeline.scenario.sizing import SizingAnswer
from ridgeline.search.result import rejected_text
from ridgeline.search.sizing_front import FrontPoint
from ridgeline.search.sizing_result import Sized, Sizing
from ridgeline.units import show

_FRONT_COUNT = 10  # src: display


def sizing_report(answer: SizingAnswer) -> Sequence[RenderableType]:
    """After the detail of each machine: what the load needs, and what a slower or faster answer would give."""
    from ridgeline.report.plan import detail_report

    parts: list[RenderableType] = []
    if answer.plan.rows:
        parts += [*detail_report(answer.plan), plain("")]
    else:
        parts += [
            plain(f"{item.system_id} x {item.devices_count:,}, engines that do everything: {'; '.join(item.reasons)}")
            for item in answer.plan.infeasible
        ]
    sizing = answer.sizing
    serve = answer.scenario.file.workload.serve
    free = serve is None or (serve.rate is None and serve.concurrency is None)
    what = "most requests on the devices that there are" if free else "fewest devices for the load"
    if answer.scenario.file.objective != "devices" and not free:
        what = f"sized for the load by {answer.scenario.file.objective}"
    parts.append(plain(f"sizing: {what}", "bold underline"))
    parts.append(_options(sizing.options))
    parts += [plain(f"  {line}") for rank, option in enumerate(sizing.options, start=1) for line in _more(rank, option)]
    parts += [
        plain(f"  {item.system_id} up to {item.devices_count:,} devices: no way: {item.reason}") for item in sizing.none
    ]
    parts.append(plain(_searched(sizing)))
    if len(sizing.front) > 1:
        parts += [plain(""), plain("tokens/s of a device against tokens/s of a user (nothing else beats these):")]
        parts.append(_front(sizing.front))
    for item in sizing.break_evens:
        text = (
            f"{item.running_count:.0f} at once on an engine ({item.user_tokens_per_s:.3g} tokens/s a user,"
            f" {item.device_tokens_per_s:,.4g} a device)"
        )
        where = f"{item.system_id} {item.layout}"
        if item.found:
            parts.append(plain(f"{where}: batching breaks even at {text}: beyond it, latency pays for the rate"))
        else:
            parts.append(plain(f"{where}: batching pays to the largest batch there is room for, {text}"))
    return parts


def _searched(sizing: Sizing) -> str:
    rejected = f"; {rejected_text(sizing.rejected)}" if sizing.rejected else ""
    return f"{sizing.tried_count:,} engines, batches and ratios weighed, {sizing.finalists_count} in full{rejected}"


def _options(options: Sequence[Sized]) -> RenderableType:
    makes = any(option.output_tokens_per_s.best > 0 for option in options)
    waits: tuple[str, ...] = ("TTFT p95", "TPOT p95")
    rates = ("out tok/s", "a device", "USD/M tok", "J/tok")
    if not makes:
        waits, rates = ("latency p95",), ("requests/s", "a device", "USD/M tok in", "J/tok in")
    lines = table("#", "devices", "machine", "layout", *waits, "load", *rates, left=(2, 3), flexible=(3,))
    for rank, option in enumerate(options, start=1):
        hour, latency = option.hour, option.latencies
        times = (latency.ttft_p95_s, latency.tpot_p95_s) if makes else (latency.e2e_p95_s,)
        rate = option.output_tokens_per_s.best if makes else option.requests_per_s.best
        lines.add_row(
            str(rank),
            f"{option.devices_count:,}",
            plain(option.system.id),
            plain(option.layout),
            *(show(time_s, "time") for time_s in times),
            f"{option.utilisation_frac:.0%}",
            f"{rate:,.0f}",
            f"{rate / option.devices_count:,.4g}",
            "-" if hour.usd_per_mtoken is None else f"{hour.usd_per_mtoken.best:.3g}",
            "-" if hour.j_per_token is None else f"{hour.j_per_token.best:.3g}",
        )
    return lines


def _more(rank: int, option: Sized) -> list[str]:
    """What the table has no room for: pools and their transfer, and what the simulation says."""
    lines = []
    if len(option.pools) > 1:
        made = ", ".join(
            f"{pool.plan.replica_count} x {pool.role} of {pool.plan.devices_per_replica_count}"
            f" ({pool.activity.busy_frac:.0%} busy)"
            for pool in option.pools
        )
        moved = f"{show(option.transfer_bytes, 'bytes')} of cache a request in {show(option.transfer_s, 'time')}"
        lines.append(f"{rank}: {made}; {moved}; {option.binding} bind")
    found = option.simulated
    if found is not None:
        at = "" if found.load_frac == 1.0 else f" at {found.load_frac:.0%} of this load"
        verdict = f"; breaks {', '.join(name[:4].rstrip('_').upper() for name in found.broken)}" if found.broken else ""
        lines.append(
            f"{rank}: simulated{at} ({found.requests_count:,} requests): TTFT p95 {show(found.ttft_p95_s, 'time')},"
            f" TPOT p95 {show(found.tpot_p95_s, 'time')}, {found.requests_per_s:.4g} requests/s{verdict}"
        )
    return lines


def _front(front: Sequence[FrontPoint]) -> RenderableType:
    indices = [index * (len(front) - 1) // max(1, _FRONT_COUNT - 1) for index in range(_FRONT_COUNT)]
    chosen = [front[index] for index in dict.fromkeys(indices)] if len(front) > _FRONT_COUNT else list(front)
    lines = table("user", "device", "at once", "first token", "machine", "layout", left=(4, 5), flexible=(5,))
    for point in chosen:
        lines.add_row(
            f"{point.user_tokens_per_s:,.4g}",
            f"{point.device_tokens_per_s:,.4g}",
            f"{point.running_count:,.0f}",
            show(point.ttft_s, "time"),
            plain(point.system_id),
            plain(point.layout),
        )
    return lines
