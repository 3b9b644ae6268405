"""A real browser that can reach only this host."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.waiting import eventually

WITHIN_S = 60


class Shown(NamedTuple):
    """A page after its scripts have run, and the browser's console messages."""

    dom: str
    complaints: list[str]


class Page:
    """An open page, inspected and controlled with JavaScript."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._last_id = 0

    def evaluate(self, expression: str) -> Any:
        self._last_id += 1
        parameters = {"expression": expression, "returnByValue": True}
        self._connection.send(json.dumps({"id": self._last_id, "method": "Runtime.evaluate", "params": parameters}))
        while (response := json.loads(self._connection.recv(WITHIN_S))).get("id") != self._last_id:
            pass
        assert "exceptionDetails" not in response["result"], response["result"]
        return response["result"]["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until the expression is true."""
        eventually(lambda: self.evaluate(expression), WITHIN_S, expression)

    def click(self, selector: str) -> None:
        """Wait for the element and click it."""
        self.until(f"document.querySelector({selector!r}) !== null")
        self.evaluate(f"document.querySelector({selector!r}).click()")

    def fill(self, selector: str, text: str) -> None:
        self.evaluate(f"document.querySelector({selector!r}).value = {text!r}")


def shown(url: str, profile: Path) -> Shown:
    """Load a page. `profile` is the browser's profile folder. Skips the test if there is no browser."""
    options = ["--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        _command(profile, *options, url), capture_output=True, text=True, timeout=WITHIN_S, check=True
    )
    return Shown(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])


@contextmanager
def opened(url: str, profile: Path) -> Iterator[Page]:
    """As `shown`, but the page stays open for the block."""
    with (profile / "output").open("wb") as output:
        browser = subprocess.Popen(_command(profile, "--remote-debugging-port=0", url), stdout=output, stderr=output)
    try:
        port = eventually(lambda: _first_line(profile / "DevToolsActivePort"), WITHIN_S, "the browser listens")
        with connect(
            eventually(lambda: _page(f"http://127.0.0.1:{port}/json"), WITHIN_S, "a page"), max_size=None
        ) as connection:
            yield Page(connection)
    finally:
        browser.terminate()
        browser.wait()


def _command(profile: Path, *options: str) -> list[str]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    return [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
        *(f"--user-data-dir={profile}", *options),
    ]


def _first_line(path: Path) -> str:
    return path.read_text().partition("\n")[0] if path.exists() else ""


def _page(url: str) -> str:
    """The URL of the page's debugger, empty while there is no page."""
    targets = httpx.get(url).json()
    return next((str(each["webSocketDebuggerUrl"]) for each in targets if each["type"] == "page"), "")
