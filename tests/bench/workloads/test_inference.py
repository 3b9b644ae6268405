"""The scenarios of `inference` on a real model, and what they refuse."""

import pytest

from dyno.bench.measure.serving import Served, ServedRate
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads._served_models import MODELS
from dyno.errors import InvalidSpec, RunFailed
from tests.running import started

INFERENCE = workload("inference")


def params(**fields):
    return validate_params(INFERENCE, fields)


def built(context, **fields):
    return started(INFERENCE.build(params(**fields), context()))


@pytest.mark.parametrize(("scenario", "samples"), [("single_stream", 1), ("multi_stream", 8)])
def test_a_stream_times_queries_of_one_or_of_eight_samples(context, scenario, samples):
    made = built(context, scenario=scenario)
    found = made.verify()
    assert (made.work, found.amounts, found.details["batch_size"]) == (samples, {"call": samples}, samples)
    assert "RESULT_INCORRECT" in found.verified
    assert found.warnings == []
    assert made.counted_flops() == pytest.approx(found.flops, rel=0.1)


def test_offline_finds_the_fastest_batch_once(context):
    first = built(context, scenario="offline")
    found = first.verify()
    tried = found.details["tried"]
    assert found.tuned["batch_size"] == first.work == int(max(tried, key=tried.get))
    later = context(run=1)
    later.tuned["batch_size"] = 4
    made = started(INFERENCE.build(params(scenario="offline"), later))
    assert (made.work, "tried" in made.verify().details) == (4, False)


def test_a_server_answers_in_batches_at_the_rate_that_it_finds(context):
    made = built(context, scenario="server", max_batch=4, limit_ms=500)
    made.answer_queries(1.0, 3)
    found = made.verify()
    assert found.figures["served_rate"] > 0
    assert 0 <= found.figures["late_share"] <= 1
    server = found.details["server"]
    assert set(server["batches"]) <= {"1", "2", "3", "4"}
    assert list(server["mean_service_s"]) == ["1", "2", "4"]
    assert server["queries"] > 0


def test_a_limit_below_one_call_ends_the_run_with_the_time_of_a_call(context):
    made = built(context, scenario="server", max_batch=1, limit_ms=0.001)
    with pytest.raises(RunFailed, match="no rate keeps the limit of 1 µs: a single call takes"):
        made.answer_queries(0.2, 3)


@pytest.mark.provokes("LIMIT_MISSED")
@pytest.mark.silent("LIMIT_MISSED")
@pytest.mark.parametrize(("late", "queries", "codes"), [(0.04, 50, []), (0.05, 50, ["LIMIT_MISSED"]), (0.05, 19, [])])
def test_a_rate_at_which_too_many_are_late_is_named(context, late, queries, codes):
    made = built(context, scenario="server", max_batch=1)
    made._served_rate = ServedRate(50.0, queries, late, 0.04, Served([0.1], [(1, 0.1)]), {1: [0.1]}, [])
    found = made.verify()
    assert [raised.code for raised in found.warnings] == codes
    assert ("LIMIT_MISSED" in found.unchecked) == (queries < 20)


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.verify)])
def test_other_precisions_are_observed(context, precision):
    found = built(context, scenario="multi_stream", precision=precision).verify()
    assert (found.warnings, found.precision.observed) == ([], precision)


def test_each_batch_size_that_serves_is_compared(context):
    made = built(context, scenario="server", max_batch=4, limit_ms=500)
    made.answer_queries(0.3, 3)
    wrong = made._model.of(2)
    wrong.execute(1)
    wrong._outputs = wrong._outputs[:1]
    assert [raised.code for raised in made.verify().warnings] == ["RESULT_INCORRECT"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"limit_ms": 10}, "/params/limit_ms"),
        ({"scenario": "offline", "max_batch": 2}, "/params/max_batch"),
        ({"scenario": "server", "batch_size": 2}, "/params/batch_size"),
        ({"scenario": "server", "rate_per_s": 2}, "/params/rate_per_s"),
        ({"scenario": "server", "limit_ms": 0}, "/params/limit_ms"),
        ({"scenario": "server", "limit_ms": 5, "max_wait_ms": 5}, "/params/max_wait_ms"),
        ({"model": "alexnet"}, "/params/model"),
    ],
)
def test_errors_name_the_field(fields, pointer):
    with pytest.raises(InvalidSpec) as invalid:
        params(**fields)
    assert [error.pointer for error in invalid.value.errors] == [pointer]


def test_images_differ_in_patches():
    first, second = MODELS["mobilenet_v2"].images(2, seed=1)
    assert first.shape == (224, 224, 3)
    assert (first != second).mean() > 0.9
    assert (first[0, 0] == first[31, 31]).all()


@pytest.mark.verify
@pytest.mark.parametrize("model", [name for name in MODELS if not name.endswith("_cnn")])
def test_the_flops_of_an_application_are_those_that_the_framework_counts(context, model):
    made = built(context, model=model)
    assert made.counted_flops() == pytest.approx(MODELS[model].flops, rel=0.1)
    assert made.verify().details["weights"] == pytest.approx(MODELS[model].weights, rel=0.02)


def test_its_metrics_are_those_of_the_scenario():
    names = {
        scenario: [spec.name for spec in INFERENCE.metrics_for(params(scenario=scenario))]
        for scenario in ("offline", "server")
    }
    assert names["offline"] == ["throughput", "latency"]
    assert names["server"][0] == "served_rate"
