"""Checks of executions that fill a sample. A sleep of known duration stands in for the work."""

import time
from collections.abc import Callable

import pytest

from dyno.bench.measure import peak_fraction
from dyno.bench.measure.sampling import SamplingResult
from dyno.bench.runner import checks as module
from dyno.bench.runner.case_sampling import CaseSamples
from dyno.bench.runner.checks import CheckedCase, run_checks
from dyno.models.device import Device, PeakFigure
from dyno.models.result import Sensors
from tests.waiting import eventually

WORK_S = 0.05
AGAIN_S = 5  # for a few tries: sleeps of a busy machine end late now and then
PEAK = {"float32": PeakFigure(value=1e9, provenance="measured here")}
DEVICE = Device(id="cpu:0", kind="cpu", model="test", host="here", cores=[0], memory_bytes=8 << 30, peak=PEAK)
Grown = Callable[[float], Callable[[int], None] | None]


def _work(count):
    time.sleep(WORK_S * count)


def _doubted(tensorflow, grown, *, flops=WORK_S * 900000000.0, drain_s=0.0):
    taken = CaseSamples(
        SamplingResult([], [WORK_S], 1, True, "target", [], 0.0, WORK_S, 0.0, 0.0, WORK_S), Sensors(), drain_s
    )
    return run_checks(tensorflow, DEVICE, [CheckedCase(_work, taken, flops, "float32", grown, lambda: flops)])


def _executed(tensorflow, execute, count):
    """A sample of `count` executions, each reported to have taken that part of WORK_S."""
    single_s = WORK_S / count
    samples = SamplingResult([], [single_s], count, True, "target", [], 0.0, WORK_S, 0.0, 0.0, single_s)
    taken = CaseSamples(samples, Sensors(), 0.0)
    return run_checks(tensorflow, DEVICE, [CheckedCase(execute, taken, 0, "float32", None, None)])


def test_a_tenth_of_the_work_is_enough_if_available(tensorflow):
    asked: list[float] = []

    def grown(times):
        asked.append(times)
        return lambda count: _work(times * count)

    found = _doubted(tensorflow, grown)
    assert (found.raised, found.unchecked) == ([], {})
    assert asked == [0.1]


def test_a_tenth_of_the_work_that_takes_as_long_is_detected(tensorflow):
    [raised] = eventually(lambda: _doubted(tensorflow, lambda times: _work).raised, AGAIN_S)
    assert (raised.code, raised.evidence["times"]) == ("WORK_ELIMINATED", 10)


def test_if_other_processes_start_after_the_samples_the_whole_work_is_read_again_beside_them(tensorflow):
    def slowed(count):
        _work(8 * count)

    taken = CaseSamples(SamplingResult([], [WORK_S], 1, True, "target", [], 0.0, WORK_S, 0.0, 0.0, WORK_S), Sensors())
    grown: Grown = lambda times: lambda count: slowed(times * count)  # noqa: E731
    subject = CheckedCase(slowed, taken, WORK_S * 0.9e9, "float32", grown, None)
    found = run_checks(tensorflow, DEVICE, [subject])
    assert (found.raised, "WORK_ELIMINATED" in found.unchecked) == ([], False)


def test_work_without_parts_is_doubled(tensorflow):
    asked: list[float] = []

    def whole(times):
        asked.append(times)
        return None if times < 1 else lambda count: _work(times * count)

    found = _doubted(tensorflow, whole)
    assert (found.raised, found.unchecked) == ([], {})
    assert asked == [0.1, 0.2, 0.5, 2]


def test_work_that_takes_too_long_to_double_stays_unchecked(tensorflow, monkeypatch):
    monkeypatch.setattr(module, "_TOO_LONG_S", WORK_S / 2)
    found = _doubted(tensorflow, lambda times: None)
    assert (found.raised, list(found.unchecked)) == ([], ["WORK_ELIMINATED"])


def test_work_too_small_for_the_device_stays_unchecked(tensorflow):
    found = eventually(
        lambda: (one := _doubted(tensorflow, lambda times: _work, flops=1e3)).unchecked and one,
        AGAIN_S,
    )
    assert (found.raised, list(found.unchecked)) == ([], ["WORK_ELIMINATED"])


def test_long_executions_that_wait_for_their_cores_raise_nothing(tensorflow):
    def execute(times):
        time.sleep(times * WORK_S / 24 + (2 * WORK_S if times > 3 else 0))

    assert _executed(tensorflow, execute, 24).raised == []


