"""Requests that provoke each problem with an example in the document, with their preparations.

Problems that connections send before a route is found are provoked in tests/service/abuse.
"""

from dyno.models.job import Failure, FailureClass
from dyno.store.redis import Keys
from tests.comparisons import a_metric
from tests.service.openapi.house import SWEEP, TINY
from tests.waiting import eventually

NO_JOB = "job_01M80PT6VM78YWA14Q3XXHDWDJ"
JSON = {"Content-Type": "application/json"}
UNDER_ONE_KEY = {"Idempotency-Key": "one"}


def _artifact_store_unavailable(house):
    claim = house.claimed()
    (house.settings.artifact_dir / claim.job_id).parent.mkdir(parents=True, exist_ok=True)
    (house.settings.artifact_dir / claim.job_id).write_text("in the way of a folder")
    return house.put(claim, "notes.txt")


def _idempotency_key_reused(house):
    house.http.post("/v1/jobs", json=TINY, headers=UNDER_ONE_KEY)
    return house.http.post("/v1/jobs", json=TINY | {"seed": 1}, headers=UNDER_ONE_KEY)


def _job_expired(house):
    key = {"Idempotency-Key": "gone"}
    job_id = house.http.post("/v1/jobs", json=TINY, headers=key).json()["id"]
    house.redis.delete(house.keys.job(job_id))
    return house.http.post("/v1/jobs", json=TINY, headers=key)


def _key_expired(house):
    made = house.admin.post("/v1/keys", json={"name": "ci", "scope": "read", "expires_in_s": 60}).json()
    keys = Keys(f"{house.settings.namespace}-keys")
    house.redis.hset(keys.api_key(made["id"]), "expires_at", "1700000000.000000")
    return house.admin.get("/v1/me", headers={"Authorization": f"Bearer {made['secret']}"})


def _limit_reached(house):
    house.poor.post("/v1/jobs", json=TINY)
    return house.poor.post("/v1/jobs", json=TINY)


def _no_result(house):
    claim = house.claimed()
    failure = Failure(
        failure_class=FailureClass.BENCHMARK,
        reason="too_few_samples",
        message="a batch of 256 is larger than the 200 training samples; the largest is 200",
    )
    assert house.leases.finish(claim, "fail", status_reason=failure.reason, failure=failure)
    return house.http.get(f"/v1/jobs/{claim.job_id}/result")


def _queue_full(house):
    *made, refused = [house.admin.post("/v1/jobs", json=TINY) for _ in range(3)]
    for each in made:
        if each.is_success:
            house.admin.post(each.json()["urls"]["cancel"])
    return refused


def _not_comparable(house):
    jobs = [house.finished(), house.finished(metric=a_metric("latency", better="lower"))]
    return house.http.post("/v1/comparisons", json={"jobs": jobs})


def _record_unreadable(house):
    job_id = house.finished()
    house.redis.set(house.keys.result(job_id), "{")
    return house.http.get(f"/v1/jobs/{job_id}/result")


def _stale_token(house):
    claim = house.claimed()
    house.leases.finish(claim, "stop")
    return house.put(claim, "notes.txt")


def _store_unfit(house):
    house.redis.config_set("appendonly", "no")
    try:
        eventually(lambda: house.http.get("/readyz").status_code == 503, what="the next check finds it")
        return house.http.post("/v1/jobs", json=TINY)
    finally:
        house.redis.config_set("appendonly", "yes")
        eventually(lambda: house.http.get("/readyz").status_code == 200, what="the next check finds it")


def _sweep_finished(house):
    sweep = house.http.post("/v1/sweeps", json=SWEEP).json()
    for point in sweep["points"]:
        house.http.post(f"/v1/jobs/{point['job']}/cancel")
    return house.http.post(sweep["urls"]["cancel"])


def _too_many_streams(house):
    with house.http.stream("GET", "/v1/events"):
        return house.http.get("/v1/events")


