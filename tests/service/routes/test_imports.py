"""Results exported as JSON lines by one service and imported into another."""

import json
from datetime import UTC, datetime, timedelta
from statistics import fmean

import pytest

from dyno.models.result_export import MAX_LINES, MEDIA_TYPE
from service.app import create_app
from service.openapi.components import recorded_examples
from tests.comparisons import RATES, times

LINES = {"Content-Type": MEDIA_TYPE}


@pytest.fixture(scope="module")
def there(settings, serve):
    """Another Dyno."""
    other = settings.model_copy(update={"namespace": f"{settings.namespace}-there", "max_import_bytes": 200_000})
    with serve(create_app(other)) as http:
        yield http


def exported(http, label, **more):
    answer = http.get("/v1/results", params={"label": f"test={label}", "format": "jsonl", **more}).raise_for_status()
    assert answer.headers["content-type"].startswith(MEDIA_TYPE)
    return answer.text.splitlines()


def imported(http, lines, **params):
    return http.post("/v1/results/import", content="\n".join(lines).encode(), params=params, headers=LINES)


def labelled(name):
    return {"labels": {"test": name}}


def test_results_move_to_another_dyno(http, there, finished):
    originals = [finished(spec=labelled("moved")) for _ in range(3)]
    lines = exported(http, "moved")
    assert [json.loads(line)["job"]["id"] for line in lines] == originals[::-1]
    report = imported(there, lines).raise_for_status().json()
    assert (report["imported"], report["already"]) == (3, 0)
    assert [(line["line"], line["original"]) for line in report["lines"]] == [*enumerate(originals[::-1], 1)]
    jobs = there.get("/v1/jobs", params={"imported": True}).json()["data"]
    assert [job["imported"]["job"] for job in jobs] == originals[::-1]
    assert {job["imported"]["from"] for job in jobs} == {str(http.base_url)}
    before = http.get(f"/v1/jobs/{originals[0]}").json()
    assert {name: jobs[-1][name] for name in ("spec", "worker", "created_at", "finished_at", "status", "done")} == {
        name: before[name] for name in ("spec", "worker", "created_at", "finished_at", "status", "done")
    }
    result = there.get(jobs[-1]["urls"]["result"]).json()
    assert result == http.get(before["urls"]["result"]).json() | {"job": jobs[-1]["id"]}
    rows = there.get("/v1/results", params={"label": "test=moved", "imported": True}).json()
    assert len(rows) == 3
    assert all(row["imported"] for row in rows)
    assert there.get("/v1/results", params={"label": "test=moved", "imported": False}).json() == []
    assert not any(row["imported"] for row in http.get("/v1/results", params={"label": "test=moved"}).json())
    comparison = there.post("/v1/comparisons", json={"jobs": [job["id"] for job in jobs]})
    assert comparison.status_code == 201
    [series] = there.get("/v1/history", params={"label": "test=moved"}).json()["series"]
    assert len(series["points"]) == 3
    counts = [line for line in there.get("/metrics").text.splitlines() if line.startswith("dyno_jobs_submitted")]
    assert not [line for line in counts if not line.endswith(" 0.0")]
    events = there.get(f"/v1/jobs/{jobs[0]['id']}/events").text
    assert '"event":"import"' in events
    assert there.delete(f"/v1/jobs/{jobs[0]['id']}").status_code == 204


def test_an_imported_result_is_a_base_and_a_baseline(http, there, finished):
    for by_run in (RATES, times(2)):
        finished(by_run, spec=labelled("base"))
    fast, slow = (line["job"] for line in imported(there, exported(http, "base")).json()["lines"])
    compared = there.post("/v1/comparisons", json={"jobs": [fast, slow], "base": slow}).raise_for_status().json()
    assert compared["results"][0]["ratio"]["value"] == pytest.approx(2)
    baseline = there.put("/v1/baselines/imported", json={"job": slow}).raise_for_status().json()
    assert (baseline["figure"]["by_run"], baseline["figure"]["peer"]["hardware_id"]) == (RATES, "hw_1")
    there.delete(f"/v1/jobs/{slow}").raise_for_status()
    assert there.get("/v1/baselines/imported").json() == baseline


def test_a_second_import_changes_nothing(http, there, finished):
    original = finished(spec=labelled("again"))
    lines = exported(http, "again")
    first, again = (imported(there, lines).json() for _ in range(2))
    assert first["lines"][0] | {"new": False} == again["lines"][0]
    assert (again["imported"], again["already"]) == (0, 1)
    back = imported(http, exported(there, "again")).json()
    assert back["lines"] == [{"line": 1, "original": original, "job": original, "new": False}]


