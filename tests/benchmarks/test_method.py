"""The benchmarks of the method, on runs whose truth is known, with bounds that a wrong interval breaks."""

from __future__ import annotations

import array
import fcntl
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks import alarms, conditions, coverage, repeat, resampled
from benchmarks.cost import Monitor, answered, change
from benchmarks.coverage import FIVE, GROWING, count_selected
from benchmarks.jobs import Answer
from benchmarks.pairs import holds, in_turns, ratio
from benchmarks.recorded import lag_one
from benchmarks.resampled import alike, as_recorded, called_different, slowed, verdicts, without_return
from benchmarks.scatter import neighbours_ratio
from benchmarks.synthetic import DEPENDENT, EVERY_EFFECT, NOISES, OPERATION_S, Case, SimulatedProcess
from dyno.bench.measure.statistics import median
from dyno.bench.measure.warnings import warning
from dyno.bench.registry import resolve
from dyno.bench.runner.frame_writer import FrameWriter
from dyno.models.comparison import Comparative
from dyno.models.result import Metric, Sensors, Verdict
from dyno.models.runner_protocol import ProgressFrame
from dyno.models.spec import Spec
from tests.bench.measure.conftest import make_record
from tests.results import a_result
from tests.waiting import eventually

NORMAL = 1e-3 * (1 + 0.02 * np.random.default_rng(1).standard_normal(30))
TEN_PAIRS = "ABBA" * 5
AFTER = resampled.FIVE


def test_drawn_noise_has_the_median_0_drawn_effects_the_mean_0_and_both_a_deviation_of_1():
    for name, draw in NOISES.items():
        drawn = draw(np.random.default_rng(1), (10_000, 40))
        assert (np.median(drawn), np.std(drawn)) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.05)), name
    for name, draw in EVERY_EFFECT.items():
        drawn = draw(np.random.default_rng(1), (10_000, 40))
        assert (np.mean(drawn), np.std(drawn)) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.05)), name
        assert (np.mean([lag_one(row) for row in drawn[:500]]) > 0.3) == (name in DEPENDENT), name


@pytest.mark.parametrize(
    ("case", "least", "most", "pooled"),
    [
        (Case("heavy-tailed", "drifting", 0.02, 0.005), 0.92, 0.985, 0.6),  # 95 % give or take three deviations
        (Case("correlated 0.8", "normal", 0.02, 0.005), 0.0, 0.7, 0.6),  # runs that resemble their neighbours
    ],
)
def test_the_interval_holds_the_truth_of_independent_runs(case, least, most, pooled):
    found = coverage.count(case, np.random.default_rng(3), 400)
    assert least <= found.covered / 400 <= most
    assert found.pooled / 400 < pooled


def test_a_second_mode_that_was_visited_is_in_the_interval_or_raised_and_one_that_was_not_is_neither():
    case = Case("normal", "normal", 0.005, 0.02, 10, distance=0.7)
    found = coverage.count(case, np.random.default_rng(4), 300)
    assert found.shown_covered_or_raised == found.visited == found.covered_or_raised == found.raised
    assert found.visited / 300 == pytest.approx(1 - 0.8**10 - 0.2**10, abs=0.07)
    samples, visits = case.draw(np.random.default_rng(2), 4000)
    assert visits.mean() == pytest.approx(0.2, abs=0.01)
    assert np.median(samples, axis=2).mean() == pytest.approx(case.truth, abs=0.007)


def test_results_chosen_for_their_narrow_interval_hold_the_truth_less_often():
    five, grown = (
        count_selected("normal", 0.015, processes, np.random.default_rng(7), 1000) for processes in (FIVE, GROWING)
    )
    assert five.covered / 1000 == pytest.approx(0.95, abs=0.025)
    assert five.covered_of_reached / five.reached < 0.85
    assert grown.covered / 1000 > 0.95 - 0.025
    assert grown.covered_of_reached / grown.reached > 0.95 - 0.025  # the first five runs alone fix the number
    assert five.processes == 5 < grown.processes < 30


def test_the_next_of_independent_jobs_is_held_and_that_of_a_trend_only_with_earlier_ones():
    rng = np.random.default_rng(11)
    independent = coverage.count_next((1 + 0.02 * rng.standard_normal((12, 5))).tolist() for _ in range(30))
    assert independent.steps == 30 * 11
    assert independent.own / independent.steps < 0.9 < independent.informed / independent.steps
    steep = (np.linspace(1, 2, 12)[:, np.newaxis] + 0.001 * rng.standard_normal((12, 5))).tolist()
    trend = coverage.count_next([steep])
    assert trend.own == trend.alone == 0
    assert trend.informed >= 9  # from the second earlier job on


