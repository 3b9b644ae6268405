"""The kernel's count of out-of-memory kills, in all places where it may be."""

import os
from pathlib import Path

import pytest

from dyno.bench.runner.limits import oom_kills
from dyno.bench.runner.monitor import failure_of
from tests.workers.conftest import Misbehaving, watched

V1 = Path("/sys/fs/cgroup/memory")


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("membership", "file", "text", "kills"),
    [
        ("0::/box/worker\n", "cgroup/box/worker/memory.events", "low 0\nmax 9\noom 3\noom_kill 2\n", 2),  # version 2
        ("4:memory:/box\n0::/\n", "cgroup/memory/box/memory.oom_control", "under_oom 0\noom_kill 5\n", 5),  # version 1
        ("", "vmstat", "nr_free_pages 1\noom_kill 7\n", 7),  # the host's count
        ("", "none", "", 0),
    ],
)
def test_kills_are_counted_in_the_group_or_else_on_the_host(tmp_path, membership, file, text, kills):
    written(tmp_path / file, text)
    assert oom_kills(tmp_path / "cgroup", written(tmp_path / "self", membership), tmp_path / "vmstat") == kills


@pytest.fixture
def small_cgroup():
    """A memory cgroup below this process's own, limited to 64 MiB."""
    [line] = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line] or [""]
    # A worker that starts meanwhile deletes cgroups named dyno-* whose process has ended.
    cgroup = V1 / line.rpartition(":")[2].strip("/") / f"test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError:
        pytest.skip("cgroups of memory can't be made here")
    (cgroup / "memory.limit_in_bytes").write_text(str(64 << 20))
    yield cgroup
    cgroup.rmdir()


def test_a_runner_that_the_kernel_killed_for_memory_is_classed_so(small_cgroup, monkeypatch):
    """The runner joins the cgroup. The supervisor isn't in it, but reads its counter."""
    program = f"open('{small_cgroup}/cgroup.procs', 'w').write('0'); hoard = bytearray(1 << 30)"
    monkeypatch.setattr("dyno.bench.runner.monitor.oom_kills", lambda: _count(small_cgroup))
    launcher = Misbehaving(program)
    try:
        ended = watched(launcher.spawn(["-P", "-c", program], b"{}"))
    finally:
        launcher.close()
    failure = failure_of(ended, 60, 60)
    assert (failure.failure_class, failure.reason) == ("resource", "out_of_memory")


def _count(cgroup):
    return int((cgroup / "memory.oom_control").read_text().split()[-1])
