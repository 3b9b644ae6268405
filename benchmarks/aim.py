"""How often an interval is to hold the truth, and a part of a page that counts where it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

AIM = (0.93, 0.97)


@dataclass(frozen=True)
class Section:
    """`met`: in how many of `cases` rows the share that the aim is about lies within it."""

    title: str
    lines: Sequence[str]
    met: int
    cases: int


def within(hits: int, trials: int) -> bool:
    return trials > 0 and AIM[0] <= hits / trials <= AIM[1]


def share(hits: int | None, trials: int) -> str:
    return "–" if hits is None or trials == 0 else f"{hits / trials:.1%}"
