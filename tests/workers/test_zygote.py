"""Zygotes fork with a single thread, leave nothing behind, and end with their parent."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dyno.bench.runner.launcher import Launcher, LogTail, RunnerProcess
from tests.cores import CORE, HERE
from tests.waiting import eventually
from tests.workers.conftest import LONG, Misbehaving, children_of, tiny, until_begun, until_gone, watched

JOBS = 8
SLEEP = "import time; time.sleep(600)"

SUPERVISOR = f"""
import sys, time
from dyno.bench.devices.discovery import discover
from dyno.models.runner_protocol import RunRequest
from dyno.settings import Settings
from dyno.models.spec import Spec
from dyno.bench.runner.launcher import Launcher

launcher = Launcher("fork", [{CORE}])
spec = Spec.model_validate({{"workload": "matmul", "params": {{"n": 64, "repeats": 1}}, "device": "cpu",
                            "measure": {{"processes": 1, "min_s": 600, "max_s": 600}}}})
request = RunRequest(job="job", spec=spec, run=0, runs=1, device=discover("{HERE}", Settings()))
forked = launcher.start(request)
spawned = launcher.spawn(["-P", "-c", "import time; time.sleep(600)"], b"{{}}")
for runner in (forked, spawned):
    while runner.pid is None:
        runner.read_status()
print(forked.pid, spawned.pid, *(zygote.pid for zygote in launcher._zygotes.values()), flush=True)
time.sleep(600)
"""

IMPATIENT = f"""
import time
from dyno.bench.runner.launcher import Launcher
launcher = Launcher("fork", [{CORE}])
launcher.prepare("tensorflow")
print(launcher._zygotes["tensorflow"].pid, flush=True)
time.sleep(600)
"""

ARROW = """
import os
from dyno.bench.runner import zygote
zygote._keep_from_starting_threads()
import pyarrow
zygote._end_library_threads()
print(len(os.listdir("/proc/self/task")))
"""

# A process in its own session, whose parent is the runner or has ended.
ESCAPED = f"""import os, subprocess, sys, time
p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)
print(p.pid, flush=True)"""
ESCAPED_TWICE = f"""import subprocess, sys
subprocess.run([sys.executable, '-c', {ESCAPED!r}])"""

BRIEF = """
import os, sys, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(read)
        time.sleep(0.1)
        os._exit(0)
    os._exit(0)
