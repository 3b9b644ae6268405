"""What a framework traced or compiled while samples were taken: nothing, if all is well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dyno.measure.executed import compile_in_timing, retraced
from dyno.models.result import ResultWarning

Traced = Callable[[], Sequence[str] | None]  # see `Framework.traced`


class Traces:
    """Made after the first execution; `look` is called before each sample, warm-up included."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self._begun = self._count()
        self._looks: list[int] = []

    def look(self) -> None:
        self._looks.append(self._count())

    def warnings(self, warmup: int) -> list[ResultWarning]:
        """What was seen until now, right after the last sample; the first `warmup` ones were warm-up."""
        names = self._traced()
        if names is None:
            return []
        timed = names[self._looks[warmup] :]
        raised = (compile_in_timing(timed), retraced(names[: self._begun], names[self._begun :]))
        return [each for each in raised if each is not None]

    def _count(self) -> int:
        return len(self._traced() or ())
