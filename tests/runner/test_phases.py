from __future__ import annotations

import pytest

from dyno.runner.phases import PhaseTimer


class _Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_phases_add_up_and_what_never_ran_is_null() -> None:
    clock, reported = _Clock(), []
    timer = PhaseTimer(reported.append, clock)
    for seconds in (1.0, 2.5):
        with timer.phase("data"):
            clock.now_s += seconds
    with timer.phase("build"):
        clock.now_s += 0.25
    assert (timer.phases().data_s, timer.phases().build_s, timer.phases().compile_s) == (3.5, 0.25, None)
    assert timer.seconds("data") == 3.5
    assert reported == ["data", "data", "build"]


def test_a_phase_that_fails_is_timed_all_the_same() -> None:
    clock = _Clock()
    timer = PhaseTimer(lambda name: None, clock)

    def compile_badly() -> None:
        with timer.phase("compile"):
            clock.now_s += 2.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compile_badly()
    assert timer.seconds("compile") == 2.0


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(ValueError, match="lunch"), PhaseTimer(lambda name: None).phase("lunch"):
        pass
