"""`dyno cancel`, `delete`, `logs`, `rerun` and labels, against the service."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from dyno.cli import app
from dyno.cli.job_commands import parse_workload_options
from dyno.client import Client
from dyno.models.device import Device
from dyno.models.job import Failure, FailureClass, WorkerRef
from dyno.settings import Settings
from dyno.store.leases import Claim, Leases, LogPiece
from dyno.store.placement import queues_served
from dyno.store.redis import sync_client
from tests.cli.test_completion import completed
from tests.comparisons import RATES, a_metric, of_metrics
from tests.waiting import eventually

Claimed = Callable[[], tuple[Leases, Claim]]
NONE = f"job_{'0' * 26}"


@pytest.fixture
def asked(http: httpx.Client) -> Callable[..., Result]:
    return lambda *words: CliRunner().invoke(app, [*words, "--url", str(http.base_url)], env={"COLUMNS": "250"})


@contextmanager
def begun(http: httpx.Client, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process that Ctrl-C can end; a shell's background jobs ignore it."""
    command = [Path(sys.executable).with_name("dyno"), *words, "--url", str(http.base_url)]
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def test_live_jobs_are_canceled_and_the_others_named(
    http: httpx.Client,
    asked: Callable[..., Result],
    finished: Callable[..., str],
    claimed: Claimed,
    submitted: Callable[..., str],
) -> None:
    done, running = finished(), claimed()[1].job_id
    waits = submitted()
    told = asked("cancel", done, waits, NONE, running)
    assert told.exit_code == 3
    assert told.stdout == f"{waits}: canceled\n{running}: cancel requested\n"
    assert [line.split(": ")[:2] for line in told.stderr.splitlines()] == [["dyno", done], ["dyno", NONE]]
    assert http.get(f"/v1/jobs/{waits}").json()["status"] == "canceled"
    assert http.get(f"/v1/jobs/{running}").json()["cancel_requested_at"]
    told = asked("cancel", submitted(), done, "--json")
    [job] = json.loads(told.stdout)
    assert (told.exit_code, job["status"]) == (3, "canceled")


def test_done_jobs_are_deleted_and_the_others_named(
    http: httpx.Client, asked: Callable[..., Result], finished: Callable[..., str], submitted: Callable[..., str]
) -> None:
    first, second = finished(), finished()
    waits = submitted()
    told = asked("delete", waits, first)
    assert (told.exit_code, told.stdout) == (3, f"{first}: deleted\n")
    assert waits in told.stderr
    told = asked("delete", second, second, "--json")
    assert (told.exit_code, json.loads(told.stdout)) == (0, [{"job": second, "deleted": True}])
    assert [http.get(f"/v1/jobs/{each}").status_code for each in (waits, first, second)] == [200, 404, 404]


def test_a_log_is_printed_unchanged(asked: Callable[..., Result], claimed: Claimed) -> None:
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "[b]one[/b]\nhalf a line"))
    told = asked("logs", claim.job_id)
    assert (told.exit_code, told.stdout) == (0, "[b]one[/b]\nhalf a line")
    leases.finish(claim, "fail")
    told = asked("logs", claim.job_id, "--follow")
    assert (told.exit_code, told.stdout) == (0, "[b]one[/b]\nhalf a line")
    assert asked("logs", NONE).exit_code == asked("logs", NONE, "--follow").exit_code == 3


def test_a_log_is_followed_and_ctrl_c_leaves_the_job_alone(http: httpx.Client, claimed: Claimed) -> None:
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "one\n"))
    with begun(http, "logs", claim.job_id, "--follow") as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == "one\n"
        leases.heartbeat(claim, None, LogPiece(1, "two\n"))
        assert reading.stdout.readline() == "two\n"
        reading.send_signal(signal.SIGINT)
        assert reading.communicate(timeout=60) == ("", "")
        assert reading.returncode == 130
    job = http.get(f"/v1/jobs/{claim.job_id}").json()
    assert (job["status"], job["cancel_requested_at"]) == ("running", None)


def test_a_job_is_run_again_and_its_result_printed(
    http: httpx.Client, asked: Callable[..., Result], finished: Callable[..., str], settings: Settings, offered: Device
) -> None:
    first = finished()
    with ThreadPoolExecutor(1) as background, sync_client(settings) as client:
        running = background.submit(asked, "rerun", first, "--json")
        again = queued(http)
        assert again["rerun_of"] == first
        leases, worker = Leases(client, settings), WorkerRef(id="w", device=offered.id, host=offered.host)
        claim = leases.claim(offered.full_id, queues_served(offered), worker)
        assert claim is not None
        result = of_metrics([a_metric(by_run=RATES)]).model_copy(update={"job": claim.job_id})
        assert leases.finish(claim, "succeed", result=result)
        told = running.result()
    assert (told.exit_code, json.loads(told.stdout)["job"]) == (0, again["id"])
    assert asked("rerun", NONE).exit_code == 3


