"""Both clients and `dyno run` report once per outage that a call waits for the service."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from dyno.cli import app
from dyno.client import AsyncClient, Client, Refused, http_transport
from tests.asking import asked
from tests.client.stub_server import CUT, Handler, canceled, problem

RUNNING = json.dumps(json.loads(canceled()) | {"status": "running", "done": False}).encode()
ANSWERS: list[Any] = [(202, RUNNING), (CUT, b""), (CUT, b""), (503, problem(503)), (200, RUNNING), (502, b"")]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_each_outage_is_reported_once(kind, url, pauses):
    Handler.answers = [*ANSWERS[1:], (200, canceled())]
    reported = []
    asked(kind, lambda client: client.wait("job_1"), url, away=lambda error: reported.append(error.code))
    assert (reported, len(pauses)) == (["connection-broken", "server-unreachable"], 4)


def test_a_permanent_error_is_not_reported_as_waiting(url):
    Handler.answers = [(404, problem(404))]
    reported = []
    with Client(url, away=reported.append) as client, pytest.raises(Refused):
        client.wait("job_1")
    assert reported == []


def test_run_says_on_stderr_that_it_waits(url, monkeypatch):
    monkeypatch.setattr(http_transport, "FIRST_PAUSE_S", 0.0)
    Handler.answers = [(404, problem(404)), *ANSWERS, (200, canceled())]  # the first is about how long it will take
    done = CliRunner().invoke(app, ["run", "matmul", "--url", url], env={"COLUMNS": "200"})
    assert done.exit_code == 1, done.output
    assert done.stderr.count("waiting for the service: ") == 2
    assert "waiting" not in done.stdout


def test_rerun_names_the_new_job_if_the_service_goes_away(url, monkeypatch):
    monkeypatch.setattr(http_transport, "PATIENCE_S", 0.0)
    Handler.answers = [(202, RUNNING)]
    done = CliRunner().invoke(app, ["rerun", "job_0", "--url", url], env={"COLUMNS": "200"})
    assert (done.exit_code, done.stdout) == (4, "")
    assert "`dyno result job_1`" in done.stderr
