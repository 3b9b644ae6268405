"""What the dashboard's forms send: jobs, sweeps and schedules. A wrong form is shown again, and nothing is done."""

import json
import re
from datetime import UTC, datetime

import pytest

from dyno.models.inventory import WorkerRecord
from dyno.store import fleet
from dyno.store.redis import Keys
from service.dashboard.forms import as_values
from service.sweeps.page import as_sweep
from tests.pages import beside, posts_of, text_of

JOB = {"form_key": "3f1c", "params.n": "64", "device": "cpu"}
SWEEP = {"form_key": "77ab", "params.n": "64, 65", "device": "cpu"}
SCHEDULE = {
    **{"schedule.name": "nightly", "schedule.cron": "0 3 * * *", "schedule.timezone": "Europe/Zurich"},
    **{"params.n": "64", "device": "cpu"},
}


@pytest.fixture
def queue(http, offered):
    """A device for the jobs of the forms, which are canceled at the end."""
    yield
    for job in http.get("/v1/jobs", params={"status": "queued", "limit": 200}).json()["data"]:
        http.post(job["urls"]["cancel"])


def all_jobs(http):
    return [job["id"] for job in http.get("/v1/jobs", params={"limit": 200}).json()["data"]]


def test_no_page_creates_the_first_key(http):
    for answer in (http.post("/keys", data={"name": "first", "scope": "admin"}), http.get("/keys")):
        assert (answer.status_code, answer.headers["location"][:12]) == (303, "/login?next=")
    assert http.get("/v1/jobs").status_code == 200, "still no key is needed"


def test_the_log_in_says_that_no_key_is_needed_before_the_first_one(http):
    page = http.get("/login?next=/keys")
    assert "serves its own host without one" in text_of(page)
    assert "This Dyno needs a key" not in text_of(page)
    assert posts_of(page) == [], "no key could be entered"


def test_lists_without_filters_say_how_to_make_the_first_result(http):
    for path in ("/", "/jobs", "/history"):
        page = http.get(path)
        assert "There is no result yet. On a command line: dyno run matmul" in text_of(page), path
        assert 'href="/workloads">Run a benchmark</a> <a' in page.text, path
    for path in ("/jobs?status=failed", "/history?label=a%3Db"):
        assert "matches. Show all" in text_of(http.get(path)), path


def test_a_wrong_parameter_is_said_once(http):
    assert text_of(http.get(f"/jobs?device={'x' * 300}")).count("/device") == 1


def test_the_filters_of_jobs_may_be_empty(http):
    assert http.get("/jobs?workload=&status=&device=&label=").status_code == 200
    assert http.get("/history?workload=&device=&label=&metric=").status_code == 200


@pytest.mark.parametrize("query", [f"device={'x' * 300}", f"label={'x' * 300}", "cursor=odd", "status=odd"])
def test_a_filter_that_no_job_can_have_is_refused(http, query):
    assert http.get(f"/jobs?{query}").status_code == 422


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/workloads/matmul/sweep", SWEEP | {"rounds": "²"}),
        ("/workloads/matmul/sweep", SWEEP | {"rounds": "01"}),
        ("/workloads/matmul/sweep", {"params": "1", "params.n": "2"}),
        ("/workloads/matmul/sweep", {"params": "1", "params.n": "2, 3"}),
        ("/workloads/matmul/sweep", {"params.n": "[" * 15_000}),
        ("/sweeps", {"preset": "²"}),
        ("/sweeps", {}),
        ("/workloads/matmul", {"params": "1", "params.n": "2"}),
        ("/workloads/matmul/estimate", {"params": "1", "params.n": "2"}),
        ("/workloads/matmul/schedule", SCHEDULE | {"params": "1"}),
        ("/workloads/matmul", {"params.n": "[" * 15_000}),
    ],
)
def test_an_odd_form_is_refused(http, path, fields):
    before = all_jobs(http)
    answer = http.post(path, data=fields or {"odd": "1"})
    assert answer.status_code == 422, answer.text
    assert all_jobs(http) == before


