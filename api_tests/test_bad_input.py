"""Bad input gets a problem that names every wrong field; never a 500, and no job is queued."""

import json
import re

import pytest

JSON = {"Content-Type": "application/json"}
PYTHON = re.compile(r"dictionary|instance of|\btuple\b|\bNone\b|\bTrue\b|Value error")


def problem(answer):
    """The response's problem, after checking its form."""
    found = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "code", "detail"} <= found.keys()
    assert found["status"] == answer.status_code
    assert bool(found.get("errors")) == (answer.status_code == 422)
    return found


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"workload": "matmul", "params": {"n": -5, "repeats": 0, "dtype": "int3"}}, None),
        ({"workload": "matmul", "params": {"n": 10**9}}, {"/params/n"}),
        ({"workload": "matmul", "params": {"n": "big"}}, {"/params/n"}),
        ({"workload": "matmul", "params": {"n": 1.5}}, {"/params/n"}),
        ({"workload": "matmul", "params": {"n": None}}, {"/params/n"}),
        ({"workload": "matmul", "params": {"n": [64]}}, {"/params/n"}),
        ({"workload": "matmul", "params": {"size": 64}}, {"/params/size"}),
        ({"workload": "matmul", "params": "n=64"}, {"/params"}),
        ({"workload": ["matmul"], "seed": -1}, {"/workload", "/seed"}),
        ({"workload": "matmul", "speed": 1, "sead": 2}, {"/speed", "/sead"}),
        ({"workload": "matmul", "measure": {"min_samples": 0, "max_s": -1}}, None),
        ({"workload": "matmul", "seed": "5", "timeout_s": "long", "params": {"n": 0}}, None),
        ({"workload": "matmul", "webhook": "http://127.0.0.1/"}, {"/webhook"}),
        ({"workload": "matmul", "device": {"kind": "abacus"}}, {"/device/kind"}),
        ({"workload": "matmul", "device": "abacus:0"}, {"/device"}),
        ({"workload": "matmul", "labels": {"a": 1, "b": "x" * 200}}, {"/labels/a", "/labels/b"}),
    ],
)
def test_every_wrong_field_is_named_at_once(api, body, pointers):
    answer = api.http.post("/v1/jobs", json=body)
    found = problem(answer)
    assert (answer.status_code, found["code"]) == (422, "invalid-spec")
    named = {error["pointer"] for error in found["errors"]}
    assert named == (all_wrong(body) if pointers is None else pointers)
    assert all(error["code"] and error["detail"] for error in found["errors"])
    assert not PYTHON.search(answer.text), "a caller sent JSON, and is answered in its words"


def test_a_param_out_of_bounds_is_named_with_its_value_and_its_range(api):
    params = {"batch_size": 0, "learning_rate": 11, "epochs": -1}
    errors = problem(api.http.post("/v1/jobs", json={"workload": "mnist_cnn", "params": params}))["errors"]
    assert {error["detail"] for error in errors} == {
        "batch_size should be from 1 to 60000, not 0",
        "learning_rate should be above 0 and at most 10, not 11",
        "epochs should be from 1 to 1000, not -1",
    }


def all_wrong(body):
    """Pointers to every leaf but the workload, for bodies in which all others are wrong."""

    def leaves(value, at):
        if isinstance(value, dict):
            return set().union(*(leaves(item, f"{at}/{key}") for key, item in value.items()))
        return {at}

    return leaves(body, "") - {"/workload"}


@pytest.mark.parametrize(
    ("path", "body", "pointer", "meant"),
    [
        ("/v1/jobs", {"workload": "matmul", "parms": {}}, "/parms", "params"),
        ("/v1/jobs", {"workload": "matmul", "params": {"repeat": 3}}, "/params/repeat", "repeats"),
        ("/v1/jobs", {"workload": "matmul", "measure": {"max_ss": 1}}, "/measure/max_ss", "max_s"),
        ("/v1/jobs", {"workload": "matmul", "device": {"knid": "cpu"}}, "/device/knid", "kind"),
        ("/v1/sweeps", {"spec": {}, "rouds": 2}, "/rouds", "rounds"),
    ],
)
def test_an_unknown_field_is_answered_with_the_one_probably_meant(api, path, body, pointer, meant):
    errors = problem(api.http.post(path, json=body))["errors"]
    (detail,) = [error["detail"] for error in errors if error["pointer"] == pointer]
    assert detail == f'Unknown field (did you mean "{meant}"?)'


def test_only_the_first_unknown_fields_of_a_body_are_looked_up(api):
    body = {"workload": "matmul"} | {f"params{number}": 0 for number in range(50)}
    errors = problem(api.http.post("/v1/jobs", json=body))["errors"]
    assert sum("did you mean" in error["detail"] for error in errors) == 5


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"[]", "application/json", 400, "malformed-body"),
        (b'{"a":' * 10_000, "application/json", 400, "malformed-body"),
        (b" " * 50_000_000, "application/json", 413, "body-too-large"),
        (b"{}", "text/plain", 415, "unsupported-media-type"),
    ],
    ids=["a list", "deep", "large", "text"],
)
def test_a_body_that_cannot_be_read_is_refused(api, body, content_type, status, code):
    answer = api.http.post("/v1/jobs", content=body, headers={"Content-Type": content_type})
    assert (answer.status_code, problem(answer)["code"]) == (status, code)
    assert api.http.get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1", 404),
        ("POST", "/v1/nonesuch", 404),
        ("GET", "/v1/workloads/nonesuch", 404),
        ("GET", "/v1/jobs/job_00000000000000000000000000", 404),
        ("GET", "/v1/jobs/..%2f..%2fetc", 404),
        ("GET", "/v1/jobs/job_00000000000000000000000000/cancel", 405),
        ("POST", "/v1/devices", 405),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?status=lost", 422),
        ("GET", "/v1/jobs?created_after=yesterday", 422),
        ("GET", "/v1/jobs?cursor=%00", 422),
        ("GET", "/v1/jobs?colour=blue", 422),
        ("GET", "/v1/jobs/job_00000000000000000000000000?wait=61", 422),
    ],
)
def test_a_wrong_request_is_a_problem_too(api, method, path, status):
    answer = api.http.request(method, path)
    assert answer.status_code == status
    problem(answer)


def test_a_job_that_can_t_fit_is_refused_with_the_figures(api):
    body = {"workload": "matmul", "params": {"n": 2**24}}
    answer = api.http.post("/v1/jobs", json=body)
    assert (answer.status_code, problem(answer)["code"]) == (422, "does-not-fit")
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/params/n"
    most = max(device["memory_bytes"] for device in api.http.get("/v1/devices").json()["data"])
    assert re.match(r"the job needs about [\d,]+ TB; ", error["detail"]), error["detail"]
    assert f"has {most / 1e9:.4g} GB" in error["detail"]


def test_nothing_that_was_refused_is_queued(api):
    bodies = [{"workload": "matmul", "labels": {"refused": "yes"}, "params": {"n": n}} for n in (0, 2**24)]
    assert [api.http.post("/v1/jobs", content=json.dumps(b), headers=JSON).status_code for b in bodies] == [422, 422]
    assert api.http.get("/v1/jobs", params={"label": "refused"}).json()["data"] == []
