"""Save pages, their pictures and their tables as files."""

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

TABLE_FORMATS = {"csv": "CSV", "json": "JSON", "md": "Markdown"}  # keys: suffixes, as in `?table=2.csv`


@cache
def style_sheet() -> Markup:
    """The style sheet of all pages."""
    return Markup((files("service.dashboard") / "static" / "dashboard.css").read_text())


def attachment(name: str) -> dict[str, str]:
    """The header that makes a browser save the response under this name."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _plain(text: object) -> str:
    return text.unescape() if isinstance(text, Markup) else str(text)


def picture_file(pictures: Mapping[str, Picture | None], requested: str, name: str) -> Response | None:
    """The requested picture as a file, such as `runs` (SVG) or `runs.png`; None if the page has no such picture."""
    stem = requested.removesuffix(".png")
    picture = pictures.get(stem)
    if picture is None:
        return None
    if stem == requested:
        return Response(picture.svg(), 200, attachment(f"{name}-{stem}.svg"), "image/svg+xml")
    # Starlette runs a generator in a thread, and drawing takes about 100 ms.
    return StreamingResponse(_png(picture), 200, attachment(f"{name}-{stem}.png"), "image/png")


def _png(picture: Picture) -> Iterator[bytes]:
    yield picture.png()


class PageTables:
    """Writes the cells of a page's tables, and keeps their texts for files.

    A file has a column for each label. Templates write cells with buttons themselves, so files lack these cells.
    """

    def __init__(self, ago: Callable[[datetime], str]) -> None:
        """`ago`: a function that writes how long ago a moment was."""
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
        """A cell of the column `label`, with `value` or the block of a Jinja `call`. A repeated label begins a new row.

        `text`: the cell's content in a file; required if the value has markup. `time`: a moment, shown as `value` or
        else as the time since then.
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