def test_an_unknown_alarm_is_a_page(http):
    answer = http.post("/history/alarms/alm_0_0/acknowledge?foo=1")
    assert (answer.status_code, "No such alarm" in answer.text) == (404, True)


def test_pages_are_not_stored_by_browsers(http):
    assert http.get("/jobs").headers["cache-control"] == "no-store"


@pytest.mark.usefixtures("queue")
def test_a_workloads_page_says_how_long_its_default_takes(http, offered):
    assert re.search(rf"about \d+ s on {offered.full_id}", text_of(http.get("/workloads/matmul")))
    assert not re.search(r"about \d+ s on", text_of(http.get("/workloads/matmul?device=gpu:7")))


def test_a_form_that_is_sent_twice_makes_one_job(http):
    first, again = (http.post("/workloads/matmul", data=JOB) for _ in range(2))
    assert first.status_code == 303, text_of(first)
    assert first.headers["location"] == again.headers["location"]
    changed = http.post("/workloads/matmul", data=JOB | {"params.n": "65"})
    assert changed.headers["location"] != first.headers["location"], "the browser went back and changed a field"
    path = first.headers["location"]
    rerun, rerun_again = (http.post(f"{path}/rerun", data={"form_key": "a"}) for _ in range(2))
    assert rerun.headers["location"] == rerun_again.headers["location"] != path


def test_each_page_has_another_form_key(http):
    for path in ("/workloads/matmul", "/workloads/matmul/sweep", "/sweeps"):
        pages = [http.get(path).text for _ in range(2)]
        first, second = (re.findall(r'name="form_key" value="([0-9a-f]{32})"', page)[0] for page in pages)
        assert first != second, path


@pytest.mark.usefixtures("queue")
def test_fields_with_several_values_vary_in_a_sweep(http):
    form = SWEEP | {"params.dtype": "float32", "rounds": "2", "labels": "why=form"}
    sent, again = (http.post("/workloads/matmul/sweep", data=form) for _ in range(2))
    assert sent.status_code == 303, text_of(sent)
    assert sent.headers["location"] == again.headers["location"], "one sweep for a double click"
    sweep = http.get(f"/v1{sent.headers['location']}").json()
    assert (sweep["axes"], sweep["rounds"]) == ({"params.n": [64, 65]}, 2)
    spec = http.get(f"/v1/jobs/{sweep['points'][0]['job']}").json()["spec"]
    assert (spec["params"]["dtype"], spec["device"]["kind"], spec["labels"]["why"]) == ("float32", "cpu", "form")


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ("params.n", "64, 0"),
        ("params.dtype", "float31"),
        ("device", "cpu, sofa"),
        ("framework", "tensorflow, keras"),
        ("measure.budget_s", "0"),
        ("rounds", "two"),
    ],
)
def test_what_is_wrong_with_a_sweep_stands_beside_its_field(http, offered, field, typed):
    page = http.post("/workloads/matmul/sweep", data=SWEEP | {field: typed})
    assert page.status_code == 422
    assert "The sweep was not submitted" in text_of(page)
    kept, wrong = beside(page, field)
    assert kept == typed
    assert wrong
    other = "params.n" if field != "params.n" else "device"
    assert beside(page, other) == (SWEEP[other], "")


def test_a_sweep_in_which_nothing_varies_is_refused(http):
    page = http.post("/workloads/matmul/sweep", data={"params.n": "64"})
    assert (page.status_code, "nothing varies" in text_of(page)) == (422, True)


def test_values_may_be_texts_and_lists():
    assert as_values("64, 65,") == [64, 65]
    assert as_values("float32, bfloat16") == ["float32", "bfloat16"]
    assert as_values("[1, 2], [3]") == [[1, 2], [3]]
    assert as_values("true, 0.5, a b") == [True, 0.5, "a b"]
    assert as_sweep("mnist_cnn", {"params.batch_size": "auto"})["grid"] == {"params.batch_size": ["auto"]}


