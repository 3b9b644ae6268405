"""How a budget is divided: by the cost of a run, never by how narrow the interval is."""

import math
import random
from statistics import fmean

import pytest

from dyno.bench.measure import stopping_rule as rule
from dyno.bench.measure.stopping_rule import decided_by, enough_runs, time_interval
from dyno.models.runner_protocol import RunShare
from dyno.models.spec import Measure, Processes
from tests.bench.measure.conftest import make_record

START_S, SAMPLE_S = 0.4, 0.11


def run(samples, start_s=START_S, once_s=0.0):
    """A run whose process, build and warm-up take `start_s`; the first run's checks take `once_s` on top."""
    record = make_record(samples)
    phases = {"compile_s": start_s, "first_execution_s": None, "warmup_s": 0.0, "overhead_s": once_s}
    summary = record.summary.model_copy(update={"phases": record.summary.phases.model_copy(update=phases)})
    return record.model_copy(update={"summary": summary})


def first_runs(within=0.0, between=0.01, count=10, start_s=START_S):
    """Five runs whose samples deviate by `within` and whose medians by `between`, in logarithms."""
    steps = [(place - (count - 1) / 2) * within / _deviation(count) for place in range(count)]
    return [
        run([SAMPLE_S * math.exp(level * between / 2.5**0.5 + step) for step in steps], start_s)
        for level in (0, -2, 1, 2, -1)
    ]


def _deviation(count):
    return math.sqrt(sum((place - (count - 1) / 2) ** 2 for place in range(count)) / (count - 1))


def test_each_of_the_first_five_runs_gets_a_fifth_and_two_windows_of_samples():
    assert rule.budget_share(Measure()) == RunShare(samples=10, time_s=3.0)
    assert rule.budget_share(Measure(budget_s=60)) == RunShare(samples=10, time_s=12.0)


def test_where_the_number_of_runs_is_given_they_share_the_budget():
    assert rule.budget_share(Measure(processes=Processes(min=2, max=2))) == RunShare(samples=40, time_s=7.5)


@pytest.mark.parametrize("given", [{"min_samples": 20}, {"min_s": 2}, {"max_s": 60}])
def test_settings_of_a_run_s_samples_rule(given):
    measure = Measure.model_validate(given)
    assert rule.budget_share(measure) is None
    assert rule.budget_use(measure, first_runs()) is None
    assert enough_runs(measure, first_runs())


@pytest.mark.parametrize(("budget_s", "runs"), [(1, 5), (7.5, 5), (10, 6), (15, 9), (60, 39), (86400, 100)])
def test_the_rest_of_the_budget_pays_further_runs(budget_s, runs):
    """A run takes 0.4 + 10 x 0.11 = 1.5 s."""
    measure, first = Measure(budget_s=budget_s), first_runs()
    assert rule.runs_in_all(measure, first) == pytest.approx(runs, abs=1)
    made = [*first, *first[:1] * 95][: rule.runs_in_all(measure, first)]
    assert enough_runs(measure, made)
    assert not enough_runs(measure, made[:-1])


def test_a_long_start_leaves_five_runs():
    assert rule.runs_in_all(Measure(), first_runs(start_s=20.0)) == 5


def test_the_first_run_s_own_checks_and_training_are_not_paid_from_it():
    first = first_runs()
    checked = [run(first[0].samples, once_s=30.0), *first[1:]]
    phases = checked[0].summary.phases.model_copy(update={"training_s": 100.0})
    trained = [checked[0].model_copy(update={"summary": checked[0].summary.model_copy(update={"phases": phases})})]
    assert rule.runs_in_all(Measure(), [*trained, *first[1:]]) == rule.runs_in_all(Measure(), first)
    used = rule.budget_use(Measure(), [*trained, *first[1:]])
    assert used.once_s == pytest.approx(130, abs=0.2)
    assert used.spent_s == pytest.approx(5 * 1.5, abs=0.1)


def test_the_division_does_not_depend_on_how_much_runs_scatter():
    narrow, wide = first_runs(within=0.002, between=0.001), first_runs(within=0.03, between=0.06)
    for measure in (Measure(), Measure(budget_s=60)):
        assert rule.runs_in_all(measure, narrow) == pytest.approx(rule.runs_in_all(measure, wide), abs=1)


def test_of_long_samples_three_are_enough():
    assert [rule.least_samples(sample_s) for sample_s in (0.1, 0.4, 0.5, 30.0)] == [5, 5, 3, 3]


def test_more_runs_make_the_interval_as_narrow_as_it_says():
    """Runs that deviate by 1 %: what 60 s would bring is foretold from 15 s."""
    rng = random.Random(7)

    def runs(count):
        return [run([SAMPLE_S * math.exp(rng.gauss(0, 0.01))] * 10) for _ in range(count)]

    foretold = [rule.half_width_after(60, runs(10)) for _ in range(200)]
    assert fmean(width for width in foretold if width) == pytest.approx(2.02 * 0.01 / math.sqrt(40), rel=0.1)
    assert rule.half_width_after(10, runs(10)) is None
    assert rule.half_width_after(60, runs(1)) is None
    used = [rule.budget_use(measure, runs(10)) for measure in (Measure(), Measure(processes=Processes(min=10, max=10)))]
    assert [bool(each and each.larger) for each in used] == [True, False]  # a number that is given doesn't grow


def test_a_budget_decides_by_cost_so_the_interval_is_student_s():
    """The first five runs lie far apart by chance: Stein's interval would be as wide as theirs."""
    runs = [*first_runs(between=0.05), *first_runs(between=0.001)][: rule.runs_in_all(Measure(), first_runs())]
    for measure, is_student in ((Measure(), True), (Measure(target_rel_ci=0.01), False)):
        interval = time_interval(runs, decided_by(measure, runs))
        assert (interval == time_interval(runs)) is is_student
