"""Simulates a power loss for a server: its files keep the synced data and lose the rest."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SHIM = Path(__file__).with_name("syncs.c")


class Power:
    """`binary` starts `server` and records its syncs; call `fail` after the server was killed.

    A file's name counts as safe after its first sync, because the server syncs the folder, too.
    """

    def __init__(self, folder, server):
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler is here to listen to the server's syncs with")
        self._log, library, self.binary = folder / "syncs", folder / "syncs.so", folder / "server"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SHIM], check=True)
        self.binary.write_text(f'#!/bin/sh\nSYNCS="{self._log}" LD_PRELOAD="{library}" exec "{server}" "$@"\n')
        self.binary.chmod(0o700)

    def fail(self, data_dir):
        """Truncate every file to its last sync. Returns the number of lost bytes."""
        synced = dict(tuple(map(int, line.split())) for line in self._log.read_text().splitlines())
        cut = 0
        for path in (data_dir / "appendonlydir").iterdir():
            status = path.stat()
            kept = min(status.st_size, synced.get(status.st_ino, 0))
            os.truncate(path, kept)
            cut += status.st_size - kept
        return cut
