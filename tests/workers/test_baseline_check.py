"""Jobs with a baseline: their outcomes and their further runs, with a real store and real runners."""

import asyncio
from datetime import UTC, datetime

import pytest

from dyno.bench.measure.baseline_outcome import figure_metric, figure_of
from dyno.bench.measure.peers import headline
from dyno.bench.registry import resolve
from dyno.models.baseline import Baseline
from dyno.models.job import Status
from dyno.models.result import Peer
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.redis import Keys, async_client, sync_client
from tests.workers.conftest import tiny
from workers.attempt import BaselineCheck

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def a_limit(at_least):
    return Baseline(name="main", metric="throughput", margin=0, job=None, at_least=at_least, saved_at=NOW)


def times_as_good(result, of, factor, margin=0.05):
    """A baseline that is `factor` times as good as the result."""
    resolved, metric = resolve(of), figure_metric(result, None)
    metric = metric.model_copy(
        update={"value": factor * (metric.value or 0), "by_run": [factor * each for each in metric.by_run]}
    )
    own = headline(result.model_copy(update={"metrics": [metric]}), resolved.spec, resolved.params)
    figure = figure_of(metric, result, of, own, [metric.name], NOW)
    known = {"metric": metric.name, "unit": metric.unit, "better": metric.better}
    return Baseline(name="main", margin=margin, job=result.job, figure=figure, saved_at=NOW, **known)


@pytest.fixture
def run(quick, settings, store, supervisor_of, forking):
    def finished(spec, baseline=None):
        async def submitted():
            async with async_client(settings) as client:
                return (await Jobs(client, settings).submit(spec, baseline=baseline)).job.id

        job_id = asyncio.run(submitted())
        supervisor_of(quick, forking).serve()
        job = store.job(job_id)
        assert job.status is Status.SUCCEEDED, job.failure
        result = store.result(job_id)
        assert job.baseline == result.baseline
        return result

    return finished


def two_runs(processes=2, **fields):
    return tiny(measure={"processes": processes}, **fields)


def test_a_job_passes_and_fails_limits_far_from_its_figure(run):
    for at_least, outcome in ((1.0, "pass"), (1e18, "fail")):
        found = run(two_runs(baseline="main"), a_limit(at_least)).baseline
        assert (found.outcome, found.name) == (outcome, "main")


def test_an_inconclusive_job_makes_further_runs_up_to_its_bound(run):
    """One run shows no scatter, so it takes three, three times the number."""
    one = run(tiny(baseline="main"), a_limit(1.0))
    assert len(one.runs) == 3
    assert one.metrics[0].runs == 3
    assert one.baseline.low is not None
    fixed = run(tiny(baseline="main", measure={"processes": {"min": 1, "max": 2}, "target_rel_ci": 1}), a_limit(1.0))
    assert len(fixed.runs) == 2


def test_a_job_that_is_proven_slower_is_no_measure_of_how_much_jobs_differ(run, client, settings, monkeypatch):
    monkeypatch.setattr("dyno.bench.measure.peers.DISTURBED", frozenset())  # one sample, and perhaps busy neighbours
    spec = two_runs(processes=3)
    first = run(spec)
    fast = times_as_good(first, spec, 1e6)
    slow = run(spec.model_copy(update={"baseline": "main"}), fast)
    assert slow.baseline.outcome == "fail"
    measured = (slow.metrics[0].value or 0) / fast.figure.value
    assert slow.baseline.ratio == pytest.approx(measured, rel=0.5)  # it is at one clock
    texts = client.lrange(Keys(settings.namespace).peers(str(fast.figure.series)), 0, -1)
    peers = [Peer.model_validate_json(text) for text in texts]
    assert {(peer.job, peer.failed) for peer in peers} == {(first.job, False), (slow.job, True)}


def test_a_job_without_its_copy_is_inconclusive(run):
    """As after its record was damaged."""
    found = run(two_runs(baseline="main")).baseline
    assert (found.name, found.outcome) == ("main", "inconclusive")
    assert "no copy" in (found.reason or "")


def test_what_was_read_before_an_outage_counts_and_without_it_nothing_is_proven(run, client, settings):
    spec = two_runs(processes=3)
    first = run(spec)
    named, slower = spec.model_copy(update={"baseline": "main"}), times_as_good(first, spec, 1e6)
    away = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})

    class Outage(Leases):
        """A store that answers until `reachable` is false."""

        reachable = True

        def baseline(self, claim):
            return slower if self.reachable else Leases(sync_client(away), away).baseline(claim)

        def peers(self, series):
            return (super() if self.reachable else Leases(sync_client(away), away)).peers(series)

    leases = Outage(client, settings)
    claim = Claim(first.job, named, 1, "token", "cpu", 0, cancel_requested=False, device="cpu:0@here")
    seen, blind = BaselineCheck(claim, leases), BaselineCheck(claim, leases)
    assert seen.runs_to_settle(first, resolve(named), 9) == 3
    leases.reachable = False
    known, unknown = (check.hold(first, resolve(named)).baseline for check in (seen, blind))
    assert (known.outcome, unknown.outcome) == ("fail", "inconclusive")
    assert "couldn't read" in str(unknown.reason)


def test_a_job_whose_spec_names_no_baseline_has_no_outcome(run):
    assert run(two_runs()).baseline is None
