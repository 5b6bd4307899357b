"""The text of `plan`, `train` and `serve`: what was asked, the winner in detail, the ranked table at the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from ridgeline.catalog import Fact
from ridgeline.core import Note
from ridgeline.report.layout import (
    ENERGY_STEPS,
    RUN_STEPS,
    RUN_UNIT,
    large,
    plain,
    ranged,
    scale_of,
    significant,
    table,
    time_text,
)
from ridgeline.report.tables import serving_table, training_table
from ridgeline.report.trees import tree_table
from ridgeline.scenario.answer import AnswerRow, PlanAnswer
from ridgeline.scenario.calibrating import levels_text
from ridgeline.search import ServingRow, TrainingRow, rejected_text
from ridgeline.training import GoodputEstimate
from ridgeline.units import show

_NOTES_SHOWN = 8


def plan_report(answer: PlanAnswer) -> Sequence[RenderableType]:
    """Question, what the answer leans on, the best row in detail, everything ranked."""
    parts: list[RenderableType] = [*_question(answer), *leans_lines(answer.leans), plain("")]
    parts += _detail(answer.rows[0], everything=False)
    return [*parts, *_ranking(answer)]


def detail_report(answer: PlanAnswer) -> Sequence[RenderableType]:
    """As `plan_report`, with the whole trees of every row."""
    parts: list[RenderableType] = [*_question(answer), *leans_lines(answer.leans), plain("")]
    for row in answer.rows:
        parts += _detail(row, everything=True)
    return [*parts, *_ranking(answer)]


def _question(answer: PlanAnswer) -> list[RenderableType]:
    file, model = answer.scenario.file, answer.scenario.model
    size = f"{large(model.parameters_count)} parameters"
    if model.active_parameters_count != model.parameters_count:
        size += f", {large(model.active_parameters_count)} active"
    train, serve = file.workload.train, file.workload.serve
    if train is not None:
        job = (
            f"train on {large(train.tokens)} tokens, sequence {train.sequence:,}, global batch {train.global_batch:,}"
            f" sequences, {train.precision}"
        )
    elif serve is not None:
        load = (
            f"{serve.rate:g} requests/s"
            if serve.rate is not None
            else f"{serve.concurrency:,} at once"
            if serve.concurrency is not None
            else "as much as the limits allow"
        )
        limits = [
            f"{name} p95 {time_text(value)}"
            for name, value in (
                ("first token", serve.ttft_p95),
                ("per token", serve.tpot_p95),
                ("request", serve.latency_p95),
            )
            if value is not None
        ]
        job = f"serve {serve.input:,} tokens in, {serve.output:,} out, {load}" + (
            f"; limits: {', '.join(limits)}" if limits else ""
        )
    return [plain(f"{model.id} ({size}): {job}", "bold"), plain(_place(answer))]


def _place(answer: PlanAnswer) -> str:
    site, file = answer.scenario.site, answer.scenario.file
    said = []
    if site.electricity_usd_per_j is not None:
        said.append(f"{site.electricity_usd_per_j * 3.6e6:.3g} USD/kWh")
    said.append(f"PUE {site.pue_frac:g}")
    if site.carbon_kg_co2e_per_j is not None:
        said.append(f"{site.carbon_kg_co2e_per_j * 3.6e9:.3g} g CO2e/kWh")
    limits = [
        f"{name} {show(value, dimension)}"
        for name, value, dimension in (
            ("deadline", file.limits.deadline, "time"),
            ("budget", file.limits.budget, "money"),
            ("power", file.limits.power, "power"),
        )
        if value is not None
    ]
    text = f"site: {', '.join(said)}"
    return text + (f"; limits: {', '.join(limits)}" if limits else "") + f"; objective: {file.objective}"


def leans_lines(leans: Sequence[Fact]) -> list[RenderableType]:
    """The first lines: assumed and secondary figures that the answer rests on."""
    lines: list[RenderableType] = []
    for kind, word in (("assumed", "assumed"), ("secondary", "secondary (not the maker's)")):
        ids = [fact.id for fact in leans if (fact.kind == "assumed") == (kind == "assumed")]
        if ids:
            shown = ", ".join(ids[:6]) + (f" and {len(ids) - 6} more" if len(ids) > 6 else "")
            lines.append(plain(f"rests on {len(ids)} {word} figure{'s' if len(ids) != 1 else ''}: {shown}", "yellow"))
    if lines:
        lines.append(plain("`ridgeline cite` lists them with their ranges and sources; ranges below are central 80 %"))
    return lines


def _detail(row: AnswerRow, everything: bool) -> list[RenderableType]:
    found = row.found
    used = f" ({found.used_count:,} used)" if found.used_count != found.devices_count else ""
    title = f"{row.rank}. {row.system} x {found.devices_count:,}{used}: {row.layout}"
    parts: list[RenderableType] = [plain(title, "bold underline")]
    parts.append(Padding(Columns(_trees(found, everything), padding=(0, 3)), (1, 0, 0, 2)))
    for line in _figures(row):
        parts.append(Padding(plain(line), (0, 0, 0, 2)))
    notes = list(row.notes)
    shown = notes if everything else notes[:_NOTES_SHOWN]
    for note in shown:
        parts.append(Padding(plain(note_text(note)), (0, 0, 0, 2)))
    if len(notes) > len(shown):
        parts.append(Padding(plain(f"and {len(notes) - len(shown)} more notes (--json has all)"), (0, 0, 0, 2)))
    parts.append(plain(""))
    return parts


def _trees(found: TrainingRow | ServingRow, everything: bool) -> tuple[Table, Table]:
    estimate = found.estimate
    tree = estimate.time if isinstance(found, TrainingRow) else found.estimate.step
    title = "time of a step" if isinstance(found, TrainingRow) else "time of an engine step (mean)"
    memory = tree_table(
        estimate.memory,
        f"memory of a device ({show(estimate.memory_available_bytes, 'bytes')})",
        whole=estimate.memory_available_bytes,
        everything=everything,
    )
    return tree_table(tree, title, everything=everything), memory


def _figures(row: AnswerRow) -> list[str]:
    found = row.found
    power, facility, cost = found.power, found.facility, found.cost
    lines = []
    if isinstance(found, ServingRow) and found.mfu_frac is not None and found.bandwidth_frac is not None:
        lines.append(f"sustained: {found.mfu_frac:.1%} of the peak (MFU), {found.bandwidth_frac:.1%} of the bandwidth")
    if isinstance(found, ServingRow) and found.estimate.cache_tokens_count > 0:
        estimate = found.estimate
        most = f"at most {estimate.max_running_count:,.0f} requests at once ({estimate.binding})"
        lines.append(f"room: the key-value pools hold {estimate.cache_tokens_count:,.0f} tokens; {most}")
    if power is not None and facility is not None:
        chip_w, host_w = show(power.chip_w, "power"), show(power.host_per_device_w, "power")
        meter_w = show(facility.meter_w.best, "power")
        lines.append(f"power: {chip_w} a chip + {host_w} host, {meter_w} at the meter")
    if isinstance(found, TrainingRow) and facility is not None:
        energy_unit, energy_name = scale_of([facility.energy_j.best], ENERGY_STEPS)
        lines[-1] += f"; {ranged(facility.energy_j, energy_unit)} {energy_name}"
        if facility.carbon_kg_co2e is not None:
            lines[-1] += f", {significant(facility.carbon_kg_co2e / 1000)} t CO2e"
    if row.laws:
        lines.insert(0, f"laws: {levels_text(row.laws)}")
    if row.goodput is not None:
        lines.append(_with_failures(row.goodput))
    lines.append("money: " + ("; ".join(_money(row)) or "no price"))
    if cost.break_even_frac is not None:
        share = cost.break_even_frac
        verdict = "at any utilisation renting is cheaper" if share > 1 else f"owning is cheaper above {share:.0%} busy"
        lines[-1] += f"; {verdict}"
    return lines


def _with_failures(goodput: GoodputEstimate) -> str:
    """The run with its failures in one line."""
    _, name = scale_of([goodput.run_s.best], RUN_STEPS)
    unit = RUN_UNIT[name]
    return (
        f"with failures: {ranged(goodput.run_s, unit)} {name}, {goodput.goodput_frac.best:.1%} of it useful steps; "
        f"{significant(goodput.failures_count, 2)} failures, one in {time_text(goodput.between_failures_s)}; "
        f"checkpoint of {show(goodput.checkpoint_bytes, 'bytes')} every {time_text(goodput.period_s)}"
    )


def _money(row: AnswerRow) -> list[str]:
    cost = row.found.cost
    period = "" if isinstance(row.found, TrainingRow) else " an hour"
    said = []
    for kind, interval in cost.rent_usd.items():
        quote = cost.quotes[kind]
        offers = f", {quote.offers_count} offers" if quote.offers_count > 1 else ""
        offer = " ".join(part for part in (quote.price.provider, quote.price.date) if part)
        said.append(f"rent {kind} {show(interval.best, 'money')}{period} ({offer}{offers})")
    if cost.own_usd is not None:
        bought = cost.quotes["purchase"].price
        alone = "" if bought.system else ", price of the device without its node"
        offer = " ".join(part for part in (bought.provider, bought.date) if part)
        said.append(f"own {show(cost.own_usd.best, 'money')}{period} ({offer}{alone})")
    if cost.missing:
        said.append(f"missing {', '.join(cost.missing)}")
    return said


def note_text(note: Note) -> str:
    """A note as a line: its kind and its sentence."""
    return f"{note.kind}: {note.text}"


def _ranking(answer: PlanAnswer) -> list[RenderableType]:
    parts: list[RenderableType] = []
    parts += [plain(note_text(note)) for note in answer.notes if note.kind != "fill"]
    fills = [note.text for note in answer.notes if note.kind == "fill"]
    parts += [plain(f"taken: {text}") for text in dict.fromkeys(fills)]
    if parts:
        parts.append(plain(""))
    for row in answer.rows:
        if row.cost_usd is None:
            parts.append(plain("; ".join(note.text for note in row.found.cost.notes), "yellow"))
    if answer.unsearched:
        parts.append(plain(f"interrupted, not searched: {', '.join(answer.unsearched)}", "yellow"))
    if answer.infeasible:
        lines = table("infeasible", "", left=(0, 1), flexible=(1,))
        for item in answer.infeasible:
            lines.add_row(f"{item.system_id} x {item.devices_count:,}", "; ".join(item.reasons))
        parts += [lines, plain("")]
    training = [row for row in answer.rows if isinstance(row.found, TrainingRow)]
    parts.append(training_table(training) if training else serving_table(answer.rows))
    parts.append(plain(rejected_text(answer.rejected, answer.tried_count)))
    return parts
