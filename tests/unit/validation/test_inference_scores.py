"""How serving rows are scored: what is read, which layout stands for a row, what widens it, what a bad row costs."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.serving import ServingJob, estimate_serving
from ridgeline.specs import Load, ServingPlan
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference import score_inference
from ridgeline.validation.inference_cases import llm_case
from ridgeline.validation.inference_llm import Session, in_waves, score_row
from ridgeline.validation.inference_names import loaded
from ridgeline.validation.scores import Report, ScoredRow

ROW = {
    "id": "X-0001",
    "source_title": "somebody's table",
    "source_ref": "",
    "model": "Llama 3.1 8B",
    "params_b": "8",
    "device": "H100 80GB HBM3",
    "n_devices": "1",
    "engine": "TensorRT-LLM",
    "engine_version": "0.17",
    "weight_precision": "FP8",
    "kv_precision": "FP8",
    "tp": "1",
    "pp": "",
    "ep": "",
    "batch_or_concurrency": "16",
    "input_len": "1024",
    "output_len": "256",
    "metric": "output_tok_s_total",
    "value": "1000",
    "note": "",
}


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(load_catalog())


def scored(session: Session, **cells: str) -> ScoredRow:
    return score_row(Row({**ROW, **cells}, 2), session)


def report(tmp_path: Path, rows: list[dict[str, str]], catalog: Catalog) -> Report:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(ROW))
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return score_inference(str(path), catalog)


def test_rates_of_one_run_agree_with_each_other(session: Session) -> None:
    output = scored(session).predicted
    assert scored(session, metric="requests_s").predicted == pytest.approx(output / 256)
    assert scored(session, metric="total_tok_s").predicted == pytest.approx(output * (1024 + 256) / 256)
    assert scored(session, metric="tok_s_per_device").predicted == pytest.approx(output)


def test_rate_per_device_is_that_of_all_over_their_number(session: Session) -> None:
    cells = {"n_devices": "2", "tp": "2"}
    all_devices = scored(session, **cells).predicted
    assert scored(session, **cells, metric="tok_s_per_device").predicted == pytest.approx(all_devices / 2)


def test_times_are_in_milliseconds_and_inverted_for_the_error(session: Session) -> None:
    first = scored(session, metric="ttft_ms", value="1000")
    each = scored(session, metric="tpot_ms", value="1000")
    whole = scored(session, metric="latency_ms", value="1000")
    assert whole.predicted == pytest.approx(first.predicted + 255 * each.predicted, rel=1e-6)
    assert whole.is_time
    assert whole.ratio == pytest.approx(1000 / whole.predicted)
    # Little's law: sixteen clients, each answer this long.
    assert scored(session).predicted == pytest.approx(16 * 256 / (whole.predicted / 1e3), rel=1e-6)


SUBMITTED = {
    "source_title": "MLPerf Inference v5.0 closed datacenter",
    "model": "llama2-70b-99",
    "device": "NVIDIA H100-SXM-80GB",
    "n_devices": "8",
    **dict.fromkeys(("engine_version", "tp", "input_len", "output_len", "kv_precision"), ""),
    "batch_or_concurrency": "Offline",
}


def test_submitters_take_the_best_layout(session: Session) -> None:
    row = scored(session, **SUBMITTED)
    case = llm_case(Row({**ROW, **SUBMITTED}, 2), session.catalog)
    found = [session.estimate(case, plan, case.load).output_tokens_per_s.best for plan in case.layouts.plans]
    assert len(found) > 1
    assert row.predicted == pytest.approx(max(found))
    assert max(found) > 1.1 * min(found)


def test_an_assumed_length_widens_the_interval(session: Session) -> None:
    stated = {"input_len": "300", "output_len": "294"}
    assert not any("input" in fill for fill in scored(session, **{**SUBMITTED, **stated}).fills)
    known, assumed = scored(session, **{**SUBMITTED, **stated}), scored(session, **SUBMITTED)
    assert assumed.high / assumed.low > 1.05 * known.high / known.low


def test_batches_that_do_not_fit_run_one_after_the_other(session: Session) -> None:
    catalog = session.catalog
    job = ServingJob(
        model=loaded("llama-2-7b", catalog),
        plan=ServingPlan(weight_precision="bf16", activation_precision="bf16", kv_precision="bf16"),
        system=catalog.system("dgx-h100"),
        calibration=catalog.calibration("h100-sxm5-80"),
        engine=catalog.engine("tensorrt-llm"),
        load=Load(input_tokens=3072, output_tokens=1024, concurrency_count=10.0, static_batch=True),
    )
    room = estimate_serving(job).max_running_count
    assert in_waves(job).e2e_s.best == pytest.approx(estimate_serving(job).e2e_s.best)
    three = in_waves(job.with_load(concurrency_count=2.5 * room))
    third = estimate_serving(job.with_load(concurrency_count=2.5 * room / 3))
    assert three.e2e_s.best == pytest.approx(3 * third.e2e_s.best)
    assert three.ttft_s.best == pytest.approx(2 * third.ttft_s.best)  # mean of the first, second and third batch


def test_naive_figure_of_a_prompt_is_half_of_the_peak(session: Session) -> None:
    cells = {"batch_or_concurrency": "1", "output_len": "1", "metric": "ttft_ms", "weight_precision": "bf16"}
    row = scored(session, **cells, kv_precision="bf16")
    model = loaded("llama-3.1-8b", session.catalog)
    body = model.parameters_count - 2 * 128256 * 4096
    flop = 2 * (body + 128256 * 4096) * 1024 + 2 * 32 * 4096 * 1024 * 1024
    peak = session.catalog.chip("h100-sxm5-80").peak("bf16")
    assert row.baseline == pytest.approx(1e3 * flop / (0.5 * peak), rel=0.01)


def test_naive_figure_of_decoding_is_the_weights_at_six_tenths_of_the_bandwidth(session: Session) -> None:
    cells = {"batch_or_concurrency": "1", "input_len": "1", "output_len": "2", "metric": "decode_tok_s"}
    row = scored(session, **cells, weight_precision="bf16", kv_precision="bf16")
    chip = session.catalog.chip("h100-sxm5-80")
    model = loaded("llama-3.1-8b", session.catalog)
    bandwidth = chip.need("memory_bandwidth_bytes_per_s", "test")
    assert row.baseline == pytest.approx(0.6 * bandwidth / (2 * model.parameters_count), rel=0.1)


def test_rows_that_contradict_themselves_are_told(session: Session) -> None:
    with pytest.raises(Unscored, match="failed run"):
        scored(session, id="XD-0240")
    meant = scored(session, id="MLPL-0408", metric="requests_s", value="21944")
    assert (meant.metric, meant.notes[1]) == ("output_tok_s_total", "read as output_tok_s_total")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"n_devices": "0"}, "n_devices '0' is out of range"),
        ({"tp": "-1"}, "tp '-1' is out of range"),
        ({"input_len": "1e99"}, "input_len '1e99' is out of range"),
        ({"output_len": "1", "metric": "tpot_ms"}, "metric 'tpot_ms' of a run that generates too few tokens"),
        ({"metric": "smiles"}, "metric 'smiles' is not known"),
        ({"value": ""}, "no value"),
        ({"model": "Llama 3.1 405B"}, "the model does not fit the stated devices and layout by our account"),
    ],
)
def test_a_row_that_cannot_be_scored_is_counted_and_takes_no_other_with_it(
    tmp_path: Path, session: Session, cells: dict[str, str], reason: str
) -> None:
    found = report(tmp_path, [cells, {"id": "X-0002"}], session.catalog)
    assert found.skipped == {reason: 1}
    assert [row.id for row in found.scored] == ["X-0002"]


def test_same_cells_give_same_figures(tmp_path: Path, session: Session) -> None:
    first, second = report(tmp_path, [{}, {"id": "Z-0001"}], session.catalog).scored
    assert replace(first, id="", source="") == replace(second, id="", source="")


def test_few_requests_never_fill_an_engine_and_many_hardly_notice(session: Session) -> None:
    """A run of as many requests as fit is one batch; one of many more is nearly the steady state, which stands where
    the table of the source does not say how many there were (a prompt of 129 tokens)."""
    title = "TensorRT-LLM performance overview"
    queued = {"batch_or_concurrency": "max load (all requests queued)", "source_title": title}
    eight = {"n_devices": "8", "tp": "8", "output_len": "4096"}
    few = scored(session, **queued, **eight, input_len="128")  # 1,500 requests, of which 2,048 would fit
    steady = scored(session, **queued, **eight, input_len="129")
    assert few.predicted < 0.97 * steady.predicted  # 4.4 % by the step of 1,500 against that of 2,048
    many = scored(session, **queued, input_len="128", output_len="128")  # 30,000 requests
    full = scored(session, **queued, input_len="129", output_len="128")
    assert many.predicted == pytest.approx(full.predicted, rel=0.05)


def test_arrivals_at_random_leave_room(session: Session) -> None:
    cells = {
        "source_title": "MLPerf Inference v4.1 closed",
        "model": "llama2-70b-99",
        "device": "NVIDIA H100-SXM-80GB",
        "n_devices": "8",
        "tp": "",
        "input_len": "",
        "output_len": "",
    }
    server = scored(session, **cells, batch_or_concurrency="Server")
    offline = scored(session, **cells, batch_or_concurrency="Offline")
    assert 0.8 * offline.predicted < server.predicted < offline.predicted
