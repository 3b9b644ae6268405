"""`python -P -m workers --device cpu:0-1`: one worker, until TERM or Ctrl-C."""

from __future__ import annotations

import argparse
import sys

from dyno.errors import DynoError, WorkerExit
from dyno.settings import WrongSettings, load_settings
from workers.log import LOG, set_up
from workers.worker import Worker


def main() -> None:
    parser = argparse.ArgumentParser(prog="workers", description="Run one worker, pinned to one device.")
    parser.add_argument("--device", help='"cpu" (the default), "cpu:0-1", "gpu:0", …; with --emulate its id, "tpu:1"')
    parser.add_argument("--emulate", help='"tpu:8": offer a TPU made of 8 virtual CPU devices; results are untrusted')
    parser.add_argument("--name", help="the worker's id in a fleet; made up by default")
    parser.add_argument("--verbose", action="store_true", help="one line an event, not only warnings")
    arguments = parser.parse_args()
    try:
        settings = load_settings()
    except WrongSettings as error:
        sys.stderr.write(f"dyno: {error.detail}\n")
        sys.exit(2)
    set_up(settings.log_format, verbose=arguments.verbose)
    device = arguments.device or (arguments.emulate.partition(":")[0] if arguments.emulate else "cpu")
    try:
        worker = Worker(device, arguments.name, settings, arguments.emulate)
    except DynoError as error:
        LOG.error("not-started code=%s %s", error.code, error.detail)
        sys.exit(WorkerExit.NOT_STARTED)
    sys.exit(worker.run())


if __name__ == "__main__":
    main()
