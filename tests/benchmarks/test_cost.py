"""The cost of measuring, from blocks taken by hand, and one real block of each kind."""

from __future__ import annotations

import array
import fcntl
import os
import termios
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import cost_process
from benchmarks.cost import change, lines
from benchmarks.cost_process import WAYS, Monitor, Turns, answered
from dyno.models.result import Sensors
from dyno.models.runner_protocol import ProgressFrame
from dyno.models.spec import Measure
from dyno.runner.frame_writer import FrameWriter
from tests.waiting import eventually


def process(on: float, off: float) -> dict[str, object]:
    blocks = {"on": [2.3, 2.5], "off": [2.2, 2.2], "worker": [2.6]}
    medians = {"on": [on * 1.02, 3 * on / 1.02], "off": [off, 3 * off], "worker": [on * 1.001, 3 * on * 1.001]}
    once = {"verify_s": 0.25, "doubts_s": 0.75, "heartbeats": 8}
    sensors = {"told": ["temperature_c"], "silent": {"energy_j": "no counter"}}
    return {"medians_s": medians, "blocks_s": blocks, "sensors": sensors, **once}


class Engine:
    """Counts what a runner asks of its framework."""

    def __init__(self) -> None:
        self.drained = self.asked = 0

    def drain(self) -> None:
        self.drained += 1

    def traced(self) -> list[str]:
        self.asked += 1
        return []


@pytest.fixture(scope="module")
def monitor() -> Iterator[Monitor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HEARTBEAT_S", "0.01")
        made = Monitor()
    yield made
    with made.awake():
        before = rests(made)
        eventually(lambda: rests(made) > before + 10, what="it has had time for a heartbeat")
    assert made.close() >= 1


def rests(monitor: Monitor) -> int:
    """How often it has waited for something."""
    told = Path(f"/proc/{monitor.pid}/status").read_text()
    return int(told.partition("voluntary_ctxt_switches:")[2].split()[0])


def unread_bytes(monitor: Monitor) -> int:
    found = array.array("i", [0])
    fcntl.ioctl(monitor.frames_fd, termios.FIONREAD, found)
    return found[0]


def test_the_change_is_that_of_turns_then_over_processes() -> None:
    found = change([process(1.01, 1.0), process(2.01, 2.0), process(3.0, 3.0)], "on")
    assert found.pairs == 3
    assert found.value == pytest.approx((1.01 * 1.005) ** (1 / 3))
    assert found.low < 1.0 < found.high < 1.03


def test_the_page_states_both_bounds_what_is_paid_once_and_which_sensors_there_are() -> None:
    page = lines({"matmul": [process(1.001, 1.0), process(1.001, 1.0)]})
    on, worker = (line for line in page if line.startswith("| `matmul` |"))
    assert on == "| `matmul` | on | 2 | +0.10% [+0.10% to +0.10%] | **+0.10%** | 2.400 s | 2.200 s |"
    assert worker.startswith("| `matmul` | worker | 2 | +0.20%")
    assert "verify 0.250 s, doubts 0.750 s; 8 heartbeats a process" in "\n".join(page)
    assert "Sensors that answered on this machine: `temperature_c`." in "\n".join(page)


def test_a_sensor_tells_something_or_there_is_a_reason() -> None:
    found = answered(Sensors(looks=3, temperature_c=50.0, reasons={"energy_j": "no counter"}))
    assert found == {"told": ["temperature_c"], "silent": {"energy_j": "no counter"}}


def test_each_way_executes_the_work_and_keeps_one_block_of_it(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor
) -> None:
    monkeypatch.setattr(cost_process, "MEASURE", Measure(min_samples=3, min_s=0, max_s=0.01, target_rel_ci=1))
    executed: list[int] = []
    descriptor, engine = os.open(os.devnull, os.O_WRONLY), Engine()
    turns = Turns(SimpleNamespace(execute=executed.append), engine, descriptor, monitor)  # type: ignore[arg-type]
    for blocks, way in enumerate(WAYS, start=1):
        executed.clear()
        engine.drained = engine.asked = 0
        assert turns.take(way) > 0
        assert len(executed) >= 3  # on a busy core the three samples take all of max_s
        assert sum(len(turns.blocks_s[each]) for each in WAYS) == blocks
        assert (engine.drained > 0, engine.asked > 3) == ((False, False) if way == "off" else (True, True))
    os.close(descriptor)
    assert min(turns.blocks_s["off"] + turns.blocks_s["worker"]) > 0


def test_frames_are_read_while_the_monitor_is_awake_and_wait_while_it_sleeps(monitor: Monitor) -> None:
    FrameWriter(monitor.frames_fd).write(ProgressFrame(phase="sampling"))
    assert Path(f"/proc/{monitor.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    assert unread_bytes(monitor) > 0
    with monitor.awake():
        eventually(lambda: unread_bytes(monitor) == 0, what="it reads")
