"""The plan of faults and jobs depends on the seed alone; the recorded summary of a run, and the page of all runs."""

from collections import Counter
from itertools import pairwise

import pytest

from chaos import report
from chaos.checks import Violation, ViolationKind
from chaos.clients import Responses
from chaos.faults import FaultInjector
from chaos.plan import _LANES, API, WORKERS, Fault, FaultKind, Span, clear_s, job_count, plan_faults, plan_jobs
from chaos.rig import Rig
from chaos.run import RunConfig, RunRecord
from chaos.snapshot import Event, Streams
from dyno.bench.registry import resolve
from dyno.models.spec import Spec


@pytest.mark.parametrize("duration_s", [10, 48, 600])
def test_every_kind_comes_in_every_run_and_each_fault_ends_before_the_run_and_the_next_of_its_lane(duration_s):
    for seed in range(50):
        faults = plan_faults(seed, duration_s)
        assert faults == plan_faults(seed, duration_s) != plan_faults(seed + 1, duration_s)
        assert {fault.kind for fault in faults} == set(FaultKind)
        for lane in _LANES:
            ends = [(fault.at_s, fault.at_s + fault.lasts_s) for fault in faults if fault.kind in lane]
            assert all(end_s <= begin_s for (_, end_s), (begin_s, _) in pairwise([*ends, (duration_s, duration_s)]))


def test_ten_minutes_reach_every_process_with_every_signal_and_outlast_leases():
    faults = [fault for seed in range(3) for fault in plan_faults(seed, 600)]
    assert len(faults) > 3 * 80
    for kind in (FaultKind.KILL, FaultKind.STOP, FaultKind.TERM):
        assert {fault.target for fault in faults if fault.kind is kind} == {*WORKERS, API}
    assert all(fault.lasts_s > 6 for fault in faults if fault.kind is FaultKind.STOP)


def test_jobs_are_spread_over_the_run_and_most_are_tiny():
    jobs = plan_jobs(7, 1250, 600, (0, 1))
    assert jobs == plan_jobs(7, 1250, 600, (0, 1)) != plan_jobs(8, 1250, 600, (0, 1))
    assert len({job.key for job in jobs}) == 1250
    assert 0 < jobs[0].at_s < 6 < 594 < jobs[-1].at_s < 600
    sizes = Counter(job.size for job in jobs)
    assert sizes["tiny"] >= 1000
    assert sizes["long"] + sizes["longer"] >= 125
    assert sizes["failing"] > 0
    assert min(sum(job.cancel_after_s is not None for job in jobs), sum(job.twice for job in jobs)) > 20
    for job in jobs[:200]:
        spec = resolve(Spec.model_validate(job.body)).spec
        assert (spec.queue_if_absent, spec.device.kind) == (True, "cpu")


@pytest.mark.parametrize(
    ("minutes", "cores", "jobs"), [(10, 64, 1250), (4, 2, 500), (4, 1, 250), (0.001, 1, 1), (600, 2, 2000)]
)
def test_the_number_of_jobs_follows_from_the_minutes_and_the_cores(minutes, cores, jobs):
    assert job_count(minutes, cores) == jobs


def test_time_outside_of_all_spans_counts_once():
    assert clear_s(10, 20, []) == 10
    assert clear_s(10, 20, [Span(18, 30), Span(0, 12), Span(11, 13), Span(11, 12)]) == 5
    assert clear_s(10, 20, [Span(0, 30)]) == clear_s(10, 10, [Span(0, 12)]) == clear_s(10, 20, [Span(10, 20)]) == 0


def summary(folder, violations):
    """Of a made-up run of two jobs."""
    faults = FaultInjector(Rig(folder, "everysec"))
    faults.spans += [(Fault(1.0, FaultKind.KILL, "worker-0", 2.0), Span(13.0, 18.0))] * 2
    responses = Responses()
    responses.accepted.update({"key-a": {"a"}, "key-b": {"b"}})
    responses.retries["503"] += 4
    rows = (
        ("a", "claim", "running"),
        ("a", "expire", "queued"),
        ("a", "claim", "running"),
        ("a", "succeed", "succeeded"),
    )
    general = [*(Event(1.0, *row, 1) for row in rows), Event(23.0, "b", "fail", "failed", 3, "timeout")]
    config = RunConfig(seed=7, minutes=10, jobs=2, durability="everysec", patience_s=60)
    lost = [Violation(ViolationKind.LOST, f"job {number} was lost") for number in range(violations)]
    return report.summary(RunRecord(config, responses, faults, Streams(general, {}), lost, 611.0))


def test_a_run_is_kept_in_a_few_kilobytes_and_replaced_unless_it_was_broken(tmp_path):
    whole, broken, kept = summary(tmp_path, 0), summary(tmp_path, 1000), tmp_path / "kept"
    for run in (whole, whole, whole | {"durability": "always"}, broken, whole):
        report.keep(7, run, kept)
    found = [(seed, run["durability"], report.violation_count(run)) for seed, run in report.kept(kept)]
    assert found == [(7, "always", 0), (7, "everysec", 0), (7, "everysec", 1000)]
    assert all(path.stat().st_size < 4000 for path in kept.iterdir())


def test_the_page_has_a_row_for_each_run_and_names_its_faults_and_violations(tmp_path):
    lines = report.page([(7, summary(tmp_path, 0)), (8, summary(tmp_path, 1000))])
    good, bad = (line for line in lines if line.startswith(("| 7 |", "| 8 |")))
    assert good.endswith(" | 10 | everysec | 2 | 1 | 1 | 0 | 1 | 2 | 0 |")
    assert bad.endswith(" | 2 | 1000 |")
    text = " ".join(" ".join(lines).split())
    assert "Seed 7: KILL 2; expired leases 1, jobs handed back 0; reasons of failures: timeout 1; retries" in text
    assert "violations: lost jobs 1000." in text
