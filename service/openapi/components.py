"""Components of the document that FastAPI can't derive: request bodies, events, webhooks, errors, examples.

- Errors with the same status and the same codes share one component, whose name lists both.
- The body of POST /v1/jobs has a schema for every registered workload.
- Streams have one schema for each kind of event.
- Examples are recorded requests and responses (examples.json). Tests validate them and repeat the requests.
- Schemas of responses allow additional fields, because a newer service may add some. Schemas of requests allow none. A
model that is part of both gets a second schema for requests.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, get_args

from dyno.bench.contract import Workload
from dyno.models.event import EVENT, AnyEvent
from dyno.models.job import Job
from dyno.models.result_export import MEDIA_TYPE
from dyno.models.spec import DEVICE_ID, Spec
from dyno.models.sweep import SweepRequest
from dyno.models.webhook import JobDone, payload_of
from service.problems import PROBLEMS, Problem

CONNECTION_ERRORS = ("bad-request", "head-timeout", "head-too-large", "too-many-connections", "shutting-down")


def problem_codes(answer: Mapping[str, Any]) -> list[str]:
    """The codes in a response's description by `service.problems.documented`; empty if the response isn't an error."""
    return re.findall("`([a-z-]+)`", answer.get("description", ""))


def share_errors(document: dict[str, Any]) -> None:
    """Move error responses to the components; operations refer to them."""
    shared: dict[str, Any] = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    name = ".".join([status, *problem_codes(answer)])
                    shared[name] = answer
                    operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    document["components"]["responses"] = dict(sorted(shared.items()))


_REF = "#/components/schemas/{model}"
Schemas = dict[str, Any]


def describe_bodies(document: dict[str, Any], workloads: Mapping[str, Workload]) -> None:
    """Add the schemas of problems, sweeps and specs, and the body of POST /v1/jobs."""
    schemas: Schemas = document["components"]["schemas"]
    _add(schemas, "SubmitSweep", SweepRequest.model_json_schema(ref_template=_REF) | {"title": "SubmitSweep"})
    _add(schemas, "Problem", Problem.model_json_schema(ref_template=_REF))
    envelope = _envelope(schemas)
    for workload in workloads.values():
        _add_submission(schemas, workload, envelope)
    document["paths"]["/v1/jobs"]["post"]["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REF.format(model="SubmitJob")}}},
    }
    refs = {name: _REF.format(model=_title(workload)) for name, workload in workloads.items()}
    schemas["SubmitJob"] = {
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": "workload", "mapping": refs},
    }


def _envelope(schemas: Schemas) -> Schemas:
    """The schema of Spec in requests, which allows shorthands. Adds the schemas of its parts to `schemas`."""
    envelope = Spec.model_json_schema(ref_template=_REF)
    for name, part in envelope.pop("$defs", {}).items():
        schemas[f"Submit{name}"] = part | {"title": f"Submit{name}"}  # own name: generated clients need two classes
    envelope = dict(_renamed(envelope))
    device = {"type": "string", "pattern": f"^(any|cpu|gpu|tpu)$|{_portable(DEVICE_ID.pattern)}"}
    envelope["properties"]["device"] = _either(device, envelope["properties"]["device"])
    envelope["properties"]["webhook"]["anyOf"].append(schemas["SubmitWebhook"]["properties"]["url"])
    measure = _renamed(schemas["SubmitMeasure"])
    fixed = {"type": "integer", "minimum": 1, "maximum": 100}
    measure["properties"]["processes"] = _either(fixed, measure["properties"]["processes"])
    schemas["SubmitMeasure"] = measure
    return envelope


def _add_submission(schemas: Schemas, workload: Workload, envelope: Schemas) -> None:
    """Add the envelope with the workload's name as a constant and its params, so only one schema of `oneOf` matches."""
    params = f"{_title(workload)}Params"
    _add(schemas, params, workload.params.model_json_schema(ref_template=_REF))
    one = deepcopy(envelope)
    one["title"], one["description"] = _title(workload), workload.description
    one["properties"]["workload"] = {"const": workload.name, "type": "string"}
    one["properties"]["framework"] |= {"enum": list(workload.frameworks), "default": workload.frameworks[0]}
    one["properties"]["replicas"] |= {"minimum": workload.least_replicas, "default": workload.least_replicas}
    one["properties"]["params"] = {"$ref": _REF.format(model=params)}
    schemas[_title(workload)] = one


