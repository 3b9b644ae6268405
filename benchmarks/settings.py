"""The settings that a benchmark runs with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dyno.settings import WrongSettings, load_settings

USAGE = 2


@contextmanager
def checked() -> Iterator[None]:
    """Where one is wrong, a line on stderr and exit code 2 as of `dyno`, before anything is measured."""
    try:
        load_settings()
        yield
    except WrongSettings as error:
        sys.stderr.write(f"{error.detail}\n")
        raise SystemExit(USAGE) from None
