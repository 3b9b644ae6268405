"""A signal that interrupts the handler of another, at every instruction, still counts as the second signal."""

import math
import signal
import sys

import pytest

from dyno.bench.runner import monitor
from dyno.bench.runner.monitor import StopSwitch, shutdown_handler
from workers.consumer import on_signals

PATIENCE_S = 60.0
INSTRUCTIONS = 300  # more than a handler has


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interrupted(0, lambda: StopSwitch().stop(0.0))  # since Python 3.12, the first tracer gets no instructions
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Amid:
    """A tracer that raises TERM at the `nth` instruction of `dyno.bench.runner.monitor`, once."""

    def __init__(self, nth):
        self._left = nth
        self.raised = False

    def __call__(self, frame, what, _):
        if frame.f_code.co_filename != monitor.__file__:
            return None
        frame.f_trace_opcodes = True
        if what == "opcode":
            self._left -= 1
            if self._left == 0:
                self.raised = True
                signal.raise_signal(signal.SIGTERM)
        return self


def interrupted(nth, raised_by):
    """Whether `raised_by` reached its `nth` instruction, where it raised TERM."""
    amid, before = Amid(nth), sys.gettrace()
    sys.settrace(amid)
    try:
        raised_by()
    finally:
        sys.settrace(before)
    return amid.raised


def test_the_second_of_two_signals_does_not_wait_wherever_it_comes_in_the_first(handlers):
    tried = 0
    for nth in range(1, INSTRUCTIONS):
        switch = StopSwitch()
        heard_no_more = []
        end = shutdown_handler(PATIENCE_S, switch.stop, lambda: heard_no_more.append(None))  # noqa: B023 - called in this turn
        on_signals(end)
        if not interrupted(nth, lambda: signal.raise_signal(signal.SIGINT)):
            break
        assert switch.deadline_s == 0.0, f"the second signal was lost at instruction {nth}"
        assert len(heard_no_more) == 2
        tried += 1
    assert 20 <= tried < INSTRUCTIONS - 1


def test_one_signal_lets_the_job_at_hand_finish(handlers):
    switch = StopSwitch()
    on_signals(shutdown_handler(PATIENCE_S, switch.stop, lambda: None))
    assert switch.deadline_s == math.inf
    assert not switch.stopping
    signal.raise_signal(signal.SIGINT)
    assert switch.deadline_s == PATIENCE_S
    assert switch.comes_within(0)