def test_windows_of_a_trend_hold_the_mean_of_all_only_in_its_middle():
    assert coverage.count_windows(1 + np.linspace(-0.05, 0.05, 30), 5) == (4, 26)  # the half-width is 1.96 steps


def test_a_simulated_run_sheds_its_warm_up_in_the_real_sampler():
    run = SimulatedProcess(np.random.default_rng(5), 1.1, "normal", 0.005, "a plateau of 12 samples").sampled()
    assert run.steady
    assert len(run.warmup) >= 9
    assert median(run.samples) / OPERATION_S == pytest.approx(1.1, rel=0.01)


@pytest.mark.parametrize("order", [AFTER, "ABBAABBA", TEN_PAIRS])
def test_two_results_of_the_same_runs_are_seldom_called_different(order):
    said = verdicts(alike(without_return(NORMAL, np.random.default_rng(2)), order, 400), order)
    assert said.total() == 400
    assert 0.005 < called_different(said) / 400 < 0.085  # 5 % give or take three deviations


def test_runs_in_turns_are_compared_pair_by_pair_and_no_run_is_in_both_results():
    """A ratio of 2 in each pair, whatever the machine did from pair to pair: only the pairs know it for sure."""
    pair = np.array([1.0, 3.0, 5.0, 2.0]), np.array([2.0, 6.0, 10.0, 4.0])
    found, apart = resampled.ratio(pair, "ABBAABBA"), resampled.ratio(pair, "AAAABBBB")
    assert (found.interval.value, found.interval.low) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (apart.interval.low or 0) < 0.45
    first, second = next(alike(without_return(np.arange(10.0), np.random.default_rng(3)), AFTER, 1))
    assert sorted([*first, *second]) == list(range(10))
    stretches = [[*map(list, pair)] for pair in as_recorded(np.arange(9.0), "ABBAABBA")]
    assert stretches == [[[0, 3, 4, 7], [1, 2, 5, 6]], [[1, 4, 5, 8], [2, 3, 6, 7]]]


def test_runs_that_resemble_the_one_before_are_called_different_in_order_and_not_in_turns():
    """Two levels, five runs each: one after the other they look like two machines."""
    times = 1 + 0.05 * np.repeat([0.0, 1.0] * 3, 5) + 0.002 * np.random.default_rng(6).standard_normal(30)
    sequential, paired = (verdicts(as_recorded(times, order), order) for order in (AFTER, TEN_PAIRS))
    assert called_different(sequential) > sequential.total() / 5
    assert called_different(paired) == 0
    assert lag_one(times) > 0.5 > 0.36 > abs(lag_one(NORMAL))


def test_a_slowdown_of_five_per_cent_is_found_at_two_per_cent_and_missed_at_five():
    draw = np.random.default_rng(4).standard_normal
    near, far = (verdicts(slowed(draw, scatter, AFTER, 300), AFTER) for scatter in (0.02, 0.05))
    assert near[Comparative.SLOWER] / 300 > 0.85
    assert far[Comparative.SLOWER] / 300 < 0.5
    assert near[Comparative.FASTER] == 0


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_the_ratio_of_scatters_holds_the_truth_also_while_the_machine_drifts(drift):
    draws = np.random.default_rng(8).standard_normal((300, 2, 30)) * [[0.01], [0.02]] + 1 + np.linspace(0, drift, 30)
    found = [holds(neighbours_ratio(first.tolist(), second.tolist()), 0.5) for first, second in draws]
    assert 0.88 <= np.mean(found) <= 0.985


def test_a_ratio_is_geometric_with_student_s_interval():
    """t(0.975; 1) = 12.706, t(0.95; 1) = 6.314; the logarithms' standard error is ln 2."""
    found = ratio([1.0, 4.0], [1.0, 1.0])
    bounds = (found.value, found.low, found.high, found.upper_95)
    assert np.allclose(bounds, (2, 2 * 2**-12.706, 2 * 2**12.706, 2 * 2**6.314), rtol=1e-2)


