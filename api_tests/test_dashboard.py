"""The dashboard's pages and forms without JavaScript: they show what the API responds, and do what it does."""

import re
from html import unescape

import pytest

from dyno.formatting import format_quantity
from tests.cores import HERE
from tests.pages import beside, text_of
from tests.waiting import eventually

TINY_FORM = {
    **{"device": "any", "framework": "tensorflow", "params.n": "64", "params.dtype": "float32"},
    **{"measure.processes": "2", "measure.min_samples": "3", "measure.min_s": "0", "labels": "page=yes"},
}
LINK = re.compile(r'(?:href|src)="([^"]*)"')


@pytest.fixture(scope="module")
def done(api, http):
    """A job that the form has submitted, once it is done."""
    sent = http.post("/workloads/matmul", data=TINY_FORM)
    assert sent.status_code == 303, sent.text
    job = api.finished({"urls": {"self": f"/v1{sent.headers['location']}"}})
    assert job["status"] == "succeeded"
    return job


def test_the_form_submits_what_its_fields_say(done):
    spec = done["spec"]
    assert (spec["workload"], spec["params"]["n"], spec["measure"]["processes"]["min"]) == ("matmul", 64, 2)
    assert spec["labels"] == {"page": "yes"}


def test_a_jobs_page_has_the_answer_in_words_and_what_the_api_has(done, http):
    result = http.get(done["urls"]["result"]).json()
    page = http.get(f"/jobs/{done['id']}")
    shown, metric = text_of(page), result["metrics"][0]
    assert page.headers["content-type"].startswith("text/html")
    assert format_quantity(metric["value"], metric["unit"]) in shown
    assert format_quantity(metric["low"], metric["unit"]) in shown
    assert result["verdict"] in shown
    for warning in result["warnings"]:
        assert warning["code"] in shown
        assert warning["message"] in shown
    assert page.text.count('class="dot"') == len(result["runs"]), "a dot for each run"
    assert "curl" in shown


def test_a_wrong_form_is_shown_again_with_what_is_wrong_and_queues_nothing(http):
    before = http.get("/v1/jobs?label=page=wrong").json()["data"]
    page = http.post("/workloads/matmul", data=TINY_FORM | {"params.n": "many", "labels": "page=wrong"})
    assert page.status_code == 422
    assert "params.n" in text_of(page)
    assert 'value="many"' in page.text, "what was typed stays"
    assert http.get("/v1/jobs?label=page=wrong").json()["data"] == before == []
    assert http.post("/workloads/matmul/estimate", data={"params.n": "many"}).text.startswith("params.n")
    assert "about" in http.post("/workloads/matmul/estimate", data=TINY_FORM).text


def test_the_start_page_has_devices_and_the_latest_results(done, http):
    shown = text_of(http.get("/"))
    assert HERE in shown
    assert "Latest results" in shown
    assert "matmul n = 64" in shown
    assert f'type="checkbox" name="job" value="{done["id"]}"' in http.get("/").text


def test_a_running_job_is_canceled_by_a_form_and_run_again_by_another(api, http):
    job = api.submit(params={"n": 256}, measure={"processes": 1, "min_s": 55, "max_s": 60})
    page = http.get(f"/jobs/{job['id']}")
    assert f'action="/jobs/{job["id"]}/cancel"' in page.text
    assert "<progress" in page.text
    assert http.post(f"/jobs/{job['id']}/cancel").headers["location"] == f"/jobs/{job['id']}"
    assert api.finished(job)["status"] == "canceled"
    once, again = (http.post(f"/jobs/{job['id']}/rerun", data={"form_key": "1"}).headers["location"] for _ in range(2))
    assert once == again, "a double click makes one job"
    assert http.get(f"/v1{again}").json()["rerun_of"] == job["id"]
    http.post(f"{again}/cancel")
    eventually(lambda: http.get(f"/v1{again}").json()["done"], 60, "canceled")
    assert http.post(f"{again}/delete").headers["location"] == "/jobs"
    assert http.get(again).status_code == 404


def test_a_sweep_is_sent_by_a_form_shown_as_a_table_and_saved_as_a_file(http):
    form = TINY_FORM | {"measure.processes": "1", "params.n": "64, 65", "rounds": "1"}
    sent = http.post("/workloads/matmul/sweep", data=form)
    assert sent.status_code == 303, text_of(sent)
    path = sent.headers["location"]
    eventually(lambda: http.get(f"/v1{path}").json()["status"] != "running", 150, "done")
    assert "2 of 2 results" in text_of(http.get(path))
    assert text_of(http.get("/sweeps")).count("n (2)") >= 1
    file = http.get(path, params={"file": 1})
    assert file.headers["content-disposition"] == f'attachment; filename="{path.rpartition("/")[2]}.html"'
    assert 'src="data:image/svg+xml;base64,' in file.text
    assert not re.findall(r'<script|<link|<form|src="/', file.text)
    refused = http.post("/workloads/matmul/sweep", data=form | {"params.n": "64, 0"})
    assert refused.status_code == 422
    assert "The sweep was not submitted" in text_of(refused)
    assert beside(refused, "params.n")[0] == "64, 0"
    assert beside(refused, "params.n")[1]


def test_history_and_fleet_are_pages(done, http):
    result = http.get(done["urls"]["result"]).json()
    history = text_of(http.get("/history", params={"workload": "matmul"}))
    assert result["metrics"][0]["name"] in history
    device = http.get("/v1/devices").json()["data"][0]
    name = f"{device['id']}@{device['host']}"
    assert name in text_of(http.get("/fleet"))
    assert http.post(f"/fleet/{name}/cordon").status_code == 303
    assert "cordoned" in text_of(http.get("/fleet"))
    http.post(f"/fleet/{name}/uncordon")
    assert not http.get("/v1/devices").json()["data"][0]["cordoned"]


def test_each_page_loads_only_what_this_service_has_and_its_links_lead_somewhere(done, http):
    seen = set[str]()
    for path in (
        "/",
        "/jobs",
        f"/jobs/{done['id']}",
        "/workloads",
        "/workloads/mnist_cnn",
        "/history",
        "/fleet",
        "/sweeps",
        "/schedules",
        "/advice?workload=matmul",
        "/workloads/matmul/sweep",
        "/workloads/matmul/schedule",
    ):
        page = http.get(path)
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "style=" not in page.text, "the policy forbids inline styles"
        seen |= set(map(unescape, LINK.findall(page.text)))
    assert all(link.startswith(("/", "#")) for link in seen), sorted(seen)
    for link in sorted(each for each in seen if each.startswith("/")):
        status = http.get(link, follow_redirects=True).status_code
        assert status == 200, link


def test_a_page_of_another_origin_can_send_no_form(done, http):
    for headers in ({"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert http.post(f"/jobs/{done['id']}/delete", headers=headers).status_code == 403
        assert http.post("/workloads/matmul", data=TINY_FORM, headers=headers).status_code == 403
    assert http.get(done["urls"]["self"]).status_code == 200


def test_what_is_missing_is_a_page_too(http):
    page = http.get("/jobs/job_01M80PT6VM78YWA14Q3XXHDWDJ")
    assert page.status_code == 404
    assert "No such job" in text_of(page)
    assert http.get("/workloads/nothing").status_code == 404
    assert http.get("/static/nothing.js").status_code == 404
    assert http.get("/jobs?status=odd").status_code == 422
