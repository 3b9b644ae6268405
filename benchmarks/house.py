"""Measure the size of the code, and of the files that one job runs: `python -m benchmarks.house [CHECKOUT …]`.

The table has one column per checkout. Files, lines and imports are counted in the source. A job's files are those whose
functions run in any process from POST to result. The job is a `matmul` on a Dyno of the checkout's own code. The
control path leaves out the runners: it consists of the files whose functions the API runs for the POST, and of those
whose functions the worker and its zygote run. The output lists the files of the control path.
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
from typing import NamedTuple

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
POST, LATER = "post", "later"
# Process -> the phases in which its files are on the control path. Runners, forks of the zygote, have none.
CONTROL = {"service": {POST}, "workers": {POST, LATER}, "dyno.bench.runner.zygote": {POST, LATER}}
# Each process appends a line the first time that a function of a file is called while the marker exists: the process'
# module, the phase that the marker names, the file.
PROFILE = """
    import os, sys, threading
    root, marker, log = (os.environ["HOUSE_" + name] for name in ("ROOT", "MARKER", "LOG"))
    words, started = sys.orig_argv, os.getpid()
    module = words[words.index("-m") + 1] if "-m" in words else "up"
    seen = set()
    def profile(frame, event, argument):
        name = frame.f_code.co_filename
        if event == "call" and name not in seen and name.startswith(root) and os.path.exists(marker):
            if frame.f_code.co_name != "<module>":
                seen.add(name)
                process = module if os.getpid() == started else "runner"
                with open(marker) as phase, open(log, "a") as file:
                    file.write("\\t".join((process, phase.read(), name)) + "\\n")
    sys.setprofile(profile)
    threading.setprofile(profile)
"""


class Crossing(NamedTuple):
    """A file that a process entered for the first time in this phase of the job."""

    process: str
    phase: str
    file: str


def main(checkouts: list[Path]) -> None:
    crossings = {str(root): _crossings(root.resolve()) for root in checkouts}
    columns = {str(root): dict(figures(root.resolve(), crossings[str(root)])) for root in checkouts}
    rows = list(next(iter(columns.values())))
    sys.stdout.write(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}\n")
    for row in rows:
        sys.stdout.write(f"| {row} | {' | '.join(str(column[row]) for column in columns.values())} |\n")
    for root in checkouts:
        sys.stdout.write(f"\n## The control path of {root}\n")
        for process, names in control_path(crossings[str(root)]).items():
            sys.stdout.write(f"\n{process}, {len(names)}: {', '.join(names)}\n")


def figures(root: Path, crossings: Iterable[Crossing]) -> Iterator[tuple[str, str | int]]:
    files, scripts = _files(root, PRODUCT), _files(root, PRODUCT, "lua")
    lines = sum(map(_lines, files))
    yield "product: files", len(files)
    yield "product: lines of Python", lines
    yield "product: files of Lua", len(scripts)
    yield "product: lines of Lua", sum(map(_lines, scripts))
    yield "share of import lines", f"{sum(map(_import_lines, files)) / lines:.1%}"
    yield "import circles", _circles(root, files)
    for name, folders in OTHERS.items():
        yield f"{name}: files", len(_files(root, folders))
        yield f"{name}: lines", sum(map(_lines, _files(root, folders)))
    yield "files that a job crosses", len({crossing.file for crossing in crossings})
    yield "files of the control path", len(set().union(*control_path(crossings).values()))


def control_path(crossings: Iterable[Crossing]) -> dict[str, list[str]]:
    """Process -> its files of the control path."""
    return {
        process: sorted({each.file for each in crossings if each.process == process and each.phase in phases})
        for process, phases in CONTROL.items()
    }


def _files(root: Path, folders: Iterable[str], ending: str = "py") -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob(f"*.{ending}"))


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
    """The modules of `modules` that the file imports outside functions."""
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


def _crossings(root: Path) -> list[Crossing]:
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
                _enter(marker, POST)
                job = client.submit(JOB)
                _enter(marker, LATER)
                assert client.outcome(job.id).metrics
                marker.unlink()
            finally:
                dyno.terminate()
                dyno.wait()
        names = {str(path): str(path.relative_to(root)) for path in _files(root, PRODUCT)}
        rows = (line.split("\t") for line in log.read_text().splitlines())
        return [Crossing(process, phase, names[file]) for process, phase, file in rows if file in names]


def _enter(marker: Path, phase: str) -> None:
    """Write the marker atomically, since processes read it at any time."""
    written = marker.with_suffix(".new")
    written.write_text(phase)
    written.replace(marker)


def _wait_idle(client: Client, within_s: float = 180) -> None:
    end_s = time.monotonic() + within_s
    while not _is_idle(client):
        if time.monotonic() > end_s:
            raise TimeoutError(f"no device was idle within {within_s:g} s")
        time.sleep(0.2)  # Dyno can't hold a request while it starts


def _is_idle(client: Client) -> bool:
    try:
        return any(device.state == "idle" for device in client.devices())
    except (Refused, ServerUnreachable):
        return False


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or [Path.cwd()])