def test_ways_come_in_turns_and_none_is_always_first():
    order: list[str] = []
    ways = {way: lambda way=way: order.append(way) or float(len(order)) for way in "ABC"}
    assert in_turns(ways, 2) == {"A": [1, 6], "B": [2, 5], "C": [3, 4]}
    assert order == [*"ABCCBA"]


def answer(*codes, clocks_hz=(4000000000.0,), value=1000000000.0):
    runs = [make_record([0.1] * 20, clock_hz=hz).summary for hz in clocks_hz]
    low, high = value * 0.99, value * 1.01
    figures = {"name": "throughput", "unit": "FLOP/s", "value": value, "low": low, "high": high, "better": "higher"}
    metric = Metric.model_validate(figures | {"runs": 5, "samples": 100})
    changes = {"warnings": [warning(code) for code in codes], "runs": runs, "metrics": [metric]}
    return Answer(a_result("job").model_copy(update=changes), took_s=20.0)


def under(condition, *found):
    return {f"matmul, {condition}": [each.result for each in found if each.result is not None]}


def test_the_verdicts_of_each_condition_are_counted_and_a_clock_step_is_replayed_on_the_quiet_ones():
    clocks = (4e9, 4.01e9, 3.99e9, 4e9, 4e9)
    clean = answer(clocks_hz=clocks)
    assert clean.result is not None
    trusted = Answer(clean.result.model_copy(update={"workload": "matmul", "verdict": Verdict.TRUSTED}), 20.0)
    taken = under("default", trusted, trusted, trusted, answer("NO_STEADY_STATE", clocks_hz=clocks))
    taken |= under("beside a burner", answer("NOISY_NEIGHBOUR", "CACHE_RESIDENT"))
    cells = {
        (row[0], row[1]): [cell.split(",")[0] for cell in row[2:]]
        for line in alarms.verdict_lines(taken)
        if len(row := line.strip("| ").split(" | ")) == 6
    }
    assert cells["default", "`matmul`"] == ["4", "3 of 4", "1 of 4", "NO_STEADY_STATE 1"]
    assert cells["beside a burner", "`matmul`"] == ["1", "0 of 1", "1 of 1", "NOISY_NEIGHBOUR 1"]
    assert cells["clock step to 80%, replayed", "`matmul`"][:3] == ["4", "0 of 4", "4 of 4"]


def test_a_code_s_false_alarms_are_those_of_quiet_jobs_and_its_hits_those_of_the_tests_that_provoke_it():
    taken = under("default", answer("CLOCK_DRIFT"), answer("CACHE_RESIDENT"))
    taken |= under("beside a burner", answer("NOISY_NEIGHBOUR"))
    rates = alarms.rates_of(taken, {"NOISY_NEIGHBOUR": [19, 20]})
    assert rates["CLOCK_DRIFT"] == {"provoked": [0, 0], "quiet": [1, 2]}
    assert rates["NOISY_NEIGHBOUR"] == {"provoked": [19, 20], "quiet": [0, 2]}
    assert rates["CACHE_RESIDENT"] == {"provoked": [0, 0]}  # true of the work
    rows = [line for line in alarms.rate_lines(rates) if line.startswith("| `NOISY_NEIGHBOUR` | 0 of 2, ")]
    assert len(rows) == 1
    assert "| 19 of 20, " in rows[0]


@pytest.mark.verify
@pytest.mark.timeout(600)  # it runs over a hundred tests: a minute on a quiet machine
def test_the_tests_that_provoke_a_code_are_counted_by_code():
    found = alarms.provoked(1)
    assert found["ASYNC_TIMING"] == [1, 1]
    assert found["CPU_QUOTA"][0] == found["CPU_QUOTA"][1] > 0


def test_jobs_under_a_condition_are_default_jobs_and_each_condition_is_made_by_its_name():
    names = [*alarms.specs(2)]
    # twice as many on a quiet machine
    assert len(names) == 2 * len(repeat.WORKLOADS) * (len(conditions.CONDITIONS) + 1)
    for name, spec in alarms.specs(1).items():
        assert resolve(Spec.model_validate(spec)).spec.measure == Spec(workload="matmul").measure
        assert callable(alarms._beside(name).__enter__)


def test_a_disturbing_process_is_at_work_inside_the_block_and_gone_after_it():
    with conditions.beside_process(conditions.BURN):
        (child,) = [each for each in psutil.Process().children() if conditions.BURN in each.cmdline()]
        assert eventually(lambda: child.cpu_times().user > 0.05, what="it uses a core")
    assert not child.is_running()
    with pytest.raises(RuntimeError, match="ended before"), conditions.beside_process("raise SystemExit"):
        pass