def test_the_fastest_reading_of_an_execution_that_fills_a_sample_counts(tensorflow, monkeypatch):
    """Other processes slow down every single execution, and none of the pairs."""
    monkeypatch.setattr(module, "_LONG_S", 3 * WORK_S)
    samples = SamplingResult([], [2 * WORK_S, WORK_S, 2 * WORK_S], 1, True, "target", [], 0.0, WORK_S, 0.0, 0.0, WORK_S)
    busy = CheckedCase(lambda count: time.sleep(2 * WORK_S), CaseSamples(samples, Sensors()), 0, "float32", None, None)
    assert run_checks(tensorflow, DEVICE, [busy]).raised == []


def test_a_slow_first_execution_after_the_samples_is_repeated_once(tensorflow):
    def counts():
        asked: list[int] = []

        def execute(count):
            asked.append(count)
            time.sleep(WORK_S / 2 * (3 if len(asked) == 1 else count))

        assert _executed(tensorflow, execute, 2).raised == []
        return asked

    eventually(lambda: counts() == [1, 1], AGAIN_S)


@pytest.mark.parametrize("count", [1, 2, 24])
def test_executions_whose_number_does_not_change_the_time_are_detected(tensorflow, count):
    [raised] = eventually(lambda: _executed(tensorflow, lambda times: time.sleep(WORK_S), count).raised, AGAIN_S)
    assert raised.code == "WORK_ELIMINATED"
    assert raised.evidence["times"] == 8


def test_a_failing_check_leaves_only_its_own_code_unchecked(tensorflow):
    def without_memory(times):
        raise MemoryError

    found = _doubted(tensorflow, without_memory)
    assert found.unchecked == {"WORK_ELIMINATED": "the check failed: MemoryError"}
    assert found.raised == []


def test_the_drain_after_the_last_sample_counts_where_another_would_take_seconds(tensorflow, monkeypatch):
    monkeypatch.setattr(module, "_LONG_S", WORK_S / 2)
    counts: list[int] = []
    read = module._CaseChecks._read

    def counted(self, count):
        counts.append(count)
        return read(self, count)

    monkeypatch.setattr(module._CaseChecks, "_read", counted)
    assert _doubted(tensorflow, None).raised == []
    assert counts == []
    assert _doubted(tensorflow, None, drain_s=WORK_S).raised == []  # late once, but not in the second reading
    assert set(counts) == {1}


CALL_S = 1e-4  # a small execution consists mostly of its call


def _small(tensorflow, work_s, grown):
    """An execution of CALL_S, whose work would take `work_s` at the highest rate; 250 fill a sample."""
    samples = SamplingResult([], [CALL_S] * 10, 250, True, "target", [], 0.0, 0.25, 0.0, 0.0, 0.25)
    flops = work_s * peak_fraction.ceiling_per_s(DEVICE, "float32")
    execute = _calls(CALL_S)
    return run_checks(
        tensorflow, DEVICE, [CheckedCase(execute, CaseSamples(samples, Sensors()), flops, "float32", grown, None)]
    )


def _calls(call_s):
    def execute(count):
        until_s = time.perf_counter() + count * call_s
        while time.perf_counter() < until_s:
            pass

    return execute


def test_small_work_is_grown_at_once_until_it_must_take_longer(tensorflow):
    asked: list[float] = []

    def grown(times):
        asked.append(times)
        return _calls(CALL_S + times * CALL_S / 20)

    found = _small(tensorflow, CALL_S / 20, grown)
    assert (found.raised, "WORK_ELIMINATED" in found.unchecked) == ([], False)
    assert asked == [16]  # half of 15 twentieths is more than a quarter; half of 7 isn't


def test_small_work_that_takes_as_long_16_times_is_detected(tensorflow):
    [raised] = _small(tensorflow, CALL_S / 20, lambda times: _calls(CALL_S)).raised
    assert (raised.code, raised.evidence["times"]) == ("WORK_ELIMINATED", 16)


def test_small_work_that_can_only_be_doubled_is_doubled(tensorflow):
    asked: list[float] = []

    def grown(times):
        asked.append(times)
        return _calls(CALL_S + times * CALL_S) if times == 2 else None

    found = _small(tensorflow, CALL_S / 20, grown)
    assert (found.raised, "WORK_ELIMINATED" in found.unchecked) == ([], False)
    assert asked == [16, 32, 64, 2]
