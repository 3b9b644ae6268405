"""The monitor reports each way in which a runner can end, in time, and leaves no process behind."""

import os
import signal
import time

import pytest

from dyno.bench.runner.launcher import TAIL_BYTES
from dyno.bench.runner.monitor import StopReason, StopSwitch, failure_of
from dyno.models.job import FailureClass
from tests.waiting import eventually
from tests.workers.conftest import LONG, Heart, tiny, until_begun, until_gone, watched

FRAME = """import os
def say(line): os.write(3, line.encode() + b"\\n")
"""
PROGRESS = '{"frame": "progress", "phase": "sampling", "completed": 1, "total": 4}'
FAILED = '{"frame": "failed", "failure_class": "resource", "reason": "out_of_memory", "message": "no room"}'
# Children of nohup inherit that the signal is ignored.
HANGS_UP = "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
UP = "import time; print('up', flush=True)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {UP}; time.sleep(600)"


def start(misbehaving, program):
    return misbehaving(program).spawn(["-P", "-c", program], b"{}")


def start_up(misbehaving, program):
    """Start a runner and wait for its `UP`, so that deadlines needn't include an interpreter's start."""
    runner = start(misbehaving, program)
    until_begun(runner)
    eventually(lambda: bool(runner.log.read()))
    return runner


@pytest.mark.parametrize(
    ("program", "failure_class", "reason"),
    [
        ("pass", FailureClass.BENCHMARK, "no_result"),
        ("raise SystemExit(9)", FailureClass.BENCHMARK, "runner_crashed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", FailureClass.BENCHMARK, "runner_crashed"),
        ("import os; os.abort()", FailureClass.BENCHMARK, "runner_crashed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", FailureClass.INFRASTRUCTURE, "runner_killed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", FailureClass.INFRASTRUCTURE, "runner_killed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", FailureClass.INFRASTRUCTURE, "runner_killed"),
        (f"{HANGS_UP}; os.kill(os.getpid(), signal.SIGHUP)", FailureClass.INFRASTRUCTURE, "runner_killed"),
        (f"{FRAME}say({FAILED!r})", FailureClass.RESOURCE, "out_of_memory"),
        (f"{FRAME}say('no frame at all')", FailureClass.BENCHMARK, "no_result"),
    ],
)
def test_each_end_without_a_result_has_a_class_of_its_own(misbehaving, program, failure_class, reason):
    failure = failure_of(watched(start(misbehaving, program)), 60, 60)
    assert (failure.failure_class, failure.reason) == (failure_class, reason)


def test_a_crash_names_its_signal_and_shows_the_end_of_the_log(misbehaving):
    program = "import ctypes; print('about to fall', flush=True); ctypes.string_at(0)"
    failure = failure_of(watched(start(misbehaving, program)), 60, 60)
    assert failure.signal == signal.SIGSEGV
    assert failure.log_tail is not None
    assert "about to fall" in failure.log_tail


def test_a_crash_in_a_forked_runner_shows_the_python_stack(forking, request_for):
    runner = forking.start(request_for(tiny(measure=LONG)))
    until_begun(runner)
    while not runner.read_frames():
        pass  # until it has reported its start, it has the zygote's signal handlers
    runner.send(signal.SIGSEGV)
    failure = failure_of(watched(runner), 60, 60)
    assert failure.signal == signal.SIGSEGV
    assert "Fatal Python error" in (failure.log_tail or "")


def test_a_flood_of_output_neither_blocks_the_runner_nor_is_kept(misbehaving):
    program = f"{FRAME}\nfor _ in range(2000): print('x' * 9999)\nprint('the end', flush=True)\nsay({FAILED!r})"
    ended = watched(start(misbehaving, program))
    assert ended.failed is not None
    assert ended.log_tail.endswith("the end\n")
    assert len(ended.log_tail) == TAIL_BYTES


def test_a_silent_runner_is_killed_as_stalled(misbehaving):
    ended = watched(start_up(misbehaving, f"{UP}; time.sleep(600)"), stall_s=0.3)
    failure = failure_of(ended, 60, 0.3)
    assert ended.exit.signal == signal.SIGKILL
    assert (failure.failure_class, failure.reason) == (FailureClass.BENCHMARK, "stalled")


def test_frames_keep_a_runner_from_being_stalled(misbehaving):
    program = f"{FRAME}{UP}\nfor _ in range(40): say({PROGRESS!r}); time.sleep(0.1)\nsay({FAILED!r})"
    ended = watched(start_up(misbehaving, program), stall_s=3)
    assert ended.stopped_for is None
    assert ended.failed is not None


def test_a_timeout_ends_a_runner_that_ignores_term(misbehaving):
    ended = watched(start_up(misbehaving, DEAF), timeout_s=0.2, grace_s=0.3)
    failure = failure_of(ended, 0.2, 60)
    assert ended.exit.signal == signal.SIGKILL
    assert (failure.failure_class, failure.reason) == (FailureClass.TIMEOUT, "timeout")


def test_a_zygote_that_does_not_report_its_killed_runner_is_ended(misbehaving, monkeypatch):
    """As with a runner that hangs in the kernel, which no signal ends: the worker must not wait for it."""
    monkeypatch.setattr("dyno.bench.runner.monitor.KILL_TIMEOUT_S", 0.3)
    runner = start_up(misbehaving, DEAF)
    zygote = runner.zygote_pid
    assert zygote is not None
    os.kill(zygote, signal.SIGSTOP)
    ended = watched(runner, timeout_s=0.2, grace_s=0.2)
    failure = failure_of(ended, 0.2, 60)
    assert ended.exit.lost
    assert (failure.failure_class, failure.reason) == (FailureClass.TIMEOUT, "timeout")
    assert until_gone(zygote)


def test_a_runner_that_hangs_after_its_last_frame_is_killed_and_its_record_kept(misbehaving):
    ended = watched(start(misbehaving, f"{FRAME}import time; say({FAILED!r}); time.sleep(600)"), grace_s=0.2)
    assert ended.failed is not None
    assert ended.stopped_for is None


@pytest.mark.parametrize("reason", [StopReason.CANCEL, StopReason.SUPERSEDED])
def test_an_order_in_a_heartbeat_ends_the_runner(misbehaving, reason):
    heart = Heart(every_s=0.1, orders=lambda: reason)
    ended = watched(start(misbehaving, "import time; time.sleep(600)"), heart)
    assert ended.stopped_for is reason


def test_heartbeats_carry_the_latest_progress_and_nothing_else_wakes_the_monitor(misbehaving):
    began_s, heart = time.monotonic(), Heart(every_s=0.2)
    runner = start_up(misbehaving, f"{FRAME}{UP}; say({PROGRESS!r}); time.sleep(0.7); say({FAILED!r})")
    before_s = time.process_time()
    ended = watched(runner, heart)
    assert ended.failed is not None
    assert 1 <= len(heart.beats) <= (time.monotonic() - began_s) / 0.2
    assert heart.beats[-1] is not None
    assert heart.beats[-1].phase == "sampling"
    assert time.process_time() - before_s < 0.2


def test_a_stop_gives_the_runner_until_the_deadline_and_no_longer(misbehaving):
    switch = StopSwitch()
    began_s = time.monotonic()
    switch.stop(began_s + 0.4)
    ended = watched(start(misbehaving, "import time; time.sleep(600)"), stop=switch)
    assert ended.stopped_for is StopReason.SHUTDOWN
    assert time.monotonic() - began_s >= 0.4


def test_a_runner_that_finishes_before_the_deadline_of_a_stop_is_not_killed(misbehaving):
    switch = StopSwitch()
    switch.stop(time.monotonic() + 30)
    ended = watched(start(misbehaving, f"{FRAME}say({FAILED!r})"), stop=switch)
    assert ended.stopped_for is None
    assert ended.failed is not None


def test_an_exception_in_the_monitor_leaves_no_runner(misbehaving):
    def fail():
        raise RuntimeError("a heart of stone")

    runner = start(misbehaving, "import time; time.sleep(600)")
    pid = until_begun(runner)
    with pytest.raises(RuntimeError, match="stone"):
        watched(runner, Heart(every_s=0.05, orders=fail))
    assert until_gone(pid)
