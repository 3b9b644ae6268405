"""A spawned runner: read a request from one descriptor, write frames to another, exit."""

import argparse
import os
import signal

from dyno.bench.runner.run import main
from dyno.models.runner_protocol import RunRequest


def _read_request(fd: int) -> RunRequest:
    with os.fdopen(fd, "rb") as stream:
        return RunRequest.model_validate_json(stream.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="dyno.bench.runner")
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--frames-fd", type=int, required=True)
    arguments = parser.parse_args()
    # SIGINT comes from outside. With its default action, the supervisor sees that a signal ended the runner. With
    # Python's own handler, the KeyboardInterrupt would look like a workload error.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(_read_request(arguments.request_fd), arguments.frames_fd)
    os._exit(0)
