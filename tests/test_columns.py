"""Tables for a person: whatever is copied out of them is whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dyno.columns import Cells, show

HEADINGS = ("job", "what there is to say of it", "state")
ROWS: list[Cells] = [
    (
        "job_01M4SMMV8NVJ4W9Y1Q2M8ANPXD",
        "a sentence of [red]several[/red] words, some of them looooooooong",
        "INCONCLUSIVE",
    ),
    ("job_01M4SMMV8NVJ4W9Y1Q2M8ANPXE", None, "SAME"),
]


def shown(width: int, *, in_terminal: bool) -> list[str]:
    file = io.StringIO()
    console = Console(width=width, file=file, force_terminal=in_terminal, color_system=None)
    show(console, HEADINGS, ROWS, "a title")
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 60, 70, 80, 100, 140, 200])
@pytest.mark.parametrize("in_terminal", [True, False])
def test_no_word_is_cut_or_lies_in_two_lines(width: int, in_terminal: bool) -> None:
    text = "\n".join(shown(width, in_terminal=in_terminal))
    for word in " ".join([*HEADINGS, *(cell or "" for row in ROWS for cell in row)]).split():
        assert word in text


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_a_terminal_with_room_for_every_word_gets_a_table_that_fits_it(width: int) -> None:
    lines = shown(width, in_terminal=True)
    assert any(line.startswith("┏") for line in lines)
    assert max(map(len, lines)) <= width


def test_in_a_narrower_one_each_cell_is_a_line() -> None:
    lines = shown(60, in_terminal=True)
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("job ")] == [row[0] for row in ROWS]


def test_in_a_pipe_a_row_is_a_line_however_long() -> None:
    lines = [line for line in shown(20, in_terminal=False) if "job_" in line]
    assert len(lines) == len(ROWS)
    assert "several[/red] words, some of them looooooooong" in lines[0]
    assert "INCONCLUSIVE" in lines[0]
