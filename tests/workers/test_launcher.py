"""Starting runners, and the fallback from forking to spawning, which happens only if forking fails."""

import logging
import os
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dyno.bench.devices.discovery import discover, installed_frameworks
from dyno.bench.devices.environment import FLAGS
from dyno.bench.frameworks.visible_devices import isolating_variables
from dyno.bench.runner.health_check import prove_fork
from dyno.bench.runner.launcher import Launcher
from tests.cores import HERE, OTHER_CORE, THERE, two_cores
from tests.waiting import eventually
from tests.workers.conftest import LONG, tiny, until_begun, watched

WAITING = "import signal; signal.pause()"


def environment_of(runner):
    """The variables of a live runner, which is then killed."""
    lines = eventually(Path(f"/proc/{until_begun(runner)}/environ").read_text).split("\0")  # empty during exec
    runner.send(signal.SIGKILL)
    watched(runner)
    return dict(line.split("=", 1) for line in lines if line)


@pytest.fixture
def automatic(here):
    with closing(Launcher("auto", here.cores)) as launcher:
        yield launcher


def test_a_cold_start_is_spawned_and_pays_for_the_import(forking, request_for):
    cold = watched(forking.start(request_for(tiny(measure={"cold_start": True})))).record
    warm = watched(forking.start(request_for())).record
    assert (cold.summary.process_start, warm.summary.process_start) == ("spawned", "forked")
    assert (cold.summary.phases.import_s or 0) > 0
    assert warm.summary.phases.import_s is None


@two_cores
def test_a_runner_pins_itself_to_the_cores_of_its_device(forking, request_for, settings):
    """Its zygote is pinned to the other core."""
    other = discover(THERE, settings)
    runner = forking.start(request_for(tiny(measure=LONG)).model_copy(update={"device": other}))
    status = Path(f"/proc/{until_begun(runner)}/status")
    eventually(lambda: f"Cpus_allowed_list:\t{OTHER_CORE}\n" in status.read_text())
    runner.send(signal.SIGKILL)
    watched(runner)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_device_s_variables_replace_the_worker_s_before_a_runner_imports_anything(
    here, request_for, monkeypatch, start
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    variables = isolating_variables("gpu", ["GPU-5c89852c", "GPU-71b8f36e"])
    with closing(Launcher(start, here.cores, variables=variables)) as launcher:
        found = environment_of(launcher.start(request_for(tiny(measure=LONG))))
    assert variables.items() <= found.items()


SECRETS = (
    *("DYNO_REDIS_URL", "DYNO_API_KEY", "DYNO_ARTIFACT_URL", "DYNO_WEBHOOK_SECRET", "REDIS_API_PASSWORD"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AZURE_STORAGE_CONNECTION_STRING", "FSSPEC_S3_KEY", "HF_TOKEN"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "OTEL_EXPORTER_OTLP_HEADERS", "DATABASE_URL", "PGPASSFILE", "github_token"),
    *("NVIDIA_API_KEY", "TF_VAR_database", "TF_TOKEN_app_terraform_io", "KERAS_API_TOKEN"),
    *("NVIDIA_NGC_KEY", "TORCH_hub_token", "PYTHON_KEYRING_PWD"),
)


def test_no_runner_is_given_a_secret_of_its_worker(misbehaving, request_for, monkeypatch):
    request = request_for()  # before the settings are wrong
    for name in SECRETS:
        monkeypatch.setenv(name, "hidden")
    for name in ("https_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://me:hidden@proxy:3128")
    monkeypatch.setenv("JAX_CACHE_URL", "https://me:hidden@host/")
    monkeypatch.setenv("DYNO_DATA_DIR", "/shown")
    found = environment_of(misbehaving(WAITING).start(request))
    assert found["DYNO_DATA_DIR"] == "/shown"
    assert [name for name, value in found.items() if "hidden" in value] == []


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_runner_is_given_the_variables_that_the_operator_names(here, request_for, monkeypatch, start):
    request = request_for(tiny(measure=LONG))
    given = {"HF_TOKEN": "a", "LAB_KEY": "b", "LAB": "c", "https_proxy": "http://me:word@proxy:3128"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DYNO_REDIS_URL", "redis://hidden")
    passed = ("HF_TOKEN", "LAB_*", "https_proxy", "D*")
    with closing(Launcher(start, here.cores, passed=passed)) as launcher:
        found = environment_of(launcher.start(request))
    del given["LAB"]
    assert given.items() <= found.items()
    assert not found.keys() & {"LAB", "DYNO_REDIS_URL"}


def test_a_runner_is_given_what_frameworks_read(misbehaving, request_for, monkeypatch):
    read = [*("TZ", "LC_ALL", "LD_LIBRARY_PATH", "NCCL_IB_PKEY", "TORCHINDUCTOR_MAX_AUTOTUNE", "JAX_LOG_COMPILES")]
    read += [name for name in FLAGS if name not in os.environ and name != "LD_PRELOAD"]
    for name in read:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    found = environment_of(misbehaving(WAITING).start(request_for()))
    assert {name: found.get(name) for name in read} == dict.fromkeys(read, "1")
    assert found["https_proxy"] == "http://proxy:3128"


def test_a_runner_outlives_the_thread_that_asked_for_it(here, request_for):
    asked = []
    with closing(Launcher("fork", here.cores)) as launcher:
        thread = threading.Thread(target=lambda: asked.append(launcher.start(request_for())))
        thread.start()
        thread.join()
        assert watched(asked[0]).record is not None


@pytest.mark.skipif("torch" in installed_frameworks(), reason="torch can be loaded here")
def test_a_framework_that_cannot_be_loaded_is_refused_with_the_reason(automatic, request_for):
    ended = watched(automatic.start(request_for(tiny(framework="torch"))))
    assert ended.exit.refused is not None
    assert "torch" in ended.exit.refused


def test_the_fallback_is_per_framework_and_recorded_in_the_device(automatic, here):
    assert automatic.describe(here).started_with == "fork"
    assert automatic.fall_back("tensorflow", "it hung")
    described = automatic.describe(here)
    assert (described.started_with, described.started_with_reason) == ("spawn", "it hung")
    assert automatic.forks("jax") == (True, None)


@pytest.mark.parametrize(("setting", "started_with"), [("fork", "fork"), ("spawn", "spawn")])
def test_the_setting_overrides_the_fallback(here, setting, started_with):
    with closing(Launcher(setting, here.cores)) as launcher:
        launcher.fall_back("tensorflow", "it hung")
        assert launcher.describe(here).started_with == started_with


def test_a_start_proves_that_a_forked_runner_works(automatic, here, settings):
    prove_fork(automatic, here, settings)
    assert automatic.forks("tensorflow") == (True, None)


def test_a_forked_runner_that_does_not_come_to_its_first_operation_means_spawning(automatic, here, settings, caplog):
    caplog.set_level(logging.WARNING, "dyno.worker")
    prove_fork(automatic, here, settings, deadline_s=0.05)
    forks, reason = automatic.forks("tensorflow")
    assert not forks
    assert "a forked runner failed at start" in (reason or "")
    assert "fork-failed" in caplog.text


def test_the_self_test_fails_on_a_device_that_runners_may_not_use(automatic, settings):
    nowhere = discover(HERE, settings).model_copy(update={"cores": [4000]})
    prove_fork(automatic, nowhere, settings)
    assert "no_such_device" in (automatic.forks("tensorflow")[1] or "")
