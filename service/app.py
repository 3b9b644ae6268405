"""The application: routes, problems, and what is opened before the first request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI

from dyno.artifact_store import service_store
from dyno.logging import tracer_for
from dyno.settings import Settings
from dyno.workloads import registry
from service import middleware, openapi, problems
from service.auth import authorize, check_route_rules
from service.dependencies import check_parameters
from service.middleware import HttpMetrics, TracingMiddleware
from service.routes import artifacts, comparisons, docs, events, fleet, health, jobs, keys, results, webhooks, workloads
from service.state import opened

DESCRIPTION = (
    "Every answer has an `X-Request-ID`: the caller's own (1 to 128 letters, digits, dots, dashes and underscores), or "
    "one made for it. HEAD is answered as GET is, without the body."
)


def create_app(settings: Settings) -> FastAPI:
    """The service over the store in `settings`. Raises WorkloadFault with all faults of all workload files, and
    ArtifactStoreUnfit and TracingMissing.

    `app.state.stopping` is an event to set when the server begins to end, so that long polls answer at once.
    """
    registered, files = registry(), service_store(settings)
    stopping, traces = asyncio.Event(), tracer_for(settings, "dyno-api", sends_by_itself=True)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened(settings, registered, files, stopping, traces) as state:
            app.state.opened = state
            yield

    app = FastAPI(
        title="Dyno",
        summary="A dynamometer for CPUs, GPUs and TPUs: benchmarks on demand",
        description=DESCRIPTION,
        version=version("tensordyno"),
        lifespan=lifespan,
        openapi_url=None,  # a route of ours, with `authorize` in front of it
        docs_url=None,  # FastAPI's pages load their scripts from a CDN, and a benchmark host may be offline
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.stopping = stopping
    parts = (jobs, events, artifacts, webhooks, results, comparisons, workloads, fleet, keys, openapi, docs, health)
    for part in parts:
        app.include_router(part.router, dependencies=[Depends(authorize), Depends(check_parameters)])
    routes = [route for part in parts for route in part.router.routes]
    check_route_rules(app.routes)
    problems.install(app, routes)
    app.openapi = openapi.openapi_factory(app, registered)  # type: ignore[method-assign]
    if traces.on:
        app.add_middleware(TracingMiddleware, traces=traces)
    app.state.meter = HttpMetrics(app.version)
    middleware.install(app, app.state.meter, settings)
    return app