@pytest.mark.usefixtures("queue")
def test_a_preset_runs_with_one_click_on_a_device_that_fits(http, client, settings, device):
    form = {"form_key": "1", "preset": "matmul-devices", "device": "cpu"}
    refused = http.post("/sweeps", data=form)
    assert refused.status_code == 422, "its framework isn't installed"
    row = refused.text.partition('name="preset" value="matmul-devices"')[2].partition("</form>")[0]
    assert 'class="wrong"' in row
    assert re.search(r"<option selected>cpu<", row), "what was chosen stays"
    able = device(id="cpu:2-3", cores=[2, 3], memory_bytes=64 * 2**30, frameworks={"jax": "0.10.2"})
    record = WorkerRecord(
        **{"id": "worker-2", "host": able.host, "pid": 1, "device": able.full_id, "state": "idle", "version": "0"},
        started_at=datetime.now(UTC),
    )
    fleet.publish(client, settings, able, record)
    selected = re.findall(r"<option selected>([^<]*)<", http.get("/sweeps").text)
    assert "cpu" in selected, "there is no GPU and no TPU for the devices of the article"
    sent, again = (http.post("/sweeps", data=form | {"form_key": "2"}) for _ in range(2))
    assert sent.status_code == 303, text_of(sent)
    assert sent.headers["location"] == again.headers["location"]
    assert http.get(f"/v1{sent.headers['location']}").json()["preset"] == "matmul-devices"


def test_a_schedule_is_saved_paused_resumed_and_deleted_by_forms(http, offered):
    sent = http.post("/workloads/matmul/schedule", data=SCHEDULE)
    assert (sent.status_code, sent.headers.get("location")) == (303, "/schedules"), text_of(sent)
    saved = http.get("/v1/schedules/nightly").json()
    assert (saved["cron"], saved["timezone"], saved["spec"]["params"]["n"]) == ("0 3 * * *", "Europe/Zurich", 64)
    shown = http.get("/schedules")
    due = datetime.fromisoformat(saved["next_firings"][0])
    assert f"nightly matmul n = 64 on cpu 0 3 * * * Europe/Zurich {due:%Y-%m-%d %H:%M} UTC" in text_of(shown)
    assert posts_of(shown) == ["/schedules/nightly/pause", "/schedules/nightly/delete"]
    assert http.post("/schedules/nightly/pause").status_code == 303
    paused = http.get("/v1/schedules/nightly").json()
    assert (paused["enabled"], paused["next_firings"]) == (False, [])
    assert "paused" in text_of(http.get("/schedules"))
    assert http.post("/schedules/nightly/resume").status_code == 303
    resumed = http.get("/v1/schedules/nightly").json()
    assert (resumed["enabled"], resumed["spec"]) == (True, saved["spec"])
    assert http.post("/schedules/nightly/delete").status_code == 303
    assert http.get("/v1/schedules/nightly").status_code == 404
    for change in ("pause", "resume", "delete"):
        assert http.post(f"/schedules/nightly/{change}").status_code == 404


def test_the_page_of_schedules_has_what_they_fired_refused_and_missed(http, offered, client, settings):
    http.post("/workloads/matmul/schedule", data=SCHEDULE | {"schedule.name": "past"})
    key, at = Keys(settings.namespace).schedules(None), "2026-11-20T03:00:00Z"
    stored = json.loads(str(client.hget(key, "past")))
    stored |= {"missed": [at], "missed_count": 7}
    stored["firings"] = [{"due_at": at, "fired_at": at, "code": "queue-full", "detail": "the queue is full"}]
    client.hset(key, "past", json.dumps(stored))
    shown = text_of(http.get("/schedules"))
    assert "refused, queue-full the queue is full" in shown
    assert "7 2026-11-20 03:00 UTC" in shown
    http.post("/schedules/past/delete")


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ("schedule.name", "a b"),
        ("schedule.cron", "0 3"),
        ("schedule.timezone", "Europe/Zuerich"),
        ("params.n", "0"),
    ],
)
def test_what_is_wrong_with_a_schedule_stands_beside_its_field(http, offered, field, typed):
    page = http.post("/workloads/matmul/schedule", data=SCHEDULE | {"schedule.name": "wrong", field: typed})
    assert page.status_code == 422
    kept, wrong = beside(page, field)
    assert kept == typed
    assert wrong
    assert http.get("/v1/schedules").json()["data"] == []
