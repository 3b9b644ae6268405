"""Fixtures: whole worker processes, as in production."""

import os
import subprocess
import sys

import pytest

from tests.workers.conftest import until_gone
from tests.workers.whole.looking import environment_of, family_of


@pytest.fixture
def short_lease(settings):
    return settings.model_copy(update={"lease_s": 4.0, "heartbeat_s": 0.3, "reap_every_s": 0.3, "shutdown_s": 0.5})


@pytest.fixture
def start_worker():
    """Starts `python -m workers`. After the test, running workers are killed, and no process may survive."""
    started = []

    def start(device, settings, name=None, env=None):
        env = os.environ | environment_of(settings) | (env or {})
        command = [sys.executable, "-P", "-m", "workers", "--device", device, "--name", name or device]
        started.append(subprocess.Popen(command, env=env))
        return started[-1]

    yield start
    for process in started:
        left = family_of(process.pid) if process.poll() is None else set()
        process.kill()
        process.wait()
        assert [pid for pid in left if not until_gone(pid)] == []
