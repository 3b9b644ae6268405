"""Pages, their pictures and their tables as files to send around.

Pages and pictures have their own style and load nothing. Tables are what the page shows, without its buttons.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from itertools import compress
from typing import NamedTuple

from fastapi import Response
from markupsafe import Markup

from dyno import tables

_VARIABLE = re.compile(r"--([a-z-]+): (#[0-9a-f]{6})")
_USE = re.compile(r"var\(--([a-z-]+)\)")
_PICTURE_RULE = re.compile(r"^\.picture .*$", re.MULTILINE)
TABLE_FORMATS = {"csv": "CSV", "json": "JSON", "md": "Markdown"}  # `csv` as in `?table=2.csv`
_CONTROLS = {"form", "button", "svg", "input", "select"}
_VOID = {"input", "br", "img"}


@cache
def style_sheet() -> Markup:
    """The style sheet of all pages."""
    return Markup((files("service.dashboard") / "static" / "dashboard.css").read_text())


def attachment(name: str) -> dict[str, str]:
    """The header of a response that a browser saves under this name."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def picture_file(picture: Markup, name: str) -> Response:
    """A page's picture as an SVG of its own, dark on white."""
    head, _, shapes = picture.partition(">")
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    svg = f'{head} xmlns="http://www.w3.org/2000/svg"><style>{_picture_style()}</style>{paper}{shapes}'
    # XML can't contain control characters, even escaped.
    text = "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in svg)
    return Response(text, 200, attachment(f"{name}.svg"), "image/svg+xml")


@cache
def _picture_style() -> str:
    """The style sheet's rules for pictures, with the light colours: editors of SVG know no CSS variables."""
    sheet = str(style_sheet())
    light = dict(_VARIABLE.findall(sheet.partition("@media")[0]))
    return _USE.sub(lambda used: light[used[1]], "\n".join(_PICTURE_RULE.findall(sheet)))


class _PageTable(NamedTuple):
    """The table leaves out columns without a heading, such as columns of buttons."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


class _TableParser(HTMLParser):
    """Collects the cells of a page's tables, the heading first. The pages don't close cells and rows."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._in_table = False
        self._hidden: list[str] = []  # open elements from the first one that isn't part of the text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "table":
            self._in_table = True
            self.tables.append([])
        if not self._in_table:
            return
        if (
            self._hidden
            or tag in _CONTROLS
            or "aria-hidden" in attributes
            or "visually-hidden" in (attributes.get("class") or "")
        ):
            self._hidden += [] if tag in _VOID else [tag]
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag == "time":
            self.handle_data(str(attributes["datetime"]))
            self._hidden.append(tag)
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass  # an element that isn't closed, such as an option
        elif tag == "table":
            self._in_table = False

    def handle_data(self, data: str) -> None:
        if self._in_table and not self._hidden and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += data


def _page_tables(text: str) -> list[_PageTable]:
    """The tables of a page, in order."""
    parser = _TableParser()
    parser.feed(text)
    return [_tidy(rows) for rows in parser.tables]


def _tidy(rows: Sequence[Sequence[str]]) -> _PageTable:
    head, *body = [[" ".join(cell.split()) for cell in row] for row in rows]
    return _PageTable([*filter(None, head)], [list(compress(row, head)) for row in body])


def table_file(text: str, requested: str, name: str) -> Response | None:
    """The table `2.csv` of a page's text as a file; None if the page has no such table, or the format is unknown."""
    number, _, kind = requested.partition(".")
    tables_of_page = _page_tables(text)
    if kind not in TABLE_FORMATS or number not in map(str, range(1, len(tables_of_page) + 1)):
        return None
    table, file = tables_of_page[int(number) - 1], attachment(f"{name}-{number}.{kind}")
    if kind == "csv":
        return Response(tables.csv_text([table.headings, *table.rows]), 200, file, "text/csv; charset=utf-8")
    if kind == "md":
        return Response(tables.markdown_text(table.headings, table.rows), 200, file, "text/markdown; charset=utf-8")
    return Response(_json(table), 200, file, "application/json")


def _json(table: _PageTable) -> str:
    return json.dumps([dict(zip(table.headings, row, strict=True)) for row in table.rows], ensure_ascii=False, indent=1)
