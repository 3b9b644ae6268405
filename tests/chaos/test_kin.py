"""Whoever belongs to a rig is found: below its parts, and by its mark wherever its parent went."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from chaos import kin
from tests.waiting import eventually

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is

# A child in a session of its own, with a child of its own that outlives it.
FAMILY = """
import os, subprocess, sys, time
code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); input()"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdin=subprocess.PIPE)
time.sleep(600)
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    env = os.environ | {kin.MARK: "tested"}
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], env=env)
    eventually(lambda: len(kin.below(parent.pid)) == 2)
    yield parent
    parent.kill()
    parent.wait()
    for process in kin.marked("tested"):
        os.kill(process.pid, 9)
    eventually(lambda: not kin.marked("tested"))


def test_a_grandchild_is_found_below_and_by_its_mark_when_those_between_have_died(
    family: subprocess.Popen[bytes],
) -> None:
    below = kin.below(family.pid)
    eventually(lambda: {each.pid for each in kin.marked("tested")} == {family.pid, *(each.pid for each in below)})
    family.kill()
    eventually(lambda: len(kin.alive(below)) == 1)  # its parent heard the end of its input; nobody has told it
    assert {each.pid for each in kin.marked("tested")} == {each.pid for each in kin.alive(below)}


def test_a_process_of_another_rig_and_a_dead_one_are_not_taken_for_it(family: subprocess.Popen[bytes]) -> None:
    assert kin.marked("another") == set()
    [any_one, *_] = kin.below(family.pid)
    assert kin.alive([any_one]) == {any_one}
    assert kin.alive([any_one._replace(started="1")]) == set()  # the pid is another process' now
