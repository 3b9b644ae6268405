"""ETAs of 200 jobs of mixed length, which really ran, through the real store; and of a few on a real Dyno."""

import pytest

from benchmarks import eta
from dyno.bench.measure.statistics import median

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.parametrize("seed", [eta.SEED, 1])
async def test_the_median_error_of_etas_of_jobs_of_mixed_length_is_at_most_a_quarter(redis_url, namespace, seed):
    past = eta.past_jobs()
    took_s = [job.took_s for job in eta.drawn(past, eta.JOBS, seed)]
    assert max(took_s) > 100 * min(took_s)
    found = await eta.replay(past, eta.JOBS, redis_url, namespace, seed)
    assert len(found.progress) == eta.LOOKS * eta.JOBS
    assert len(found.queue) > 2000
    assert median([each.error for each in found.queue]) <= eta.AIM
    assert median([each.error for each in found.progress]) <= eta.AIM
    assert found.zeros == 0
