"""Sweeps that are submitted over HTTP, and a worker that finishes their jobs with constructed results."""

import pytest

from dyno.models.job import Failure, FailureClass
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from tests.comparisons import a_metric
from tests.service.workers import succeed, take

SPEC = {"workload": "matmul", "params": {"repeats": 10}, "device": "cpu", "expires_in_s": 3600}
SIZES = {"params.n": [64, 128, 256]}


@pytest.fixture
def post(http, offered):
    """Submit a sweep. Jobs still queued at the end are canceled, so that no other test claims them."""
    made = []

    def one(headers=None, **body):
        answer = http.post("/v1/sweeps", json=body, headers=headers)
        if answer.is_success:
            made.append(answer.json()["urls"]["cancel"])
        return answer

    yield one
    for url in made:
        http.post(url)


@pytest.fixture
def begun(post):
    def one(**body):
        answer = post(**{"spec": SPEC, "grid": SIZES} | body)
        assert answer.status_code == 202, answer.text
        return answer.json()

    return one


@pytest.fixture
def work(offered, settings):
    """Claim up to `most` jobs, and finish each: with rates of `faster` times its n or batch size, or, for `failing`
    ones, without.
    """
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def all_of_it(most=100, failing=(), reason="nonfinite_loss", faster=1.0, metrics=None, **result):
            claims = []
            while len(claims) < most and (claim := take(leases, offered)):
                claims.append(claim)
                n = claim.spec.params.get("n") or claim.spec.params["batch_size"]
                if n in failing:
                    failure = Failure(failure_class=FailureClass.BENCHMARK, reason=reason, message="no")
                    leases.finish(claim, "fail", status_reason=reason, failure=failure)
                    continue
                rates = [n * faster * share for share in (0.99, 1.0, 1.01)]
                succeed(leases, claim, metrics(claim) if metrics else [a_metric(by_run=rates)], **result)
            return claims

        yield all_of_it