def test_a_quota_holds_for_the_children_of_this_process_and_ends_with_the_block():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        groups = Path(f"/proc/{child.pid}/cgroup")
        try:
            with conditions.cpu_quota(0.5):
                assert "dyno-benchmark" in groups.read_text()
        except OSError as error:
            pytest.skip(str(error))
        finally:
            assert "dyno-benchmark" not in groups.read_text()
            child.kill()


def rate(value, clock_hz):
    """The rate of five runs at this clock, whose scatter predicts the next rate to 1.5 %."""
    found = answer(value=value, clocks_hz=(clock_hz,) * 5).result
    assert found is not None
    by_run = [value * factor for factor in (0.995, 1.005, 1.0, 0.996, 1.004)]
    metrics = [found.metrics[0].model_copy(update={"by_run": by_run})]
    return found.model_copy(update={"metrics": metrics, "device": {"kind": "cpu"}})


def test_recorded_next_results_are_held_as_they_were_measured():
    """Intervals for one clock alone held 30 of 38 of `matmul`, 79 %."""
    rows = {row[0]: row for row in repeat.replay_rows(repeat.replayed())}
    for group, least in (("all of `matmul`", 0.95), ("all", 0.9)):
        _, steps, held, unknown = rows[group]
        count, known = (int(word.strip(",")) for word in str(held).split()[:3:2])
        assert count / known >= least
        assert known + int(str(unknown)) == steps
        assert known > 0.9 * int(str(steps)), "few are not known yet"


def test_the_next_value_is_held_as_measured():
    results = repeat.predicted([rate(1e9, 4e9), rate(0.986e9, 3.85e9), rate(1.06e9, 4e9)])
    first, second = repeat.steps(results)
    assert (first.held, first.in_own_interval) == (True, False)
    assert second.held is False
    as_measured, at_one_clock = repeat.between_jobs(results)
    assert as_measured == pytest.approx(0.0384, abs=1e-3)
    assert at_one_clock == pytest.approx(0.0294, abs=1e-3)
    page = repeat.lines({"matmul, default": results, "matmul, target 2 %": results[:1]})
    row = next(line for line in page if line.startswith("| `matmul, default` | 3 |"))
    assert "| 3.85 to 4.00 GHz | " in row
    assert "| **1 of 2, " in row
    assert any(line.startswith("| default | 3 | 5 | 0 | **1 of 2, ") for line in page)


def test_the_jobs_of_each_case_are_in_turns():
    assert [*repeat.specs(2, list(repeat.CASES)[:2])] == [
        f"{case}.{number}" for number in ("00", "01") for case in list(repeat.CASES)[:2]
    ]
    for spec in repeat.CASES.values():
        resolve(Spec.model_validate(spec))


def test_the_cost_is_that_of_turns_then_over_processes():
    def process(on, off):
        return {"medians_s": {"on": [on * 1.02, 3 * on / 1.02], "off": [off, 3 * off]}}

    found = change([process(1.01, 1.0), process(2.01, 2.0), process(3.0, 3.0)])
    assert found.pairs == 3
    assert found.value == pytest.approx((1.01 * 1.005) ** (1 / 3))
    assert found.low < 1.0 < found.high < 1.03
    assert answered(Sensors(looks=3, temperature_c=50.0, reasons={"energy_j": "no counter"})) == ["temperature_c"]


def test_the_monitor_reads_frames_and_sends_heartbeats_only_while_it_is_awake(monkeypatch):
    monkeypatch.setenv("DYNO_HEARTBEAT_S", "0.01")
    monitor = Monitor()

    def unread_bytes():
        found = array.array("i", [0])
        fcntl.ioctl(monitor.frames_fd, termios.FIONREAD, found)
        return found[0]

    FrameWriter(monitor.frames_fd).write(ProgressFrame(phase="sampling"))
    process = psutil.Process(monitor.pid)
    assert process.status() == psutil.STATUS_STOPPED
    assert unread_bytes() > 0
    with monitor.awake():
        eventually(lambda: unread_bytes() == 0, what="it reads")
        rests = process.num_ctx_switches().voluntary
        eventually(lambda: process.num_ctx_switches().voluntary > rests + 10, what="it had time for a heartbeat")
    assert monitor.close() >= 1
