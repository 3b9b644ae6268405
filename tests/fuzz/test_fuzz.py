"""Whatever the document allows, and what it doesn't, is answered as the document says; `make fuzz` asks for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.asking import ask
from tests.fuzz.house import house

SEED = "1"
WITHIN_S = 100
REACHED = 5  # operations that succeed at least once, or no more than the edge was asked

# Every value at the edge of every schema. A spec has thousands, which are for `make fuzz`.
EDGES = ("--phases", "examples,coverage", "--exclude-operation-id-regex", "^(submitJob|createComparison)$")
EACH = ("--phases", "fuzzing", "--max-examples", "3")
IN_TURN = ("--phases", "stateful", "--max-examples", "20")


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [(False, EDGES), (True, EACH), (True, IN_TURN)],
    ids=["without-keys-at-the-edges", "an-admin-each-operation", "an-admin-one-after-the-other"],
)
def test_every_answer_is_one_that_the_document_tells_of(tmp_path: Path, keys: bool, arguments: tuple[str, ...]) -> None:
    with house(tmp_path, keys=keys) as here:
        told = ask(here, tmp_path, "--seed", SEED, *arguments, within_s=WITHIN_S)
    assert told.held, told.said
    assert len(told.reached) >= REACHED, told.answers
