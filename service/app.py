"""Build the application: routes, problems, middleware, and the state that it opens before the first request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI

from dyno.artifact_store import service_store
from dyno.bench.registry import registry
from dyno.settings import Settings
from dyno.tracing import tracer_for
from service import auth, dependencies, docs, health, middleware, openapi, pages, problems
from service.advice import routes as advice
from service.artifacts import routes as artifacts
from service.baselines import routes as baselines
from service.comparisons import routes as comparisons
from service.fleet import routes as fleet
from service.history import result_history
from service.history import routes as history
from service.hot_routes import HotRoutes
from service.jobs import events
from service.jobs import routes as jobs
from service.keys import routes as keys
from service.results import imports
from service.results import routes as results
from service.schedules import routes as schedules
from service.schedules import scheduler
from service.state import opened
from service.sweeps import routes as sweeps
from service.sweeps import stops as sweep_stops
from service.webhooks import routes as webhooks
from service.workloads import routes as workloads

DESCRIPTION = (
    "Every response has an `X-Request-ID`: the one that the client sent (1 to 128 letters, digits, dots, dashes and "
    "underscores), or a generated one. A response to HEAD is that to GET without the body."
)


def create_app(settings: Settings) -> FastAPI:
    """Build the service for the store in `settings`.

    Set the event `app.state.stopping` when the server begins to shut down, so that long polls respond at once. Raises
    WorkloadFault with all faults of all workload files, ArtifactStoreUnfit and TracingMissing.
    """
    registered, files = registry(), service_store(settings)
    stopping, traces = asyncio.Event(), tracer_for(settings, "dyno-api", sends_by_itself=True)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with (
            opened(settings, registered, files, stopping, traces) as state,
            result_history.alarm_reruns(state),
            scheduler.firing_schedules(state),
            sweep_stops.stops(state),
        ):
            app.state.opened = state
            yield

    app = FastAPI(
        title="Dyno",
        summary="A dynamometer for CPUs, GPUs and TPUs: benchmarks on demand",
        description=DESCRIPTION,
        version=version("tensordyno"),
        lifespan=lifespan,
        openapi_url=None,  # service.openapi serves it, with `authorize` in front
        docs_url=None,  # FastAPI's pages load their scripts from a CDN, and a benchmark host may be offline
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # Dyno's own: docs/dev/decisions/0021-*.md
    )
    app.state.stopping = stopping
    of_jobs = (jobs, schedules, events, artifacts)
    of_results = (results, imports, comparisons, baselines, sweeps, history, advice)
    parts = (*of_jobs, webhooks, *of_results, workloads, fleet, keys, openapi, docs, health, pages)
    for part in parts:
        app.include_router(part.router, dependencies=[Depends(auth.authorize), Depends(dependencies.check_parameters)])
    routes = [route for part in parts for route in part.router.routes]
    app.state.rules = auth.route_rules(app.routes)
    problems.install(app, routes)
    app.openapi = openapi.openapi_factory(app, registered)  # type: ignore[method-assign]
    app.state.meter = middleware.HttpMetrics(app.version, middleware.metrics_folder())
    middleware.install(app, HotRoutes, traces, app.state.meter, settings)
    return app
