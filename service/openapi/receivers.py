"""What receivers of webhooks are sent, and what their answers mean: OpenAPI's `webhooks`."""

from __future__ import annotations

import json
from typing import Any

from dyno.models.job import Job
from dyno.models.webhook import JobDone, payload_of
from service.openapi.examples import recorded

_REF = "#/components/schemas/{model}"
_HEADERS = {
    "webhook-id": "`msg_…`, the same for every attempt: whoever has seen it has seen the event",
    "webhook-timestamp": "Seconds since 1970, of this attempt",
    "webhook-signature": "Of Standard Webhooks: `v1,` and base64; `GET /v1/webhook-secret` has the secret",
}
_ANSWERS = {
    "2XX": "It is delivered",
    "410": "It is not delivered, and not tried again",
    "default": "It is not delivered, and tried again, 8 times within a day",
}


def describe_webhooks(document: dict[str, Any]) -> None:
    """Add the one event that there is, told of what was recorded."""
    schemas = JobDone.model_json_schema(mode="serialization", ref_template=_REF)
    document["components"]["schemas"] |= schemas.pop("$defs") | {"JobDone": schemas}
    done = {name: Job.model_validate(job) for name, job in recorded()["answers"]["getJob"]["200"].items()}
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
