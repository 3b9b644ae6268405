"""What is told in streams: one schema for each kind of event."""

from __future__ import annotations

from typing import Any, get_args

from dyno.models.event import EVENT, AnyEvent

_REF = "#/components/schemas/{model}"
STREAM = "text/event-stream"


def describe_events(document: dict[str, Any]) -> None:
    """Add `itemSchema`, as OpenAPI 3.2 has it, to every stream: tools that don't know it take the whole for text."""
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
