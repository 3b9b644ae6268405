"""`dyno schedule` and `dyno schedules`, against the service."""

import json

import pytest
from rich.console import Console

from dyno.cli import listings
from dyno.models.job_schedule import JobSchedule


def test_a_schedule_is_saved_shown_listed_and_deleted(dyno, offered):
    when = ["0 3 * * *", "matmul", "--time-zone", "Europe/Zurich"]
    options = ["--n", "64", "--device", "cpu", "--processes", "2", "--label", "team=vision", "--param", "repeats=10"]
    saved = dyno("schedule", "save", "nightly", *when, *options, "--json")
    assert saved.exit_code == 0, saved.output
    found = json.loads(saved.stdout)
    assert (found["cron"], found["timezone"], found["enabled"]) == ("0 3 * * *", "Europe/Zurich", True)
    assert (found["spec"]["params"]["n"], found["spec"]["params"]["repeats"]) == (64, 10)
    assert found["spec"]["labels"] == {"schedule": "nightly", "team": "vision"}
    assert found["spec"]["measure"]["processes"] == {"min": 2, "max": 2}
    off = dyno("schedule", "save", "off", "0 4 * * *", "matmul", "--disabled")
    assert off.exit_code == 0, off.output
    assert "disabled" in off.stdout
    listed = dyno("schedules")
    for word in ("nightly", "Europe/Zurich", " 03:00:00+0", "off"):
        assert word in listed.stdout
    assert [each["name"] for each in json.loads(dyno("schedules", "--json").stdout)] == ["nightly", "off"]
    shown = dyno("schedule", "show", "nightly")
    assert (shown.stdout.count(" 03:00:00+0"), shown.exit_code) == (5, 0)
    assert json.loads(dyno("schedule", "show", "nightly", "--json").stdout) == found
    assert dyno("schedule", "delete", "off").stdout == "off: deleted\n"
    for command in ("delete", "show"):
        assert dyno("schedule", command, "off").exit_code == 3


def test_firings_refusals_and_missed_times_are_shown_in_the_schedule_s_zone(dyno, offered, capsys):
    dyno("schedule", "save", "shown", "0 3 * * *", "matmul", "--time-zone", "Europe/Zurich")
    document = json.loads(dyno("schedule", "show", "shown", "--json").stdout)
    firings = [
        {"due_at": "2026-11-23T02:00:00Z", "fired_at": "2026-11-23T02:00:01Z", "code": "queue-full", "detail": "why"},
        {"due_at": "2026-11-22T02:00:00Z", "fired_at": "2026-11-22T02:00:01Z", "job": f"job_{0:026}"},
    ]
    stop = {"code": "not-authorized", "detail": "its key was revoked", "stopped_at": "2026-11-23T02:00:01Z"}
    document |= {"firings": firings, "missed": ["2026-07-01T01:00:00Z"], "missed_count": 40, "next_firings": []}
    listings.schedule(Console(width=250), JobSchedule.model_validate(document | {"stopped": stop}))
    told = capsys.readouterr().out
    for words in ("2026-11-23 03:00:00+01:00", "queue-full", "why", f"job_{0:026}", "missed, 40 in all"):
        assert words in told
    assert "2026-07-01 03:00:00+02:00" in told
    assert "stopped: its key was revoked" in told


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["nightly", "0 25 * * *", "matmul"], 2, "/cron"),
        (["nightly", "0 3 * * *", "matmul", "--time-zone", "Mars"], 2, "Mars"),
        (["nightly", "0 3 * * *", "matmul", "--m", "x", "--no-such", "1"], 2, "--no-such"),
        (["nightly", "0 3 * * *", "--device", "cpu"], 2, ""),
        (["nightly", "0 3 * * *"], 2, "workload"),
    ],
)
def test_wrong_words_are_refused(dyno, offered, words, exit_code, said):
    told = dyno("schedule", "save", *words)
    assert told.exit_code == exit_code, told.output
    assert said in told.output
