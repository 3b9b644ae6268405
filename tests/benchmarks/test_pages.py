"""Pages that are written from figures made by hand."""

from benchmarks import gate
from benchmarks.report import table


def test_a_cell_has_no_bar_and_no_line_break():
    assert table(("a",), [["x|y\nz"]]) == ["| a |", "| --- |", "| x/y z |", ""]


def test_the_page_of_the_gate_describes_only_what_it_has_measured():
    judged = gate.Judged("pass", 1.0, 0.99, 1.01, 16)
    text = " ".join(gate.lines({(gate.IN_TURNS, "as before"): [judged]}))
    assert "*In turns*" in text
    assert "*Against a baseline*" not in text
    assert "The gate against a baseline wasn't measured." in text
