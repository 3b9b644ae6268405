"""Processes that die: how soon they restart."""

import os
import subprocess
import sys
import textwrap

from dyno.processes import MAX_BACKOFF_S, ManagedProcess, Stack


def _part(code):
    return ManagedProcess("sleeper", "timeit", ["-n1", "-r1", "-s", "import time", code], dict(os.environ))


def test_the_delay_doubles_with_each_early_death_up_to_a_limit():
    part = _part("pass")
    stack = Stack(print)
    stack.start(part)
    delays_s = [part.plan_restart() for _ in range(10)]
    stack.stop()
    assert delays_s[:4] == [0.5, 1.0, 2.0, 4.0]
    assert delays_s[-1] == MAX_BACKOFF_S


def test_stop_ends_every_part_and_dead_names_the_first_that_ended():
    stack = Stack(print)
    alive, dead = stack.start(_part("time.sleep(600)")), stack.start(_part("1/0"))
    assert dead.process.wait(60) == 1
    assert stack.dead() is dead
    stack.stop()
    assert alive.process.poll() == -15


def test_a_part_ends_when_its_parent_is_killed():
    code = """
        import os, signal, sys
        from dyno.processes import ManagedProcess, Stack
        sleep = ["-n1", "-r1", "-s", "import time", "time.sleep(600)"]
        part = Stack(print).start(ManagedProcess("x", "timeit", sleep, os.environ))
        print(part.process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    # The child inherits stdout, so this returns only when the child has ended too. A child that lives on is a timeout.
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=20, check=False)
    assert done.returncode == -9
    assert int(done.stdout) > 0
