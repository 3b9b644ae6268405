"""Loaded by Schemathesis: lets it ask for what is there, keeps a run from locking itself out, counts the answers."""

import atexit
import json
import os
import re
import zlib
from collections import Counter, defaultdict
from copy import deepcopy
from pathlib import Path

import schemathesis
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

from tests.fuzz.excused import is_excused

OWN_KEY = os.environ["DYNO_FUZZ_KEY_ID"]  # empty: there are no keys
KNOWN = json.loads(os.environ["DYNO_FUZZ_KNOWN"])
FOLDER = re.compile(r"([\w-]+)/{(\w+)}")
PLACE = re.compile("[0-9]+-[0-9]+([.][0-9]+)?")
NEVER = {"job_id": "job_01J00000000000000000000000", "key_id": "key_0123456789abcdef"}
WAIT = "wait=2"
ID = re.compile("(?:job|cmp|msg|key)_[0-9A-Za-z]+")
told = set()
gone = set()  # the ids, without their kind, of jobs that were deleted, and of what was made of them
counted = Counter()
sent = defaultdict(set)  # operation and status -> names of headers


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Before the first key is made everything but /v1/keys is open, as the document says in words."""
    if OWN_KEY:
        return
    for path, methods in raw_schema["paths"].items():
        for operation in methods.values():
            if not path.startswith("/v1/keys") and operation.get("security") != [{"attempt": []}]:
                operation.pop("security", None)


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook
def map_case(context, case):
    """Of what is asked for by an id that the schema allows, most is there; where one thing follows from another, all.

    Bodies that the schema allows are mostly jobs that nothing fits: who asks in turn sends some that get further.
    """
    operation_id, in_turn = _id_of(case), case.meta.phase.name is TestPhase.STATEFUL
    number = zlib.crc32(repr((case.path_parameters, case.query, case.body)).encode())
    given = set((case.path_parameters or {}).values())
    known = operation_id == "putArtifact" or (not told & given if in_turn else number % 4)
    known = known and operation_id != "deleteJob"  # or nothing would be there
    if given and known and not case.meta.is_negative_at(ParameterLocation.PATH):
        case.path_parameters.update(
            {name: KNOWN["ids"][folder] for folder, name in FOLDER.findall(case.operation.path)}
        )
        if operation_id in KNOWN["jobs"]:
            case.path_parameters["job_id"] = KNOWN["jobs"][operation_id]
    bodies = KNOWN["bodies"].get(operation_id, []) if in_turn else []
    if bodies and not case.meta.is_negative_at(ParameterLocation.BODY):
        case.body = deepcopy(bodies[number % len(bodies)])
    if in_turn and number % 3 and operation_id in ("submitJob", "rerunJob"):
        case.headers["Prefer"] = WAIT
    return case


@schemathesis.hook
def before_call(context, case, kwargs):
    """A run that revokes the key which it sends sees nothing but 401 from then on, one that deletes what it knows no
    more of that; and nothing comes before the time is up from a job that doesn't end, nor behind an event that is yet
    to happen."""
    given = case.path_parameters or {}
    if given.get("job_id") == KNOWN["jobs"]["putArtifact"] and _id_of(case) != "putArtifact":
        given["job_id"] = KNOWN["ids"]["jobs"]
    kept = {"job_id": KNOWN["kept"] if case.method == "DELETE" else [], "key_id": [OWN_KEY]}
    for name, values in kept.items():
        if given.get(name) in values:
            given[name] = NEVER[name]
    for sent in (case.query or {}, case.headers or {}):
        for name in ("last_event_id", "last-event-id"):
            if PLACE.fullmatch(str(sent.get(name, ""))):
                sent[name] = "0-0"


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """False for what tests/fuzz/excused.py has the reason for, and for what isn't there as the run has deleted it, or
    was kept from it."""
    ids = set((case.path_parameters or {}).values())
    if type(failure).__name__ == "EnsureResourceAvailability":
        return not ids & set(NEVER.values()) and not gone & {str(each).partition("_")[2] for each in ids}
    problem = response.json() if response.status_code >= 400 else {}
    return not is_excused(type(failure).__name__, _id_of(case), response.status_code, problem)


@schemathesis.hook
def after_call(context, case, response):
    row = f"{case.operation.label} {response.status_code}"
    counted[row] += 1
    sent[row] |= {name.lower() for name in response.headers}
    if response.status_code == 204 and _id_of(case) == "deleteJob":
        gone.add(str(case.path_parameters["job_id"]).partition("_")[2])
    if response.status_code < 300 and "json" in response.headers.get("content-type", [""])[0]:
        told.update(ID.findall(response.text))


def _id_of(case):
    return str(case.operation.definition.raw["operationId"])


@atexit.register
def _tell():
    Path(os.environ["DYNO_FUZZ_COUNTED"]).write_text(
        json.dumps({row: (number, sorted(sent[row])) for row, number in counted.items()})
    )
