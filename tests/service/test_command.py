"""The commands about jobs against the service: options, tables, JSON, and the exit codes that scripts rely on."""

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from dyno.cli import app
from dyno.cli.job_commands import cancel_on_interrupt, submit_once
from dyno.cli.spec_options import JobOptions, parse_workload_options
from dyno.client import Client, ServerUnreachable, http_transport
from dyno.models.job import Failure, FailureClass, WorkerRef
from dyno.store.leases import Leases, LogPiece
from dyno.store.placement import queues_served
from dyno.store.redis import sync_client
from tests.cli.running_command import begun
from tests.cli.test_completion import completed
from tests.comparisons import RATES, a_metric, of_metrics
from tests.waiting import eventually

NONE = f"job_{'0' * 26}"


@pytest.fixture
def said(dyno):
    def one(*arguments, code=0):
        done = dyno(*arguments)
        assert done.exit_code == code, done.output
        return done.output

    return one


@pytest.fixture
def claim_next(offered, settings):
    """Wait for a queued job, and claim it as the device's worker does."""
    with sync_client(settings) as client:
        leases, worker = Leases(client, settings), WorkerRef(id="w", device=offered.id, host=offered.host)

        def one():
            claim = leases.claim(offered.full_id, queues_served(offered), worker)
            return claim and (leases, claim)

        yield lambda: eventually(one, 30, "a job waits")


def test_options_of_run_make_the_spec_by_which_the_job_is_found(http, dyno, offered):
    options = ["--n", "48", "--dtype=bfloat16", "--processes", "3", "--param", "repeats=7", "--device", "cpu"]
    labels = ["--label", "team=vision", "--label", "night=7=8"]
    with ThreadPoolExecutor(1) as background, Client(str(http.base_url)) as client:
        running = background.submit(dyno, "run", "matmul", *options, *labels, "--queue-if-absent")
        [job] = eventually(lambda: client.jobs(label="team=vision"), 30, "the job is there")
        client.cancel(job.id)
        assert running.result().exit_code == 1
    assert job.spec.params.items() >= {"n": 48, "dtype": "bfloat16", "repeats": 7}.items()
    assert (job.spec.measure.processes.max, job.spec.device.kind, job.spec.queue_if_absent) == (3, "cpu", True)
    assert job.spec.labels == {"team": "vision", "night": "7=8"}
    [found] = json.loads(dyno("jobs", "--label", "night=7=8", "--json").stdout)
    assert found["id"] == job.id


def test_each_wrong_field_is_reported_once(said, offered):
    wrong = said("run", "matmul", "--n", "0", "--repeats", "0", "--dtype", "8", "--mode", "no", code=2)
    assert [wrong.count(f"--{name}: ") for name in ("n", "repeats", "dtype", "mode")] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["matmul", "--side", "5"], 2, "no --side"),
        (["matmul", "5"], 2, "matmul has no 5; use one of: --"),
        (["matmul", "-n", "5"], 2, "no -n"),
        (["matmul", "--n"], 2, "--n of matmul needs a value"),
        (["--n", "5", "matmul"], 2, "name the workload first"),
        (["matmul", "--param", "n"], 2, "not name=value"),
        (["none", "--label", "team"], 2, "not name=value"),  # before the unknown workload is requested
        (["none", "--label", "team=a", "--label", "team=b"], 2, "team is given more than once"),
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
def test_a_refusal_names_options_and_what_was_probably_meant(dyno, words, code, said):
    done = dyno("run", *words)
    assert done.exit_code == code
    assert said in " ".join(done.output.replace("│", " ").split())


def test_option_values_are_parsed_by_the_param_type():
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


def test_jobs_are_listed_by_every_api_filter(said, submitted):
    label = f"test={uuid4().hex[:12]}"
    ids = [submitted(labels=dict([label.split("=")])) for _ in range(3)][::-1]

    def found(*arguments):
        return [job["id"] for job in json.loads(said("jobs", "--label", label, *arguments, "--json"))]

    assert found() == ids
    assert found("--limit", "2", "--workload", "matmul", "--device", "cpu", "--framework", "tensorflow") == ids[:2]
    assert found("--created-before", "2026-01-01T00:00:00Z") == found("--status", "running") == []
    assert ids[0] in said("jobs", "--label", label)
    said("jobs", "--created-after", "yesterday", code=2)
    said("jobs", "--status", "lost", code=2)


def test_workers_and_workloads_are_listed(said, offered):
    assert [worker["device"] for worker in json.loads(said("workers", "--json"))] == [offered.full_id]
    assert offered.full_id in said("workers")
    names = {each["name"] for each in json.loads(said("workloads", "--json"))}
    assert {"matmul", "mnist_cnn"} <= names
    assert all(name in said("workloads") for name in names)
    assert "n" in json.loads(said("workloads", "matmul", "--json"))["params"]["properties"]
    assert "--dtype" in (told := said("workloads", "matmul"))
    assert re.search(r"takes about \d+ s on .+ by default", told)
    said("workloads", "none", code=2)


