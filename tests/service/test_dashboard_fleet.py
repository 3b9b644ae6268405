"""The dashboard's pages of devices: why a device takes no jobs, and what a person can do about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dyno.models.inventory import WorkerRecord
from dyno.models.job import Holder
from dyno.store import fleet
from tests.pages import posts_of, text_of
from tests.waiting import eventually

CORDON = "/fleet/cpu%3A0-1%40here"
AGAIN = {"Accept": "text/html", "X-Dyno-Refresh": "1"}


def test_a_device_that_dyno_cordoned_says_why_and_has_no_button(http, client, settings, offered):
    known: dict[str, Any] = {"id": "worker-1", "host": offered.host, "pid": 1, "device": offered.full_id}
    idle = WorkerRecord(**known, state="idle", version="0", started_at=datetime.now(UTC))
    hung = Holder(device=offered.full_id, pid=77, command="python -m workers", job="job_1", hung=True)
    fleet.publish(client, settings, offered, idle.model_copy(update={"state": "busy", "held_by": hung}))
    page = http.get("/fleet")
    assert f"cordoned: {hung}" in text_of(page)
    assert "ends with that process" in text_of(page)
    assert posts_of(page) == [], "an uncordon wouldn't lift it"
    eventually(lambda: str(hung) in text_of(http.get("/")), 10, "the start page says why, too")

    fleet.publish(client, settings, offered, idle)
    assert posts_of(http.get("/fleet")) == [f"{CORDON}/cordon"]
    assert http.post(f"{CORDON}/cordon").status_code == 303
    page = http.get("/fleet")
    assert posts_of(page) == [f"{CORDON}/uncordon"], "the cordon of a person"
    assert "ends with" not in text_of(page)
    http.post(f"{CORDON}/uncordon")


def test_open_start_pages_share_nothing_that_a_query_asked_for(http, offered):
    """`offered` is in a table, which the start page offers as a file."""
    table = http.get("/?table=1.csv", headers=AGAIN)
    assert table.headers["Content-Type"].startswith("text/csv")
    page = http.get("/", headers=AGAIN)
    assert offered.full_id in text_of(page)
    assert page.text.startswith("<!doctype html>"), "each of many open pages gets this one"
