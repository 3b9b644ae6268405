import importlib
import pkgutil

import pytest

import service
from dyno import errors
from dyno.errors import DynoError, FieldError, InvalidSpec, RunFailed
from dyno.settings import Settings
from service.app import create_app
from service.problems import MAX_ERRORS, PROBLEMS


def subclasses(kind):
    return {kind}.union(*(subclasses(child) for child in kind.__subclasses__()))


def raised_here():
    for module in pkgutil.walk_packages(service.__path__, "service."):
        importlib.import_module(module.name)
    ours = (errors.__name__, service.__name__)
    return sorted((k for k in subclasses(DynoError) if k.__module__.startswith(ours)), key=lambda k: k.__name__)


@pytest.mark.parametrize("kind", raised_here())
def test_every_error_has_a_status_and_a_title(kind):
    status, title = PROBLEMS[kind.code]
    assert 400 <= status <= 599
    assert title


def test_error_codes_are_unique():
    codes = [kind.code for kind in raised_here() if "code" in vars(kind)]
    assert len(set(codes)) == len(codes)


@pytest.fixture(scope="module")
def failing(redis_url, serve):
    app = create_app(Settings(redis_url=redis_url))
    _add_failing_routes(app)
    with serve(app) as http:
        yield http


def _add_failing_routes(app):
    @app.get("/many")
    async def many() -> None:
        raise InvalidSpec([FieldError(f"/params/{n}", "wrong", "is wrong") for n in range(MAX_ERRORS + 50)])

    @app.get("/secret")
    async def secret() -> None:
        raise KeyError("a secret of the inside")

    @app.get("/failed")
    async def failed() -> None:
        raise RunFailed("benchmark", "why", "a secret of the inside")


@pytest.mark.parametrize("path", ["/secret", "/failed"])
def test_internal_errors_reveal_no_internals(failing, path):
    answer = failing.get(path)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "internal-error"
    assert "secret of" not in answer.text


def test_many_errors_are_truncated_and_counted(failing):
    answer = failing.get("/many")
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == MAX_ERRORS
    assert f"and {MAX_ERRORS + 50 - 3} more" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not-found"),
        ("GET", "/v1/jobs/", 404, "not-found"),
        ("GET", "/docs/", 404, "not-found"),
        ("GET", "/docs/nothing.js", 404, "not-found"),
        ("DELETE", "/v1/jobs", 405, "method-not-allowed"),
        ("PUT", "/livez", 405, "method-not-allowed"),
    ],
)
def test_unknown_paths_are_problems(failing, method, path, status, code):
    answer = failing.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json().keys() == {"type", "title", "status", "code", "detail", "request_id"}
    assert answer.json()["status"] == status


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("DELETE", "/v1/jobs", "GET, HEAD, POST"), ("POST", "/livez", "GET, HEAD")]
)
def test_a_wrong_method_gets_all_allowed_methods(failing, method, path, allowed):
    answer = failing.request(method, path)
    assert answer.headers["allow"] == allowed
    assert answer.json()["detail"].endswith(f"use {allowed}")
