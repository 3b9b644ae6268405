"""The Lua scripts against their model, on Redis and on Valkey.

The variable LIFE_EXAMPLES sets the number of examples of up to 40 moves; 30 of them take 3 s. `make verify` has 100.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from dyno.store.redis import SCRIPT_SOURCES
from tests.life.faults import FAULTS
from tests.life.machine import Life
from tests.servers import KINDS

MANY = settings(
    max_examples=int(os.environ.get("LIFE_EXAMPLES", "15")),
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

# The same moves each time, so that finding a bug doesn't depend on luck.
UNTIL_FOUND = settings(MANY, max_examples=500, derandomize=True, database=None, phases=[Phase.generate])


one = pytest.mark.parametrize("server", KINDS, indirect=True, scope="module")


@one
@pytest.mark.timeout(24 * 3600 if "LIFE_EXAMPLES" in os.environ else 900)  # includes shrinking a failing example
def test_whatever_happens_the_scripts_do_what_the_model_does(server):
    run_state_machine_as_test(lambda: Life(server), settings=MANY)


@pytest.mark.verify  # what is tested here is the test above
@one
@pytest.mark.parametrize("fault", FAULTS)
def test_they_find_the_bug_where(fault, server, monkeypatch):
    script, text, instead = FAULTS[fault]
    assert SCRIPT_SOURCES[script].count(text) == 1
    monkeypatch.setitem(SCRIPT_SOURCES, script, SCRIPT_SOURCES[script].replace(text, instead))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: Life(server), settings=UNTIL_FOUND)
