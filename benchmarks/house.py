"""How large the code is and how much of it one job crosses: `python -m benchmarks.house [CHECKOUT …]`, a column each.

Files, lines and imports are counted in the source. A job's files are those whose functions run in any process, from
POST to result, of a `matmul` on a Dyno that the checkout's own code serves.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from pydantic import JsonValue
from scipy.sparse.csgraph import connected_components

from dyno.client import Client, Refused, ServerUnreachable
from dyno.processes import free_port

PRODUCT = ("dyno", "service", "workers")
OTHERS = {"tests": ("tests", "api_tests"), "chaos": ("chaos",), "benchmarks": ("benchmarks",)}
JOB: dict[str, JsonValue] = {
    "workload": "matmul",
    "params": {"n": 64},
    "measure": {"processes": 1, "min_samples": 1, "min_s": 0},
}
# Each process appends a file's name the first time that one of its functions is called while the marker exists.
PROFILE = """
    import os, sys, threading
    root, marker, log = (os.environ["HOUSE_" + name] for name in ("ROOT", "MARKER", "LOG"))
    seen = set()
    def profile(frame, event, argument):
        name = frame.f_code.co_filename
        if event == "call" and name not in seen and name.startswith(root) and os.path.exists(marker):
            if frame.f_code.co_name != "<module>":
                seen.add(name)
                with open(log, "a") as file:
                    file.write(name + "\\n")
    sys.setprofile(profile)
    threading.setprofile(profile)
"""


def main(checkouts: list[Path]) -> None:
    columns = {str(root): dict(figures(root.resolve())) for root in checkouts}
    rows = list(next(iter(columns.values())))
    sys.stdout.write(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}\n")
    for row in rows:
        sys.stdout.write(f"| {row} | {' | '.join(str(column[row]) for column in columns.values())} |\n")


def figures(root: Path) -> Iterator[tuple[str, str | int]]:
    files = _files(root, PRODUCT)
    lines = sum(map(_lines, files))
    yield "product: files", len(files)
    yield "product: lines of Python", lines
    yield "share of import lines", f"{sum(map(_import_lines, files)) / lines:.1%}"
    yield "import circles", _circles(root, files)
    for name, folders in OTHERS.items():
        yield f"{name}: files", len(_files(root, folders))
        yield f"{name}: lines", sum(map(_lines, _files(root, folders)))
    yield "files that a job crosses", len(_crossed(root))


def _files(root: Path, folders: Iterable[str]) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _import_lines(path: Path) -> int:
    nodes = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Import | ast.ImportFrom)]
    return sum((each.end_lineno or each.lineno) - each.lineno + 1 for each in nodes)


def _circles(root: Path, files: list[Path]) -> int:
    """How many sets of modules import each other at their top level, `if TYPE_CHECKING` included."""
    modules = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    names = list(modules)
    graph = np.zeros((len(names), len(names)), bool)
    for place, path in enumerate(modules.values()):
        graph[place, [names.index(name) for name in _imports(path, modules)]] = True
    _, circle_of = connected_components(graph, connection="strong")
    return int((np.bincount(circle_of) > 1).sum())


def _imports(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Of other modules, outside functions."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{each.name}" for each in node.names)
            yield from (name if name in modules else node.module for name in names if node.module in modules)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def _crossed(root: Path) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        home, port = Path(folder), free_port()
        (home / "sitecustomize.py").write_text(textwrap.dedent(PROFILE))
        marker, log = home / "marker", home / "log"
        places = {"HOUSE_ROOT": str(root), "HOUSE_MARKER": str(marker), "HOUSE_LOG": str(log), "DYNO_RUN_DIR": folder}
        places["DYNO_RUNNER_ENV"] = "HOUSE_*"
        env = {**os.environ, **places, "PYTHONPATH": f"{home}{os.pathsep}{root}", "HOME": folder}
        start = "from dyno.cli import main; main()"
        command = [sys.executable, "-P", "-c", start, "up", "--port", str(port), "--data-dir", str(home / "data")]
        with (home / "output").open("w") as output, Client(f"http://127.0.0.1:{port}") as client:
            dyno = subprocess.Popen(command, cwd=root, env=env, stdout=output, stderr=output)
            try:
                _wait_idle(client)
                marker.touch()
                assert client.run(JOB).metrics
                marker.unlink()
            finally:
                dyno.terminate()
                dyno.wait()
        return set(log.read_text().split()) & set(map(str, _files(root, PRODUCT)))  # an environment may lie in it


def _wait_idle(client: Client, within_s: float = 180) -> None:
    end_s = time.monotonic() + within_s
    while not _is_idle(client):
        if time.monotonic() > end_s:
            raise TimeoutError(f"no device was idle within {within_s:g} s")
        time.sleep(0.2)  # before it is up, Dyno can't hold a request until it is


def _is_idle(client: Client) -> bool:
    try:
        return any(device.state == "idle" for device in client.devices())
    except (Refused, ServerUnreachable):
        return False


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or [Path.cwd()])
