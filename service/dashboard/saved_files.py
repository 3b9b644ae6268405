"""Pages and pictures as files to send around: each has its own style, and loads nothing."""

import re
from functools import cache
from importlib.resources import files

from fastapi import Response
from markupsafe import Markup

_VARIABLE = re.compile(r"--([a-z-]+): (#[0-9a-f]{6})")
_USE = re.compile(r"var\(--([a-z-]+)\)")
_PICTURE_RULE = re.compile(r"^\.picture .*$", re.MULTILINE)


@cache
def style_sheet() -> Markup:
    """That of all pages."""
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
