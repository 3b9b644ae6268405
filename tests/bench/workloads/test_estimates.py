"""Estimates of time and memory, and the linter's warnings with their inputs.

Measured: peak resident memory on two cores, real data.
"""

import pytest

from dyno.bench.contract import Estimate, sampling_s
from dyno.bench.estimates import rate_flop_per_s
from dyno.bench.registry import registry, workload
from dyno.models.device import PeakFigure
from dyno.models.spec import Measure, Processes

ASSUMED = {"cpu": 1.0, "gpu": 100.0, "tpu": 1000.0}


def _estimated(name, device, replicas, **params):
    found = workload(name)
    return found.estimate(found.params.model_validate(params), device, replicas)


def test_a_rate_is_a_share_of_the_peak_or_assumed_for_each_core_and_each_accelerator(device):
    cpu = device.model_copy(update={"cores": [0, 1, 2]})
    known = cpu.model_copy(update={"peak": {"float32": PeakFigure(value=8.0, provenance="measured here")}})
    assert rate_flop_per_s(known, "float32", 0.5, ASSUMED) == 4.0
    assert rate_flop_per_s(known, "float16", 0.5, ASSUMED) == 3.0
    assert rate_flop_per_s(cpu.model_copy(update={"kind": "gpu"}), "float32", 0.5, ASSUMED) == 100.0
    emulated = cpu.model_copy(update={"kind": "tpu", "emulated": True})
    assert rate_flop_per_s(emulated, "float32", 0.5, ASSUMED) == 3.0


@pytest.mark.parametrize(
    ("measure", "seconds"),
    [
        ({"max_s": 5}, (3.0, 6.0, 105.0)),
        ({"max_s": 0.3}, (0.301, 1.3, 100.3)),
        ({"min_s": 30}, (31.0, 31.0, 160.0)),
        ({"min_samples": 4, "min_s": 0}, (1.0, 5.0, 160.0)),
    ],
)
def test_samples_take_what_the_measure_allows(measure, seconds):
    found = Measure.model_validate(measure)
    assert [sampling_s(execution_s, found) for execution_s in (0.001, 1.0, 100.0)] == pytest.approx(seconds)


def test_a_run_takes_as_long_as_the_samples_of_its_cases():
    measure = Measure.model_validate({"max_s": 1, "processes": 2})
    found = Estimate(12.0, 1, train_s=50.0, executions_s=(0.001, 1.0))
    assert found.run_s(measure) == pytest.approx(12 + 1.001 + 2)
    assert found.in_all_s(measure) == pytest.approx(2 * found.run_s(measure) + 50 + 2)
    assert Estimate(1.0, 1).run_s(Measure(min_s=3)) == 3


def test_within_a_budget_cheap_runs_are_many_and_long_ones_five():
    cheap, long = Estimate(0.4, 1, executions_s=(0.001,)), Estimate(12.0, 1, executions_s=(0.001, 1.0))
    assert cheap.run_s(Measure()) == pytest.approx(0.4 + 11 * 0.1)
    assert (cheap.runs(Measure()), cheap.runs(Measure(budget_s=60))) == (10, 40)
    assert cheap.in_all_s(Measure()) == pytest.approx(15 + 0.4 + 4 * 0.001)
    assert long.in_all_s(Measure()) == pytest.approx(5 * long.run_s(Measure()) + 2)
    assert long.run_s(Measure()) == pytest.approx(12 + 6 * (0.1 + 1.0))  # no fewer than five samples
    assert (long.runs(Measure()), long.runs(Measure(budget_s=200))) == (5, 8)
    assert long.run_s(Measure(processes=Processes(min=1, max=1))) == pytest.approx(12 + 6 * 1.1)


@pytest.mark.parametrize("name", sorted(registry()))
def test_a_workload_s_estimate_follows_the_longest_sampling(device, name):
    found = _estimated(name, device, 1)
    short, long = (Measure.model_validate({"max_s": max_s, "min_s": max_s / 2}) for max_s in (0.2, 100))
    assert found.run_s(long) - found.run_s(short) > 40


@pytest.mark.parametrize(
    ("name", "params", "replicas", "by_framework"),
    [
        ("mnist_cnn", {"batch_size": 128}, 1, (826e6, 885e6)),
        ("mnist_cnn", {"batch_size": 128}, 8, (920e6, 997e6)),
        ("mnist_cnn", {"batch_size": 1024}, 8, (2637e6, 1195e6)),
        ("cifar10_cnn", {"data": "synthetic"}, 1, (1217e6, 1168e6)),
        ("cifar10_cnn", {"data": "synthetic"}, 8, (2506e6, 1494e6)),
        ("imdb_lstm", {}, 8, (929e6, 1056e6)),
        ("resnet50", {"batch_size": 16}, 8, (5514e6,)),
        ("transformer", {}, 1, (2752e6, 1016e6)),
        ("transformer", {"mode": "prefill"}, 1, (900e6, 625e6)),
        ("transformer", {"mode": "decode", "batch_size": 32}, 1, (1637e6, 1298e6)),
    ],
)
def test_the_memory_that_was_measured_is_within_a_factor_of_two(device, name, params, replicas, by_framework):
    found = _estimated(name, device, replicas, **params).memory_bytes
    assert all(measured / 2 < found / 2**20 * 1e6 < 2 * measured for measured in by_framework)


