"""A real, private server and a real TensorFlow for the whole test session, a namespace of its own for every test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis
from xdist.scheduler import LoadFileScheduling

from dyno.frameworks.tensorflow import TensorFlow
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import sync_client

# Programs that prove something of Dyno, not a part of it: their own tests are for `make verify`.
PROOFS = ("tests/benchmarks/", "tests/chaos/", "tests/fuzz/")

# Folders whose tests share what takes seconds to start.
SHARING = ("api_tests/", "tests/frameworks/")

# pytest-xdist tells its processes a width, and rich's consoles keep the one they find when they are made.
os.environ.pop("COLUMNS", None)

# How long an example takes is the machine's matter: pytest's own time limit holds for all of them.
hypothesis.settings.register_profile("dyno", deadline=None)
hypothesis.settings.load_profile("dyno")


class _ByFile(LoadFileScheduling):
    """A file's tests run in one process; so do those of a folder that share a fleet, or that each import JAX."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARING if nodeid.startswith(folder)), super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    return _ByFile(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(PROOFS):
            item.add_marker(pytest.mark.verify)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with EmbeddedServer() as server:
        yield server.url


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(redis_url: str, namespace: str, tmp_path: Path) -> Settings:
    return Settings(redis_url=redis_url, namespace=namespace, run_dir=tmp_path / "run", spool_dir=tmp_path / "spool")


@pytest.fixture
def client(settings: Settings) -> Iterator[redis.Redis]:
    with sync_client(settings) as client:
        yield client


@pytest.fixture(scope="session")
def tensorflow() -> TensorFlow:
    """The real one, started once for the whole process: its threads can't be set twice."""
    framework = TensorFlow()
    framework.load()
    framework.start("cpu", len(os.sched_getaffinity(0)))
    return framework