PROVOKED = {
    "artifact-not-found": lambda h: h.http.get(f"/v1/jobs/{h.finished()}/artifacts/wrong.png"),
    "artifact-store-unavailable": _artifact_store_unavailable,
    "artifact-too-large": lambda h: h.put(h.claimed(), "notes.txt", bytes(2000)),
    "baseline-not-found": lambda h: h.http.get("/v1/baselines/main"),
    "body-too-large": lambda h: h.http.post("/v1/jobs", content=b" " * 70002, headers=JSON),
    "alarm-not-found": lambda h: h.http.post("/v1/history/alarms/alm_1_2/acknowledge"),
    "comparison-not-found": lambda h: h.http.get(f"/v1/comparisons/cmp_{NO_JOB[4:]}"),
    "delivery-not-found": lambda h: h.http.post(f"/v1/webhook-deliveries/msg_{NO_JOB[4:]}/redeliver"),
    "device-not-found": lambda h: h.http.post("/v1/devices/cpu:9@bench-1/cordon"),
    "does-not-fit": lambda h: h.http.post("/v1/jobs", json=TINY | {"params": {"n": 100_000}}),
    "exceeds-timeout": lambda h: h.http.post(
        "/v1/jobs", json=TINY | {"params": {"n": 8192, "repeats": 1000}, "timeout_s": 1}
    ),
    "host-not-allowed": lambda h: h.http.get("/v1/jobs", headers={"Host": "bench-1.example"}),
    "idempotency-key-reused": _idempotency_key_reused,
    "invalid-baseline": lambda h: h.http.put("/v1/baselines/main", json={"job": NO_JOB}),
    "invalid-comparison": lambda h: h.http.post("/v1/comparisons", json={"jobs": [NO_JOB]}),
    "invalid-import": lambda h: h.http.post(
        "/v1/results/import", content="{}\n[]", headers={"Content-Type": "application/x-ndjson"}
    ),
    "invalid-key": lambda h: h.admin.post("/v1/keys", json={"name": "two\nlines", "scope": "all"}),
    "invalid-schedule": lambda h: h.http.put(
        "/v1/schedules/nightly", json={"cron": "0 25 * * *", "timezone": "Europe/Zuerich", "spec": TINY}
    ),
    "invalid-sweep": lambda h: h.http.post(
        "/v1/sweeps", json={"spec": TINY, "grid": {"params.n": [64, 0], "device": ["cpu", "tpu"]}}
    ),
    "invalid-request": lambda h: h.http.get("/v1/jobs", params={"limit": 0, "status": "done"}),
    "invalid-spec": lambda h: h.http.post(
        "/v1/jobs", json={"workload": "matmul", "params": {"n": 0, "dtype": "float33"}}
    ),
    "job-expired": _job_expired,
    "job-finished": lambda h: h.http.post(f"/v1/jobs/{h.finished()}/cancel"),
    "job-live": lambda h: h.http.delete(f"/v1/jobs/{h.job()}"),
    "job-not-found": lambda h: h.http.get(f"/v1/jobs/{NO_JOB}"),
    "key-expired": _key_expired,
    "key-not-found": lambda h: h.admin.delete("/v1/keys/key_0123456789abcdef"),
    "limit-reached": _limit_reached,
    "malformed-body": lambda h: h.http.post("/v1/jobs", content='{"workload": "matmul", "params": {', headers=JSON),
    "no-device-fits": lambda h: h.http.post("/v1/jobs", json=TINY | {"device": "tpu"}),
    "no-result": _no_result,
    "not-authorized": lambda h: h.http.get("/v1/keys"),
    "not-comparable": _not_comparable,
    "not-ready": lambda h: h.away.get("/readyz"),
    "origin-not-allowed": lambda h: h.http.post("/v1/jobs", json=TINY, headers={"Origin": "https://example.com"}),
    "priority-not-allowed": lambda h: h.poor.post("/v1/jobs", json=TINY | {"priority": "high"}),
    "proxy-not-allowed": lambda h: h.http.get("/v1/jobs", headers={"X-Forwarded-For": "203.0.113.7"}),
    "queue-full": _queue_full,
    "record-unreadable": _record_unreadable,
    "result-not-ready": lambda h: h.http.get(f"/v1/jobs/{h.job()}/result"),
    "schedule-not-found": lambda h: h.http.get("/v1/schedules/nightly"),
    "scope-missing": lambda h: h.reader.post("/v1/jobs", json=TINY),
    "stale-token": _stale_token,
    "store-unfit": _store_unfit,
    "store-unavailable": lambda h: h.away.get(f"/v1/jobs/{NO_JOB}"),
    "sweep-finished": _sweep_finished,
    "sweep-not-found": lambda h: h.http.get(f"/v1/sweeps/swp_{NO_JOB[4:]}"),
    "too-many-streams": _too_many_streams,
    "unsupported": lambda h: h.http.post("/v1/jobs", json=TINY | {"framework": "torch"}),
    "unsupported-media-type": lambda h: h.http.post("/v1/jobs", data={"workload": "matmul"}),
    "workload-not-found": lambda h: h.http.get("/v1/workloads/matmull"),
}
AT_THE_EDGE = frozenset(
    {"bad-request", "body-timeout", "head-timeout", "head-too-large", "too-many-connections", "shutting-down"}
)
UNPROVOKED = frozenset({"internal-error"})  # only bugs cause it
