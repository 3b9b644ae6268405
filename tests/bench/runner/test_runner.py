import fcntl
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.bench.measure.result_metrics import all_metrics
from dyno.bench.registry import validate_params, workload
from dyno.bench.runner import run
from dyno.bench.runner.run import PhaseTimer, peak_memory
from dyno.bench.workloads.matmul import Chain
from dyno.models.device import Device
from dyno.models.result import Phases
from dyno.models.runner_protocol import DoneFrame, FirstOpFrame, ProgressFrame, RunRequest, StartedFrame
from dyno.models.spec import Measure, Spec
from dyno.processes import host_peak_bytes, reset_host_peak
from tests.running import failure_of, in_process, job_of, pipe, record_of

CORES = sorted(os.sched_getaffinity(0))
BRIEF = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 3})
TINY: dict[str, dict[str, Any]] = {
    "matmul": {"n": 64, "repeats": 5},
    "mnist_cnn": {
        "data": "sample",
        "epochs": 1,
        "train_samples": 256,
        "test_samples": 64,
        "batch_size": 64,
        "jit_compile": False,
    },
    "quantized_inference": dict(workload("quantized_inference").smoke.params),
}


def _device(cores):
    return Device(id="cpu:0", kind="cpu", model="test", host="here", cores=cores, memory_bytes=8 << 30)


def _request(name="matmul", **changes):
    params = changes.pop("params", {})
    spec = Spec(workload=name, params=TINY[name] | params, measure=BRIEF)
    request = RunRequest(job="job_1", spec=spec, run=0, runs=1, device=_device(CORES))
    return request.model_copy(update=changes)


def _spawned(request):
    wanted = request.model_copy(update={"process_start": "spawned"})
    asking, asked = os.pipe()
    with pipe() as (fd, frames):
        command = [sys.executable, "-P", "-m", "dyno.bench.runner", "--request-fd", str(asking), "--frames-fd", str(fd)]
        process = subprocess.Popen(command, pass_fds=(asking, fd), stderr=subprocess.PIPE)
        os.close(asking)
        with os.fdopen(asked, "w") as stream:
            stream.write(wanted.model_dump_json())
        _, log = process.communicate(timeout=120)
        assert process.returncode == 0, log
    return frames


@pytest.fixture(scope="module")
def spawned():
    return _spawned(_request("mnist_cnn"))


def test_a_run_writes_its_frames_in_order_and_ends_with_its_record(spawned):
    kinds = [type(frame) for frame in spawned if not isinstance(frame, ProgressFrame)]
    assert kinds == [StartedFrame, FirstOpFrame, DoneFrame]
    phases = list(dict.fromkeys(frame.phase for frame in spawned if isinstance(frame, ProgressFrame)))
    before, after = ["import", "device", "data", "build", "compile", "first_execution", "training"], ["verify"]
    assert phases[: len(before)] == before
    assert phases[-1:] == after


def test_every_phase_of_a_spawned_run_is_timed(spawned):
    phases = record_of(spawned).summary.phases
    own = phases.model_dump(exclude={"cases_s", "overhead_s"})  # a single case; the worker knows the whole time
    assert all(seconds is not None and seconds > 0 for seconds in own.values()), phases


def test_the_first_operation_comes_between_start_and_end(spawned):
    summary = record_of(spawned).summary
    assert summary.started_at_s < summary.first_op_at_s
    assert summary.process_start == "spawned"
    assert summary.pid != os.getpid()


def test_run_zero_trains_in_full_and_has_a_complete_record(spawned):
    record = record_of(spawned)
    assert len(record.training.epochs) == 1
    assert record.work == 64
    assert record.amounts == {"epoch": 256.0, "step": 64.0, "training": 256.0}
    assert record.figures["first_epoch_time"] == record.training.epochs[0].time_s
    assert len(record.samples) == len(record.sample_cpu_s) >= 3
    assert record.memory.host_peak_bytes > 200 << 20
    assert record.environment["packages"]["keras"]


DOUBTS = {"ASYNC_TIMING", "WORK_ELIMINATED", "COMPILE_IN_TIMING", "WARM_CACHE", "UNIT_MISMATCH", "RETRACED"}


def test_a_correct_training_passes_every_check(spawned):
    record = record_of(spawned)
    assert not DOUBTS & {raised.code for raised in record.warnings}
    assert record.unchecked == {}
    assert "RESULT_INCORRECT" in record.verified


def test_a_correct_product_passes_every_check():
    record = record_of(in_process(_request(params={"n": 256})))
    assert not DOUBTS & {raised.code for raised in record.warnings}
    assert record.unchecked == {}