def _add(schemas: Schemas, name: str, schema: Schemas) -> None:
    schemas.update(schema.pop("$defs", {}))
    schemas[name] = schema


def _title(workload: Workload) -> str:
    return "Submit" + "".join(part.capitalize() for part in workload.name.split("_"))


def _either(shorthand: Schemas, full: Schemas) -> Schemas:
    return {"anyOf": [shorthand, {key: value for key, value in full.items() if key != "default"}]}


def _portable(pattern: str) -> str:
    """`pattern` without Python's named groups: JSON Schema uses ECMAScript's regular expressions."""
    return pattern.replace("?P<kind>", "").replace("?P<index>", "").replace("?P<host>", "")


STREAM = "text/event-stream"


def describe_events(document: dict[str, Any]) -> None:
    """Add OpenAPI 3.2's `itemSchema` to every stream; tools that don't know it treat the stream as text."""
    schemas = EVENT.json_schema(mode="serialization", ref_template=_REF)["$defs"]
    document["components"]["schemas"] = schemas | document["components"]["schemas"]
    kinds = {kind.model_fields["kind"].default: kind.__name__ for kind in get_args(AnyEvent)}
    for methods in document["paths"].values():
        for operation in methods.values():
            stream = operation["responses"].get("200", {}).get("content", {}).get(STREAM)
            if stream is not None:
                stream["itemSchema"] = {"oneOf": [_event(kind, model) for kind, model in kinds.items()]}


def _event(kind: str, model: str) -> dict[str, Any]:
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": _REF.format(model=model)},
    }
    properties = {"event": {"const": kind}, "id": {"type": "string"}, "data": data}
    return {"type": "object", "properties": properties, "required": ["event", "id", "data"]}


Examples = dict[str, Any]

_FILE = Path(__file__).with_name("examples.json")
_JSON = "application/json"


@cache
def recorded_examples() -> Examples:
    """The recorded `problems` by code, `requests` by operationId, and `answers` by operationId and status."""
    examples: Examples = json.loads(_FILE.read_text())
    return examples


def show_examples(document: dict[str, Any]) -> None:
    """Add the recorded examples. Problems are components; each response refers to its codes' examples."""
    kept, used = recorded_examples(), set()
    for methods in document["paths"].values():
        for operation in methods.values():
            _show(operation, kept)
            for status, answer in operation["responses"].items():
                if status >= "400":
                    shown = [code for code in problem_codes(answer) if code in kept["problems"]]
                    _refer(answer, shown)
                    used |= set(shown)
    document["components"]["examples"] = {
        code: {"summary": PROBLEMS[code][1], "value": kept["problems"][code]} for code in PROBLEMS if code in used
    }


def _show(operation: dict[str, Any], kept: Examples) -> None:
    operation_id = operation["operationId"]
    if operation_id in kept["requests"]:
        for media in operation["requestBody"]["content"].values():
            media["examples"] = _named(kept["requests"][operation_id])
    for status, answers in kept["answers"].get(operation_id, {}).items():
        for media_type, media in operation["responses"][status]["content"].items():
            of_type = {name: value for name, value in answers.items() if _is_of(media_type, name, value)}
            if of_type:
                media["examples"] = _named(of_type)


def _is_of(media_type: str, name: str, value: object) -> bool:
    """Whether `value` is of this type: streams and tables are recorded as text, JSON lines under the name `jsonl`."""
    if (name == "jsonl") != (media_type == MEDIA_TYPE):
        return False
    return isinstance(value, str) != (media_type == _JSON)


