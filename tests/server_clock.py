"""A clock for Redis that tests set forward. Dyno's store takes the time from Redis, so schedules follow this clock."""

import shutil
import struct
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

_SHIM = Path(__file__).with_name("server_clock.c")


class ServerClock:
    """`binary` starts `server` on this clock, also when it restarts. Processes of Dyno keep the host's clock."""

    def __init__(self, folder, server):
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler is here to give the server another clock")
        self._file, library, self.binary = folder / "ahead", folder / "clock.so", folder / "server-on-clock"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SHIM], check=True)
        self._ahead = timedelta()
        self._file.write_bytes(struct.pack("=q", 0))
        self.binary.write_text(f'#!/bin/sh\nCLOCK_AHEAD="{self._file}" LD_PRELOAD="{library}" exec "{server}" "$@"\n')
        self.binary.chmod(0o700)

    def forward(self, by):
        self._ahead += by
        with self._file.open("r+b") as file:  # in place: the server has the file mapped
            file.write(struct.pack("=q", self._ahead // timedelta(microseconds=1)))
