import pytest

from dyno.store.maintenance import drop_expired

pytestmark = pytest.mark.anyio


async def test_a_job_that_expired_leaves_no_trace_in_any_index(jobs, a_spec, claim, leases, client, settings, keys):
    for _ in range(2):
        await jobs.submit(a_spec())
    gone, kept = claim(), claim("cpu:2@alpha")
    leases.finish(gone, "succeed")
    leases.finish(kept, "fail")
    assert drop_expired(client, settings) == 0

    client.delete(keys.job(gone.job_id))
    client.zadd(keys.expiring, {f"{gone.job_id}:succeeded:matmul": 1})

    assert drop_expired(client, settings) == 1
    indexes = [keys.jobs, keys.jobs_with_status("succeeded"), keys.jobs_of_workload("matmul")]
    assert [client.zscore(index, gone.job_id) for index in indexes] == [None, None, None]
    assert client.zrange(keys.jobs, 0, -1) == [kept.job_id]
    assert client.zcard(keys.expiring) == 1