def _named(values: dict[str, Any]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in values.items()}


def _refer(answer: dict[str, Any], codes: list[str]) -> None:
    for media in answer["content"].values():
        media["examples"] = {code: {"$ref": f"#/components/examples/{code}"} for code in codes}


_HEADERS = {
    "webhook-id": "`msg_…`, the same for every attempt: ignore events whose id you have already processed",
    "webhook-timestamp": "The time of this attempt, in seconds since 1970",
    "webhook-signature": "Standard Webhooks: `v1,` and base64; `GET /v1/webhook-secret` has the secret",
}
_ANSWERS = {
    "2XX": "Delivered",
    "410": "Not delivered; not retried",
    "default": "Not delivered; retried 8 times within a day",
}


def describe_webhooks(document: dict[str, Any]) -> None:
    """Add the only event of webhooks, with recorded jobs as examples."""
    schemas = JobDone.model_json_schema(mode="serialization", ref_template=_REF)
    document["components"]["schemas"] |= schemas.pop("$defs") | {"JobDone": schemas}
    done = {name: Job.model_validate(job) for name, job in recorded_examples()["answers"]["getJob"]["200"].items()}
    content = {
        "schema": {"$ref": _REF.format(model="JobDone")},
        "examples": {name: {"value": json.loads(payload_of(job))} for name, job in done.items()},
    }
    operation = {
        "operationId": "jobDone",
        "summary": "A job is done",
        "description": "Sent to the `webhook` of a job, once it has succeeded, failed or been canceled.",
        "tags": ["webhooks"],
        "parameters": [
            {"in": "header", "name": name, "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {status: {"description": text} for status, text in _ANSWERS.items()},
    }
    document["webhooks"] = {"jobDone": {"post": operation}}


_REF_PREFIX = "#/components/schemas/"
_REQUEST_PREFIX = "Submit"  # begins the names of request schemas


def open_response_schemas(document: dict[str, Any]) -> None:
    """Allow unlisted fields in every schema that responses or webhooks refer to."""
    schemas: Schemas = document["components"]["schemas"]
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    in_responses = _schemas_within(
        [[operation["responses"] for operation in operations], document.get("webhooks", {})], schemas
    )
    in_requests = _schemas_within([operation.get("requestBody") for operation in operations], schemas)
    closed = {name for name in in_responses if schemas[name].get("additionalProperties") is False}
    for name in closed & in_requests:
        schemas[f"{_REQUEST_PREFIX}{name}"] = schemas[name] | {"title": f"{_REQUEST_PREFIX}{name}"}
    for operation in operations:
        if "requestBody" in operation:
            operation["requestBody"] = _renamed(operation["requestBody"], closed & in_requests)
    for name in in_requests - in_responses:
        schemas[name] = _renamed(schemas[name], closed & in_requests)
    for name in closed:
        schemas[name] = {key: value for key, value in schemas[name].items() if key != "additionalProperties"}


def _schemas_within(value: Any, schemas: Schemas) -> set[str]:
    """The names of all schemas that `value` refers to, directly or not."""
    referred: set[str] = set()
    left = [value]
    while left:
        names = {part["$ref"].removeprefix(_REF_PREFIX) for part in _parts(left.pop()) if _is_schema(part.get("$ref"))}
        left += [schemas[name] for name in names - referred]
        referred |= names
    return referred


def _renamed(value: Any, names: Collection[str] | None = None) -> Any:
    """A copy of `value` whose references to schemas (all, or those in `names`) lead to the schemas for requests."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    refers = _is_schema(value.get("$ref")) and (names is None or value["$ref"].removeprefix(_REF_PREFIX) in names)
    if refers:
        return value | {"$ref": value["$ref"].replace(_REF_PREFIX, _REF_PREFIX + _REQUEST_PREFIX)}
    return {key: _renamed(part, names) for key, part in value.items()}


def _is_schema(reference: object) -> bool:
    return isinstance(reference, str) and reference.startswith(_REF_PREFIX)


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in `value`."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(part)
