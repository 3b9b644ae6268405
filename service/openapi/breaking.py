"""What of a change to the document breaks its callers: less is taken of them, or they are told less, or something else.

What is added breaks nobody: a route, an optional parameter or field of a request, a field of an answer, the code of an
error. A value that is new in a closed list of an answer does, and so does another status of success: callers may switch
over them. So does another name where clients that are made of the document have one: of an operation, its module or a
model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dyno.models.api_key import Scope
from service.openapi.answers import Answers
from service.openapi.containment import Containment

Document = Mapping[str, Any]
_NAMES = ("operationId", "tags")
_HOW_WRITTEN = ("style", "explode", "allowReserved")


def breaks(before: Document, after: Document) -> list[str]:
    """Every break, as a line that begins with where it is; none for documents that are the same."""
    return [] if before == after else list(dict.fromkeys(_Comparison(before, after).breaks()))


class _Comparison:
    def __init__(self, before: Document, after: Document) -> None:
        self._before, self._after = before, after
        self._taken = Containment(before, after)  # what was sent must still be taken
        self._told = Answers(before, after)

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
        before, after = (each["components"].get("securitySchemes", {}) for each in (self._before, self._after))
        for name in before:
            if _plain(before[name]) != _plain(after.get(name, {})):
                yield f"security {name}: was {_plain(before[name])}, is {_plain(after.get(name, {}))}"

    def _of_webhook(self, old: Document, new: Document | None, at: str) -> Iterator[str]:
        """Here the parameters and the body are what callers are told."""
        if new is None:
            yield f"{at}: is gone"
            return
        before, after = (
            {each["name"]: each for each in webhook["post"].get("parameters", [])} for webhook in (old, new)
        )
        yield from self._told.of_headers(before, after, at)
        yield from self._told.of_answer(old["post"]["requestBody"], new["post"]["requestBody"], at)

    def _of_operation(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for name in _NAMES:
            if old.get(name) != new.get(name):
                yield f"{at}: {name} was {old.get(name)}, is {new.get(name)}"
        if not all(any(_lets_in(each, other) for other in _ways_in(new)) for each in _ways_in(old)):
            yield f"{at}: security was {_ways_in(old)}, is {_ways_in(new)}"
        yield from self._of_parameters(_parameters(old), _parameters(new), at)
        yield from self._of_body(old.get("requestBody"), new.get("requestBody"), at)
        yield from self._told.of_answers(old["responses"], new["responses"], at)

    def _of_parameters(self, old: Document, new: Document, at: str) -> Iterator[str]:
        for name, parameter in new.items():
            if parameter.get("required") and not old.get(name, {}).get("required"):
                yield f"{at} {name}: is required"
        for name, parameter in old.items():
            if name not in new:
                yield f"{at} {name}: is gone"
                continue
            for how in _HOW_WRITTEN:
                if parameter.get(how) != new[name].get(how):
                    yield f"{at} {name}: {how} was {parameter.get(how)}, is {new[name].get(how)}"
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


def _parameters(operation: Document) -> dict[str, Document]:
    return {f"{each['in']} {each['name']}": each for each in operation.get("parameters", [])}


def _ways_in(operation: Document) -> list[dict[str, list[str]]]:
    """One of them is enough; that which asks for nothing is open to all."""
    return operation.get("security") or [{}]


def _lets_in(known: Mapping[str, list[str]], needed: Mapping[str, list[str]]) -> bool:
    """Whether one who has what was needed has what is needed now."""
    return all(scheme in known and set(scopes) <= _implied(known[scheme]) for scheme, scopes in needed.items())


def _implied(scopes: list[str]) -> set[str]:
    return set(scopes).union(*(Scope(each).implied for each in scopes if each in list(Scope)))


def _plain(scheme: Document) -> dict[str, Any]:
    return {name: value for name, value in scheme.items() if name != "description"}