def test_result_exits_differently_for_failed_and_queued_jobs(said, claimed, submitted):
    leases, claim = claimed()
    failure = Failure(failure_class=FailureClass.RESOURCE, reason="out_of_memory", message="9 GiB are too many")
    leases.finish(claim, "fail", status_reason=failure.reason, failure=failure)
    assert "9 GiB are too many" in said("result", claim.job_id, code=1)
    assert "queued" in said("result", submitted(), code=3)


@pytest.mark.parametrize("arguments", [["run", "matmul"], ["jobs"], ["workers"], ["result", "job_1"], ["devices"]])
def test_an_unreachable_service_exits_with_4(arguments, monkeypatch):
    monkeypatch.setattr(http_transport, "FIRST_PAUSE_S", 0.0)
    done = CliRunner().invoke(app, [*arguments, "--url", "http://127.0.0.1:9"])
    assert (done.exit_code, "Traceback" in done.output) == (4, False)
    assert "dyno up" in done.output


@pytest.mark.parametrize("command", ["run", "rerun"])
def test_ctrl_c_cancels_the_awaited_job(http, finished, command):
    words = ["run", "matmul", "--device", "cpu"] if command == "run" else ["rerun", finished()]
    with begun(http, *words, "--json") as running:
        job = queued(http)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    *before, canceled = told.splitlines()
    assert (running.returncode, canceled) == (130, f"{job}: cancel requested")
    assert command == "rerun" or re.fullmatch(r"takes about \S+ (s|min) on \S+", before[0])
    assert http.get(f"/v1/jobs/{job}").json()["status"] == "canceled"


def queued(http):
    """Wait for the only queued job; returns its id."""
    [job] = eventually(lambda: http.get("/v1/jobs", params={"status": "queued"}).json()["data"], 30, "the job waits")
    return job["id"]


def test_ctrl_c_reports_the_job_if_it_cannot_be_canceled(http, finished, capsys):
    job_id = finished()
    with Client(str(http.base_url)) as client:
        interrupted(client, job_id)
    assert f"{job_id}: ended before" in capsys.readouterr().err
    with Client("http://127.0.0.1:9") as client:
        interrupted(client, job_id)
    assert f"{job_id}: not canceled, it goes on" in capsys.readouterr().err


@pytest.mark.parametrize("is_queued", [False, True])
def test_ctrl_c_during_submit_leaves_no_job(http, offered, capsys, is_queued):
    interrupts, mine = iter([is_queued]), uuid4().hex
    with Client(str(http.base_url)) as client:

        def ask(idempotency_key):
            first = next(interrupts, None)
            if first is False:
                raise KeyboardInterrupt
            spec = {"workload": "matmul", "device": "cpu", "labels": {"mine": mine}}
            job = client.submit(spec, idempotency_key=idempotency_key)
            if first is True:
                raise KeyboardInterrupt
            return job

        with pytest.raises(KeyboardInterrupt):
            submit_once(client, ask, lambda job: job.id)
        [job] = client.jobs(label=f"mine={mine}")
    assert job.status == "canceled"
    assert capsys.readouterr().err == f"{job.id}: cancel requested\n"


def test_ctrl_c_during_submit_reports_an_unreachable_service(monkeypatch, capsys):
    monkeypatch.setattr(http_transport, "FIRST_PAUSE_S", 0.0)
    interrupts = iter([KeyboardInterrupt])
    with Client("http://127.0.0.1:9") as client:

        def ask(idempotency_key):
            for interrupt in interrupts:
                raise interrupt
            return client.submit({"workload": "matmul"}, idempotency_key=idempotency_key)

        with pytest.raises(KeyboardInterrupt):
            submit_once(client, ask, lambda job: job.id)
    assert "a job may have been queued" in capsys.readouterr().err


def interrupted(client, job_id):
    with pytest.raises(KeyboardInterrupt), cancel_on_interrupt(client, job_id):
        raise KeyboardInterrupt


def test_the_job_is_named_when_the_service_becomes_unreachable():
    with (
        Client("http://127.0.0.1:9") as client,
        pytest.raises(ServerUnreachable, match="`dyno result job_1`"),
        cancel_on_interrupt(client, "job_1"),
    ):
        client.job("job_1")