def test_ctrl_c_cancels_the_rerun_job(http: httpx.Client, finished: Callable[..., str]) -> None:
    first = finished()
    with begun(http, "rerun", first, "--json") as running:
        again = queued(http)["id"]
        assert running.stderr is not None
        assert again in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert (running.returncode, told.splitlines()[-1]) == (130, f"{again}: cancel requested")
    assert http.get(f"/v1/jobs/{again}").json()["status"] == "canceled"


def queued(http: httpx.Client) -> dict[str, str]:
    """Wait for the only queued job, and return it."""

    def found() -> list[dict[str, str]]:
        jobs: list[dict[str, str]] = http.get("/v1/jobs", params={"status": "queued"}).json()["data"]
        return jobs

    [job] = eventually(found, 30, "the job waits")
    return job


def test_a_failed_run_says_how_to_read_its_log(
    http: httpx.Client, asked: Callable[..., Result], offered: Device, settings: Settings
) -> None:
    worker = WorkerRef(id="w", device=offered.id, host=offered.host)
    failure = Failure(failure_class=FailureClass.BENCHMARK, reason="workload_error", message="no such kernel")
    with ThreadPoolExecutor(1) as background, sync_client(settings) as store:
        running = background.submit(asked, "run", "matmul", "--device", "cpu")
        queued(http)
        claim = Leases(store, settings).claim(offered.full_id, queues_served(offered), worker)
        assert claim is not None
        Leases(store, settings).finish(claim, "fail", status_reason=failure.reason, failure=failure)
        done = running.result()
    assert done.exit_code == 1
    assert "no such kernel" in done.stderr
    assert f"`dyno logs {claim.job_id} --url {http.base_url}` prints its log." in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["matmul", "--n", "0"], 2, "--n: "),
        (["matmul", "--n", "abc"], 2, "--n: "),
        (["matmul", "--measure", "max_s=-1"], 2, "--measure max_s: "),
        (["matmul", "--processes", "0"], 2, "dyno: --processes: "),
        (["matmul", "--measure", "max_ss=1"], 2, '--measure max_ss: Unknown field (did you mean "max_s"?)'),
        (["matmull"], 2, 'the workload: no workload "matmull" (did you mean "matmul"?)'),
        (["matmull", "--n", "64"], 2, '(did you mean "matmul"?)'),
        (["matmul", "--repeat", "3"], 2, 'matmul has no --repeat (did you mean "repeats"?)'),
        (["matmul", "--dtype", "float32", "--precision", "float32"], 2, "--precision: dtype is given more than once"),
        (["matmul", "--device", "tpu"], 3, "add --queue-if-absent to wait for one"),
    ],
)
def test_a_refusal_names_options_and_what_was_probably_meant(
    asked: Callable[..., Result], words: list[str], code: int, said: str
) -> None:
    done = asked("run", *words)
    assert done.exit_code == code
    assert said in " ".join(done.output.replace("│", " ").split())


def test_ids_of_jobs_are_completed(http: httpx.Client, submitted: Callable[..., str]) -> None:
    job = submitted()
    assert job in completed("dyno cancel job_", DYNO_URL=str(http.base_url))
    assert completed(f"dyno result {job[:-1]}", DYNO_URL=str(http.base_url)) == [job]


@pytest.mark.parametrize(("workload", "param"), [("matmul", "dtype"), ("resnet50", "precision")])
def test_the_precision_is_an_option_of_a_run_as_of_a_sweep(http: httpx.Client, workload: str, param: str) -> None:
    with Client(str(http.base_url)) as client:
        asked = parse_workload_options(workload, client.workload(workload).params, ["--precision", "float32"])
    assert asked == {param: "float32"}


def test_the_page_of_a_job_is_opened(
    asked: Callable[..., Result], finished: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    job_id = finished()
    assert asked("open", job_id).output.strip().endswith(f"/jobs/{job_id}")
    assert [url.rpartition("/")[2] for url in shown] == [job_id]
    assert asked("open", "job_01M80PT6VM78YWA14Q3XXHDWDJ").exit_code == 3


def test_a_job_is_found_by_its_labels(http: httpx.Client, asked: Callable[..., Result], offered: Device) -> None:
    with ThreadPoolExecutor(1) as background, Client(str(http.base_url)) as client:
        words = ["run", "matmul", "--label", "team=vision", "--label", "night=7=8"]
        running = background.submit(asked, *words)
        [job] = eventually(lambda: client.jobs(label="team=vision"), 30, "the job is there")
        client.cancel(job.id)
        assert running.result().exit_code == 1
    [found] = json.loads(asked("jobs", "--label", "night=7=8", "--json").stdout)
    assert (job.spec.labels, found["id"]) == ({"team": "vision", "night": "7=8"}, job.id)


@pytest.mark.parametrize("words", [["--label", "team"], ["--label", "team=a", "--label", "team=b"]])
def test_a_label_has_one_value(asked: Callable[..., Result], words: list[str]) -> None:
    assert asked("run", "none", *words).exit_code == 2  # before the command requests the unknown workload
