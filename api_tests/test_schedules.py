"""Schedules as clients see them. `test_schedule_firings.py` has those that fire."""

from datetime import datetime, timedelta

import pytest

from api_tests.conftest import TINY, errors
from dyno.models.job import new_ulid

DAILY = {"cron": "0 3 * * *", "timezone": "Europe/Zurich", "spec": TINY}


@pytest.fixture
def name(api):
    """A name that no other test uses."""
    name = f"test-{new_ulid()}"
    yield name
    api.http.delete(f"/v1/schedules/{name}")


def test_a_schedule_is_saved_replaced_listed_and_deleted(api, name):
    made = api.http.put(f"/v1/schedules/{name}", json=DAILY)
    assert (made.status_code, made.headers["location"]) == (201, f"/v1/schedules/{name}")
    saved = made.json()
    assert (saved["name"], saved["cron"], saved["timezone"], saved["enabled"]) == (
        name,
        "0 3 * * *",
        "Europe/Zurich",
        True,
    )
    assert (saved["stopped"], saved["firings"], saved["missed"], saved["missed_count"]) == (None, [], [], 0)
    assert (saved["spec"]["params"]["n"], saved["spec"]["labels"]) == (64, {"schedule": name})
    upcoming = [datetime.fromisoformat(each) for each in saved["next_firings"]]
    assert len(upcoming) == 5
    assert {(each.hour, each.minute) for each in upcoming} <= {(1, 0), (2, 0)}
    assert timedelta() < upcoming[0] - datetime.fromisoformat(saved["saved_at"]) < timedelta(hours=26)
    assert api.http.get(f"/v1/schedules/{name}").json() == saved
    shown = {field: saved[field] for field in ("cron", "spec", "enabled")} | {"timezone": "UTC"}
    again = api.http.put(f"/v1/schedules/{name}", json=shown)
    assert (again.status_code, again.json()["spec"]) == (200, saved["spec"])
    assert [each for each in api.http.get("/v1/schedules").json()["data"] if each["name"] == name] == [again.json()]
    off = api.http.put(f"/v1/schedules/{name}", json=DAILY | {"enabled": False}).json()
    assert (off["enabled"], off["next_firings"]) == (False, [])
    assert api.http.delete(f"/v1/schedules/{name}").status_code == 204
    gone = api.http.get(f"/v1/schedules/{name}")
    assert (gone.status_code, gone.json()["code"]) == (404, "schedule-not-found")
    assert api.http.delete(f"/v1/schedules/{name}").status_code == 404


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"cron": "0 3 * *"}, "/cron", "invalid-cron"),
        ({"cron": "0 25 * * *"}, "/cron", "invalid-cron"),
        ({"cron": "0 0 31 2 *"}, "/cron", "invalid-cron"),
        ({"cron": 3}, "/cron", "string-type"),
        ({"cron": ""}, "/cron", "string-too-short"),
        ({"timezone": "Europe/Zuerich"}, "/timezone", "unknown-timezone"),
        ({"time_zone": "UTC"}, "/time_zone", "extra-forbidden"),
        ({"enabled": "yes"}, "/enabled", "bool-type"),
        ({"spec": 1}, "/spec", "dict-type"),
        ({"spec": {}}, "/spec/workload", "missing"),
        ({"spec": {"workload": "matmull"}}, "/spec/workload", "unknown-workload"),
        ({"spec": TINY | {"params": {"n": 0}}}, "/spec/params/n", "greater-than-equal"),
        ({"spec": TINY | {"labels": {"schedule": "other"}}}, "/spec/labels/schedule", "reserved"),
        ({"spec": TINY | {"labels": []}}, "/spec/labels", "dict-type"),
        ({"spec": TINY | {"device": "tpu"}}, "/spec/device", "no-device-fits"),
        ({"spec": TINY | {"baseline": "nobody-saved-this"}}, "/spec/baseline", "unknown-baseline"),
    ],
)
def test_a_wrong_schedule_is_refused(api, name, changes, pointer, code):
    answer = api.http.put(f"/v1/schedules/{name}", json=DAILY | changes)
    assert errors(answer, "invalid-schedule") == [(pointer, code)]
    assert api.http.get(f"/v1/schedules/{name}").status_code == 404


def test_a_wrong_name_is_refused(api):
    for name in ("-a", "a b", "ä", "x" * 65):
        answer = api.http.put(f"/v1/schedules/{name}", json=DAILY)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request"), name
