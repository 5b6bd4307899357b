"""Calibration by a user: points are read strictly, laws move as far as the points agree, and the file can be named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ridgeline
from ridgeline.catalog import load_catalog
from ridgeline.cli.app import app
from ridgeline.core import FrozenMap
from ridgeline.device.calibrate import KernelPoint, kernel_s, law_key_of
from ridgeline.errors import IntakeError, RidgelineError, ScenarioError
from ridgeline.intake.points import read_points
from ridgeline.network import collective_time
from ridgeline.scenario.calibrating import calibrate, calibration_text, read_calibration
from ridgeline.specs import Law, RankGroup
from ridgeline.workload.ops import AttentionPrefill, Elementwise, Gemm

CATALOG = load_catalog(plugins=False)
CHIP, LAWS = CATALOG.chip("a40"), CATALOG.calibration("a40")
SHAPES = [(m, n, k) for m in (16, 256, 1024, 4096) for n in (1024, 8192) for k in (1024, 4096, 11008)]


def gemm(m: float, n: float, k: float) -> KernelPoint:
    return KernelPoint(op=Gemm(name="x", m=m, n=n, k=k), time_s=1.0)


def moved(law: Law, **factors: float) -> Law:
    changed = {name: law.parameters[name] * factor for name, factor in factors.items()}
    return replace(law, parameters=FrozenMap({**law.parameters, **changed}))


def file_of(tmp_path: Path, lines: list[str], header: str = "kind,time,m,n,k") -> Path:
    path = tmp_path / "points.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def products(tmp_path: Path, slower: float = 1.0, **factors: float) -> Path:
    key, law = law_key_of(gemm(1, 1, 1), CHIP, LAWS)
    truth = moved(law, **factors)
    times = [slower * kernel_s(gemm(*shape), CHIP, key, truth) for shape in SHAPES]
    lines = [f"gemm,{t * 1e6:.6g} us,{m},{n},{k}" for t, (m, n, k) in zip(times, SHAPES, strict=True)]
    return file_of(tmp_path, lines)


def test_a_slower_matrix_unit_is_recovered(tmp_path: Path) -> None:
    (fit,) = calibrate(products(tmp_path, compute_frac=0.85), "a40", catalog=CATALOG).fits
    assert (fit.key, fit.moved, fit.prior.level, fit.law.level) == ("gemm.bf16", True, "architecture", "calibrated")
    assert fit.factors["compute_frac"] == pytest.approx(0.85, abs=0.04)
    assert fit.after[0] < 0.35 * fit.before[0]
    assert (fit.law.ape_p50_frac, fit.law.ape_p90_frac) == fit.after


def test_three_bad_points_leave_the_law_where_it_is(tmp_path: Path) -> None:
    """Two of three contradict each other; the prior wins, and the answer says so."""
    key, law = law_key_of(gemm(1, 1, 1), CHIP, LAWS)
    times = [factor * kernel_s(gemm(4096, 4096, 4096), CHIP, key, law) for factor in (3.0, 0.4, 1.0)]
    answer = calibrate(file_of(tmp_path, [f"gemm,{t * 1e6} us,4096,4096,4096" for t in times]), "a40", catalog=CATALOG)
    (fit,) = answer.fits
    assert not fit.moved
    assert fit.law is fit.prior
    assert any("stays" in note for note in answer.notes)
    assert any("3 points" in note for note in answer.notes)
    assert "laws: {}" in calibration_text(answer)


def test_a_few_bad_among_good_points_hardly_matter(tmp_path: Path) -> None:
    path = products(tmp_path, compute_frac=0.85)
    lines = path.read_text().splitlines()
    for index in (3, 9, 15):
        cells = lines[index].split(",")
        lines[index] = ",".join([cells[0], f"{float(cells[1].split()[0]) * 6} us", *cells[2:]])
    path.write_text("\n".join(lines))
    (fit,) = calibrate(path, "a40", catalog=CATALOG).fits
    assert fit.factors["compute_frac"] == pytest.approx(0.85, abs=0.05)


def test_points_in_another_unit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IntakeError, match=r"in the middle, 1e.03 times as long.*check their unit"):
        calibrate(products(tmp_path, slower=1000.0), "a40", catalog=CATALOG)


def test_memory_attention_and_collectives_have_laws_of_their_own(tmp_path: Path) -> None:
    def copy(size: float) -> KernelPoint:
        return KernelPoint(op=Elementwise(name="x", kind="residual", bytes=size), time_s=1.0)

    def prefill(tokens: int) -> KernelPoint:
        op = AttentionPrefill(
            name="x",
            batch_count=1,
            query_tokens=tokens,
            key_tokens=tokens,
            heads_count=32,
            kv_heads_count=8,
            key_dim_count=128,
            value_dim_count=128,
        )
        return KernelPoint(op=op, time_s=1.0, copies_count=float("inf"))

    chip, laws, machine = CATALOG.chip("a100-sxm4-80"), CATALOG.calibration("a100-sxm4-80"), CATALOG.system("dgx-a100")
    header = "kind,time,bytes,collective,ranks,keys,heads,kv_heads,head_dim"
    lines = []
    for power in range(24, 33):
        key, law = law_key_of(copy(1.0), chip, laws)
        time_s = kernel_s(copy(2.0**power), chip, key, moved(law, **{"residual.memory_frac": 0.9}))
        lines.append(f"memory,{time_s * 1e6} us,{2**power} B,,,,,,")
        time_s = 1.2 * collective_time("all_reduce", 2.0**power, RankGroup(size_count=8), machine, laws).time_s
        lines.append(f"collective,{time_s * 1e6} us,{2**power} B,all_reduce,8,,,,")
    for tokens in (1024, 2048, 4096, 8192, 16384):
        key, law = law_key_of(prefill(1), chip, laws)
        time_s = kernel_s(prefill(tokens), chip, key, moved(law, compute_frac=0.92))
        lines.append(f"attention,{time_s * 1e6} us,,,,{tokens},32,8,128")
    answer = calibrate(file_of(tmp_path, lines, header), "a100-sxm4-80", "dgx-a100", catalog=CATALOG)
    by = {fit.key: fit for fit in answer.fits}
    assert set(by) == {"elementwise", "attention-prefill.fa2", "collective.nvlink3.all_reduce"}
    assert all(fit.moved and fit.after[0] < fit.before[0] for fit in by.values())
    assert by["elementwise"].factors["memory_frac"] == pytest.approx(0.9, abs=0.02)
    with pytest.raises(ScenarioError, match="--system ID"):
        calibrate(file_of(tmp_path, lines, header), "a100-sxm4-80", catalog=CATALOG)
    with pytest.raises(ScenarioError, match="holds a100-sxm4-80, the points are of a40"):
        calibrate(file_of(tmp_path, lines, header), "a40", "dgx-a100", catalog=CATALOG)


JOB = {
    "workload": {"model": "llama-2-7b", "train": {"tokens": 1e9, "sequence": 2048, "global_batch": 8}},
    "candidates": [{"system": "a40-8", "devices": 8}],
}


def test_an_answer_says_which_level_made_each_law(tmp_path: Path) -> None:
    points = products(tmp_path, compute_frac=0.85)
    scenario, laws = tmp_path / "job.json", tmp_path / "a40.yaml"
    result = CliRunner().invoke(app, ["calibrate", str(points), "--device", "a40", "--out", str(laws)])
    assert result.exit_code == 0, result.output
    assert "error left out" in result.output
    assert "calibrated" in result.output
    scenario.write_text(json.dumps({**JOB, "calibration": "a40.yaml"}))
    with_points = ridgeline.plan(scenario).rows[0]
    plain = ridgeline.plan(JOB).rows[0]
    levels = {item["law"]: item["level"] for item in with_points.to_dict()["laws"]}
    before = {item["law"]: item["level"] for item in plain.to_dict()["laws"]}
    assert (before["gemm.bf16"], levels["gemm.bf16"], levels["elementwise"]) == (
        "architecture",
        "calibrated",
        "universal",
    )
    assert set(levels) == set(before)
    slower = with_points.to_dict()["step_s"]["best"] / plain.to_dict()["step_s"]["best"]
    assert 1.05 < slower < 1 / 0.85
    text = " ".join(CliRunner().invoke(app, ["train", str(scenario)]).output.split())
    assert "laws: calibrated: gemm.bf16; " in text
    assert "universal: collective.pcie4-x16.all_gather, " in text


def test_the_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    answer = calibrate(products(tmp_path, compute_frac=0.85), "a40", catalog=CATALOG)
    path = tmp_path / "c.yaml"
    path.write_text(calibration_text(answer))
    law = read_calibration(path).laws["gemm.bf16"]
    assert law.tiles == answer.fits[0].law.tiles
    assert dict(law.parameters) == pytest.approx(dict(answer.fits[0].law.parameters))


@pytest.mark.parametrize(
    ("header", "line", "said"),
    [
        ("kind,time,m,n,k", "gemm,35.2,1,2,3", "line 2, time: got '35.2' without a unit"),
        ("kind,time,m,n,k", "gemm,35.2 GB,1,2,3", "unit of bytes"),
        ("kind,time,m,n,k", "gem,35 us,1,2,3", "kind: got 'gem'; nearest: gemm"),
        ("kind,time,m,n,k", "gemm,35 us,1,2,", "line 2, k: missing"),
        ("kind,time,m,n,k", "gemm,35 us,1,2.5,3", "expected a whole number"),
        ("kind,time,m,n,k", "gemm,-1 us,1,2,3", "more than 0"),
        ("kind,time,m,n,k,precission", "gemm,1 us,1,2,3,bf16", "unknown column 'precission'; nearest: precision"),
        ("kind,time,m,n,k,bytes", "gemm,1 us,1,2,3,8 B", "bytes: does not belong to a point of kind gemm"),
        ("kind,m,n,k", "gemm,1,2,3", "no column 'time'"),
        ("kind,time,m,n,k", "", "holds no points"),
        ("kind,time,collective,bytes,ranks", "collective,1 us,all_reduce,1 MB,1", "at least 2 ranks"),
        ("kind,time,keys,heads,kv_heads,head_dim,queries", "attention,1 us,8,1,1,64,16", "16 causal queries on 8 keys"),
        ("kind,time,m,n,k", "gemm,1 us,1,2,3,4", "6 cells under 5 columns"),
        ("kind,time,time", "gemm,1 us,1 us", "stands twice"),
    ],
)
def test_bad_points_say_what_and_where(tmp_path: Path, header: str, line: str, said: str) -> None:
    with pytest.raises(IntakeError) as caught:
        read_points(file_of(tmp_path, [line], header))
    assert said in str(caught.value)


def test_all_bad_lines_come_in_one_message(tmp_path: Path) -> None:
    with pytest.raises(IntakeError) as caught:
        read_points(file_of(tmp_path, ["gemm,1,1,1,1", "gemm,1 us,0,1,1"]))
    assert "line 2, time" in str(caught.value)
    assert "line 3, m" in str(caught.value)
    with pytest.raises(IntakeError, match="cannot be read: No such file"):
        read_points(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", "not a calibration"),
        ("{version: 2, device: a40, laws: {}}", "version 2, this Ridgeline reads 1"),
        ("{version: 1, device: a40, laws: {gemm.bf16: {parameters: {x: y}}}}", "parameters.x: got 'y'"),
        ("{version: 1, device: a40, laws: {gemm.bf16: {parametres: {}}}}", "unknown key 'parametres'"),
        ("{version: 1, device: h100-sxm5-80, laws: {}}", "is of h100-sxm5-80; the candidates have a40"),
        (
            "{version: 1, device: a40, laws: {gemm.bf16: {ape_p50: 0.1, ape_p90: 0.2, parameters: {x: 1}}}}",
            "parameters missing: ",
        ),
    ],
)
def test_a_bad_calibration_is_one_clear_message(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    job: dict[str, Any] = {**JOB, "calibration": str(path)}
    with pytest.raises(RidgelineError) as caught:
        ridgeline.plan(job)
    assert said in str(caught.value)
