"""`dyno demo`, as `make demo` runs it, and `dyno up`, which runs all of Dyno in the foreground."""

import io
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dyno.bench.devices import cpu
from dyno.cli import app
from dyno.cli import up as cli_up
from dyno.cli.up import api_url
from dyno.client import Client
from dyno.settings import Settings
from tests.cores import CORE, HERE, two_cores
from tests.guides import SHOWN, shape
from tests.numpy_runners import ON_NUMPY
from tests.waiting import eventually


def test_with_shorter_jobs_the_demo_prints_both_results(monkeypatch):
    measure = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.2}
    monkeypatch.setitem(cli_up.MATMUL, "measure", measure)
    monkeypatch.setattr(cli_up, "MNIST", cli_up.MATMUL)  # NumPy trains nothing
    for name, value in ON_NUMPY.items():
        monkeypatch.setenv(name, value)
    printed = io.StringIO()
    cli_up.run_demo(Console(file=printed, width=120), device=HERE)
    # One run has no interval and no prediction, and not every processor has a known peak.
    assert {"matmul on DEVICE", "throughput #FLOP/s"} <= shape(printed.getvalue()) & shape(SHOWN)
    assert printed.getvalue().count("verdict: ") == 2


@pytest.mark.verify
@pytest.mark.timeout(400)
def test_the_demo_prints_both_results_and_leaves_nothing(command):
    running = command("demo", "--device", HERE)
    assert running.process.wait(350) == 0, running.text()
    text = running.text()
    for words in ("FLOP/s", "accuracy", "verdict: indicative"):
        assert words in text, text
    assert {"matmul on DEVICE", "throughput #FLOP/s"} <= shape(text) & shape(SHOWN)
    running.assert_nothing_left()


MOMENTS = ("on a private socket", "API on", "running", "verdict")


@pytest.mark.parametrize("moment", ["", *(pytest.param(moment, marks=pytest.mark.verify) for moment in MOMENTS)])
def test_ctrl_c_leaves_no_process_behind(command, moment):
    running = command("demo", **ON_NUMPY)
    running.says(moment)
    assert running.interrupt() != 0
    running.assert_nothing_left()


@pytest.mark.verify
def test_a_demo_ends_with_an_error_if_its_worker_dies(command):
    running = command("demo", **ON_NUMPY)
    running.says("run 1 of")
    os.kill(running.pid_of("-m workers "), signal.SIGKILL)
    assert running.process.wait(60) == 1
    assert "worker cpu has ended" in running.text()
    running.assert_nothing_left()


@pytest.mark.parametrize(("words", "said"), [(("matmul", "--n", "0"), "--n"), (("matmull",), "available: ")])
def test_without_a_service_a_wrong_command_line_is_refused_as_by_one(words, said):
    done = CliRunner().invoke(app, ["run", *words, "--local"])
    assert (done.exit_code, said in done.output) == (2, True), done.output


@pytest.mark.verify
@pytest.mark.parametrize("as_json", [False, True])
def test_a_job_without_a_service_prints_its_figure_and_leaves_nothing(command, as_json):
    measure = ("--processes", "1", "--measure", "min_samples=1", "--measure", "min_s=0")
    words = ("run", "matmul", "--n", "64", *measure, "--device", HERE, "--local", *["--json"] * as_json)
    running = command(*words, **ON_NUMPY)
    assert running.process.wait(60) == 0, running.text()
    printed = running.output.read_text()
    assert (json.loads(printed)["metrics"][0]["name"] == "throughput") if as_json else ("throughput" in printed)
    running.assert_nothing_left()


TINY = {
    "workload": "matmul",
    "params": {"n": 64, "repeats": 1},
    "device": "cpu",
    "measure": {"processes": 1, "min_samples": 1, "min_s": 0},
}


@pytest.fixture
def up(command, home):
    def start(**env):
        env = ON_NUMPY | env
        running = command("up", "--port", "0", "--data-dir", str(home / "data"), "--device", HERE, **env)
        running.says("Dyno is up")
        [url] = re.findall(r"Dyno is up: (http://127.0.0.1:\d+)/", running.text())
        return running, Client(url)

    return start


def a_key(data_dir):
    """Create an admin key on the host of a running `dyno up`."""
    made = CliRunner(env={"DYNO_REDIS_URL": None}).invoke(
        app, ["keys", "create", "--name", "me", "--scope", "admin", "--data-dir", str(data_dir)]
    )
    assert made.exit_code == 0, made.output
    return made.stdout.strip()


