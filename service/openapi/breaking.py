"""What of a change to the document breaks its callers: less is taken of them, or they are told less, or something else.

What is added breaks nobody: a route, an optional parameter or field of a request, a field of an answer. A value that
is new in a closed list of an answer does: callers may switch over the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from service.openapi.containment import Containment

Document = Mapping[str, Any]
_SUCCESS = ("2", "3")


def breaks(before: Document, after: Document) -> list[str]:
    """Every break, as a line that begins with where it is; none for documents that are the same."""
    return [] if before == after else list(dict.fromkeys(_Comparison(before, after).breaks()))


class _Comparison:
    def __init__(self, before: Document, after: Document) -> None:
        self._before, self._after = before, after
        self._taken = Containment(before, after)  # what was sent must still be taken
        self._told = Containment(after, before, told=True)  # what is told now must be what was told before

    def breaks(self) -> Iterator[str]:
        for path, methods in self._before["paths"].items():
            for method, operation in methods.items():
                at = f"{method.upper()} {path}"
                now = self._after["paths"].get(path, {}).get(method)
                if now is None:
                    yield f"{at}: is gone"
                else:
                    yield from self._of_operation(operation, now, at)
        for name, webhook in self._before.get("webhooks", {}).items():
            yield from self._of_webhook(webhook, self._after.get("webhooks", {}).get(name), f"webhook {name}")

    def _of_webhook(self, old: Document, new: Document | None, at: str) -> Iterator[str]:
        """Here the body is what callers are told."""
        if new is None:
            yield f"{at}: is gone"
            return
        before, after = old["post"], new["post"]
        for header in _parameters(before).keys() - _parameters(after).keys():
            yield f"{at} {header}: is gone"
        yield from self._of_answer(before["requestBody"], after["requestBody"], at)

    def _of_operation(self, old: Document, new: Document, at: str) -> Iterator[str]:
        if old.get("operationId") != new.get("operationId"):
            yield f"{at}: operationId was {old.get('operationId')}, is {new.get('operationId')}"
        if new.get("security") and not old.get("security"):
            yield f"{at}: needs a key"
        yield from self._of_parameters(_parameters(old), _parameters(new), at)
        yield from self._of_body(old.get("requestBody"), new.get("requestBody"), at)
        yield from self._of_answers(old["responses"], new["responses"], at)

    def _of_parameters(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for name, parameter in new.items():
            if parameter.get("required") and not old.get(name, {}).get("required"):
                yield f"{at} {name}: is required"
        for name, parameter in old.items():
            if name not in new:
                yield f"{at} {name}: is gone"
            else:
                yield from self._taken.beyond(parameter["schema"], new[name]["schema"], f"{at} {name}")

    def _of_body(self, old: Document | None, new: Document | None, at: str) -> Iterator[str]:
        if new is not None and new.get("required") and not (old or {}).get("required"):
            yield f"{at} body: is required"
        for media_type, content in (old or {}).get("content", {}).items():
            now = (new or {}).get("content", {}).get(media_type)
            if now is None:
                yield f"{at} body: {media_type} is gone"
            else:
                yield from self._taken.beyond(content.get("schema", {}), now.get("schema", {}), f"{at} body")

    def _of_answers(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for status, answer in old.items():
            if status in new:
                yield from self._of_answer(answer, new[status], f"{at} {status}")
            elif status.startswith(_SUCCESS):
                yield f"{at} {status}: is gone"

    def _of_answer(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for header in old.get("headers", {}).keys() - new.get("headers", {}).keys():
            yield f"{at} header {header}: is gone"
        for media_type, content in old.get("content", {}).items():
            now = new.get("content", {}).get(media_type)
            if now is None:
                yield f"{at}: {media_type} is gone"
            else:
                for schema in ("schema", "itemSchema"):
                    yield from self._told.beyond(now.get(schema, {}), content.get(schema, {}), at)


def _parameters(operation: Document) -> dict[str, Document]:
    return {f"{each['in']} {each['name']}": each for each in operation.get("parameters", [])}
