"""Bodies of requests, where FastAPI can't tell: that of POST /v1/jobs is spelled out for every registered workload."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from dyno.models.spec import DEVICE_ID, Spec
from dyno.workloads.contract import Workload
from service.problems import Problem

_REF = "#/components/schemas/{model}"
Schemas = dict[str, Any]


def describe_bodies(document: dict[str, Any], workloads: Mapping[str, Workload]) -> None:
    """Add the schemas of problems and of specs, and what POST /v1/jobs takes."""
    schemas: Schemas = document["components"]["schemas"]
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
    """The schema of Spec as a caller may write it, shorthands included; its parts are added to `schemas`."""
    envelope = Spec.model_json_schema(ref_template=_REF)
    for name, part in envelope.pop("$defs", {}).items():
        schemas[f"Submit{name}"] = part | {"title": f"Submit{name}"}  # of one name, clients would have one class
    envelope = dict(_renamed(envelope, "Submit"))
    device = {"type": "string", "pattern": f"^(any|cpu|gpu|tpu)$|{_portable(DEVICE_ID.pattern)}"}
    envelope["properties"]["device"] = _either(device, envelope["properties"]["device"])
    envelope["properties"]["webhook"]["anyOf"].append(schemas["SubmitWebhook"]["properties"]["url"])
    measure = _renamed(schemas["SubmitMeasure"], "Submit")
    fixed = {"type": "integer", "minimum": 1, "maximum": 100}
    measure["properties"]["processes"] = _either(fixed, measure["properties"]["processes"])
    schemas["SubmitMeasure"] = measure
    return envelope


def _add_submission(schemas: Schemas, workload: Workload, envelope: Schemas) -> None:
    """The envelope for one workload: its name is constant, its params are its own. So exactly one `oneOf` can match."""
    params = f"{_title(workload)}Params"
    _add(schemas, params, workload.params.model_json_schema(ref_template=_REF))
    one = deepcopy(envelope)
    one["title"], one["description"] = _title(workload), workload.description
    one["properties"]["workload"] = {"const": workload.name, "type": "string"}
    one["properties"]["framework"]["enum"] = list(workload.frameworks)
    one["properties"]["params"] = {"$ref": _REF.format(model=params)}
    schemas[_title(workload)] = one


def _add(schemas: Schemas, name: str, schema: Schemas) -> None:
    schemas.update(schema.pop("$defs", {}))
    schemas[name] = schema


def _title(workload: Workload) -> str:
    return "Submit" + "".join(part.capitalize() for part in workload.name.split("_"))


def _either(shorthand: Schemas, full: Schemas) -> Schemas:
    return {"anyOf": [shorthand, {key: value for key, value in full.items() if key != "default"}]}


def _renamed(value: Any, prefix: str) -> Any:
    """`value` with its references pointing at the components that carry the prefix."""
    if isinstance(value, dict):
        return {
            key: item.replace("schemas/", f"schemas/{prefix}") if key == "$ref" else _renamed(item, prefix)
            for key, item in value.items()
        }
    return [_renamed(item, prefix) for item in value] if isinstance(value, list) else value


def _portable(pattern: str) -> str:
    """Python's named groups as plain ones: JSON Schema's regular expressions are ECMAScript's."""
    return pattern.replace("?P<kind>", "").replace("?P<index>", "").replace("?P<host>", "")
