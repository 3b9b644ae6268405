"""Run one spec once, in this process, and say over a pipe how it went.

Started two ways: a zygote's forked child calls `main`; `python -P -m dyno.runner` is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback

from dyno.errors import RunFailed
from dyno.frames import Done, RunRequest, Started
from dyno.frameworks import framework as framework_named
from dyno.run import Run
from dyno.run_failures import failed
from dyno.run_frames import FrameWriter


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


def _read_request(fd: int) -> RunRequest:
    with os.fdopen(fd, "rb") as stream:
        return RunRequest.model_validate_json(stream.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="dyno.runner")
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--frames-fd", type=int, required=True)
    arguments = parser.parse_args()
    main(_read_request(arguments.request_fd), arguments.frames_fd)
    os._exit(0)