def test_live_jobs_are_canceled_and_the_others_named(http, dyno, finished, claimed, submitted):
    done, running = finished(), claimed()[1].job_id
    waits = submitted()
    told = dyno("cancel", done, waits, NONE, running)
    assert told.exit_code == 3
    assert told.stdout == f"{waits}: canceled\n{running}: cancel requested\n"
    assert [line.split(": ")[:2] for line in told.stderr.splitlines()] == [["dyno", done], ["dyno", NONE]]
    assert http.get(f"/v1/jobs/{waits}").json()["status"] == "canceled"
    assert http.get(f"/v1/jobs/{running}").json()["cancel_requested_at"]
    told = dyno("cancel", submitted(), done, "--json")
    [job] = json.loads(told.stdout)
    assert (told.exit_code, job["status"]) == (3, "canceled")


def test_done_jobs_are_deleted_and_the_others_named(http, dyno, finished, submitted):
    first, second = finished(), finished()
    waits = submitted()
    told = dyno("delete", waits, first)
    assert (told.exit_code, told.stdout) == (3, f"{first}: deleted\n")
    assert waits in told.stderr
    told = dyno("delete", second, second, "--json")
    assert (told.exit_code, json.loads(told.stdout)) == (0, [{"job": second, "deleted": True}])
    assert [http.get(f"/v1/jobs/{each}").status_code for each in (waits, first, second)] == [200, 404, 404]


def test_a_log_is_printed_unchanged(dyno, claimed):
    leases, claim = claimed()
    leases.heartbeat(claim, None, LogPiece(0, "[b]one[/b]\nhalf a line"))
    told = dyno("logs", claim.job_id)
    assert (told.exit_code, told.stdout) == (0, "[b]one[/b]\nhalf a line")
    leases.finish(claim, "fail")
    told = dyno("logs", claim.job_id, "--follow")
    assert (told.exit_code, told.stdout) == (0, "[b]one[/b]\nhalf a line")
    assert dyno("logs", NONE).exit_code == dyno("logs", NONE, "--follow").exit_code == 3


def test_a_log_is_followed_and_ctrl_c_leaves_the_job_alone(http, claimed):
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


def test_a_job_is_run_again_and_its_result_printed(http, dyno, finished, claim_next):
    first = finished()
    with ThreadPoolExecutor(1) as background:
        running = background.submit(dyno, "rerun", first, "--json")
        leases, claim = claim_next()
        result = of_metrics([a_metric(by_run=RATES)]).model_copy(update={"job": claim.job_id})
        assert leases.finish(claim, "succeed", result=result)
        told = running.result()
    assert (told.exit_code, json.loads(told.stdout)["job"]) == (0, claim.job_id)
    assert http.get(f"/v1/jobs/{claim.job_id}").json()["rerun_of"] == first
    assert dyno("rerun", NONE).exit_code == 3


def test_a_failed_run_says_how_to_read_its_log(http, dyno, claim_next):
    failure = Failure(failure_class=FailureClass.BENCHMARK, reason="workload_error", message="no such kernel")
    with ThreadPoolExecutor(1) as background:
        running = background.submit(dyno, "run", "matmul", "--device", "cpu")
        leases, claim = claim_next()
        leases.finish(claim, "fail", status_reason=failure.reason, failure=failure)
        done = running.result()
    assert done.exit_code == 1
    assert "no such kernel" in done.stderr
    assert f"`dyno logs {claim.job_id} --url {http.base_url}` prints its log." in done.stderr


def test_ids_of_jobs_are_completed(http, submitted):
    job = submitted()
    assert job in completed("dyno cancel job_", DYNO_URL=str(http.base_url))
    assert completed(f"dyno result {job[:-1]}", DYNO_URL=str(http.base_url)) == [job]


@pytest.mark.parametrize(("workload", "param"), [("matmul", "dtype"), ("resnet50", "precision")])
def test_the_precision_is_an_option_of_a_run_as_of_a_sweep(http, workload, param):
    with Client(str(http.base_url)) as client:
        dyno = parse_workload_options(workload, client.workload(workload).params, ["--precision", "float32"])
    assert dyno == {param: "float32"}


def test_the_page_of_a_job_is_opened(dyno, finished, monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    job_id = finished()
    assert dyno("open", job_id).output.strip().endswith(f"/jobs/{job_id}")
    assert [url.rpartition("/")[2] for url in shown] == [job_id]
    assert dyno("open", "job_01M80PT6VM78YWA14Q3XXHDWDJ").exit_code == 3


def test_a_spec_leaves_the_framework_and_the_replicas_to_the_workload():
    plain = JobOptions().spec("collectives", [], lambda workload: {}, None)
    assert {"framework", "replicas"}.isdisjoint(plain)
    named = JobOptions(framework="jax", replicas=4).spec("collectives", [], lambda workload: {}, None)
    assert (named["framework"], named["replicas"]) == ("jax", 4)