def test_the_estimate_of_memory_is_right_to_a_factor_of_three(spawned):
    spec = _request("mnist_cnn").spec
    chosen = workload("mnist_cnn")
    estimated = chosen.estimate(validate_params(chosen, spec.params), _device(CORES)).memory_bytes
    measured = record_of(spawned).memory.host_peak_bytes
    assert measured / 3 < estimated < measured * 3


def test_a_further_run_does_not_train_again():
    record = record_of(in_process(_request("mnist_cnn", run=1)))
    assert record.training is None
    assert len(record.samples) >= 3


@pytest.mark.verify
def test_a_run_of_an_inference_workload_times_single_calls_of_each_case():
    inference = workload("quantized_inference")
    request = _request("quantized_inference")
    brief = request.spec.measure.model_copy(update={"max_s": 0.3})
    request = request.model_copy(update={"spec": request.spec.model_copy(update={"measure": brief})})
    first = record_of(in_process(request))
    further = record_of(in_process(request.model_copy(update={"run": 1, "tuned": first.tuned})))
    cases = [case.name for case in first.cases]
    for suffix in ("", *(f"_{case}" for case in cases)):
        for loop in ("closed", "open"):
            named = [first.calls[f"latency_{loop}_{name}{suffix}"] for name in ("p50", "p90", "p99")]
            values = [each.value for each in named if each.value is not None]
            assert values == sorted(values), suffix
            assert all(each.reason for each in named if each.value is None)
    assert set(first.details["latency"]) == set(cases)
    rates = [
        {case: found["open_rate_per_s"] for case, found in each.details["latency"].items()} for each in (first, further)
    ]
    assert rates[0] == rates[1] == first.tuned["call_rates_per_s"]
    found = {each.name: each for each in all_metrics(inference.metrics, [first, further])}
    closed = found["latency_closed_p50_int8_batch_1"]
    assert (closed.unit, closed.runs) == ("s", 2)
    assert 0.02 < closed.value * rates[0]["int8_batch_1"] < 2  # 0.5 on a quiet host, whose median is its mean


def test_a_forked_run_has_no_import_to_time_and_verifies_its_product():
    record = record_of(in_process(_request()))
    assert record.summary.phases.import_s is None
    assert record.precision is not None
    assert record.work == 2 * 64**3 * 5
    assert {raised.severity for raised in record.warnings} <= {"B", "C"}


def test_a_run_records_the_sensor_readings_between_its_samples(monkeypatch):
    monkeypatch.setattr("dyno.bench.devices.sensors.COST_SHARE", math.inf)  # no rest after a slow reading
    record = record_of(in_process(_request()))
    sensors = record.summary.sensors
    assert 2 <= sensors.looks <= len(record.samples) + 1
    assert (sensors.energy_j is None) == ("energy_j" in sensors.reasons)


def test_the_environment_is_that_of_the_device_s_kind(monkeypatch):
    monkeypatch.setattr(run, "environment", lambda kind: {"of": kind})
    assert record_of(in_process(_request())).environment["of"] == "cpu"


def test_a_run_records_how_long_it_waited_for_its_cores():
    shares = record_of(in_process(_request())).summary.core_shares
    assert shares.others >= 0
    assert (shares.waited is None) is not _counts_waiting()


def _counts_waiting():
    return Path("/proc/self/schedstat").exists() and Path("/proc/self/schedstat").read_text().split()[0] != "0"


def test_garbage_is_collected_again_after_the_samples():
    import gc

    record_of(in_process(_request()))
    assert gc.isenabled()


