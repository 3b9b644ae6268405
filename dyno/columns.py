"""Rows for a person, of which nothing is cut: an id that has lost its end, or lies in two lines, is copied wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cells = Sequence[str | None]
_BORDER, _PADDING = 1, 2


def show(console: Console, headings: Sequence[str], rows: Iterable[Cells], title: str | None = None) -> None:
    """A table as wide as its longest lines: in a pipe or a file always, so that a row is a line of it.

    In a terminal it is as wide as that is, folded between words; where a word has no room either, each cell is a line.
    What is in the cells is nobody's markup.
    """
    texts = [[cell or "" for cell in row] for row in rows]
    columns = list(zip(headings, *texts, strict=True))
    widths = [_longest(cell.splitlines() for cell in column) for column in columns]
    if console.is_terminal:
        room = console.width - _BORDER - len(widths) * (_BORDER + _PADDING)
        words = [_longest(cell.split() for cell in column) for column in columns]
        if sum(words) > room:
            return _as_lines(console, headings, texts, title)
        widths = _shared(room, words, widths)
    table = Table(title=None if title is None else Text(title))
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(Text(heading), width=width, overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    table.width = sum(widths) + _BORDER + len(widths) * (_BORDER + _PADDING)
    console.print(table, crop=False)


def _longest(parts: Iterable[Sequence[str]]) -> int:
    return max((cell_len(part) for of_cell in parts for part in of_cell), default=0)


def _shared(room: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    """The width of each column: those that want little more than they need have it, the others share what is left."""
    widths, left = list(least), room - sum(least)
    by_want = sorted(range(len(widths)), key=lambda at: most[at] - least[at])
    for served, at in enumerate(by_want):
        more = min(most[at] - least[at], left // (len(by_want) - served))
        widths[at] += more
        left -= more
    return widths


def _as_lines(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None) -> None:
    """The terminal folds what is longer than it is wide; what is marked and copied is whole."""
    if title is not None:
        console.print(Text(title), soft_wrap=True)
    width = max(map(len, headings))
    for row in rows:
        for heading, cell in zip(headings, row, strict=True):
            if cell:
                console.print(Text(f"{heading:<{width}}  {cell}"), soft_wrap=True)
        console.print()
