"""API processes, as `python -m service` starts them. Settings are those of DYNO_…, in lower case."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 60


def environment(**settings):
    """This process' environment with these settings of Dyno alone."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    return outside | {f"DYNO_{name.upper()}": str(value) for name, value in settings.items()}


def module(name="service"):
    return [sys.executable, "-P", "-m", name]


@contextmanager
def running(port=0, stderr=None, preexec_fn=None, **settings):
    """The process, and the URL that it prints. The process is killed at the end of the block."""
    process = subprocess.Popen(
        module(),
        env=environment(port=port, **settings),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        preexec_fn=preexec_fn,
    )
    try:
        line = process.stdout.readline()  # returns at the end of the process if that doesn't start
        assert line.startswith("dyno serves http")
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def refused(extra_env=None, **settings):
    """Exit code and standard error of a service that doesn't start. It has no terminal for a prompt."""
    done = subprocess.run(
        module(),
        env=environment(**{"port": 0} | settings) | (extra_env or {}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
        start_new_session=True,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr
