"""NOISY_NEIGHBOUR, with a real process and with recorded /proc trees."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import cast

import pytest

from dyno.bench.measure.host_noise import (
    BACKGROUND,
    ONE_PACKAGE_CORE,
    PROC,
    WHOLE_PACKAGE,
    CoreUsage,
    HostNoise,
    core_shares,
    live_children_s,
    noisy_neighbour,
    runs_disturbed,
    training_disturbed,
)
from dyno.bench.measure.sampling import HostClock
from dyno.models.result import CoreShares, Epoch
from tests.waiting import eventually

HOG = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print("on", flush=True)
while True:
    pass
"""


# As HOG, but no child of the process that starts it, which is gone at once. Prints its process id.
ORPHANED_HOG = """
import os, sys
if os.fork():
    os._exit(0)
os.sched_setaffinity(0, {int(sys.argv[1])})
print(os.getpid(), flush=True)
while True:
    pass
"""


BURN = """
import time
while time.process_time() < 0.5:
    pass
"""


class Still:
    """A clock with fixed readings."""

    def __init__(self):
        self.time_s, self.used_s = 0.0, 0.0

    def now_s(self):
        return self.time_s

    def epoch_s(self):
        return self.time_s

    def cpu_s(self):
        return self.used_s, 0.0


def usage(now_s, busy_s, own_s, steal_s=0.0, waited_s=None):
    """Of two cores. Steal and waiting are all on the first, or of one thread."""
    waited = None if waited_s is None else {"7": waited_s}
    none = {0: 0.0, 1: 0.0}
    return CoreUsage(now_s, busy_s, own_s, none | {0: steal_s}, none, none, waited)


def warning_between(before, after):
    shares = core_shares(before, after)
    return None if shares is None else noisy_neighbour(shares, len(after.steal_s))


def neighbour(watch, cores=1):
    shares = watch.shares()
    return None if shares is None else noisy_neighbour(shares, cores)


START = usage(0, 0, 0, waited_s=0.0)


def beside(*siblings_s):
    return dataclasses.replace(usage(10, 20, 20, waited_s=0.0), siblings_s=dict(enumerate(siblings_s)))


@pytest.mark.parametrize(
    ("before", "after", "evidence"),
    [
        (START, usage(10, 19.9, 19.8, waited_s=5.0), None),  # this process alone
        (START, usage(10, 20, 18, waited_s=1.0), {"others_share": 0.1, "run_delay_share": 0.05}),
        (START, usage(10, 12, 10, waited_s=0.01), None),  # others that never made this process wait
        (usage(0, 0, 0), usage(10, 12, 10), {"others_share": 0.1}),  # waiting isn't counted
        (START, usage(10, 20, 20, steal_s=0.5, waited_s=0.0), {"steal_share": 0.025}),
        (START, beside(0.2, 0.8), {"siblings_share": 0.05, "moved": 0.08}),  # the more disturbed core
        (START, beside(0.05, 0.09), None),
        (START, START, None),  # an empty window
    ],
)
def test_others_are_noise_if_they_made_this_process_wait_or_share_its_cores(before, after, evidence):
    raised = warning_between(before, after)
    assert (raised and {name: raised.evidence[name] for name in evidence}) == (evidence and pytest.approx(evidence))


def write_proc(proc, busy_ticks, waited_ns):
    task = proc / "self" / "task" / "7"
    task.mkdir(parents=True, exist_ok=True)
    (task / "schedstat").write_text(f"5000000000 {waited_ns} 12\n")
    first = f"cpu0 {busy_ticks} 0 0 500 0 99 99 0 0 0\ncpu1 900000 0 0 1 0 0 0 90000 0 0\n"
    (proc / "stat").write_text(f"cpu 1 2 3 4 5 6 7 8 9 10\n{first}intr 5\n")


NONE: Mapping[int, float] = {}


class Machine:
    """A recorded /proc and topology of one package, of which this process has the first `own` cores, a thread on each.

    Seconds are those of the whole window of 10 s, in which the process kept its cores busy as far as others let it.
    """

    def __init__(self, folder, cores, own):
        self.proc, self.cores, self.own, self.clock = folder, cores, own, Still()
        for core in range(cores):
            topology = folder / "topology" / f"cpu{core}" / "topology"
            topology.mkdir(parents=True)
            (topology / "thread_siblings_list").write_text(f"{core}\n")
            (topology / "core_siblings_list").write_text(f"0-{cores - 1}\n")
        self.show()
        self.watch = HostNoise(range(own), self.clock, folder, folder / "topology")

    def show(self, others_s=NONE, column=0, waited_s=NONE):
        """`others_s`: the time of others by core, in this column of /proc/stat. `waited_s`: by thread."""
        rows = []
        for core in range(self.cores):
            row = [round((self.clock.time_s if core < self.own else 0.0) * TICKS), *[0] * 9]
            taken = round(others_s.get(core, 0.0) * TICKS)
            row[0] -= min(row[0], taken)
            row[column] += taken
            rows.append(f"cpu{core} {' '.join(map(str, row))}\n")
        (self.proc / "stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\n" + "".join(rows) + "intr 5\n")
        for thread in range(self.own):
            task = self.proc / "self" / "task" / str(thread)
            task.mkdir(parents=True, exist_ok=True)
            (task / "schedstat").write_text(f"{5 * 10**9} {round(waited_s.get(thread, 0.0) * 1e9)} 12\n")

    def after(self, others_s, column=0, waited_s=None):
        """The warning after 10 s in which others used this. Threads wait as long as others ran, if not given."""
        self.clock.time_s = 10.0
        taken_s = sum(time_s for core, time_s in others_s.items() if core < self.own)
        self.clock.used_s = 10.0 * self.own - taken_s
        self.show(others_s, column, others_s if waited_s is None else waited_s)
        return neighbour(self.watch, self.own)


TICKS = os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("cores", [1, 2, 64])
@pytest.mark.parametrize("self_waiting", [False, True])
def test_what_the_kernel_does_on_each_core_is_no_neighbour_on_any_number_of_cores(tmp_path, cores, self_waiting):
    """0.05 % of each core are 3.2 % of one on 64. A framework with more threads than cores waits for itself."""
    waited = {0: 1.0} if self_waiting else None
    assert Machine(tmp_path, cores, cores).after(dict.fromkeys(range(cores), 0.005), waited_s=waited) is None


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_a_neighbour_on_one_core_is_found_on_any_number_of_cores(tmp_path, cores):
    raised = Machine(tmp_path, cores, cores).after({0: 0.5})
    assert 0.01 < cast(float, raised.evidence["moved"]) <= 0.05


def test_threads_that_are_delayed_at_the_same_time_wait_together(tmp_path):
    raised = Machine(tmp_path, 8, 8).after(dict.fromkeys(range(8), 0.5))
    assert raised.evidence["moved"] == pytest.approx(0.05 - BACKGROUND)


@pytest.mark.parametrize("column", [5, 6], ids=["irq", "softirq"])
def test_interrupts_count_on_the_most_disturbed_core_though_no_thread_waits(tmp_path, column):
    """A thread that is interrupted doesn't wait for a core."""
    raised = Machine(tmp_path, 2, 2).after({0: 2.0, 1: 0.5}, column, waited_s={})
    assert raised.evidence["most_taken_of_a_core"] == pytest.approx(0.2)
    assert raised.evidence["moved"] == pytest.approx(0.2)
    assert raised.evidence["others_share"] == pytest.approx(0.0)


@pytest.mark.parametrize("column", [0, 5, 6], ids=["user", "irq", "softirq"])
def test_other_cores_of_the_package_count_by_how_many_are_busy(tmp_path, column):
    raised = Machine(tmp_path, 64, 16).after({20: 10.0, 30: 5.0, 40: 10.0}, column)
    assert raised.evidence["package_cores_busy"] == pytest.approx(2.5)
    assert raised.evidence["moved"] == pytest.approx(2.5 * WHOLE_PACKAGE / 48)


def test_one_neighbour_on_a_small_package_counts_with_more_than_one_of_many(tmp_path):
    raised = Machine(tmp_path, 2, 1).after({1: 10.0})
    assert raised.evidence["moved"] == pytest.approx(ONE_PACKAGE_CORE)


def test_all_other_cores_of_the_package_take_what_was_measured_together(tmp_path):
    raised = Machine(tmp_path, 64, 16).after(dict.fromkeys(range(16, 64), 10.0))
    assert raised.evidence["moved"] == pytest.approx(WHOLE_PACKAGE)


@pytest.mark.parametrize("others_s", [dict.fromkeys(range(8, 64), 0.1), {20: 4.0}], ids=["all at 1 %", "one at 40 %"])
def test_nearly_idle_cores_of_a_large_package_are_no_neighbours(tmp_path, others_s):
    assert Machine(tmp_path, 64, 8).after(others_s) is None


@pytest.mark.parametrize("own", [1, 2])
def test_an_idle_dyno_is_no_neighbour_on_two_cores(tmp_path, own):
    """Its API, Redis and worker took 1.0 to 1.8 % of one core on a quiet machine."""
    assert Machine(tmp_path, 2, own).after({1: 0.18}) is None


def test_a_core_that_dyno_keeps_for_itself_is_no_neighbour(tmp_path):
    """It is busy for a fifth of the time under 500 polls a second."""
    assert Machine(tmp_path, 2, 1).after({1: 2.0}) is None


def test_warm_up_does_not_dilute_a_burner_that_comes_late(tmp_path):
    machine = Machine(tmp_path, 2, 2)
    for number in range(4):  # three readings of warm-up
        machine.clock.time_s, machine.clock.used_s = 30.0 * number, 60.0 * number
        machine.show()
        machine.watch.look()
    machine.clock.time_s, machine.clock.used_s = 100.0, 199.6
    machine.show({0: 0.4}, waited_s={0: 0.4})
    whole, sampled = machine.watch.shares(), machine.watch.shares(3)
    assert whole is not None
    assert sampled is not None
    assert noisy_neighbour(whole, 2) is None
    raised = noisy_neighbour(sampled, 2)
    assert raised.evidence["others_share"] == pytest.approx(0.02)


def test_a_thread_that_ends_takes_no_waiting_away(tmp_path):
    machine = Machine(tmp_path, 2, 2)
    machine.clock.time_s = 1.0
    machine.show(waited_s={0: 5.0, 1: 0.0})
    machine.watch.look()
    shutil.rmtree(tmp_path / "self" / "task" / "0")
    machine.clock.time_s, machine.clock.used_s = 11.0, 18.0
    (tmp_path / "self" / "task" / "1" / "schedstat").write_text("5000000000 1000000000 12\n")
    (tmp_path / "stat").write_text("".join(f"cpu{core} {10 * TICKS} 0 0 0 0 0 0 0 0 0\n" for core in range(2)))
    shares = machine.watch.shares(0)
    assert (shares.waited, shares.most_waited) == (pytest.approx(0.05), pytest.approx(0.1))


def test_live_children_and_their_children_are_this_processs_own(tmp_path):
    """A name may hold spaces and brackets. Half of the time is that of a child of the child, which has ended."""
    machine = Machine(tmp_path, 2, 2)
    for process, child in (("self/task/0", "41"), ("41/task/41", "42"), ("42/task/42", "")):
        (tmp_path / process).mkdir(parents=True, exist_ok=True)
        (tmp_path / process / "children").write_text(f"{child} " if child else "")
    (tmp_path / "41" / "stat").write_text(f"41 (a) b) S 1 1 1 0 0 0 0 0 0 0 0 0 {TICKS} {TICKS} 0 0\n")
    (tmp_path / "42" / "stat").write_text(f"42 (c) R 41 1 1 0 0 0 0 0 0 0 {TICKS} 0 {TICKS} 0 20\n")
    assert machine.after({0: 4.0}) is None
    (tmp_path / "self" / "task" / "0" / "children").write_text("")
    assert neighbour(machine.watch, 2) is not None


def test_a_recorded_tree_is_read_only_for_the_watched_cores(tmp_path):
    clock, tick = Still(), os.sysconf("SC_CLK_TCK")
    write_proc(tmp_path, 0, 0)
    watch = HostNoise([0], clock, tmp_path, tmp_path)
    clock.time_s, clock.used_s = 10.0, 8.0
    write_proc(tmp_path, 9 * tick, 500_000_000)
    raised = neighbour(watch)
    assert raised.evidence["others_share"] == pytest.approx(0.1)
    assert raised.evidence["run_delay_share"] == pytest.approx(0.05)
    clock.used_s = 9.0
    assert neighbour(watch) is None


def test_siblings_share_a_physical_core_with_the_watched_cores(tmp_path):
    clock, tick = Still(), os.sysconf("SC_CLK_TCK")
    for core, threads in ((0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")):
        folder = tmp_path / "topology" / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{threads}\n")

    def busy(on_2, on_3):
        rows = (f"cpu{core} {ticks} 0 0 0 0 0 0 0 0 0\n" for core, ticks in ((0, 0), (2, on_2), (3, on_3)))
        (tmp_path / "stat").write_text("".join(rows))

    busy(0, 0)
    watch = HostNoise([0], clock, tmp_path, tmp_path / "topology")
    clock.time_s = 10.0
    busy(0, 9 * tick)
    assert neighbour(watch) is None
    busy(3 * tick, 0)
    raised = neighbour(watch)
    assert raised.evidence["siblings_share"] == pytest.approx(0.3)


def test_without_proc_or_cores_the_shares_are_unknown(tmp_path):
    assert HostNoise([0], HostClock(), tmp_path).shares() is None
    assert HostNoise([], HostClock()).shares() is None


def test_the_time_of_a_real_child_counts_while_it_lives_and_once_it_has_ended():
    """Such as a pool of compilers, or readers of data, that outlives the samples."""
    clock = HostClock()
    ended_s, live_s = sum(clock.cpu_s()), live_children_s(PROC)
    with subprocess.Popen([sys.executable, "-P", "-c", HOG, str(max(os.sched_getaffinity(0)))]) as hog:
        try:
            assert eventually(lambda: live_children_s(PROC) - live_s > 0.3, what="the child has used a core")
        finally:
            hog.kill()
    assert live_children_s(PROC) - live_s < 0.3
    assert sum(clock.cpu_s()) - ended_s > 0.3


def _kept_busy(core, for_s):
    """Keep `core` busy with this process for `for_s` seconds; the warning if others used it too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        watch, end_s = HostNoise([core], HostClock()), time.monotonic() + for_s
        while time.monotonic() < end_s:
            pass
        return neighbour(watch)
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.silent("NOISY_NEIGHBOUR")
@pytest.mark.alone
@pytest.mark.verify
def test_a_core_used_only_by_this_process_is_quiet():
    """Holds on a machine without other users. The test waits until brief background work ends."""
    core = max(os.sched_getaffinity(0))
    assert eventually(lambda: _kept_busy(core, 0.6) is None, what="the core is free of other processes")


@pytest.mark.provokes("NOISY_NEIGHBOUR")
def test_a_real_process_on_the_same_core_raises_noisy_neighbour():
    """It is no child of this one, whose time would count as this one's own."""
    core = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-P", "-c", ORPHANED_HOG, str(core)], stdout=subprocess.PIPE) as parent:
        hog = int(parent.stdout.readline())
        try:
            raised = _kept_busy(core, 0.6)
        finally:
            os.kill(hog, signal.SIGKILL)
    assert raised.code == "NOISY_NEIGHBOUR"
    others = raised.evidence["others_share"]
    assert isinstance(others, float)
    assert others > 0.2


def test_the_time_of_ended_child_processes_is_this_processs_own():
    """XLA compiles for a GPU with the program ptxas: on an H100, a training's first epoch looked disturbed by it."""
    clock = HostClock()
    before_s = sum(clock.cpu_s())
    subprocess.run([sys.executable, "-P", "-c", BURN], check=True)
    assert sum(clock.cpu_s()) - before_s >= 0.5


def shares_of(cores, others, waited=None, stolen=0.0):
    """Of one thread that waited, on cores of which one alone was taken."""
    return CoreShares(
        others=others,
        stolen=stolen,
        beside=0.0,
        waited=waited,
        most_taken=cores * stolen,
        most_waited=None if waited is None else cores * waited,
        package_busy=0.0,
        package_cores=0,
    )


QUIET_RUN = shares_of(1, others=0.3, waited=0.02)  # others ran while this one didn't want to
BUSY_RUN = shares_of(1, others=0.3, waited=0.06)


@pytest.mark.parametrize(
    ("busy", "rel_half_width", "raised"),
    [
        (1, None, False),  # 0.8 % of five runs on one core, beside the background
        (2, None, True),
        (5, 0.039, True),
        (5, 0.041, False),  # the interval covers it
        (2, 0.02, False),
    ],
)
def test_other_work_counts_by_its_effect_on_the_mean_of_the_runs(busy, rel_half_width, raised):
    runs = [BUSY_RUN] * busy + [QUIET_RUN] * (5 - busy)
    found = runs_disturbed([*runs, None], 1, rel_half_width)
    assert (found is not None) is raised
    if found is not None:
        assert found.evidence["runs"] == [*range(busy)]
        assert found.evidence["moved"] == pytest.approx(busy * 0.04 / 5)


def test_a_burner_on_one_of_two_cores_is_found_however_wide_the_interval_is():
    """Recorded: a product at 81 instead of 181 GFLOP/s."""
    burner = shares_of(2, others=0.33, waited=0.4)
    found = runs_disturbed([burner] * 5, 2, 0.9)
    assert found.evidence["moved"] == pytest.approx(0.64)


def epoch(time_s, others, waited=0.3, stolen=0.0):
    return Epoch(index=0, time_s=time_s, loss=1.0, core_shares=shares_of(2, others, waited, stolen))


QUIET = epoch(2.0, 0.0)


@pytest.mark.parametrize(
    ("epochs", "phase"),
    [
        ([QUIET, QUIET], None),
        ([epoch(2.0, 0.3), QUIET], "first epoch"),
        ([QUIET, QUIET, epoch(0.5, 0.3)], "further epochs"),
        ([QUIET, *[QUIET] * 9, epoch(0.5, 0.3)], None),  # 0.8 % of their time on two cores
        ([epoch(1.9, 0.3), epoch(1.0, 0.3)], None),  # too short for ticks
        ([QUIET, epoch(1.0, 0.3), epoch(1.0, 0.3)], "further epochs"),
        ([QUIET, epoch(2.0, 0.3, waited=0.0)], None),
        ([QUIET, epoch(2.0, 0.3, waited=None)], "further epochs"),
        ([QUIET, epoch(2.0, 0.0, stolen=0.03)], "further epochs"),
        ([QUIET.model_copy(update={"core_shares": None})] * 3, None),
    ],
)
def test_other_work_during_the_training_is_found_in_the_first_epoch_or_over_the_others(epochs, phase):
    raised = training_disturbed(epochs, 2)
    assert (raised and raised.code, raised and raised.evidence["phase"]) == (phase and "NOISY_NEIGHBOUR", phase)
