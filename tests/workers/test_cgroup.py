"""If cgroup v2 doesn't allow a limit, no cgroup is made and nothing is left behind.

Files simulate the kernel, as described in cgroup-v2.rst, "No Internal Process Constraint" and "Threads".
"""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from dyno.bench.runner.limits import runner_cgroup

SHARED = "cgroup.subtree_control"


@dataclass
class Kernel:
    """This process's cgroup `/box`. `root`: it is the host's root cgroup, which may have processes."""

    mount: Path
    root: bool = False

    @property
    def box(self):
        return self.mount / "box"

    def cgroup(self):
        membership = self.mount / "self"
        membership.write_text("0::/box\n")
        return runner_cgroup(1 << 30, 40, self.mount, membership)

    def made_below(self):
        return [path for path in self.box.iterdir() if path.is_dir()]

    def written(self, file, text):
        kept = set(file.read_text().split())
        if text == "+memory" and not self.root:
            raise OSError(errno.EBUSY, "a process is in it")
        (kept.add if text[0] == "+" else kept.discard)(text[1:])
        file.write_bytes(" ".join(sorted(kept)).encode())

    def made(self, folder):
        (folder / "cgroup.type").write_bytes(b"domain\n" if self.root else b"domain invalid\n")
        for controller in (self.box / SHARED).read_text().split():
            (folder / f"{controller}.max").touch()


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    kernel = Kernel(tmp_path)
    kernel.box.mkdir()
    for name in ("cgroup.procs", SHARED):
        (kernel.box / name).touch()
    write, mkdir = Path.write_text, Path.mkdir

    def write_text(path, text):
        return kernel.written(path, text) if path.name == SHARED else write(path, text)

    def make(path, **options):
        mkdir(path, **options)
        kernel.made(path)

    monkeypatch.setattr(Path, "write_text", write_text)
    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)
    return kernel


def test_below_a_group_with_processes_none_is_made_and_that_one_stays_what_it_was(kernel):
    cgroup = kernel.cgroup()
    assert (cgroup.limits_memory, cgroup.limits_tasks, cgroup.doors) == (False, False, [])
    assert kernel.made_below() == []
    assert (kernel.box / SHARED).read_text() == ""


def test_what_others_had_enabled_stays_enabled(kernel):
    (kernel.box / SHARED).write_bytes(b"pids")
    assert not kernel.cgroup().limits_tasks
    assert kernel.made_below() == []
    assert (kernel.box / SHARED).read_text() == "pids"


def test_in_the_hosts_root_one_group_limits_both(kernel):
    kernel.root = True
    cgroup = kernel.cgroup()
    assert (cgroup.limits_memory, cgroup.limits_tasks) == (True, True)
    [folder] = kernel.made_below()
    assert (folder / "memory.max").read_text() == str(1 << 30)
    assert cgroup.doors == [str(folder / "cgroup.procs")]
    cgroup.close()
    assert kernel.made_below() == []


def test_a_cgroup_knows_its_own_processes_only(kernel):
    kernel.root = True
    cgroup = kernel.cgroup()
    (folder,) = kernel.made_below()
    assert not cgroup.holds_memory_of(12)
    (folder / "cgroup.procs").write_text("11\n12\n")
    assert (cgroup.holds_memory_of(12), cgroup.holds_tasks_of(12), cgroup.holds_memory_of(1)) == (True, True, False)
