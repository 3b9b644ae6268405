"""Pages that are written from figures made by hand."""

from __future__ import annotations

from benchmarks.load import __main__ as load
from benchmarks.load.clients import Recorded
from benchmarks.load.measurements import Fanout, Steady
from benchmarks.report import table


def test_a_cell_has_no_bar_and_no_line_break() -> None:
    assert table(("a",), [["x|y\nz"]]) == ["| a |", "| --- |", "| x/y z |", ""]


def test_submits_and_polls_have_rows_of_their_own() -> None:
    record = Recorded({"submit 0": [0.01, 0.02], "submit 1": [0.03], "poll 0": [0.004]})
    text = "\n".join(load.load_lines(Steady(record, for_s=2.0, core_share=0.5), Fanout()))
    assert "| submit | 300 | 2 | 20.00 | 30.00 | 50 | 3 |" in text
    assert "| poll | 500 | 0 | 4.00 | 4.00 | 30 | 1 |" in text
