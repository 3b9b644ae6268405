"""The `dyno` command as a real process."""

import os
import signal
import subprocess
import uuid
from functools import partial

import pytest

from dyno.processes import die_with_parent
from tests.cli.running_command import DYNO, Command


@pytest.fixture
def home(short_folder):
    """Where a command puts its temporary files, such as sockets."""
    return short_folder


@pytest.fixture
def command(home, tmp_path):
    started = []

    def start(*arguments, **env):
        mark = f"mark-{uuid.uuid4().hex}"
        output = tmp_path / f"output-{len(started)}"
        marks = {"COMMAND_MARK": mark, "DYNO_RUNNER_ENV": "COMMAND_MARK"}
        environment = {**os.environ, **marks, "TMPDIR": str(home), "COLUMNS": "200", **env}
        environment.pop("DYNO_REDIS_URL", None)
        errors = tmp_path / f"errors-{len(started)}"
        with output.open("wb") as file, errors.open("wb") as error_file:
            process = subprocess.Popen(
                [DYNO, *arguments],
                env=environment,
                stdout=file,
                stderr=error_file,
                stdin=subprocess.DEVNULL,
                process_group=0,
                preexec_fn=partial(_begin, os.getpid()),
            )
        started.append(Command(process, mark, home, output, errors))
        return started[-1]

    yield start
    for one in started:
        for pid in one.pids():
            os.kill(pid, signal.SIGKILL)
        one.process.wait()


def _begin(parent):
    """Reset SIGINT, which shells ignore for background jobs and children inherit. Die with the test process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent(parent)
