"""The search finds the best of what it tries, counts what it drops, and keeps limits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.core import FrozenMap, Interval
from ridgeline.cost import CostTerms, Ownership, newest_quotes
from ridgeline.intake.models import transformer_from_config
from ridgeline.power import PowerLaw
from ridgeline.search import Limits, Machine, Terms, TrainingRequest, rank_training, rejected_text
from ridgeline.search.training import layout_request
from ridgeline.specs import Site, Transformer
from ridgeline.training import TrainingJob, estimate_step, layouts

YEAR = 365.25 * 86400.0


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def model() -> Transformer:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
    }
    return transformer_from_config(config, id="8b", where="here")


@pytest.fixture(scope="module")
def terms(catalog: Catalog) -> Terms:
    def share(name: str) -> Interval:
        fact = catalog.fact(f"power.{name}")
        return Interval(float(fact.low or 0), float(fact.value), float(fact.high or 1))

    names = ("base_frac", "compute_share_frac", "memory_share_frac", "idle_frac", "host_activity_frac", "host_frac")
    return Terms(
        site=Site(electricity_usd_per_j=0.1 / 3.6e6, pue_frac=1.2),
        limits=Limits(),
        objective="time",
        power=PowerLaw(**{name: share(name) for name in names}),
        cost=CostTerms(
            ownership=Ownership(
                depreciation_s=Interval.exact(4 * YEAR),
                utilisation_frac=Interval.exact(0.7),
                network_frac=Interval.exact(0.2),
            )
        ),
    )


def request(model: Transformer, **changes: object) -> TrainingRequest:
    values: dict[str, object] = {
        "model": model,
        "tokens_count": 1e11,
        "sequence_tokens": 4096,
        "global_batch_count": 256,
        "precision": "bf16",
    }
    return TrainingRequest(**(values | changes))  # type: ignore[arg-type]


def machine(catalog: Catalog, name: str, devices: int) -> Machine:
    system = catalog.system(name)
    return Machine(
        system=system,
        devices_count=devices,
        calibration=catalog.calibration(system.chip.id),
        quotes=FrozenMap(newest_quotes(catalog.prices(name), name)),
        software=catalog.software(),
    )


def test_the_best_row_is_the_fastest_of_all_layouts(catalog: Catalog, model: Transformer, terms: Terms) -> None:
    wanted, node = request(model), machine(catalog, "dgx-h100", 16)
    result = rank_training(wanted, [node], terms)
    rejected: dict[str, int] = {}
    every = [
        estimate_step(
            TrainingJob(
                model=model,
                plan=plan,
                system=node.system,
                calibration=node.calibration,
                software=catalog.software(),
            )
        ).step_s.best
        for plan in layouts(layout_request(wanted, node, 16), rejected)
    ]
    assert result.rows[0].estimate.step_s.best == pytest.approx(min(every), rel=1e-12)
    assert result.tried_count == len(every) + sum(rejected.values())
    assert "not better by a lower bound" in result.rejected  # not everything had to be timed
    # 1e11 tokens in steps of 256 x 4096, the last one whole
    assert result.rows[0].run_s.best == pytest.approx(math.ceil(1e11 / (256 * 4096)) * min(every))


def test_the_same_question_has_the_same_answer(catalog: Catalog, model: Transformer, terms: Terms) -> None:
    machines = [machine(catalog, "dgx-h100", count) for count in (8, 16)]
    one, other = (rank_training(request(model), machines, terms) for _ in range(2))
    assert [(row.plan, row.estimate.step_s, row.cost.headline_usd) for row in one.rows] == [
        (row.plan, row.estimate.step_s, row.cost.headline_usd) for row in other.rows
    ]
    turned = rank_training(request(model), machines[::-1], terms)
    assert [row.plan for row in turned.rows] == [row.plan for row in one.rows]


@pytest.mark.parametrize("objective", ["time", "cost", "energy", "devices"])
def test_rows_are_in_the_order_of_the_objective(
    catalog: Catalog, model: Transformer, terms: Terms, objective: str
) -> None:
    machines = [machine(catalog, "dgx-h100", count) for count in (8, 16, 32)]
    rows = rank_training(request(model), machines, replace(terms, objective=objective)).rows  # type: ignore[arg-type]
    values = {
        "time": [row.run_s.best for row in rows],
        "cost": [row.cost.headline_usd.best for row in rows if row.cost.headline_usd is not None],
        "energy": [row.facility.energy_j.best for row in rows],
        "devices": [float(row.used_count) for row in rows],
    }[objective]
    assert len(values) == 3
    assert values == sorted(values)


def test_a_machine_without_a_price_is_last_on_cost_and_says_which(
    catalog: Catalog, model: Transformer, terms: Terms
) -> None:
    priced = machine(catalog, "dgx-h100", 8)
    bare = replace(priced, quotes=FrozenMap())
    rows = rank_training(
        request(model), [bare, replace(priced, devices_count=16)], replace(terms, objective="cost")
    ).rows
    assert [row.devices_count for row in rows] == [16, 8]
    assert rows[1].cost.missing == ("prices.dgx-h100.on-demand", "prices.dgx-h100.purchase")


def test_limits_make_machines_infeasible_with_figures(catalog: Catalog, model: Transformer, terms: Terms) -> None:
    node = machine(catalog, "dgx-h100", 8)
    for limits, told in (
        (Limits(deadline_s=60.0), "deadline 60.0 s"),
        (Limits(power_w=100.0), "limit 100 W"),
        (Limits(budget_usd=1.0), "budget 1.00 USD"),
    ):
        result = rank_training(request(model), [node], replace(terms, limits=limits))
        assert result.rows == ()
        assert told in result.infeasible[0].reasons[0]
        assert result.tried_count == sum(result.rejected.values())


def test_memory_that_does_not_fit_says_how_much_is_needed(catalog: Catalog, model: Transformer, terms: Terms) -> None:
    result = rank_training(request(model), [machine(catalog, "dgx-h100", 1)], terms)
    assert result.rows == ()
    reason = result.infeasible[0].reasons[0]
    assert reason.startswith("out of memory: the least that any layout needs is ")
    assert set(result.rejected) == {"memory"}


def test_devices_that_no_layout_divides_stand_idle_and_are_paid(
    catalog: Catalog, model: Transformer, terms: Terms
) -> None:
    # 56 = 7 x 8 devices: 7 divides neither 32 (34) layers nor a batch of 256
    result = rank_training(request(model), [machine(catalog, "dgx-h100", 56)], replace(terms, objective="cost"))
    row = result.rows[0]
    assert row.devices_count == 56
    assert row.used_count < 56
    whole = rank_training(request(model), [machine(catalog, "dgx-h100", row.used_count)], terms).rows[0]
    assert row.estimate.step_s == whole.estimate.step_s
    assert row.cost.headline_usd is not None
    assert whole.cost.headline_usd is not None
    assert row.cost.headline_usd.best == pytest.approx(whole.cost.headline_usd.best * 56 / row.used_count)
    # idle devices draw less than working ones, and more than nothing
    assert whole.power.total_w.best < row.power.total_w.best < whole.power.total_w.best * 56 / row.used_count


def test_what_is_pinned_is_kept(catalog: Catalog, model: Transformer, terms: Terms) -> None:
    pins = FrozenMap({"tensor_count": 2, "pipeline_count": 4, "micro_batch_count": 2, "recompute": "full"})
    row = rank_training(request(model, pins=pins), [machine(catalog, "dgx-h100", 16)], terms).rows[0]
    plan = row.plan
    assert (plan.tensor_count, plan.pipeline_count, plan.micro_batch_count, plan.recompute) == (2, 4, 2, "full")
    broken = rank_training(
        request(model, pins=FrozenMap({"tensor_count": 3})), [machine(catalog, "dgx-h100", 24)], terms
    )
    assert broken.rows == ()
    assert "tensor degree 3 does not divide" in broken.infeasible[0].reasons[0]


def test_a_layout_within_the_limits_goes_before_a_faster_one_beyond_them(
    catalog: Catalog, model: Transformer, terms: Terms
) -> None:
    node = machine(catalog, "dgx-h100", 16)
    fastest = rank_training(request(model), [node], terms).rows[0]
    assert fastest.facility is not None
    limits = Limits(power_w=fastest.facility.meter_w.best * 0.999)
    row = rank_training(request(model), [node], replace(terms, limits=limits)).rows[0]
    assert row.facility is not None
    assert row.facility.meter_w.best < limits.power_w
    assert row.run_s.best > fastest.run_s.best


def test_layouts_left_out_by_a_bound_are_told_apart_from_those_that_break_a_rule() -> None:
    counts = {"not better by a lower bound": 1064, "memory": 300}
    assert rejected_text(counts, 1500) == (
        "300 of 1,500 layouts rejected: 300 memory; 1,064 not better by a lower bound"
    )
    left_out = {"not better by a lower bound": 3}
    assert rejected_text(left_out, 4) == "none of 4 layouts rejected; 3 not better by a lower bound"
    assert rejected_text({}, 4) == "none of 4 layouts rejected"
