"""Pages that are written from figures made by hand."""

from __future__ import annotations

from benchmarks.report import table


def test_a_cell_has_no_bar_and_no_line_break() -> None:
    assert table(("a",), [["x|y\nz"]]) == ["| a |", "| --- |", "| x/y z |", ""]
