"""A real, private server for the whole test session, and a namespace of its own for every test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from dyno.settings import Settings
from dyno.store.connect import sync_client
from dyno.store.server import EmbeddedServer


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with EmbeddedServer() as server:
        yield server.url


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(redis_url: str, namespace: str, tmp_path: Path) -> Settings:
    return Settings(redis_url=redis_url, namespace=namespace, run_dir=tmp_path / "run")


@pytest.fixture
def client(settings: Settings) -> Iterator[redis.Redis]:
    with sync_client(settings) as client:
        yield client
