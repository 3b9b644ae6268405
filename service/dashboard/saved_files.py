"""Pages, their pictures and their tables as files to send around."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files

from fastapi import Response
from markupsafe import Markup, escape
from starlette.responses import StreamingResponse

from dyno import tables
from dyno.charts.drawing import Picture

TABLE_FORMATS = {"csv": "CSV", "json": "JSON", "md": "Markdown"}  # `csv` as in `?table=2.csv`


@cache
def style_sheet() -> Markup:
    """The style sheet of all pages."""
    return Markup((files("service.dashboard") / "static" / "dashboard.css").read_text())


def attachment(name: str) -> dict[str, str]:
    """The header of a response that a browser saves under this name."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _plain(text: object) -> str:
    return text.unescape() if isinstance(text, Markup) else str(text)


def picture_file(pictures: Mapping[str, Picture | None], requested: str, name: str) -> Response | None:
    """The picture `runs` as SVG, or `runs.png`; None if the page has no such picture."""
    stem = requested.removesuffix(".png")
    picture = pictures.get(stem)
    if picture is None:
        return None
    if stem == requested:
        return Response(picture.svg(), 200, attachment(f"{name}-{stem}.svg"), "image/svg+xml")
    # A generator runs in a thread: drawing takes some 100 ms.
    return StreamingResponse(_png(picture), 200, attachment(f"{name}-{stem}.png"), "image/png")


def _png(picture: Picture) -> Iterator[bytes]:
    yield picture.png()


class PageTables:
    """Writes the cells of a page's tables, and keeps their texts for files.

    A table has the columns of its cells. It leaves out cells of buttons, which templates write themselves.
    """

    def __init__(self, ago: Callable[[datetime], str]) -> None:
        """`ago`: writes how long ago a moment was."""
        self._tables: list[list[dict[str, str]]] = [[]]
        self._ago = ago

    def cell(
        self,
        label: str,
        value: object = None,
        *,
        text: object = None,
        number: bool = False,
        code: bool = False,
        link: str | None = None,
        time: datetime | None = None,
        caller: Callable[[], Markup] | None = None,
    ) -> Markup:
        """A cell of the column `label`, with `value` or the block of a `call`. A label's second cell begins a row.

        `text`: what a file has of the cell; necessary where the value has markup. `time`: shown as `value`, or as how
        long ago it was.
        """
        shown = caller() if caller else escape(self._ago(time) if value is None and time else value)
        plain = time.isoformat() if time else shown.unescape() if text is None else _plain(text)
        assert text is not None or "<" not in shown, f"the cell of {label} needs a text"
        if time:
            shown = Markup('<time datetime="{}">{}</time>').format(time.isoformat(), shown)
        if code:
            shown = Markup("<code>{}</code>").format(shown)
        if link:
            shown = Markup('<a href="{}">{}</a>').format(link, shown)
        self._keep(str(label), " ".join(plain.split()))
        kind = Markup(' class="number"' if number else "")
        return Markup('<td data-label="{}"{}><span>{}</span>').format(label, kind, shown)

    def _keep(self, label: str, text: str) -> None:
        rows = self._tables[-1]
        if not rows or label in rows[-1]:
            rows.append({})
        rows[-1][label] = text

    def end(self) -> int:
        """End a table. Returns its number, from 1."""
        self._tables.append([])
        return len(self._tables) - 1

    def file(self, requested: str, name: str) -> Response | None:
        """The table `2.csv` as a file; None if the page has no such table, or the format is unknown."""
        number, _, kind = requested.partition(".")
        if kind not in TABLE_FORMATS or number not in map(str, range(1, len(self._tables))):
            return None
        rows, file = self._tables[int(number) - 1], attachment(f"{name}-{number}.{kind}")
        if kind == "json":
            return Response(json.dumps(rows, ensure_ascii=False, indent=1), 200, file, "application/json")
        headings, lines = [*rows[0]] if rows else [], [[*row.values()] for row in rows]
        if kind == "csv":
            return Response(tables.csv_text([headings, *lines]), 200, file, "text/csv; charset=utf-8")
        return Response(tables.markdown_text(headings, lines), 200, file, "text/markdown; charset=utf-8")