def test_it_serves_jobs_keeps_them_over_a_restart_and_ctrl_c_leaves_nothing(up, home):
    running, client = up()
    job = client.submit(TINY)
    assert client.wait(job.id).status == "succeeded"
    secret = a_key(home / "data")
    assert running.interrupt() == 130
    running.assert_nothing_left()
    again, client = up()  # starts although the service now needs a key, which the command doesn't have
    assert Client(client.url, secret).result(job.id).job == job.id
    again.process.terminate()
    again.process.wait(60)
    again.assert_nothing_left()


@pytest.mark.verify
def test_a_process_that_dies_is_restarted_and_the_server_with_its_jobs_and_its_durability(up):
    running, client = up(DYNO_DURABILITY="always")
    job = client.submit(TINY)
    assert client.wait(job.id).status == "succeeded"
    os.kill(running.pid_of("-server "), signal.SIGKILL)
    running.says("server died; restarted it with its data")
    for words, name in (("-m service", "API"), ("-m workers ", f"worker {HERE}")):
        os.kill(running.pid_of(words), signal.SIGKILL)
        running.says(f"{name} died (signal SIGKILL)")
        running.says(f"{name} restarted")
    eventually(lambda: client.not_ready_because() is None, 60, "the API is ready again")
    assert client.result(job.id).job == job.id
    assert client.wait(client.submit({**TINY, "queue_if_absent": True}).id).status == "succeeded"


@pytest.mark.verify
def test_killing_it_leaves_no_process_behind(up):
    running, _ = up()
    eventually(lambda: len(running.pids()) >= 5, 60, "itself, server, API, worker and zygote run")
    running.process.kill()
    running.process.wait()
    eventually(lambda: not running.pids(), 30, "all parts are gone")


def test_a_taken_port_is_reported_on_one_line_and_nothing_is_started(command, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        running = command("up", "--port", str(port), "--data-dir", str(tmp_path / "data"))
        assert running.process.wait(60) == 2
    assert re.fullmatch(rf"dyno: port {port} is taken; try --port \d+\n", running.text())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("words", [["up"], pytest.param(["demo"], marks=pytest.mark.verify)])
def test_a_foreign_address_is_reported_on_one_line(command, words):
    running = command(*words, DYNO_HOST="192.0.2.1")
    assert running.process.wait(60) == 2
    assert re.fullmatch(r"dyno: can't bind 192\.0\.2\.1, port \d+: .*DYNO_HOST\n", running.text())


@pytest.mark.verify
@two_cores
def test_only_runners_use_the_cores_that_are_not_reserved(command, home):
    words = ["up", "--port", "0", "--data-dir", str(home / "data"), "--device", "cpu"]
    running = command(*words, **ON_NUMPY, DYNO_RESERVED_CORES=str(CORE))
    running.says("Dyno is up")
    assert f"kept free of benchmarks: core {CORE} " in running.text()
    [url] = re.findall(r"Dyno is up: (http://127.0.0.1:\d+)/", running.text())
    [device] = Client(url).devices()
    assert device.cores == sorted(os.sched_getaffinity(0) - {CORE})
    for words in ("dyno up", "-server ", "-m service", "-m workers "):
        tasks = Path(f"/proc/{running.pid_of(words)}/task").glob("*")
        assert {core for task in tasks for core in os.sched_getaffinity(int(task.name))} == {CORE}, words
    job = Client(url).submit(TINY)
    assert Client(url).wait(job.id).status == "succeeded"
    assert Client(url).result(job.id).device["cores"] == device.cores


@pytest.mark.parametrize(
    ("value", "devices", "reserved"),
    [
        (None, ["cpu"], {0}),
        (None, ["cpu:0-1@here", "cpu:x", "gpu:0"], {2}),
        (None, ["cpu:0-3"], set()),
        ("none", ["cpu"], set()),
        ("2-3", ["cpu"], {2, 3}),
    ],
)
def test_four_cores_or_more_reserve_one_unless_the_setting_says_otherwise(value, devices, reserved, monkeypatch):
    monkeypatch.setattr(cpu, "siblings", lambda *_: set())
    assert cli_up.reserve(Settings(reserved_cores=value), devices, range(4)) == reserved
    assert not cli_up.reserve(Settings(reserved_cores=None), devices, range(3))


@pytest.mark.parametrize(
    ("value", "said"),
    [("0-", "not a list of cores"), pytest.param("4000", "may not use 4000", marks=pytest.mark.verify)],
)
def test_an_invalid_reserved_core_is_reported_on_one_line(command, home, value, said):
    running = command("up", "--port", "0", "--data-dir", str(home / "data"), DYNO_RESERVED_CORES=value)
    assert running.process.wait(60) == 2
    assert re.fullmatch(rf"dyno: DYNO_RESERVED_CORES: .*{said}.*\n", running.text())


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80")])
def test_the_api_url_contains_the_address(host, url):
    assert api_url(host, 80) == url
