"""The page of advice: the devices that do most work per second, per joule and per unit of currency, with results."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from dyno.charts import several
from dyno.errors import InvalidSpec
from dyno.formatting import format_quantity
from dyno.models.advice import Advice
from service.advice import routes as advice_routes
from service.auth import OWN, READ, CallerDep, requires
from service.dashboard.forms import as_spec, beside_fields
from service.dashboard.rendering import PageRoute, page
from service.dependencies import StateDep
from service.problems import InvalidRequest
from service.state import State
from service.validation import validate_model
from service.workloads import routes as workload_routes
from service.workloads.page import param_fields

router = APIRouter(prefix="/advice", include_in_schema=False, route_class=PageRoute)

CRITERIA = {"per_s": "per second", "per_joule": "per joule", "per_currency": "per unit of currency"}


@router.get("")
@requires(READ, OWN)
async def show(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """The form, and the advice for the workload and the params of the query."""
    given = {name: text for name, text in request.query_params.items() if text}
    context: dict[str, Any] = {
        "given": given,
        "workloads": list(state.workloads),
        "criteria": CRITERIA,
        "entry": None,
        "advice": None,
        "errors": [],
        "wrong": {},
        "pictures": {},
    }
    if workload := given.get("workload"):
        entry = await workload_routes.show(workload, state)
        context |= {"entry": entry, "params": list(param_fields(entry)), **await _advice(state, given)}
    return page(request, caller, "advice.html", context, 422 if context["errors"] else 200, file_name="advice")


async def _advice(state: State, given: Mapping[str, str]) -> dict[str, Any]:
    """The advice for the template, or the errors of the query."""
    try:
        params = as_spec({name: text for name, text in given.items() if name.startswith("params.")}).get("params", {})
        chosen = {name: given[name] for name in ("workload", "framework", "metric") if name in given}
        document = {**chosen, "params": json.dumps(params)}
        filters = validate_model(advice_routes.AdviceFilter, document, [], InvalidRequest)
        advice = await advice_routes.show(state, filters)
    except InvalidSpec as invalid:
        errors = [replace(error, pointer=error.pointer.removeprefix("/query")) for error in invalid.errors]
        return {"errors": errors, "wrong": beside_fields(errors)}
    return {
        "query": urlencode(document),
        "advice": advice,
        "rows": {row.device: row for row in advice.rows},
        "pictures": _pictures(advice),
    }


def _pictures(advice: Advice) -> dict[str, Any]:
    """For each criterion, the figures of the devices with their intervals."""
    rows = {row.device: row for row in advice.rows}
    drawn: dict[str, Any] = {}
    for ranking in advice.rankings:
        figures = {ranked.device: getattr(rows[ranked.device], ranking.by) for ranked in ranking.devices}
        unit = next(figure.unit for figure in figures.values())
        bars = [
            several.Bar(name, figure.value, figure.low, figure.high, text=format_quantity(figure.value, unit))
            for name, figure in figures.items()
        ]
        title = f"{advice.metric} {CRITERIA[ranking.by]}"
        drawn[ranking.by] = several.bars(title, bars, title.replace("_", " "), unit)
    return drawn
