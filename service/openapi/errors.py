"""Errors in the document. Those of one status and of the same codes are written once, and named after both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

AT_THE_EDGE = ("bad-request", "head-timeout", "head-too-large", "too-many-connections", "shutting-down")


def codes(answer: Mapping[str, Any]) -> list[str]:
    """Those that `answer` can carry, as `service.problems.documented` describes it; none where it is no error."""
    return re.findall("`([a-z-]+)`", answer.get("description", ""))


def share_errors(document: dict[str, Any]) -> None:
    """Move them to the components; a route says which are its own."""
    shared: dict[str, Any] = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    name = ".".join([status, *codes(answer)])
                    shared[name] = answer
                    operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    document["components"]["responses"] = dict(sorted(shared.items()))
