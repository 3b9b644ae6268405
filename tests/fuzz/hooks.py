"""Loaded by Schemathesis: counts what was answered, and keeps a run from locking itself out."""

from __future__ import annotations

import atexit
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis

OWN_KEY = os.environ["DYNO_FUZZ_KEY_ID"]  # empty: there are no keys
PLACE = re.compile("[0-9]+-[0-9]+([.][0-9]+)?")
counted: Counter[str] = Counter()


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Before the first key is made everything but /v1/keys is open, as the document says in words."""
    if OWN_KEY:
        return
    for path, methods in raw_schema["paths"].items():
        for operation in methods.values():
            if not path.startswith("/v1/keys"):
                operation.pop("security", None)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """A run that revokes the key which it sends sees nothing but 401 from then on; and behind an event that is yet to
    happen, nothing comes before the time is up."""
    if OWN_KEY and case.path_parameters and case.path_parameters.get("key_id") == OWN_KEY:
        case.path_parameters["key_id"] = "key_0123456789abcdef"
    for sent in (case.query or {}, case.headers or {}):
        for name in ("last_event_id", "last-event-id"):
            if PLACE.fullmatch(str(sent.get(name, ""))):
                sent[name] = "0-0"


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    counted[f"{case.operation.label} {response.status_code}"] += 1


@atexit.register
def _tell() -> None:
    Path(os.environ["DYNO_FUZZ_COUNTED"]).write_text(json.dumps(counted))