def test_one_wrong_line_imports_none_and_each_fault_has_its_line(http, there, finished):
    for _ in range(2):
        finished(spec=labelled("wrong"))
    good = exported(http, "wrong")
    job = json.loads(good[0])
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    metric = job["result"]["metrics"][0]

    def measured(**fields):
        return {"metrics": [metric | fields]}

    def in_turns(by_run):
        arm = measured(by_run=by_run, value=fmean(by_run))
        return changed(job, "result", arms=[job["result"] | arm])

    at, at_arm = "/result/metrics/0", "/result/arms/0/metrics/0"
    wrong = {
        "below zero": (changed(job, "result", **measured(value=-5.0)), at, "out-of-range"),
        "overflows": (changed(job, "result", **measured(by_run=[1e308] * 5)), at, "out-of-range"),
        "no mean": (changed(job, "result", **measured(by_run=[0.0] * 5)), f"{at}/value", "not-the-mean"),
        "no pairs": (in_turns(metric["by_run"][:3]), at_arm, "other-runs"),
        "zero in turns": (in_turns([0.0] * len(metric["by_run"])), at_arm, "out-of-range"),
        "not JSON": ("{", "", "malformed-line"),
        "no object": ("[]", "", "malformed-line"),
        "twice": ('{"job": 1, "job": 2}', "/job", "duplicate-key"),
        "no number": (good[0].replace('"attempt":1', '"attempt":NaN'), "/job/attempt", "not-finite"),
        "empty": ("{}", "/job", "missing"),
        "no status": (changed(job, "job", status="done"), "/job/status", "enum"),
        "not done": (changed(job, "job", status="running", finished_at=None), "/job/status", "not-succeeded"),
        "no id": (changed(job, "job", id="job_1"), "/job/id", "invalid-id"),
        "too new": (changed(job, "job", schema=99), "/job/schema", "too-new"),
        "future": (changed(job, "job", created_at=tomorrow), "/job/created_at", "out-of-range"),
        "other job": (changed(job, "result", job=f"job_{0:026}"), "/result/job", "other-job"),
        "verdict": (changed(job, "result", verdict="good"), "/result/verdict", "enum"),
        "metrics": (changed(job, "result", metrics=[metric] * 501), "/result/metrics", "too-many"),
        "params": (changed(job, "result", params=dict.fromkeys(map(str, range(65)), 1)), "/result/params", "too-many"),
        "asked": (
            changed(job, "job", spec=job["job"]["spec"] | {"params": dict.fromkeys(map(str, range(65)), 1)}),
            "/job/spec/params",
            "too-many",
        ),
        "labels": (
            changed(job, "job", spec=job["job"]["spec"] | {"labels": dict.fromkeys(map(str, range(33)), "x")}),
            "/job/spec/labels",
            None,
        ),
        "rows": (
            changed(job, "result", metrics=[metric] * 100, params={"note": "x" * 12_000}),
            "/result",
            "too-large",
        ),
        "workload": (changed(job, "job", spec=job["job"]["spec"] | {"workload": "a:b"}), "/job/spec/workload", None),
    }
    for name, (line, pointer, code) in wrong.items():
        answer = imported(there, [good[1], "", line], first_line=41)
        assert answer.status_code == 422, name
        problem = answer.json()
        assert problem["code"] == "invalid-import"
        error = problem["errors"][0]
        assert error["pointer"] == f"/43{pointer}", name
        assert error["detail"].startswith("line 43: ")
        assert code in (None, error["code"]), name
    assert exported(there, "wrong") == []
    assert imported(there, good).json()["imported"] == 2


def test_fields_that_this_version_does_not_know_are_dropped(http, there, finished):
    """A newer version may have exported them."""
    finished(spec=labelled("newer"))
    [line] = exported(http, "newer")
    document = json.loads(line)
    for part in (document, document["job"], document["job"]["spec"], document["job"]["spec"]["measure"]):
        part["newer"] = {"x": [1]}
    for part in (document["result"], document["result"]["metrics"][0], document["result"]["peak"]):
        part["newer"] = {"x": [1]}
    assert imported(there, [json.dumps(document)]).json()["imported"] == 1
    [again] = exported(there, "newer")
    assert "newer" not in again.replace('"test":"newer"', "")
    assert json.loads(again)["result"]["metrics"] == json.loads(line)["result"]["metrics"]


def test_a_wrong_field_of_a_spec_is_the_only_fault(http, there, finished):
    """A spec is one of a single workload, or of two in turns; the fields of the other kind aren't missing."""
    finished(spec=labelled("kinds"))
    line = json.loads(exported(http, "kinds")[0])
    answer = imported(there, [changed(line, "job", spec=line["job"]["spec"] | {"framework": "mlx"})])
    assert [(each["pointer"], each["code"]) for each in answer.json()["errors"]] == [
        ("/1/job/spec/framework", "literal-error")
    ]


def changed(line, part, **fields):
    return json.dumps(line | {part: line[part] | fields})


def test_a_request_has_limits(http, there, finished):
    finished(spec=labelled("limits"))
    [line] = exported(http, "limits")
    many = imported(there, ["{}"] * (MAX_LINES + 1))
    assert (many.status_code, many.json()["errors"][0]["code"]) == (422, "wrong-number")
    assert imported(there, []).status_code == 422
    large = imported(there, [line] * (200_000 // len(line) + 1))
    assert (large.status_code, large.json()["code"]) == (413, "body-too-large")
    form = there.post("/v1/results/import", json=json.loads(line))
    assert (form.status_code, form.json()["code"]) == (415, "unsupported-media-type")


def test_the_name_of_the_other_dyno_can_be_given(http, there, finished):
    finished(spec=labelled("named"))
    [line] = imported(there, exported(http, "named"), **{"from": "laptop"}).json()["lines"]
    assert there.get(f"/v1/jobs/{line['job']}").json()["imported"]["from"] == "laptop"


def test_the_example_of_the_document_is_accepted(there):
    assert imported(there, [recorded_examples()["requests"]["importResults"]["line"]]).json()["imported"] == 1
