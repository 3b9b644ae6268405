"""`dyno baseline`, and `dyno run --baseline`, against the service; the test plays the worker."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from dyno.models.job import BaselineDifference, BaselineOutcome
from dyno.models.result import Verdict
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from tests.service.workers import succeed, take
from tests.waiting import eventually

NONE = f"job_{'0' * 26}"


def an_outcome(**fields):
    known = {"name": "main", "outcome": "fail", "metric": "throughput", "ratio": 0.9, "low": 0.89, "high": 0.91}
    return BaselineOutcome.model_validate(known | {"margin": 0.05, "job": NONE} | fields)


def test_a_baseline_is_saved_listed_and_deleted(dyno, finished):
    job = finished()
    saved = dyno("baseline", "save", "main", job, "--margin", "0.1", "--json")
    assert saved.exit_code == 0, saved.output
    found = json.loads(saved.stdout)
    assert (found["name"], found["job"], found["margin"], found["metric"]) == ("main", job, 0.1, "throughput")
    limit = dyno("baseline", "save", "floor", "--metric", "throughput", "--at-least", "1e9")
    assert limit.exit_code == 0, limit.output
    assert "at least 1e+09" in limit.stdout
    listed = dyno("baseline", "list")
    assert "floor" in listed.stdout
    assert "100 FLOP/s" in listed.stdout
    assert [each["name"] for each in json.loads(dyno("baseline", "list", "--json").stdout)] == ["floor", "main"]
    assert dyno("baseline", "delete", "floor").stdout == "floor: deleted\n"
    assert dyno("baseline", "delete", "floor").exit_code == 3
    assert dyno("baseline", "save", "main", NONE).exit_code == 3


@pytest.mark.parametrize(
    "words",
    [
        ["main"],
        ["main", "--metric", "throughput"],
        ["main", "--at-least", "1"],
        ["main", "--metric", "throughput", "--at-least", "1", "--at-most", "2"],
        ["main", NONE, "--at-least", "1"],
    ],
)
def test_a_baseline_is_a_job_or_one_limit(dyno, words):
    told = dyno("baseline", "save", *words)
    assert (told.exit_code, "limit" in told.output or "--metric" in told.output) == (2, True)


@pytest.mark.parametrize(
    ("outcome", "words", "exit_code"),
    [
        ("fail", (), 5),
        ("pass", (), 0),
        ("inconclusive", (), 0),
        ("untrusted", (), 6),
        ("untrusted", ("--fail-on", "inconclusive"), 6),
        ("other work", (), 6),
        ("inconclusive", ("--fail-on", "slower"), 0),
        ("inconclusive", ("--fail-on", "inconclusive"), 5),
        ("pass", ("--fail-on", "slower", "--fail-on", "inconclusive"), 0),
    ],
)
def test_a_run_that_is_proven_slower_ends_with_5(dyno, finished, http, settings, offered, outcome, words, exit_code):
    dyno("baseline", "save", "main", finished())
    with ThreadPoolExecutor(1) as background, sync_client(settings) as client:
        command = ("run", "matmul", "--n", "64", "--device", "cpu", "--baseline", "main", *words)
        running = background.submit(dyno, *command)
        leases = Leases(client, settings)
        claim = eventually(lambda: take(leases, offered), 30, "a job waits")
        copy = leases.baseline(claim)
        assert claim.spec.baseline == "main"
        assert copy is not None
        assert copy.name == "main"
        differing = [BaselineDifference(field="/params/n", baseline=32, job=64)]
        said = outcome if outcome in ("pass", "fail") else "inconclusive"
        other_work = ["/params/n"] if outcome == "other work" else []
        reason = "why" if said == "inconclusive" else None
        judged = an_outcome(outcome=said, differences=differing, reason=reason, other_work=other_work)
        verdict = Verdict.UNTRUSTED if outcome == "untrusted" else Verdict.TRUSTED
        succeed(leases, claim, baseline=judged, verdict=verdict)
        told = running.result()
    assert told.exit_code == exit_code, told.output
    assert f"baseline main: {said}: 0.9 times as good (0.89 to 0.91)" in told.stdout
    assert "differs: /params/n: 32 | 64" in told.stdout
    assert dyno("result", claim.job_id).exit_code == {"fail": 5, "untrusted": 6, "other work": 6}.get(outcome, 0)
    assert http.get(f"/v1/jobs/{claim.job_id}").json()["baseline"]["outcome"] == said


def test_differences_are_allowed_by_name(dyno, offered, settings):
    dyno("baseline", "save", "floor", "--metric", "throughput", "--at-least", "1")
    for words, code in ((["params.n", "hardware"], 0), (["params"], 2)):
        allowed = [word for name in words for word in ("--baseline-allow", name)]
        nightly = ("schedule", "save", "nightly", "0 3 * * *", "matmul", "--device", "cpu", "--json")
        told = dyno(*nightly, "--baseline", "floor", *allowed)
        assert told.exit_code == code, told.output
        if code == 0:
            assert json.loads(told.stdout)["spec"]["baseline_allow"] == words
    assert dyno("run", "matmul", "--baseline-allow", "params.n").exit_code == 2


def test_fail_on_needs_a_baseline(dyno):
    told = dyno("run", "matmul", "--fail-on", "inconclusive")
    assert (told.exit_code, "need --baseline" in told.output) == (2, True)


def test_a_run_with_an_unknown_baseline_is_refused(dyno, offered):
    told = dyno("run", "matmul", "--device", "cpu", "--baseline", "nobodys")
    assert told.exit_code == 3
    assert "/baseline" in told.stderr
