"""Render templates and errors as pages. Also here: filters for figures and times, and the pages' security policy."""

import json
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, RedirectResponse

from dyno.bench.contract import Workload
from dyno.bench.measure.warning_codes import CODES
from dyno.errors import DynoError, KeyExpired
from dyno.formatting import format_duration, format_quantity, percent, ratio_in_words
from dyno.models.history import ResultSeries
from dyno.models.processor_names import device_name, model_name, model_names
from dyno.models.result import Metric
from dyno.models.spec import DeviceSelector, Spec
from service import docs, problems
from service.auth import ADMIN, SUBMIT, Caller
from service.dashboard import saved_files

# A page loads style sheets, scripts and pictures of this origin only, and runs no other code.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# With "no-referrer", browsers would send "Origin: null" with the page's own forms.
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
SIGNS = {"trusted": "✓", "indicative": "~", "untrusted": "✗"}


def ago(moment: datetime | None) -> str:
    """A text such as `3 min ago`."""
    if moment is None:
        return "never"
    return f"{format_duration(max(0.0, (datetime.now(UTC) - moment).total_seconds()))} ago"


def as_text(value: object) -> str:
    """A param's value as JSON; strings without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def spec_text(spec: Spec | ResultSeries, params: Mapping[str, Any]) -> str:
    """A text such as `matmul n = 64, dtype = bfloat16`."""
    return f"{spec.workload} {', '.join(f'{name} = {as_text(value)}' for name, value in params.items())}"


def selector_text(device: DeviceSelector) -> str:
    """The selector's id, or its model, or its kind; `any` for all devices."""
    return device.id or model_name(device.model or "") or device.kind or "any"


_CODE = re.compile(r"`([^`]*)`")


def prose(text: str) -> Markup:
    """A text of the docs: words between backticks become code, and line breaks become spaces."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(" ".join(text.split())))))


def half_width(metric: Metric) -> str:
    """Half of the 95 % interval, as a share of the value: `±2.4 %`."""
    if metric.low is None or metric.high is None or not metric.value:
        return "–"
    return f"±{percent((metric.high - metric.value) / abs(metric.value))}"


@cache
def _environment() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(sorted(Path(__file__).parents[1].glob("*/templates"))),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters |= {
        "quantity": format_quantity,
        "duration": format_duration,
        "ago": ago,
        "ratio_in_words": ratio_in_words,
    }
    templates.filters |= {"as_text": as_text, "selector": selector_text, "prose": prose, "half_width": half_width}
    templates.filters |= {"device_name": device_name, "model_name": model_name, "model_names": model_names}
    templates.filters["percent"] = percent
    templates.globals |= {
        "signs": SIGNS,
        "codes": CODES,
        "style_sheet": saved_files.style_sheet,
        "spec_text": spec_text,
    }
    templates.globals |= {"table_formats": saved_files.TABLE_FORMATS}
    return templates


def page(
    request: Request,
    caller: Caller,
    template: str,
    context: Mapping[str, Any],
    status: int = 200,
    *,
    file_name: str | None = None,
) -> Response:
    """Render `template` with `context` as a page.

    `?table=2.csv` responds with the second table of the page as a file. With `file_name`, `?file=1` responds with the
    page as one HTML file without forms, and `?picture=` with one of the context's `pictures` as SVG or PNG.
    """
    query: Mapping[str, str] = request.query_params if file_name else {}
    if drawn := saved_files.picture_file(context.get("pictures", {}), query.get("picture", ""), str(file_name)):
        return drawn
    is_file, tables = "file" in query, saved_files.PageTables(ago)
    shared = {
        "caller": caller,
        "path": request.url.path,
        "address": partial(_address, request),
        "saved": is_file and _source(request),
        "may_submit": SUBMIT in caller.scope.implied and not is_file,
        "may_manage_keys": caller.key is not None and ADMIN in caller.scope.implied,
        "form_key": secrets.token_hex(16),
        "has_guide": (docs.GUIDE / "index.html").is_file(),
        "td": tables.cell,
        "end_table": tables.end,
    }
    text = _environment().get_template(template).render(context, **shared)
    if status == 200 and (requested := request.query_params.get("table")):
        name = file_name or template.removesuffix(".html")
        if table := tables.file(requested, name):
            return table
    return html(text, status, saved_files.attachment(f"{file_name}.html") if is_file else {})


def html(text: str | bytes, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    """The response for a page that is already rendered."""
    return HTMLResponse(text, status, {**_HEADERS, **headers})


def _source(request: Request) -> dict[str, str]:
    """The origin and the URL of a saved page. Links of the page lead to this origin."""
    origin = str(request.base_url)
    url = f"{origin.rstrip('/')}{_address(request)}"
    return {"origin": origin, "url": url, "by": f"Dyno {version('tensordyno')}"}


def _address(request: Request, **added: str) -> str:
    """The address of this page with further fields in its query."""
    kept = [
        (name, value) for name, value in request.query_params.multi_items() if name not in ("file", "picture", "table")
    ]
    query = urlencode([*kept, *added.items()])
    return f"{request.url.path}?{query}" if query else request.url.path


def see_other(path: str) -> Response:
    """Redirect to `path`, for example after a form was sent."""
    return RedirectResponse(path, 303)


def unusual_params(workloads: Mapping[str, Workload], spec: Spec | ResultSeries) -> dict[str, Any]:
    """The params that differ from the workload's defaults; all params if this service doesn't know the workload."""
    fields = workloads[spec.workload].params.model_fields if spec.workload in workloads else {}
    return {name: value for name, value in spec.params.items() if name not in fields or value != fields[name].default}


class PageRoute(APIRoute):
    """A route whose errors are pages. If a needed key is missing, the route redirects to the log-in form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_with_page(request: Request) -> Response:
            try:
                return await answer(request)
            except (problems.NotAuthorized, KeyExpired):
                query = f"?{request.url.query}" if request.url.query else ""
                address = f"{request.url.path}{query}" if request.method == "GET" else "/"
                return see_other(f"/login?next={quote(address)}")
            except (DynoError, RequestValidationError) as error:
                return await error_page(request, error)

        return answer_with_page


async def error_page(request: Request, error: Exception) -> Response:
    """The problem that the API would send, as a page."""
    response = await problems.respond(request, error)
    problem = json.loads(bytes(response.body))
    caller = getattr(request.state, "caller", Caller())  # unset if `authorize` hasn't found the caller
    return page(request, caller, "error.html", {"problem": problem}, response.status_code)