def test_a_held_device_is_busy(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_LOCK_TIMEOUT_S", 0.05)
    lock = tmp_path / "cpu-0.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        failure = failure_of(in_process(_request(lock_paths=[str(lock)])))
    assert (failure.failure_class, failure.reason) == ("infrastructure", "device_busy")
    assert str(lock) in failure.message


def test_missing_cores_are_reported_as_no_such_device():
    failure = failure_of(in_process(_request(device=_device([4095]))))
    assert (failure.failure_class, failure.reason) == ("infrastructure", "no_such_device")


def test_a_damaged_data_file_is_named(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"not gzip")
    failure = failure_of(in_process(_request("mnist_cnn", params={"data": "auto"}, data_dir=str(tmp_path))))
    assert (failure.failure_class, failure.reason) == ("benchmark", "dataset_damaged")
    assert str(folder) in failure.message


def test_params_that_the_workload_rejects_fail_as_unsupported():
    failure = failure_of(in_process(_request(params={"n": 0})))
    assert (failure.failure_class, failure.reason) == ("unsupported", "invalid_spec")


def test_an_unforeseen_error_is_the_workloads_and_leaves_its_traceback_in_the_log(monkeypatch, capfd):
    def unforeseen(spec):
        raise ZeroDivisionError(spec)

    monkeypatch.setattr(run, "resolve", unforeseen)
    failure = failure_of(in_process(_request()))
    assert (failure.failure_class, failure.reason) == ("benchmark", "workload_error")
    assert "Traceback" in capfd.readouterr().err


def test_an_allocation_that_fails_is_a_resource_failure():
    """2^24 squared floats are a pebibyte, which exceeds the address space."""
    failure = failure_of(in_process(_request(params={"n": 1 << 24})))
    assert (failure.failure_class, failure.reason) == ("resource", "out_of_memory")


def test_temporary_files_are_in_the_scratch_folder_of_the_attempt(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    record_of(in_process(_request("matmul", scratch_dir=str(tmp_path))))
    assert tempfile.gettempdir() == str(tmp_path)


LARGE_BYTES = 200 << 20
DEVICE = Device(id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30)
SHORT = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 0.3})


def test_the_peak_includes_freed_memory_until_it_is_reset():
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this kernel has no /proc/self/clear_refs")
    reset_host_peak()
    before = host_peak_bytes()
    np.ones(LARGE_BYTES, np.uint8)
    peak = host_peak_bytes()
    reset_host_peak()
    after = host_peak_bytes()
    assert peak > before + LARGE_BYTES / 2
    assert after < peak - LARGE_BYTES / 2


def test_the_memory_of_checks_does_not_count_as_the_work_s(tensorflow):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this kernel has no /proc/self/clear_refs")

    class Hungry(Chain):
        def verify(self):
            np.ones(LARGE_BYTES, np.uint8)
            return super().verify()

    matmul = workload("matmul")
    hungry = replace(matmul, build=lambda params, context: Hungry(params, matmul.flops(params), context))
    spec = Spec(workload="matmul", params={"n": 64, "repeats": 5}, measure=SHORT)
    frugal, checked = (job_of(each, spec, DEVICE).memory.host_peak_bytes for each in (matmul, hungry))
    assert checked < frugal + LARGE_BYTES / 2


def test_without_the_kernel_s_figure_the_peak_is_unknown(tmp_path):
    assert host_peak_bytes(tmp_path / "absent") is None
    (tmp_path / "status").write_text("Name:\tpython\nVmRSS:\t12 kB\n")
    assert host_peak_bytes(tmp_path / "status") is None
    (tmp_path / "status").write_text("VmHWM:\t    12 kB\n")
    assert host_peak_bytes(tmp_path / "status") == 12 * 1024


def test_a_cpu_has_no_device_memory_and_the_reason_says_so():
    found = peak_memory(TensorFlow(), "cpu")
    assert found.device_peak_bytes is None
    assert found.reason is not None
    assert found.host_peak_bytes is not None


class _Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_repeated_phases_add_up_and_a_phase_that_never_ran_is_null():
    clock, reported = _Clock(), []
    timer = PhaseTimer(reported.append, clock)
    for seconds in (1.0, 2.5):
        with timer.phase("data"):
            clock.now_s += seconds
    with timer.phase("build"):
        clock.now_s += 0.25
    assert (timer.phases().data_s, timer.phases().build_s, timer.phases().compile_s) == (3.5, 0.25, None)
    assert timer.seconds("data") == 3.5
    assert reported == ["data", "data", "build"]


def test_a_phase_inside_another_counts_once_so_all_phases_add_up_to_the_wall_time():
    clock = _Clock()
    timer = PhaseTimer(lambda name: None, clock)
    with timer.phase("training", reported=False):
        clock.now_s += 1.0
        with timer.phase("build"):
            clock.now_s += 2.0
        clock.now_s += 4.0
    clock.now_s += 8.0
    found = timer.phases().with_overhead(clock.now_s)
    assert (found.training_s, found.build_s, found.overhead_s) == (5.0, 2.0, 8.0)


def test_phases_of_an_older_version_have_no_overhead():
    assert Phases.model_validate({"steady_s": 2.0}).overhead_s is None


def test_a_failing_phase_is_timed_too():
    clock = _Clock()
    timer = PhaseTimer(lambda name: None, clock)

    def compile_badly():
        with timer.phase("compile"):
            clock.now_s += 2.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compile_badly()
    assert timer.seconds("compile") == 2.0


def test_an_unknown_phase_is_refused():
    with pytest.raises(ValueError, match="lunch"), PhaseTimer(lambda name: None).phase("lunch"):
        pass
