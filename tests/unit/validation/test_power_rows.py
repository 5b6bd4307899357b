"""Rows of power: sensors of chips and meters at the wall, never one for the other."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import ScenarioError
from ridgeline.power import Activity, estimate_chips, estimate_power
from ridgeline.validation import run
from ridgeline.validation.power import power_law
from ridgeline.validation.run import score

CASES = Path(score.__code__.co_filename).parent / "cases"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The shipped catalogue."""
    return load_catalog(plugins=False)


def _changed(tmp_path: Path, name: str, **cells: str) -> str:
    with (CASES / name).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    path = tmp_path / name
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows([rows[0], {**rows[0], "id": f"{rows[0]['id']}9", **cells}])
    return str(path)


def test_pictures_have_power_and_energy_and_waiting_chips_draw_less(catalog: Catalog) -> None:
    report = score("power", str(CASES / "power_diffusion.csv"), None, catalog)
    assert len(report.scored) == 2 * (report.rows_count - sum(report.skipped.values())) > 0
    powers = [row for row in report.scored if row.metric == "power"]
    assert all(row.predicted <= (row.baseline or 0.0) * (1 + 1e-9) for row in powers)
    alone = [row.predicted for row in powers if ", 1 x " in row.notes[0]]
    assert alone
    assert min(alone) > 0


def test_a_row_of_sensors_gives_power_and_energy_of_the_chips_alone(catalog: Catalog) -> None:
    report = score("power", str(CASES / "power_llm.csv"), None, catalog)
    assert report.scored
    by_id = {row.id: row for row in report.scored}
    for id, row in by_id.items():
        assert row.family == f"gpu {id.rsplit('.', 1)[-1]}"
        assert row.low < row.predicted < row.high
        if row.metric == "power":
            assert row.baseline is not None
            assert row.predicted <= row.baseline * (1 + 1e-9), "chips draw their limit at most"
            assert row.predicted / by_id[f"{id.rsplit('.', 1)[0]}.energy"].predicted > 0
    assert report.rows_count == len(report.scored) // 2 + sum(report.skipped.values())


def test_wall_power_counts_a_repeated_figure_once_and_leaves_out_capped_runs(tmp_path: Path, catalog: Catalog) -> None:
    repeated = score("power", _changed(tmp_path, "power_wall.csv"), None, catalog)
    assert repeated.skipped.get("repeats the power of another row of its platform") == 1
    capped = _changed(tmp_path, "power_wall.csv", platform="R750xa_A100x4_MaxQ", avg_system_power_w="700")
    assert score("power", capped, None, catalog).skipped.get("power limit of an efficiency run not stated") == 1


def test_serving_takes_its_own_share_of_the_matrix_units(catalog: Catalog) -> None:
    system, law = catalog.system("dgx-h100"), power_law(catalog)
    assert law.serving_compute_share_frac is not None
    assert law.serving_compute_share_frac.best > law.compute_share_frac.best
    trains, serves = (Activity(compute_frac=0.1, memory_frac=0.3, serves=serves) for serves in (False, True))
    more = estimate_chips(system, 1, serves, law).best - estimate_chips(system, 1, trains, law).best
    range_w = (system.chip.tdp_w or 0.0) - (system.chip.idle_w or 0.0)
    assert more == pytest.approx(0.1 * range_w * (law.serving_compute_share_frac.best - law.compute_share_frac.best))
    assert "power.serving_compute_share_frac" in estimate_power(system, 1, serves, law).uses


def test_chips_alone_draw_what_the_whole_machine_counts_for_them(catalog: Catalog) -> None:
    system, law = catalog.system("dgx-h100"), power_law(catalog)
    activity = Activity(compute_frac=0.4, memory_frac=0.3)
    chips = estimate_chips(system, 8, activity, law)
    whole = estimate_power(system, 8, activity, law)
    assert chips.best == pytest.approx(8 * whole.chip_w)
    assert chips.best < whole.total_w.best
    waiting = estimate_chips(system, 8, Activity(compute_frac=0.4, memory_frac=0.3, waiting_frac=0.5), law)
    assert waiting.best < chips.best


def test_a_file_of_another_kind_is_refused_with_the_columns_it_needs(catalog: Catalog) -> None:
    with pytest.raises(ScenarioError, match="not a file of power: needs the columns"):
        run("power", str(CASES / "memory.csv"), catalog=catalog)