os.wait()
os.close(write)
os.read(read, 1)
print("its end was heard", flush=True)
time.sleep(600)
"""

# Prints the messages of its one runner, until it is asked to close its launcher.
OWNER = f"""
import os, sys
from dyno.bench.runner.launcher import Launcher
launcher = Launcher("spawn", [{CORE}])
runner = launcher.spawn(["-P", "-c", sys.argv[1]], b"{{}}")
os.set_blocking(runner.log.read_fd, True)
runner.log.read()
print(runner.log.text(), flush=True)
sys.stdin.read()
launcher.close()
"""

# A zygote in which a library has started a thread.
TWO_THREADS = """
import os, socket, sys, threading
from dyno.bench.runner.zygote import Zygote
threading.Thread(target=threading.Event().wait, daemon=True).start()
Zygote(socket.socket(fileno=int(sys.argv[1])), None).serve()
"""


def zygote_of(launcher, framework="tensorflow"):
    return launcher._zygotes[framework].pid


@pytest.mark.on_tensorflow
def test_each_job_has_a_process_of_its_own_and_none_is_left(forking, request_for):
    zygote = zygote_of(forking)
    settled = 7  # /dev/null, its log twice, the control socket, the wake-up pipe, the selector

    records = [watched(forking.start(request_for())).record for _ in range(JOBS)]

    assert len({record.summary.pid for record in records if record}) == JOBS
    assert children_of(zygote) == set()
    assert len(list(Path(f"/proc/{zygote}/task").iterdir())) == 1
    eventually(lambda: len(list(Path(f"/proc/{zygote}/fd").iterdir())) == settled)


def test_a_runner_has_only_its_own_descriptors(misbehaving):
    launcher = misbehaving(SLEEP)
    runner = launcher.spawn(["-P", "-c", "import time; print('up', flush=True); time.sleep(600)"], b"{}")
    pid = until_begun(runner)
    eventually(lambda: bool(runner.log.read()))
    kinds = [str(fd.readlink()).partition(":")[0] for fd in Path(f"/proc/{pid}/fd").iterdir()]
    runner.send(signal.SIGKILL)
    watched(runner)
    assert sorted(kinds) == ["/dev/null", "/memfd", "pipe", "pipe", "pipe"]


def test_a_zygote_with_a_second_thread_refuses_to_fork():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = [sys.executable, "-P", "-c", TWO_THREADS, str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            ended = watched(_ask(ours))
            ours.close()
            assert process.wait(60) == 0
    assert ended.exit.refused.startswith("the zygote has 2 threads: py")


def test_arrow_which_keras_imports_with_pandas_starts_no_thread_in_a_zygote():
    seen = subprocess.run([sys.executable, "-P", "-c", ARROW], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["1"]


def test_a_zygote_whose_socket_closes_takes_its_children_with_it():
    launcher = Misbehaving(SLEEP)
    runner = launcher.spawn(["-P", "-c", SLEEP], b"{}")
    pid, zygote = until_begun(runner), zygote_of(launcher, None)
    launcher._zygotes[None]._control.shutdown(socket.SHUT_RDWR)
    assert until_gone(pid)
    assert until_gone(zygote)
    with runner:
        launcher.close()


def test_a_killed_supervisor_leaves_neither_zygote_nor_runner():
    with subprocess.Popen([sys.executable, "-P", "-c", SUPERVISOR], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        assert len(pids) == 4
        supervisor.kill()
    assert [pid for pid in pids if not until_gone(pid)] == []


@pytest.mark.on_tensorflow
def test_a_zygote_that_still_imports_ends_with_its_supervisor_too():
    with subprocess.Popen([sys.executable, "-P", "-c", IMPATIENT], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout
        pid = int(supervisor.stdout.readline())
        eventually(lambda: "tensorflow" in Path(f"/proc/{pid}/maps").read_text(), within_s=60)
        supervisor.kill()
    assert until_gone(pid)


def test_processes_that_a_runner_started_end_with_it(misbehaving):
    program = f"import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print(p.pid)"
    launcher = misbehaving(program)
    ended = watched(launcher.spawn(["-P", "-c", program], b"{}"))
    assert ended.exit.code == 0
    assert ended.log_tail
    assert until_gone(int(ended.log_tail))


@pytest.mark.parametrize("program", [ESCAPED, ESCAPED_TWICE])
def test_processes_that_left_a_runners_group_end_with_it(misbehaving, program):
    launcher = misbehaving(program)
    ended = watched(launcher.spawn(["-P", "-c", program], b"{}"))
    assert ended.exit.code == 0
    assert ended.log_tail
    assert not Path(f"/proc/{int(ended.log_tail)}").exists()
    assert children_of(zygote_of(launcher, None)) == set()


def test_processes_that_left_a_live_runners_group_are_kept_and_reaped(misbehaving):
    """A library may start and use a process in this way."""
    launcher = misbehaving(BRIEF)
    runner = launcher.spawn(["-P", "-c", BRIEF], b"{}")
    pid = until_begun(runner)
    eventually(lambda: bool(runner.log.read()))
    eventually(lambda: children_of(zygote_of(launcher, None)) == {pid})
    runner.send(signal.SIGKILL)
    assert (watched(runner).log_tail or "").endswith("its end was heard\n")


@pytest.mark.parametrize("end", ["close", "kill"])
def test_processes_that_left_a_runners_group_end_with_the_worker(end):
    program = ESCAPED.replace("print(p.pid", "print(f'{os.getpid()} {p.pid}'") + "; time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", OWNER, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdin
        assert owner.stdout
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        if end == "kill":
            owner.kill()
        else:
            owner.stdin.close()
        assert [pid for pid in pids if not until_gone(pid)] == []


def test_a_killed_zygote_is_replaced_at_the_next_job(here, request_for):
    with closing(Launcher("fork", here.cores)) as launcher:
        runner = launcher.start(request_for(tiny(measure=LONG)))
        pid = until_begun(runner)
        os.kill(zygote_of(launcher), signal.SIGKILL)
        lost = watched(runner)
        assert lost.exit.lost
        assert until_gone(pid)
        assert watched(launcher.start(request_for())).record is not None


def _ask(control):
    """Request a child from the test's own zygote, like a launcher."""
    frames_read, frames_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    log, request = LogTail(), os.memfd_create("request")
    given = [frames_write, log.write_fd, request, status_write]
    socket.send_fds(control, [b'{"argv": null}'], given)
    for fd in given:
        os.close(fd)
    return RunnerProcess("forked", frames_read, status_read, log, kill_zygote=lambda: None)
