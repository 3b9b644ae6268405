"""A worker that can't start reports the reason and exits."""

import json
import os
import subprocess
import sys
from typing import get_args

import pytest
import redis

from dyno.errors import FrameworkMissing
from dyno.models.spec import FrameworkName
from dyno.store.embedded import EmbeddedServer
from tests.cores import HERE
from workers.worker import Worker


def test_a_server_that_may_evict_jobs_ends_the_start_with_a_reason():
    with EmbeddedServer() as server:
        redis.Redis.from_url(server.url).config_set("maxmemory-policy", "allkeys-lru")
        ended = failed_start({"DYNO_REDIS_URL": server.url}, HERE)
    assert ended.returncode == 3
    assert "store-unfit" in ended.stderr


def test_an_outbox_that_others_may_write_in_ends_the_start(settings):
    settings.spool_dir.mkdir()
    settings.spool_dir.chmod(0o777)
    env = {"DYNO_REDIS_URL": str(settings.redis_url), "DYNO_SPOOL_DIR": str(settings.spool_dir)}
    ended = failed_start(env, HERE)
    assert ended.returncode == 3
    assert f"DYNO_SPOOL_DIR: {settings.spool_dir} isn't safe: all users may write in it" in ended.stderr


def test_a_device_that_is_not_here_ends_the_start_with_a_reason_in_the_format_of_the_log(settings):
    ended = failed_start({"DYNO_REDIS_URL": str(settings.redis_url), "DYNO_LOG_FORMAT": "json"}, "cpu:4000-4001")
    assert ended.returncode == 3
    [said] = map(json.loads, ended.stderr.splitlines())
    assert (said["logger"], said["level"]) == ("dyno.worker", "ERROR")
    assert "device-unavailable" in said["message"]


def test_a_worker_does_not_start_without_a_framework(settings, monkeypatch):
    absent = dict.fromkeys(get_args(FrameworkName), ("no-such-distribution",))
    monkeypatch.setattr("dyno.bench.devices.discovery._DISTRIBUTIONS", absent)
    with pytest.raises(FrameworkMissing, match="no framework is installed"):
        Worker("cpu", None, settings)


def failed_start(settings, device):
    command = [sys.executable, "-P", "-m", "workers", "--device", device]
    env = os.environ | settings
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
