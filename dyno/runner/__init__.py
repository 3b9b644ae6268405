"""Run one spec once, in this process, and say over a pipe how it went.

Started two ways: a zygote's forked child calls `main`; `python -P -m dyno.runner` is a process of its own.
"""

from __future__ import annotations

import os
import time
import traceback

from dyno.errors import RunFailed
from dyno.frames import Done, RunRequest, Started
from dyno.frameworks import framework as framework_named
from dyno.runner.failures import failed
from dyno.runner.run import Run
from dyno.runner.writer import FrameWriter


def main(request: RunRequest, frames_fd: int) -> None:
    """Run `request` and write its frames to `frames_fd`; the last one is `done` or `failed`.

    Never raises: the caller ends the process with `os._exit` (a framework's own teardown costs 0.5 s). The device's
    locks are held until then.
    """
    frames = FrameWriter(frames_fd)
    framework = None
    try:
        started = Started(pid=os.getpid(), at_s=time.time())
        frames.write(started)
        framework = framework_named(request.spec.framework)
        frames.write(Done(record=Run(request, framework, frames, started.at_s).record()))
    except BaseException as error:  # noqa: BLE001 - whatever ends a run must reach the supervisor as a frame
        if not isinstance(error, RunFailed):
            traceback.print_exc()
        frames.write(failed(error, framework))