@pytest.mark.parametrize(
    "name", ["mnist_cnn", "cifar10_cnn", "imdb_lstm", "weather_gru", "shakespeare_lstm", "resnet50", "transformer"]
)
def test_virtual_devices_hold_more_together_and_accelerators_less_each(device, name):
    gpu = device.model_copy(update={"kind": "gpu"})
    one, eight = (_estimated(name, device, replicas) for replicas in (1, 8))
    assert eight.memory_bytes > one.memory_bytes
    assert eight.start_s > one.start_s
    one, eight = (_estimated(name, gpu, replicas, train="full") for replicas in (1, 8))
    assert eight.memory_bytes < one.memory_bytes
    assert eight.train_s < one.train_s


def test_each_replica_s_loop_takes_its_turn_on_the_cores(device):
    """Measured with 8 replicas on two cores: a step took 2.5 (JAX) to 3.8 (TensorFlow) times that of one replica."""
    cores = device.model_copy(update={"cores": [0, 1]})
    one, eight = (_estimated("imdb_lstm", cores, replicas, train="full").train_s for replicas in (1, 8))
    assert 2 < eight / one < 4


AUTO = {"data": "auto"}


def _told(name, params, device=None, replicas=1):
    found = workload(name)
    return {
        raised.code: raised.evidence for raised in found.lint(found.params.model_validate(params), device, replicas)
    }


@pytest.fixture
def tpu(device):
    return device.model_copy(update={"kind": "tpu", "last_cache_bytes": None})


@pytest.mark.provokes("BATCH_UNEVEN")
@pytest.mark.parametrize("name", ["mnist_cnn", "imdb_lstm", "weather_gru", "shakespeare_lstm", "resnet50"])
def test_each_replica_s_share_of_the_batch_should_be_a_multiple_of_8(name):
    assert "BATCH_UNEVEN" not in _told(name, {"batch_size": 96}, replicas=4)
    assert _told(name, {"batch_size": 96}, replicas=8)["BATCH_UNEVEN"] == {"batch_size_per_replica": 12, "multiple": 8}


@pytest.mark.provokes("WIDTH_UNEVEN")
def test_a_width_that_a_tpu_s_matrix_unit_can_not_fill_is_named_there_alone(device, tpu):
    asked = {"batch_size": 1024, "units": 300, "embedding": 256}
    assert _told("imdb_lstm", asked, tpu)["WIDTH_UNEVEN"] == {"widths": {"units": 300}, "multiple": 128}
    assert "WIDTH_UNEVEN" not in _told("imdb_lstm", asked, device)
    assert "WIDTH_UNEVEN" not in _told("shakespeare_lstm", {}, tpu)
    assert _told("matmul", {"n": 1000}, tpu)["WIDTH_UNEVEN"] == {"widths": {"1000": 1000}, "multiple": 128}
    assert "WIDTH_UNEVEN" not in _told("matmul", {"n": 1024}, tpu)


@pytest.mark.provokes("BATCH_SMALL")
@pytest.mark.parametrize(("name", "small", "large"), [("mnist_cnn", 1, 64), ("imdb_lstm", 1, 1024)])
def test_a_batch_is_small_where_starting_its_step_outweighs_its_work(device, name, small, large):
    evidence = _told(name, {"batch_size": small}, device)["BATCH_SMALL"]
    assert 0 < evidence["products_s"] < evidence["step_overhead_s"] / 2
    assert "BATCH_SMALL" not in _told(name, {"batch_size": large}, device)
    assert "BATCH_SMALL" not in _told(name, {"batch_size": small})  # of no device nothing is known


def test_data_weights_and_activations_that_fit_in_cache_raise_a_warning(device):
    roomy = device.model_copy(update={"last_cache_bytes": 64 << 20})
    few = {"train_samples": 1000, "batch_size": 16}
    told = _told("mnist_cnn", few, roomy)["CACHE_RESIDENT"]
    assert 16 * 800_000 < told["working_set_bytes"] <= told["last_cache_bytes"] == 64 << 20
    assert "CACHE_RESIDENT" not in _told("mnist_cnn", {}, roomy)
    assert "CACHE_RESIDENT" not in _told("mnist_cnn", few, device.model_copy(update={"last_cache_bytes": None}))


@pytest.mark.silent("BATCH_UNEVEN", "BATCH_SMALL", "WIDTH_UNEVEN", "SYNTHETIC_DATA")
@pytest.mark.parametrize("name", ["mnist_cnn", "cifar10_cnn", "weather_gru", "shakespeare_lstm", "transformer"])
def test_the_references_params_raise_no_warning(name, device):
    assert _told(name, AUTO, device.model_copy(update={"last_cache_bytes": 32 << 20})) == {}
