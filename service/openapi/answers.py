"""What of a change to the document takes something from those who are told: answers, their headers and codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from service.openapi.containment import Containment
from service.openapi.errors import codes
from service.openapi.schemas import resolved

Document = Mapping[str, Any]
_SUCCESS = ("2", "3")


class Answers:
    def __init__(self, before: Document, after: Document) -> None:
        self._before, self._after = before, after
        self._schemas = Containment(after, before, told=True)

    def of_answers(self, old: Document, new: Document, at: str) -> Iterator[str]:
        """A status that is new is one that callers don't expect, unless it is an error."""
        for status, answer in old.items():
            was, now = resolved(answer, self._before), resolved(new.get(status, {}), self._after)
            if status.startswith(_SUCCESS):
                yield from self.of_answer(was, now, f"{at} {status}") if status in new else [f"{at} {status}: is gone"]
            else:
                yield from self._of_error(was, now, f"{at} {status}")
        for status in sorted(new.keys() - old.keys()):
            if status.startswith(_SUCCESS):
                yield f"{at} {status}: is new"

    def _of_error(self, old: Document, new: Document, at: str) -> Iterator[str]:
        """Codes never change: one that is gone may have been renamed, or moved to another status."""
        for code in codes(old):
            if code not in codes(new):
                yield f"{at}: code {code} is gone"
        if new:
            yield from self.of_answer(old, new, at)

    def of_answer(self, old: Document, new: Document, at: str) -> Iterator[str]:
        """Also what a webhook's receiver is told: the body of a request."""
        yield from self.of_headers(old.get("headers", {}), new.get("headers", {}), at)
        for name in sorted(old.get("links", {}).keys() - new.get("links", {}).keys()):
            yield f"{at} link {name}: is gone"
        for media_type, content in old.get("content", {}).items():
            now = new.get("content", {}).get(media_type)
            if now is None:
                yield f"{at}: {media_type} is gone"
            else:
                for schema in ("schema", "itemSchema"):
                    if schema in content:
                        yield from self._schemas.beyond(now.get(schema, {}), content[schema], at)

    def of_headers(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for name, header in old.items():
            if name not in new:
                yield f"{at} header {name}: is gone"
                continue
            was, now = resolved(header, self._before), resolved(new[name], self._after)
            if was.get("required") and not now.get("required"):
                yield f"{at} header {name}: may be missing"
            yield from self._schemas.beyond(now.get("schema", {}), was.get("schema", {}), f"{at} header {name}")
