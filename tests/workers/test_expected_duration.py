"""The duration that a real attempt records."""

import pytest

from dyno.bench.registry import registry
from dyno.store.eta import duration_series, parse_durations
from dyno.store.redis import Keys
from service.admission import expected_s
from tests.workers.conftest import in_turns, tiny


@pytest.mark.parametrize("spec", [tiny(), in_turns(tiny(), tiny(seed=1))], ids=["one spec", "two in turns"])
def test_a_job_records_its_estimated_duration_and_its_device_time(
    spec, quick, store, client, here, supervisor_of, forking
):
    job_id = store.submit(spec)
    supervisor_of(quick, forking).serve()
    job = store.job(job_id)
    assert job.started_at is not None
    assert job.finished_at is not None, job
    (reading,) = parse_durations(client.lrange(Keys(quick.namespace).paces(duration_series(spec, here)), 0, -1))
    assert reading.expected_s == expected_s(registry(), spec, here)
    assert reading.took_s == pytest.approx((job.finished_at - job.started_at).total_seconds(), abs=0.002)
