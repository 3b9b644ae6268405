"""Whatever the document allows, and what it doesn't, is answered as the document says; `make fuzz` asks for longer."""

import pytest

from service.middleware import DEFAULT_HEADERS
from tests.fuzz.asking import OVERTIME_S, ask
from tests.fuzz.house import house
from tests.service.openapi.conftest import answers

SEEDS = ("1", "2", "3", "4", "5")  # one after the other, until all has succeeded that can
WITHIN_S = 100
BESIDE = {name.lower() for name in DEFAULT_HEADERS} | {"date", "server", "connection", "x-accel-buffering"}
BESIDE |= {"content-type", "content-length", "transfer-encoding"}

# Every value at the edge of every schema. A spec has thousands, which are for `make fuzz`.
EDGES = ("--phases", "examples,coverage", "--exclude-operation-id-regex", "^(submitJob|createComparison|createSweep)$")
EACH = ("--phases", "fuzzing", "--max-examples", "4")
IN_TURN = ("--phases", "stateful", "--max-examples", "20")

# What succeeds in none of a run's requests, and why.
_NOT_TWICE = {"DELETE /v1/jobs/{job_id}": "what it knows to be there is not to go"}
_ONCE = {"POST /v1/sweeps/{sweep_id}/cancel": "the jobs of the sweep that it knows end too soon"}
_NO_ADVICE = {"GET /v1/advice": "what is made at random is no workload that there is"}
_NO_ALARM = {"POST /v1/history/alarms/{alarm_id}/acknowledge": "too few results for an alarm"}
AT_EDGES = (
    _NOT_TWICE
    | _ONCE
    | _NO_ALARM
    | {
        "POST /v1/jobs": "not asked",
        "POST /v1/comparisons": "not asked",
        "POST /v1/sweeps": "not asked",
        "POST /v1/keys": "needs a key, also where nothing else does",
        "GET /v1/keys": "the same",
        "DELETE /v1/keys/{key_id}": "the same",
    }
)
OF_EACH = (
    _NOT_TWICE
    | _ONCE
    | _NO_ADVICE
    | _NO_ALARM
    | {
        "POST /v1/jobs": "what is made at random mostly fits no device",
        "POST /v1/comparisons": "nor is it a comparison of two jobs that are there",
        "POST /v1/sweeps": "nor do all of its points fit one",
        "POST /v1/results/import": "nor is it an exported result",
    }
)


@pytest.mark.timeout(len(SEEDS) * (WITHIN_S + OVERTIME_S) + 60)
@pytest.mark.parametrize(
    ("keys", "arguments", "unreached"),
    [
        pytest.param(False, EDGES, AT_EDGES, id="without-keys-at-the-edges"),
        pytest.param(True, EACH, OF_EACH, id="an-admin-each-operation", marks=pytest.mark.verify),
        pytest.param(True, IN_TURN, {}, id="an-admin-one-after-the-other", marks=pytest.mark.verify),
    ],
)
def test_every_answer_is_one_that_the_document_tells_of(tmp_path, keys, arguments, unreached):
    reached = set[str]()
    with house(tmp_path, keys=keys) as here:
        asked = here.operations if arguments is not IN_TURN else set()  # sequences needn't come by all
        for seed in SEEDS:
            told = ask(here, tmp_path, "--seed", seed, *arguments, within_s=WITHIN_S)
            assert told.held, told.said
            assert undocumented_headers(told, here.document) == {}
            reached |= told.reached
            if asked - reached <= unreached.keys():
                break
    assert asked - reached - unreached.keys() == set(), told.answers
    assert unreached.keys() <= asked
    assert " ERROR " not in (tmp_path / "log").read_text()


def undocumented_headers(told, document):
    """Headers of answers that the document doesn't list there, besides those of every answer and of HTTP itself."""
    listed = {
        (f"{method} {path}", status): {name.lower() for name in answer["headers"]} | BESIDE
        for method, path, status, answer in answers(document)
    }
    found = {row: names - listed.get(row, names) for row, names in told.headers.items()}
    return {row: names for row, names in found.items() if names}
