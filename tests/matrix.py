"""Run tests under other instruction sets and in other environments, as `make matrix` does.

`avx2` and `avx512` run every test of MEASURING. The rows from `no-onednn` to `busy` run those of them that `make test`
has. The rows `as-…` run IDENTIFYING on a processor that this machine doesn't have: they mount other files over
/proc/cpuinfo and /sys/devices/system/cpu. For the two vendors, these include the tests of `make verify`. The rows from
`elsewhere` on run all of `make test`.

    python -m tests.matrix [ROW ...]

Prints a line per row, and writes pytest's output to build/matrix/. A row that this machine can't run is skipped with
the reason. The exit status is non-zero if a row failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.identities import Identity, wrapper

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "build" / "matrix"
MEASURING = ["tests/bench/workloads", "tests/bench/measure", "tests/bench/frameworks", "tests/bench/runner"]
# Ignored by git, so not copied.
NOT_SOURCES = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")
USER_ID = 54321  # a uid and gid without an account
# Several files at a time, so without the tests marked `alone`. If a framework aborts, only one test fails.
LONG = ["-n", "2", "--dist", "loadscope", "-m", "not alone", *MEASURING]
SHORT = ["-n", "2", "--dist", "loadscope", "-m", "not alone and not verify", *MEASURING]
# Tests of what reads the processor's identity, and of the outputs that pages show.
IDENTIFYING = [
    *("-n", "2", "--dist", "loadfile"),
    *("tests/bench/devices", "tests/bench/workloads/test_device_info.py", "tests/bench/runner/test_checked_runs.py"),
    *("tests/bench/measure/test_host_noise.py", "tests/service/test_doctor.py", "tests/cli/test_render.py"),
    *("tests/workers/whole/test_worker.py", "tests/cli/test_up.py"),
    *("api_tests/test_clients.py", "api_tests/test_readme.py"),
]
WHOLE = ["-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not alone and not verify"]
SERVERS = {"redis-server", "valkey-server"}


class NotHere(Exception):
    """This machine can't run a row; the message says why."""


class Run(NamedTuple):
    """How to start pytest: its arguments, the interpreter with any wrapper command, the checkout, and variables."""

    arguments: Sequence[str]
    python: Sequence[str] = (sys.executable,)
    root: Path = ROOT
    environment: Mapping[str, str] = {}


Row = Callable[[ExitStack], Run]


def _with(tests, **variables):
    return lambda stack: Run(tests, environment=variables)


def _one_core(stack):
    return Run(SHORT, ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable])


def _busy(stack):
    for core in os.sched_getaffinity(0):
        hog = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"])
        stack.callback(hog.wait)
        stack.callback(hog.kill)
    return Run(SHORT)


def _identity(maker, processors, marks="not alone"):
    """On `processors` processors of `maker`. With 64, this process may use fewer, as in a container."""

    def row(stack):
        mounted = wrapper(Identity(maker, processors).write(_folder(stack)))
        if not mounted:
            raise NotHere("`unshare --mount` isn't allowed or not on PATH")
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:processors]))
        return Run(["-m", marks, *IDENTIFYING], [*mounted, "taskset", "-c", cores, sys.executable])

    return row


def _elsewhere(stack):
    """In a folder with a space, with the servers left out of PATH and, if this process may change it, as another user.

    That user gets a copy of the interpreter, as root's may be in a folder that others can't read.
    """
    home = _folder(stack)
    root = home / "a path with a space"
    (home / "tmp").mkdir()
    environment = {"PATH": str(_without_servers(home / "programs")), "HOME": str(home), "TMPDIR": str(home / "tmp")}
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return Run(WHOLE, [_installed(root, sys.executable)], root, environment)
    base = shutil.copytree(sys.base_prefix, home / "base", symlinks=True)
    python = _installed(root, str(base / "bin" / f"python3.{sys.version_info.minor}"))
    subprocess.run(["chown", "-R", f"{USER_ID}:{USER_ID}", home], check=True)
    become = ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"]
    environment |= {"USER": "tester", "LOGNAME": "tester"}
    environment["LD_LIBRARY_PATH"] = str(base / "lib")  # else the loader may find another Python's library
    return Run(WHOLE, [*become, python], root, environment)


def _without_servers(folder):
    """Fill `folder` with links to all programs on PATH except the servers."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if program.name not in SERVERS and not os.path.lexists(link):
                link.symlink_to(program)
    return folder


def _python(version):
    def row(stack):
        command = ["env", f"python{version}", "-c", "import sys; print(sys.executable)"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if not found:
            raise NotHere(f"no working python{version} on PATH")
        root = _folder(stack) / "dyno"
        return Run(WHOLE, [_installed(root, found)], root)

    return row


def _folder(stack):
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyno-matrix-")))


def _installed(root, python):
    """Copy this checkout to `root`, install it, and return its interpreter."""
    shutil.copytree(ROOT, root, ignore=NOT_SOURCES)
    subprocess.run(["make", "install", f"PYTHON={python}"], cwd=root, check=True, stdout=subprocess.DEVNULL)
    return str(root / ".venv" / "bin" / "python")


ROWS: dict[str, Row] = {
    "avx2": _with(LONG, ONEDNN_MAX_CPU_ISA="AVX2"),  # tests/conftest.py skips what TensorFlow then crashes on
    "avx512": _with(LONG, ONEDNN_MAX_CPU_ISA="AVX512_CORE"),
    "no-onednn": _with(SHORT, TF_ENABLE_ONEDNN_OPTS="0"),
    "xla-avx2": _with(SHORT, XLA_FLAGS="--xla_cpu_max_isa=AVX2"),
    "one-core": _one_core,
    "busy": _busy,
    "as-amd": _identity("amd", 64),
    "as-intel": _identity("intel", 2),
    "as-arm": _identity("arm", 1, "not alone and not verify"),
    "as-unknown": _identity("unknown", 2, "not alone and not verify"),
    "elsewhere": _elsewhere,
    "python3.12": _python("3.12"),
    "python3.13": _python("3.13"),
}


def main(names):
    if unknown := set(names) - ROWS.keys():
        print(f"unknown row {', '.join(sorted(unknown))}; choose from {', '.join(ROWS)}")  # noqa: T201
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"{'row':16}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}", flush=True)  # noqa: T201
    return max([_ran(name) for name in names or ROWS])


def _ran(name):
    """Run the row and print its line. Returns 1 if it failed, else 0."""
    print(f"{name:16}", end="", flush=True)  # noqa: T201
    start_s = time.monotonic()
    try:
        with ExitStack() as stack:
            run = ROWS[name](stack)
            command = [*run.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *run.arguments]
            with (LOGS / f"{name}.txt").open("w") as log:
                environment = {**os.environ, **run.environment}
                done = subprocess.run(command, cwd=run.root, env=environment, stdout=log, stderr=log, check=False)
    except NotHere as reason:
        print(f"skipped: {reason}", flush=True)  # noqa: T201
        return 0
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    last = (LOGS / f"{name}.txt").read_text().rstrip().rpartition("\n")[2]
    for count, what in re.findall(r"(\d+) (passed|failed|skipped|error)", last):
        counts["failed" if what == "error" else what] += int(count)
    cells = "".join(f"{count:8}" for count in counts.values())
    print(f"{cells}{time.monotonic() - start_s:9.0f}", flush=True)  # noqa: T201
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
