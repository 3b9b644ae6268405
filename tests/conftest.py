"""A real, private server and a real TensorFlow for the whole test session, and a namespace for every test."""

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

# Tests of programs that check Dyno from outside. They run in `make verify` only.
PROOFS = ("tests/benchmarks/", "tests/chaos/", "tests/fuzz/")

# Folders whose tests share something that takes seconds to start.
SHARING = ("api_tests/", "tests/frameworks/")

# pytest-xdist sets COLUMNS for its processes, and rich's consoles keep the width that they find at their creation.
os.environ.pop("COLUMNS", None)

# The time of one example depends on the machine; pytest's time limit covers all examples of a test.
hypothesis.settings.register_profile("dyno", deadline=None)
hypothesis.settings.load_profile("dyno")


class _ByFile(LoadFileScheduling):
    """Run a file's tests in one process, and a SHARING folder's, which share a fleet or each import JAX."""

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
    """The real TensorFlow, started once per process, since its threads can't be set twice."""
    framework = TensorFlow()
    framework.load()
    framework.start("cpu", len(os.sched_getaffinity(0)))
    return framework
