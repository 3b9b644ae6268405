"""The `dyno` command against the service: options, tables, JSON, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from click.testing import Result
from pydantic import JsonValue
from typer.testing import CliRunner

from dyno.cli import app
from dyno.cli.job_commands import cancel_on_interrupt, parse_workload_options, submit_once
from dyno.client import Client, ServerUnreachable, http_transport
from dyno.models.device import Device
from dyno.models.job import Failure, FailureClass, Job
from dyno.store.leases import Claim, Leases
from tests.waiting import eventually


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "250"})


@pytest.fixture
def said(http: httpx.Client) -> Callable[..., str]:
    def one(*arguments: str, code: int = 0) -> str:
        done = invoked(*arguments, "--url", str(http.base_url))
        assert done.exit_code == code, done.output
        return done.output

    return one


def test_params_of_the_workload_are_options_of_run(http: httpx.Client, offered: Device) -> None:
    url = str(http.base_url)
    options = ["--n", "48", "--dtype=bfloat16", "--processes", "3", "--param", "repeats=7", "--device", "cpu"]
    options.append("--queue-if-absent")
    with ThreadPoolExecutor(1) as background, Client(url) as client:
        running = background.submit(invoked, "run", "matmul", *options, "--url", url)
        [job] = eventually(lambda: client.jobs(status="queued", limit=1), 30, "the job is there")
        client.cancel(job.id)
        assert running.result().exit_code == 1
    assert job.spec.params.items() >= {"n": 48, "dtype": "bfloat16", "repeats": 7}.items()
    assert (job.spec.measure.processes.max, job.spec.device.kind, job.spec.queue_if_absent) == (3, "cpu", True)


def test_each_wrong_field_is_reported_once(said: Callable[..., str], offered: Device) -> None:
    wrong = said("run", "matmul", "--n", "0", "--repeats", "0", "--dtype", "8", "--mode", "no", code=2)
    assert [wrong.count(f"--{name}: ") for name in ("n", "repeats", "dtype", "mode")] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["matmul", "--side", "5"], "no --side"),
        (["matmul", "5"], "no 5;"),
        (["matmul", "-n", "5"], "no -n"),
        (["matmul", "--n"], "--n of matmul needs a value"),
        (["--n", "5", "matmul"], "name the workload first"),
        (["matmul", "--param", "n"], "not name=value"),
    ],
)
def test_unknown_options_are_usage_errors(said: Callable[..., str], words: list[str], wrong: str) -> None:
    told = " ".join(said("run", *words, code=2).replace("│", " ").split())
    assert wrong in told
    if "no -" in wrong:
        assert "--dtype" in told, "it names what there is"


def test_option_values_are_parsed_by_the_param_type() -> None:
    kinds = {"n": "integer", "batch_size": "integer", "dtype": "string", "verify": "boolean", "sizes": "array"}
    schema = {"properties": {name: {"type": kind} for name, kind in kinds.items()}}
    words = ["--n", "-1", "--batch-size=32", "--dtype", "8", "--verify", "--sizes", "[1, 2]"]
    assert parse_workload_options("some", schema, words) == {
        "n": -1,
        "batch_size": 32,
        "dtype": "8",
        "verify": True,
        "sizes": [1, 2],
    }
    assert parse_workload_options("some", schema, ["--verify", "false", "--batch_size", "1"]) == {
        "verify": False,
        "batch_size": 1,
    }


def test_jobs_are_listed_by_every_api_filter(said: Callable[..., str], submitted: Callable[..., str]) -> None:
    label = f"test={uuid4().hex[:12]}"
    ids = [submitted(labels=dict([label.split("=")])) for _ in range(3)][::-1]

    def found(*arguments: str) -> list[str]:
        return [job["id"] for job in json.loads(said("jobs", "--label", label, *arguments, "--json"))]

    assert found() == ids
    assert found("--limit", "2", "--workload", "matmul", "--device", "cpu", "--framework", "tensorflow") == ids[:2]
    assert found("--created-before", "2026-01-01T00:00:00Z") == found("--status", "running") == []
    assert ids[0] in said("jobs", "--label", label)
    said("jobs", "--created-after", "yesterday", code=2)
    said("jobs", "--status", "lost", code=2)


def test_workers_and_workloads_are_listed(said: Callable[..., str], offered: Device) -> None:
    assert [worker["device"] for worker in json.loads(said("workers", "--json"))] == [offered.full_id]
    assert offered.full_id in said("workers")
    names = {each["name"] for each in json.loads(said("workloads", "--json"))}
    assert {"matmul", "mnist_cnn"} <= names
    assert all(name in said("workloads") for name in names)
    assert "n" in json.loads(said("workloads", "matmul", "--json"))["params"]["properties"]
    assert "--dtype" in (told := said("workloads", "matmul"))
    assert re.search(r"takes about \d+ s on .+ by default", told)
    said("workloads", "none", code=2)


def test_result_exits_differently_for_failed_and_queued_jobs(
    said: Callable[..., str], claimed: Callable[[], tuple[Leases, Claim]], submitted: Callable[..., str]
) -> None:
    leases, claim = claimed()
    failure = Failure(failure_class=FailureClass.RESOURCE, reason="out_of_memory", message="9 GiB are too many")
    leases.finish(claim, "fail", status_reason=failure.reason, failure=failure)
    assert "9 GiB are too many" in said("result", claim.job_id, code=1)
    assert "queued" in said("result", submitted(), code=3)


@pytest.mark.parametrize("arguments", [["run", "matmul"], ["jobs"], ["workers"], ["result", "job_1"], ["devices"]])
def test_an_unreachable_service_exits_with_4(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "FIRST_PAUSE_S", 0.0)
    done = invoked(*arguments, "--url", "http://127.0.0.1:9")
    assert (done.exit_code, "Traceback" in done.output) == (4, False)
    assert "dyno up" in done.output


def test_ctrl_c_cancels_the_awaited_job(http: httpx.Client, offered: Device) -> None:
    words = ["run", "matmul", "--device", "cpu", "--url", str(http.base_url)]
    begin = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore SIGINT
    dyno = Path(sys.executable).with_name("dyno")
    running = subprocess.Popen(
        [dyno, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=begin
    )
    with Client(str(http.base_url)) as client:
        [job] = eventually(lambda: client.jobs(status="queued", limit=1), 30, "the job is there")
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        takes, canceled = said.splitlines()
        assert re.fullmatch(r"takes about \S+ (s|min) on \S+", takes)
        assert (running.returncode, canceled) == (130, f"{job.id}: cancel requested")
        assert client.job(job.id).status == "canceled"


def test_ctrl_c_reports_the_job_if_it_cannot_be_canceled(
    http: httpx.Client, finished: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = finished()
    with Client(str(http.base_url)) as client:
        interrupted(client, job_id)
    assert f"{job_id}: ended before" in capsys.readouterr().err
    with Client("http://127.0.0.1:9") as client:
        interrupted(client, job_id)
    assert f"{job_id}: not canceled, it goes on" in capsys.readouterr().err


@pytest.mark.parametrize("is_queued", [False, True])
def test_ctrl_c_during_submit_leaves_no_job(
    http: httpx.Client, offered: Device, capsys: pytest.CaptureFixture[str], is_queued: bool
) -> None:
    interrupts, mine = iter([is_queued]), uuid4().hex
    with Client(str(http.base_url)) as client:

        def ask(idempotency_key: str) -> Job:
            first = next(interrupts, None)
            if first is False:
                raise KeyboardInterrupt
            spec: dict[str, JsonValue] = {"workload": "matmul", "device": "cpu", "labels": {"mine": mine}}
            job = client.submit(spec, idempotency_key=idempotency_key)
            if first is True:
                raise KeyboardInterrupt
            return job

        with pytest.raises(KeyboardInterrupt):
            submit_once(client, ask, lambda job: job.id)
        [job] = client.jobs(label=f"mine={mine}")
    assert job.status == "canceled"
    assert capsys.readouterr().err == f"{job.id}: cancel requested\n"


def test_ctrl_c_during_submit_reports_an_unreachable_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_transport, "FIRST_PAUSE_S", 0.0)
    interrupts = iter([KeyboardInterrupt])
    with Client("http://127.0.0.1:9") as client:

        def ask(idempotency_key: str) -> Job:
            for interrupt in interrupts:
                raise interrupt
            return client.submit({"workload": "matmul"}, idempotency_key=idempotency_key)

        with pytest.raises(KeyboardInterrupt):
            submit_once(client, ask, lambda job: job.id)
    assert "a job may have been queued" in capsys.readouterr().err


def interrupted(client: Client, job_id: str) -> None:
    with pytest.raises(KeyboardInterrupt), cancel_on_interrupt(client, job_id):
        raise KeyboardInterrupt


def test_the_job_is_named_when_the_service_becomes_unreachable() -> None:
    with (
        Client("http://127.0.0.1:9") as client,
        pytest.raises(ServerUnreachable, match="`dyno result job_1`"),
        cancel_on_interrupt(client, "job_1"),
    ):
        client.job("job_1")
