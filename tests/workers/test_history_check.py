"""The check of results against earlier results of the same work, with a real store and real runners."""

import pytest

from dyno.bench.measure.peers import headline
from dyno.bench.measure.warnings import warning
from dyno.bench.registry import resolve
from dyno.models.job import Status
from dyno.models.result import Headline, Peer, Verdict
from dyno.store.leases import Leases
from dyno.store.redis import Keys, sync_client
from tests.bench.measure.conftest import make_record
from tests.comparisons import a_metric, of_metrics
from tests.workers.conftest import tiny
from workers.attempt import check_history

OF = resolve(tiny())
VALUE = 100.0


@pytest.fixture
def remember(client, settings):
    """Adds figures to a series, like earlier results."""

    def put(series, *values):
        texts = [Peer(job="job", value=value, runs=1).model_dump_json() for value in values]
        client.lpush(Keys(settings.namespace).peers(series), *texts)

    return put


def trusted(**fields):
    known = {"device": {"kind": "cpu", "model": "Test CPU", "cores": [0]}, "verdict": Verdict.TRUSTED}
    metrics = fields.pop("metrics", [a_metric(by_run=[VALUE] * 5)])
    return of_metrics(metrics, **known | fields)


def test_a_figure_unlike_the_stored_ones_is_raised_and_kept(client, settings, remember):
    own = headline(trusted(), OF.spec, OF.params)
    remember(own.series, *[2 * VALUE + step for step in range(6)])
    found, kept = check_history(trusted(), OF, Leases(client, settings))
    assert [raised.code for raised in found.warnings] == ["METRIC_OUT_OF_BAND"]
    assert kept.series == own.series


def test_untrusted_and_emulated_results_are_not_used_for_later_checks(client, settings):
    leases = Leases(client, settings)
    emulated = trusted(device={"kind": "tpu", "model": "v5e", "cores": [0], "emulated": True})
    for result in (trusted(verdict=Verdict.UNTRUSTED), emulated):
        found, kept = check_history(result, OF, leases)
        assert (found.warnings, found.verdict, kept) == (result.warnings, result.verdict, None)


def test_the_next_result_is_predicted_from_stored_ones_on_the_same_hardware_and_software(client, settings):
    """One run in each job: their values alone show how much results differ."""
    leases, own = Leases(client, settings), headline(trusted(), OF.spec, OF.params)
    alike = [own.own.model_copy(update={"value": value, "runs": 1, "scatter": None}) for value in (98.0, 102.0)]
    others = [each.model_copy(update={name: "other"}) for each in alike for name in ("hardware_id", "context_id")]
    texts = [peer.model_dump_json() for peer in (*alike, *others)]
    client.lpush(Keys(settings.namespace).peers(own.series), *texts)
    found, kept = check_history(trusted(), OF, leases)
    repeat = found.metrics[0].repeat
    assert (repeat.based_on.runs, repeat.based_on.jobs) == (5, 2)
    assert repeat.low < 98 < 102 < repeat.high
    assert (kept.own.runs, kept.own.scatter) == (5, 0.0)


def of_a_store_away(settings):
    nowhere = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    return Leases(sync_client(nowhere), nowhere)


def test_with_an_unreachable_store_the_check_is_skipped_and_the_result_kept(settings):
    found, kept = check_history(trusted(), OF, of_a_store_away(settings))
    assert (found.unchecked, found.verdict) == (["METRIC_OUT_OF_BAND"], Verdict.INDICATIVE)
    assert found.metrics[0].value == VALUE
    assert kept is not None


def test_a_damaged_series_leaves_the_check_unmade(client, settings):
    own = headline(trusted(), OF.spec, OF.params)
    assert isinstance(own, Headline)
    client.set(Keys(settings.namespace).peers(own.series), "no list")
    found, _ = check_history(trusted(), OF, Leases(client, settings))
    assert found.unchecked == ["METRIC_OUT_OF_BAND"]


@pytest.mark.provokes("METRIC_OUT_OF_BAND")
@pytest.mark.silent("METRIC_OUT_OF_BAND")
def test_measured_results_make_the_series_that_the_next_one_is_held_against(
    quick, store, client, supervisor_of, forking, remember
):
    def measured():
        job_id = store.submit(tiny())
        supervisor_of(quick, forking).serve()
        assert store.job(job_id).status is Status.SUCCEEDED, store.job(job_id).failure
        result = store.result(job_id)
        assert "METRIC_OUT_OF_BAND" not in result.unchecked
        return result

    first = measured()
    assert codes(first) & {"INSUFFICIENT_SAMPLES", "METRIC_OUT_OF_BAND"} == {"INSUFFICIENT_SAMPLES"}
    assert client.keys(Keys(quick.namespace).peers("*")) == [], "a job this short doesn't count as a peer"
    own = headline(first, OF.spec, OF.params)
    value = own.own.value
    remember(own.series, *[value * factor for factor in (0.5, 0.6, 0.8, 1.25, 1.6)])
    assert "METRIC_OUT_OF_BAND" not in codes(measured())  # these scatter as much as one short sample does
    client.delete(Keys(quick.namespace).peers(own.series))
    remember(own.series, *[50 * value + step for step in range(5)])
    assert "METRIC_OUT_OF_BAND" in codes(measured())


def codes(result):
    return {raised.code for raised in result.warnings}


@pytest.mark.parametrize(
    "code", ["NOISY_NEIGHBOUR", "DEVICE_SHARED", "THROTTLED", "CPU_QUOTA", "INSUFFICIENT_SAMPLES", None]
)
def test_disturbed_results_are_not_used_for_later_checks(client, settings, code):
    result = trusted(warnings=[warning(code)] if code else [])
    _, kept = check_history(result, OF, Leases(client, settings))
    assert (kept is None) == (code is not None)


def test_a_second_job_is_predicted_from_the_first_at_the_measured_clock(client, settings):
    """Two runs of each job, and what the first one keeps is the peer of the second. Its clock was 2 % lower."""
    clocks_hz, leases = (3.6e9, 3.672e9), Leases(client, settings)
    for jobs, clock_hz in enumerate(clocks_hz):
        runs = [make_record([1.0] * 20, clock_hz=factor * clock_hz).summary for factor in (0.99, 1.01)]
        sampled = a_metric(by_run=[VALUE * clock_hz / clocks_hz[0] * factor for factor in (0.999, 1.001)])
        cold = a_metric("first_execution", by_run=[], better="lower")
        found, kept = check_history(trusted(metrics=[sampled, cold], runs=runs), OF, leases)
        repeat = found.metrics[0].repeat
        assert (repeat.based_on.runs, repeat.based_on.jobs) == (2, jobs)
        assert repeat.clock_hz == pytest.approx(clock_hz)
        # Assumed for a product at 70 % of its peak, and both figures are in proportion to their clocks.
        assert repeat.elasticity == pytest.approx(1.0)
        assert found.metrics[1].repeat is None
        client.lpush(Keys(settings.namespace).peers(kept.series), kept.own.model_dump_json())
