"""Documents of jobs and results that are joined from stored text, beside those of the models."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from dyno.errors import RecordUnreadable
from dyno.models.job import Failure, FailureClass, Progress, SpecWarning
from dyno.models.result import CoreShares, Phases, RunSummary
from dyno.models.spec import InterleavedSpec
from dyno.store.records import SHAPE
from dyno.store.stored_results import StoredResult, compress, encode_result
from tests.results import a_result

pytestmark = pytest.mark.anyio
PROGRESS = Progress(phase="sampling", run=1, runs=2, completed=3, total=10, fraction=0.15, eta_s=4.5)
FAILURE = Failure(failure_class=FailureClass.RESOURCE, reason="out_of_memory", message='"n" is too large\n\x07ü')
ODD = {"labels": {"näme": 'a "quoted"\\ value\u2028'}, "params": {"n": 64, "x": [1.5e-7, None, True]}}
WARNINGS = [SpecWarning(code="TIMEOUT_TIGHT", message="tight", evidence={"estimate_s": 1e-9})]


async def _same(jobs, job_id):
    """Check the job's document against its model's, and that it is made of stored text."""
    stored = await jobs.read(job_id)
    assert stored.record["shape"] == SHAPE
    document: dict[str, Any] = json.loads(stored.document)
    assert document == json.loads(stored.job().model_dump_json(by_alias=True))
    [listed] = [each for each in (await jobs.browse()).data if each.id == job_id]
    assert json.loads(listed.document)["status"] == document["status"]
    return document


@pytest.mark.parametrize("end", ["succeed", "fail", "stop"])
async def test_a_document_is_that_of_the_model_in_each_state(jobs, leases, a_spec, claim, end):
    job_id = (await jobs.submit(a_spec(**ODD), warnings=WARNINGS)).stored.id
    assert (await _same(jobs, job_id))["status"] == "queued"
    attempt = claim()
    assert (await _same(jobs, job_id))["status"] == "running"
    leases.heartbeat(attempt, progress=PROGRESS)
    assert (await _same(jobs, job_id))["progress"]["eta_s"] == 4.5
    leases.finish(attempt, end, failure=FAILURE if end == "fail" else None, status_reason="because")
    ended = await _same(jobs, job_id)
    assert ended["done"]
    assert (ended["progress"]["fraction"], ended["progress"]["eta_s"]) == (1, 0)


async def test_the_remaining_time_passes_between_two_reports(jobs, leases, a_spec, claim, client, keys):
    job_id = (await jobs.submit(a_spec())).stored.id
    attempt = claim()
    leases.heartbeat(attempt, PROGRESS.model_copy(update={"eta_s": 900.0, "elapsed_s": 50.0}))

    async def told(age_s):
        """By the document, the list and the model, so long after the report."""
        client.hset(keys.job(job_id), "started_at", time.time() - 50 - age_s)
        stored = await jobs.read(job_id)
        [listed] = [each for each in (await jobs.browse()).data if each.id == job_id]
        documents = [json.loads(each.document) for each in (stored, listed)]
        return [*(each["progress"]["eta_s"] for each in documents), stored.job().progress.eta_s]

    assert await told(1.0) == pytest.approx([899.0] * 3, abs=0.9)
    assert await told(-1000.0) == [900.0] * 3  # another host's clock
    assert await told(1000.0) == [897.0] * 3
    version = (await jobs.read(job_id)).version
    leases.heartbeat(attempt, PROGRESS.model_copy(update={"eta_s": 0.7, "elapsed_s": 52.0}))
    assert await told(60.0) == [0.1] * 3
    assert (await jobs.read(job_id)).version == version + 1


@pytest.mark.parametrize(("end", "runs"), [("succeed", 5), ("fail", None), ("stop", None)])
async def test_a_job_that_succeeded_before_its_first_heartbeat_has_made_all_its_runs(
    jobs, leases, a_spec, claim, end, runs
):
    job_id = (await jobs.submit(a_spec())).stored.id
    leases.finish(claim(), end, failure=FAILURE if end == "fail" else None)
    progress = (await _same(jobs, job_id))["progress"]
    if runs is None:
        assert progress is None
    else:
        assert (progress["run"], progress["runs"], progress["fraction"], progress["eta_s"]) == (runs, runs, 1, 0)


@pytest.mark.parametrize("shape", ["other", SHAPE])
async def test_the_progress_of_a_done_job_is_complete_however_it_ended(
    jobs, leases, a_spec, claim, client, keys, shape
):
    job_id = (await jobs.submit(a_spec())).stored.id
    leases.finish(claim(), "fail", failure=FAILURE)
    reported = {"phase": "verify", "run": 2, "runs": 5, "completed": 0, "total": None, "unit": "samples"}
    stored = json.dumps(reported | {"fraction": 0.3, "eta_s": 42.0})
    client.hset(keys.job(job_id), mapping={"progress": stored, "shape": shape})
    progress = json.loads((await jobs.read(job_id)).document)["progress"]
    assert reported.items() <= progress.items()
    assert (progress["fraction"], progress["eta_s"]) == (1, 0)


async def test_a_document_has_the_webhook_the_owner_and_the_earlier_job(jobs, a_spec, client, keys):
    first = await jobs.submit(a_spec(webhook={"url": 'https://example.org/?a="b"'}))
    again = await jobs.submit(a_spec(), rerun_of=first.stored.id)
    client.hset(keys.job(again.stored.id), "owner", "key_0123456789abcdef")
    assert (await _same(jobs, first.stored.id))["spec"]["webhook"]["url"].endswith('"b"')
    assert (await _same(jobs, again.stored.id))["rerun_of"] == first.stored.id


async def test_a_record_of_another_version_is_shown_by_the_model(jobs, a_spec, client, keys):
    submitted = await jobs.submit(a_spec())
    spec = json.loads(submitted.stored.record["spec"])
    del spec["labels"]
    client.hset(keys.job(submitted.stored.id), mapping={"spec": json.dumps(spec), "shape": "other"})
    assert json.loads((await jobs.read(submitted.stored.id)).document)["spec"]["labels"] == {}


async def test_a_comparison_s_job_is_shown_by_the_model(jobs, a_spec):
    first = a_spec()
    joint = InterleavedSpec(
        **dict(first), against=first, pairs=2, control=False, metric="throughput", margin=0.02, confidence=0.9
    )
    submitted = await jobs.submit(joint)
    assert json.loads(submitted.stored.document)["spec"]["against"]["webhook"] is None


def test_a_result_is_shown_as_it_is_stored_or_by_the_model():
    result = a_result("job_00000000000000000000000000")
    shown = json.loads(result.model_dump_json(by_alias=True))
    assert json.loads(StoredResult("job", encode_result(result)).document) == shown
    newer = StoredResult("job", compress(_compact(shown | {"later": 1}), "0123abcd"))
    assert json.loads(newer.document) == shown
    assert newer.result().model_dump(mode="json", by_alias=True) == shown


def test_figures_are_stored_with_six_digits_and_params_as_they_are():
    exact = {"n": 12345678901, "learning_rate": 0.12345678901}
    details = {"rates": [463814870748.54333, math.nan], "bytes": 12345678901, "rel_error": 1.23456789e-9}
    run = RunSummary(
        process_start="forked",
        pid=1,
        median=0.012345678901,
        samples=1,
        executions_per_sample=1,
        warmup_samples=0,
        steady=True,
        stopped_because="max_s",
        phases=Phases(),
        core_shares=CoreShares(
            others=0.011593054407036533, stolen=0.0, beside=1e-7, most_taken=0.0, package_busy=0.0, package_cores=0
        ),
        started_at_s=1795447490.5993783,
    )
    result = a_result("job_1").model_copy(update={"params": exact, "details": details, "runs": [run]})
    result = result.model_copy(update={"arms": [result]})
    shown = json.loads(StoredResult("job_1", encode_result(result)).document)
    for each in (shown, shown["arms"][0]):
        assert each["params"] == exact
        assert each["details"] == {"rates": [463815000000.0, None], "bytes": 12345678901, "rel_error": 1.23457e-9}
        assert (each["runs"][0]["median"], each["runs"][0]["started_at_s"]) == (0.0123457, 1795447490.5994)
        shares = {"others": 0.01159, "stolen": 0.0, "beside": 1e-7, "waited": None}
        assert each["runs"][0]["core_shares"].items() >= shares.items()


STORED = encode_result(a_result("job"))


@pytest.mark.parametrize(
    "damaged", [b"", b"\x1f\x8b\x08", b"\1", STORED[:12], STORED[:-9], STORED[:-1] + b"?", b"\xff{}"]
)
def test_a_damaged_result_is_reported(damaged):
    with pytest.raises(RecordUnreadable, match="the result of job_1"):
        _ = StoredResult("job_1", damaged).document


def _compact(document):
    return json.dumps(document, separators=(",", ":")).encode()
