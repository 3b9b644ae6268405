"""Deliberately wrong benchmarks on each real framework are detected; the correct one isn't."""

import os
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from dyno.bench.contract import BuildContext
from dyno.bench.devices.sensors import NoSensors
from dyno.bench.frameworks.interface import Dataset as Data
from dyno.bench.measure.execution_checks import unit_mismatch
from dyno.bench.measure.sampling import SamplingResult
from dyno.bench.measure.stopping_rule import StoppingRule
from dyno.bench.runner.case_sampling import CaseSamples, TraceCounter, take_samples
from dyno.bench.runner.checks import CheckedCase, run_checks
from dyno.bench.runner.frame_writer import FrameWriter
from dyno.bench.workloads._forward import Inference
from dyno.bench.workloads._matmul_params import MatmulParams
from dyno.bench.workloads.matmul import Chain, Dispatch, IntegerDispatch
from dyno.bench.workloads.quantized_inference import convert_model
from dyno.models.device import Device, PeakFigure
from dyno.models.result import Sensors
from tests.running import started
from tests.waiting import eventually
from tests.wrong_products import Dropped, Folded, Once, Recompiling, Unread, in_the_background

CORES = sorted(os.sched_getaffinity(0))
# More than small products reach on any CPU; the higher the peak, the less of the work must show.
PEAK = {"float32": PeakFigure(value=2e12, provenance="measured here")}
DEVICE = Device(id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30, peak=PEAK)
PARAMS = MatmulParams(n=256, repeats=10)


@pytest.fixture
def chain(framework):
    """Builds a chain, compiles it and executes it once."""

    def made(kind=Chain):
        context = BuildContext(
            framework=framework,
            seed=1,
            run=0,
            cores=len(CORES),
            phase=lambda name: nullcontext(),
            report=lambda phase, completed, total, unit: None,
        )
        return started(kind(PARAMS, 2.0 * PARAMS.n**3 * PARAMS.repeats, context))

    return made


def _sampled(execute):
    """One sample of 50 ms."""
    executions, took_s = 8, 0.0
    while took_s < 0.05:
        executions *= 2
        began_s = time.perf_counter()
        execute(executions)
        took_s = time.perf_counter() - began_s
    each_s = [took_s / executions]
    return CaseSamples(
        SamplingResult([], each_s, executions, True, "target", [], 0.0, took_s, 0.0, 0.0, took_s), Sensors()
    )


def _doubts(framework, built, *, share=1.0, grows=True):
    """The check of a figure that counts only a `share` of the work."""
    taken, grown = _sampled(built.execute), built.grown if grows else None
    subject = CheckedCase(built.execute, taken, share * built.work, "float32", grown, built.counted_flops)
    return run_checks(framework, DEVICE, [subject])


def _caught(code, look):
    """Retries: a busy machine may briefly make a wrong benchmark look right, but never a right one wrong."""
    return eventually(lambda: code in _codes(look()), what=f"{code} is raised")


def _codes(found):
    return {raised.code for raised in found.raised}


@pytest.fixture
def traced(framework):
    if framework.traced() is None:
        pytest.skip(f"{framework.name} compiles nothing")
    return framework


@pytest.mark.verify
def test_a_clock_that_stops_before_the_device_does_is_caught(traced, chain):
    built = chain(Unread)
    with in_the_background(traced):
        assert _caught("ASYNC_TIMING", lambda: _doubts(traced, built))


@pytest.mark.parametrize("kind", [Folded, Dropped])
def test_a_product_that_the_compiler_made_or_dropped_is_caught(traced, chain, kind):
    built = chain(kind)
    assert _caught("WORK_ELIMINATED", lambda: _doubts(traced, built))


def test_work_that_is_not_done_again_is_caught(framework, chain):
    built = chain(Once)
    assert _caught("WORK_ELIMINATED", lambda: _doubts(framework, built, grows=False))


def test_half_of_the_operations_counted_is_caught(traced, chain):
    found = _doubts(traced, chain(), share=0.5)
    assert _codes(found) == {"UNIT_MISMATCH"}
    assert found.raised[0].evidence["counted_flop"] == 2 * found.raised[0].evidence["declared_flop"]


def test_an_honest_product_raises_no_doubt(traced, chain):
    found = _doubts(traced, chain())
    assert (found.raised, found.unchecked) == ([], {})


