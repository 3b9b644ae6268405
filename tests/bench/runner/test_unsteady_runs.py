"""Real runs raise warnings for work that grows, differs between runs or doesn't learn; steady runs don't.

The samples' clock advances by the duration that the work declares, so that timings don't depend on the machine's load.
"""

import math
import os
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from dyno.bench.contract import Estimate, MetricSpec, Params, Verification, Workload
from dyno.bench.devices import sensors
from dyno.bench.frameworks.interface import Dataset
from dyno.bench.measure.sampling import HostClock
from dyno.bench.runner import case_sampling
from dyno.bench.training import epochs
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome
from dyno.bench.training.workload import TrainingParams
from dyno.models.device import Device
from dyno.models.result import DataOrigin
from dyno.models.spec import Measure, Spec
from tests.running import codes, job_of

CORES = sorted(os.sched_getaffinity(0))
DEVICE = Device(id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30)
WORK_S = 0.0065
# Half of the time is enough for the twenty samples of the plateau search.
ENOUGH = {"min_samples": 50, "min_s": 0, "max_s": 0.3, "target_rel_ci": 0.02}
LINE = np.linspace(0.9, 1.1, 40, dtype=np.float32)[:, np.newaxis]


class Given(HostClock):
    """A clock that only work advances."""

    time_s = 0.0

    def now_s(self):
        return Given.time_s

    def epoch_s(self):
        return Given.time_s


class Lasting:
    """An execution takes `WORK_S` times `lasts(run, calls so far)`."""

    work = 1.0

    def __init__(self, lasts, params, context):
        self._lasts, self._run, self._calls = lasts, context.run, 0

    def compile(self):
        return None

    def execute(self, count):
        self._calls += 1
        Given.time_s += WORK_S * count * self._lasts(self._run, self._calls)

    def complete(self, compile_s, first_execution_s):
        return None

    def verify(self):
        return Verification()


def _workload(build, params=Params):
    return Workload(
        name="some",
        description="some work",
        params=params,
        metrics=(MetricSpec("throughput", "samples/s", "higher", "rate"),),
        flops=lambda params: 0.0,
        estimate=lambda params, device, replicas=1, framework="tensorflow": Estimate(1.0, 1),
        build=build,
    )


@pytest.fixture
def result_of(monkeypatch):
    monkeypatch.setattr(case_sampling, "HostClock", Given)

    def result(lasts, runs, **measure):
        asked = Measure.model_validate({"processes": runs} | ENOUGH | measure)
        return job_of(_workload(partial(Lasting, lasts)), Spec(workload="some", measure=asked), DEVICE)

    return result


@pytest.mark.provokes("NO_STEADY_STATE")
def test_work_that_grows_has_no_steady_state(result_of):
    """The time suffices for more samples than a steady state needs."""
    found = result_of(lambda run, calls: 1 + 0.05 * calls, 1, min_samples=200, max_s=0.8)
    assert "NO_STEADY_STATE" in codes(found)


@pytest.mark.provokes("MULTIMODAL")
def test_runs_of_which_some_take_three_times_as_long_are_multimodal(result_of):
    found = result_of(lambda run, calls: 1 + 2 * (run % 2), 10, min_samples=3, max_s=0.06, target_rel_ci=1.0)
    assert {"MULTIMODAL", "INSUFFICIENT_SAMPLES"} <= codes(found)


@pytest.mark.provokes("TARGET_MISSED")
def test_a_target_that_the_runs_miss_is_reported(result_of):
    found = result_of(lambda run, calls: 1 + 2 * (run % 2), 5, min_samples=3, max_s=0.06, target_rel_ci=0.01)
    assert "TARGET_MISSED" in codes(found)


@pytest.mark.silent("TARGET_MISSED", "MULTIMODAL", "NO_STEADY_STATE")
def test_runs_of_equal_duration_are_neither_and_each_is_steady(result_of):
    found = result_of(lambda run, calls: 1.0 + 0.001 * ((7 * calls + run) % 3), 10)
    assert not {"TARGET_MISSED", "MULTIMODAL", "NO_STEADY_STATE"} & codes(found)


def _line(params, context):
    """One weight that should go from 0 to 1: a step multiplies its error by about 1 - 2 × the learning rate."""
    keras = context.framework.keras

    def make(jit_compile):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        model.compile(keras.optimizers.SGD(params.learning_rate), "mean_squared_error", jit_compile=jit_compile)
        return model

    origin = DataOrigin(name="line", kind="synthetic", train_samples=40, test_samples=0)
    return ModelTraining(
        params, Plan(make, Dataset(LINE, LINE), origin, lambda model, trainer: TrainingOutcome()), context
    )


@pytest.mark.provokes("LOSS_RISING")
@pytest.mark.silent("LOSS_RISING")
@pytest.mark.parametrize(("learning_rate", "rises"), [(1.05, True), (0.1, False)])
def test_a_learning_rate_that_is_too_high_raises_the_loss(learning_rate, rises, tensorflow):
    params = {"batch_size": 10, "epochs": 3, "jit_compile": False, "learning_rate": learning_rate}
    measure = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 0.1})
    spec = Spec(workload="line", params=params, measure=measure)
    found = job_of(_workload(_line, TrainingParams), spec, DEVICE)
    assert ("LOSS_RISING" in codes(found)) is rises


@pytest.mark.provokes("EPOCHS_DISAGREE")
@pytest.mark.silent("EPOCHS_DISAGREE")
@pytest.mark.parametrize(
    ("slower", "disagree"),
    [
        (1.04, False),
        (1.06, True),
        *(pytest.param(*each, marks=pytest.mark.verify) for each in ((0.94, True), (0.96, False))),
    ],
)
def test_epochs_whose_steps_take_another_time_than_the_sampled_ones_disagree(slower, disagree, tensorflow, monkeypatch):
    monkeypatch.setattr(case_sampling, "HostClock", Given)
    monkeypatch.setattr(sensors, "COST_SHARE", math.inf)  # no rest after a slow reading
    monkeypatch.setattr(
        epochs, "time", SimpleNamespace(perf_counter=lambda: Given.time_s, process_time=time.process_time)
    )

    def build(params, context):
        built = _line(params, context)
        make = built._trainer.steps

        def steps(count):
            Given.time_s += 0.2 * count * (slower if built._trains else 1.0)
            return make(count)

        built._trainer.steps = steps
        return built

    params = {"batch_size": 10, "epochs": 3, "jit_compile": False, "learning_rate": 0.1}
    measure = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 2})
    found = job_of(_workload(build, TrainingParams), Spec(workload="line", params=params, measure=measure), DEVICE)
    raised = {each.code: each for each in found.warnings}
    assert ("EPOCHS_DISAGREE" in raised) is disagree
    if disagree:
        assert raised["EPOCHS_DISAGREE"].evidence["ratio"] == pytest.approx(1 / slower)
    assert found.training.sensors.looks > len(found.training.epochs)
    assert all(epoch.core_shares is not None and epoch.cpu_s for epoch in found.training.epochs)
