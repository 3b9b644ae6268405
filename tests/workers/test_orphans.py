"""Processes that a runner leaves behind end with it, even on more restrictive kernels and in sandboxes."""

import subprocess
import sys

LEAVES_ONE = """
import errno, os, time
import dyno.bench.runner.zygote as orphans
import dyno.bench.runner.zygote as processes

def forbidden(*_):
    raise PermissionError(errno.EPERM, "not here")

kill = os.kill
child = os.fork()
if child == 0:
    time.sleep(600)
"""
ENDS_IT = """
orphans.end_adopted(())
try:
    os.waitpid(child, 0)
except ChildProcessError:
    print("ended and reaped", end="")
"""
GIVES_UP = """
orphans._PATIENCE_S = 0.1
orphans.end_adopted(())
kill(child, 0)
kill(child, 9)
print("given up", end="")
"""


def printed(*lines):
    """Run the code in its own process, because it ends all children of its process."""
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_a_process_ends_and_is_reaped_where_no_descriptor_of_it_can_be_had():
    assert printed(LEAVES_ONE, "os.pidfd_open = forbidden", ENDS_IT) == "ended and reaped"


def test_one_that_may_not_be_killed_is_given_up_in_time():
    assert printed(LEAVES_ONE, "os.kill = forbidden", GIVES_UP) == "given up"
    assert printed(LEAVES_ONE, "os.kill = os.pidfd_open = forbidden", GIVES_UP) == "given up"


def test_a_process_ends_where_the_kernel_lists_no_children():
    untold = "processes._LISTS_CHILDREN, processes._listed_children = False, lambda pid: []"
    assert printed(LEAVES_ONE, untold, ENDS_IT) == "ended and reaped"
