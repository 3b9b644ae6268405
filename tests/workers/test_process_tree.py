"""Descendants of a process are found with and without the kernel's lists of children."""

import os
import subprocess
import sys

import pytest

from dyno.bench.runner import zygote

# Of three processes, the second has an unusual name and the third has two threads.
PROGRAM = """
import ctypes, os, threading, time
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, b"a ) 1 (b", 0, 0, 0)  # PR_SET_NAME
    if os.fork() == 0:
        threading.Thread(target=time.sleep, args=[600], daemon=True).start()
        print(flush=True)
    time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def root():
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        yield process.pid
        os.killpg(process.pid, 9)


@pytest.mark.parametrize("lists_children", [True, False])
def test_all_below_are_found_with_their_threads(root, lists_children, monkeypatch):
    if lists_children and not zygote._LISTS_CHILDREN:
        pytest.skip("this kernel lists no children")
    if not lists_children:
        monkeypatch.setattr(zygote, "_LISTS_CHILDREN", False)
        monkeypatch.setattr(zygote, "_listed_children", lambda pid: [])
    found = zygote.descendants(root)
    assert sorted(found.values()) == [1, 2]
    [child] = zygote.children_of(root)
    [grandchild] = zygote.children_of(child)
    assert found == {child: 1, grandchild: 2}
    assert not zygote.children_of(grandchild)
