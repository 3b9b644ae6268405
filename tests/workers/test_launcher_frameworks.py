"""Forked runners of other frameworks than the default, each tested before its first runner."""

import logging
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dyno.bench.devices.discovery import installed_frameworks
from dyno.bench.runner.health_check import prove_fork
from dyno.bench.runner.launcher import Launcher
from tests.workers.conftest import tiny, watched

JAX = "jax" in installed_frameworks()
NO_JAX = "jax is not installed here"
WITHOUT_TENSORFLOW = """
from importlib import metadata
found = metadata.distribution

def distribution(name):
    if name.startswith("tensorflow"):
        raise metadata.PackageNotFoundError(name)
    return found(name)

metadata.distribution = distribution
from dyno.bench.runner.launcher import DEFAULT_FRAMEWORK
print(DEFAULT_FRAMEWORK)
"""


@pytest.fixture
def launcher(here, settings):
    """A launcher after a worker's start, on a host where the default framework isn't tested."""
    with closing(Launcher("auto", here.cores)) as automatic:
        prove_fork(automatic, here.model_copy(update={"frameworks": {}}), settings)
        yield automatic


@pytest.mark.verify
@pytest.mark.skipif(not JAX, reason=NO_JAX)
def test_jax_is_forked_after_one_proof_from_a_zygote_with_one_thread(launcher, request_for, caplog):
    caplog.set_level(logging.INFO, "dyno.worker")
    records = [watched(launcher.start(request_for(tiny(framework="jax")))).record for _ in range(2)]
    assert [record.summary.process_start for record in records if record] == ["forked", "forked"]
    assert [record.summary.phases.import_s for record in records if record] == [None, None]
    assert caplog.text.count("fork-proved") == 1
    zygote = launcher._zygotes["jax"].pid
    assert len(list(Path(f"/proc/{zygote}/task").iterdir())) == 1


@pytest.mark.verify
@pytest.mark.skipif(not JAX, reason=NO_JAX)
def test_a_framework_whose_proof_fails_is_spawned_from_its_first_runner_on(here, settings, request_for):
    with closing(Launcher("auto", here.cores)) as launcher:
        prove_fork(launcher, here.model_copy(update={"frameworks": {}}), settings, deadline_s=0.05)
        record = watched(launcher.start(request_for(tiny(framework="jax")))).record
        assert record.summary.process_start == "spawned"
        assert "a forked runner failed at start" in (launcher.forks("jax")[1] or "")


@pytest.mark.skipif(not JAX, reason=NO_JAX)
def test_the_default_framework_is_the_first_that_is_installed():
    done = subprocess.run([sys.executable, "-P", "-c", WITHOUT_TENSORFLOW], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["jax"]
