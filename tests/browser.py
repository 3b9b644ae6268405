"""A real browser that finds no host but this one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

WITHIN_S = 60


class Shown(NamedTuple):
    """A page as its scripts have left it, and what the browser complained of."""

    dom: str
    complaints: list[str]


def shown(url: str, profile: Path) -> Shown:
    """`profile` is a folder for whatever the browser keeps. Skips the test where there is no browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
        *(f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=True)
    return Shown(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])
