import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest


@pytest.fixture(scope="module")
def batch(api):
    """Five jobs with one label, queued for a device that doesn't exist; canceled afterwards."""
    label = uuid.uuid4().hex
    bodies = {"device": "tpu", "queue_if_absent": True, "labels": {"batch": label}}
    jobs = [api.submit(**bodies) for _ in range(5)]
    yield {"label": f"batch={label}", "ids": [job["id"] for job in jobs], "jobs": jobs}
    for job in jobs:
        api.cancel(job)


def ids(answer):
    return [job["id"] for job in answer.raise_for_status().json()["data"]]


def test_the_newest_job_comes_first(api, batch):
    answer = api.http.get("/v1/jobs", params={"label": batch["label"]})
    assert ids(answer) == batch["ids"][::-1]
    assert answer.json().keys() == {"data", "next_cursor", "has_more"}
    assert (answer.json()["next_cursor"], answer.json()["has_more"]) == (None, False)


def test_pages_have_no_gaps_or_repeats_while_jobs_arrive(api, batch):
    params = {"label": batch["label"], "limit": 2}
    answer = api.http.get("/v1/jobs", params=params)
    seen = ids(answer)
    api.cancel(api.submit(device="tpu", queue_if_absent=True))
    while answer.json()["has_more"]:
        by_cursor = api.http.get("/v1/jobs", params=params | {"cursor": answer.json()["next_cursor"]})
        answer = api.http.get(answer.links["next"]["url"])
        assert ids(answer) == ids(by_cursor)
        seen += ids(answer)
    assert seen == batch["ids"][::-1]


def test_jobs_can_be_found_by_creation_time(api, batch):
    middle = batch["jobs"][2]["created_at"]

    def found(**wanted):
        return ids(api.http.get("/v1/jobs", params=wanted | {"label": batch["label"]}))

    assert found(created_after=middle) == batch["ids"][:2:-1]
    assert found(created_before=middle) == batch["ids"][1::-1]
    later = datetime.fromisoformat(middle) + timedelta(hours=1)
    assert found(created_after=later.isoformat()) == []


def test_fifty_submits_at_once_under_one_key_make_one_job(api, tiny):
    key = uuid.uuid4().hex
    body = tiny | {"labels": {"once": key}}

    def post(_):
        return api.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(post, range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert len(ids(api.http.get("/v1/jobs", params={"label": f"once={key}"}))) == 1
    api.finished(answers[0].json())