def test_compiling_between_samples_is_caught(traced, chain):
    wrong, right = chain(Recompiling), chain()
    assert _while_sampling(traced, wrong.execute) == {"COMPILE_IN_TIMING", "RETRACED"}
    assert _while_sampling(traced, right.execute) == set()


def _while_sampling(framework, execute):
    brief = StoppingRule(min_samples=1, max_samples=1, min_s=0.0, max_s=0.5)
    with Path(os.devnull).open("wb") as nobody:
        source, frames = NoSensors("none here"), FrameWriter(nobody.fileno())
        taken = take_samples(execute, brief, DEVICE, source, frames, framework=framework)
    return {raised.code for raised in taken.disturbances} & {"COMPILE_IN_TIMING", "RETRACED"}


def test_retracing_before_the_first_sample_is_caught(traced, chain):
    built = chain()
    traces = TraceCounter(traced.traced)
    traces.look()
    built.compile()
    traces.look()
    built.execute(1)
    assert [raised.code for raised in traces.warnings(warmup=1)] == ["RETRACED"]
    assert traces.warnings(warmup=1)[0].evidence["functions"] == ["chain"]


@pytest.mark.parametrize("mode", ["chain", "dispatch"])
def test_the_operations_of_products_are_counted_through_any_loop(framework, chain, mode):
    context = BuildContext(framework, 1, 0, 1, lambda name: nullcontext(), lambda *told: None)
    params = MatmulParams(n=24, repeats=50, mode=mode)
    work = 2.0 * 24**3 * 50
    built = Chain(params, work, context) if mode == "chain" else Dispatch(params, work, 2, context)
    built.compile()
    assert built.counted_flops() == work


@pytest.mark.parametrize("kind", [Dispatch, IntegerDispatch])
def test_no_compilation_of_a_dispatched_product_is_left_for_its_first_execution(traced, kind):
    dtype = "int8" if kind is IntegerDispatch else "float32"
    context = BuildContext(traced, 1, 0, 1, lambda name: nullcontext(), lambda *told: None)
    params = MatmulParams.model_validate({"m": 35, "k": 37, "n": 39, "repeats": 3, "mode": "dispatch", "dtype": dtype})
    built = kind(params, 1.0, 2, context)
    built.compile()
    before = len(traced.traced() or ())
    built.execute(1)
    assert [*(traced.traced() or ())][before:] == []


@pytest.mark.parametrize("served", [False, True])
def test_no_compilation_of_an_inference_is_left_for_its_first_execution(traced, model_of, replicas, served):
    if replicas > 1:
        pytest.skip("it runs on one device")
    context = BuildContext(traced, 1, 0, 1, lambda name: nullcontext(), lambda *told: None)
    inputs, model = np.zeros((29 if served else 23, 4), np.float32), model_of(rate=0.1)
    if served:
        execute = convert_model(model, "keras", inputs, context)[1].timed(inputs)
    else:
        built = Inference(model, inputs, context)
        built.compile()
        execute = built.execute
    before = len(traced.traced() or ())
    execute(1)
    assert [*(traced.traced() or ())][before:] == []


def test_the_operations_of_integer_products_are_counted(framework):
    a, b = (framework.array(np.ones(shape, np.int8), "int8") for shape in ((32, 24), (24, 16)))
    compiled = framework.compile(framework.integer_matmul, a, b)
    assert framework.counted_flops(compiled) == 2 * 32 * 24 * 16


@pytest.mark.parametrize("steps", [1, 3])
def test_the_operations_of_training_steps_are_counted(framework, model_of, steps):
    """A dense layer 4 -> 3 on a batch of 8: forward pass and gradient of the weights, not of the inputs."""
    data = Data(np.zeros((24, 4), np.float32), np.eye(3, dtype=np.float32)[np.zeros(24, int)])
    trainer = framework.trainer(model_of(rate=0.1), data, 8, 0, steps)
    trainer.compile()
    trainer.steps(trainer.steps_per_execution)
    forward = 2 * 4 * 3 * 8 * trainer.steps_per_execution
    assert trainer.counted_flops() == 2 * forward
    assert unit_mismatch(3 * forward, 2 * forward) is None  # as every training counts its first layer, too
