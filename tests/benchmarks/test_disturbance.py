"""The page of figures made by hand, and a pair of jobs on a real Dyno, with and without a reserved core."""

import os

import pytest

from benchmarks.disturbance import SPEC, Taken, lines, measure, split
from tests.cores import CORE, OTHER_CORE, two_cores
from tests.numpy_runners import ON_NUMPY


def test_the_disturbance_is_below_its_limit_only_if_its_whole_interval_is():
    quiet, little, much = [100.0] * 4, [99.0, 99.1, 98.9, 99.0], [99.0, 103.0, 95.0, 99.0]
    reached = {"polls_per_s": [500.0] * 4, "p99_ms": [2.0] * 4}
    taken = {
        "reserved": Taken(1, quiet, little, {"quiet": 0, "busy": 1}, **reached),
        "none": Taken(2, quiet, much, {"quiet": 0, "busy": 4}, **reached),
    }
    rows = [line.strip("| ").split(" | ") for line in lines(taken) if line.startswith("| ")]
    assert rows[2][1:] == ["1", "+1.01% [+0.86% to +1.17%]", "yes", "1 of 4", "0 of 4", "500", "2.0"]
    assert rows[3][2].startswith("+1.05% [")
    assert rows[3][3:5] == ["no", "4 of 4"]


def test_clients_have_a_core_of_their_own_where_there_are_three():
    assert split({4, 2}) == ([2, 4], [])
    assert split({5, 4, 2}) == ([2, 4], [5])


@pytest.fixture
def on_two_cores():
    """With more, the clients would have a core of their own."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CORE, OTHER_CORE})
    yield
    os.sched_setaffinity(0, before)


@two_cores
@pytest.mark.usefixtures("on_two_cores")
@pytest.mark.provokes("NOISY_NEIGHBOUR")
def test_a_busy_api_is_reported_where_no_core_is_reserved(monkeypatch):
    monkeypatch.delenv("DYNO_REDIS_URL", raising=False)
    for name, value in ON_NUMPY.items():
        monkeypatch.setenv(name, value)
    measured = SPEC["measure"] | {"min_s": 0.5, "max_s": 1}
    taken = measure(1, polls_per_s=200, streams=5, spec=SPEC | {"measure": measured})
    assert (taken["reserved"].cores, taken["none"].cores) == (1, 2)
    assert taken["none"].noisy["busy"] == 1
    for one in taken.values():
        assert one.polls_per_s[0] > 20
        assert one.ratios()[0] > 0
