"""Whole runs, on a real rig."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

import chaos.__main__ as command
from chaos import clients, leaks, report
from chaos.checks import QUEUED, RUNNING, Violation, ViolationKind
from chaos.plan import FaultKind
from chaos.rig import Rig
from chaos.run import KEYS, RunConfig, _rest, _settle, run
from tests.numpy_runners import ON_NUMPY

ROOT = Path(__file__).parent.parent.parent
PARTS = ("-m service", "-m workers --device", "-m dyno.bench.runner.zygote", "(redis|valkey)-server")


@pytest.fixture
def running(tmp_path):
    command = [sys.executable, "-m", "chaos", "--seed", "882", "--minutes", "1", "--jobs", "150"]
    env = os.environ | ON_NUMPY | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.timeout(300)
def test_ctrl_c_in_the_middle_of_faults_leaves_no_process_and_no_file(running, tmp_path):
    assert running.stderr is not None
    said: list[str] = []
    for line in running.stderr:
        said.append(line)
        if "STOP/CONT" in line:
            break
    assert said[0].startswith("seed 882,")
    assert "STOP/CONT" in said[-1], f"it ended before any part was stopped: {said}"
    family = psutil.Process(running.pid).children(recursive=True)
    commands = "\n".join(map(leaks.command, family))
    for part in PARTS:
        assert re.search(part, commands), f"{part} is not among {commands}"
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGTERM)  # whoever is impatient changes nothing
    assert running.wait(60) == command.SIGNALED
    assert leaks.alive(family) == set()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def planted(monkeypatch):
    """Something left over at rest, with all parts up, and an answer that isn't true; both checks are real otherwise."""
    made = [Violation(ViolationKind.ORPHAN, "planted")]
    at_rest, read_jobs = leaks.at_rest, clients.read_jobs

    async def with_an_orphan(rig, idle_within_s):
        assert all(part.process is not None and part.process.poll() is None for part in rig.parts.values())
        return [*await at_rest(rig, idle_within_s), made[0]]

    async def with_a_lie(url, ids, within_s):
        found = await read_jobs(url, ids, within_s)
        assert found.keys() == set(ids)
        assert len({view.job["owner"] for view in found.values()}) == 3
        job = min(found)
        made.append(Violation(ViolationKind.VIEW, f"{job}: GET returned 404"))
        return {**found, job: found[job]._replace(code=404)}

    monkeypatch.setattr(leaks, "at_rest", with_an_orphan)
    monkeypatch.setattr(clients, "read_jobs", with_a_lie)
    return made


@pytest.mark.timeout(300)
def test_a_short_run_with_a_killed_worker_and_a_bad_network_breaks_nothing_but_what_is_planted(planted, tmp_path):
    kinds = {FaultKind.KILL, FaultKind.RESET}
    config = RunConfig(seed=52, minutes=0.05, jobs=24, durability="everysec", patience_s=120, kinds=kinds)
    record = asyncio.run(run(config, tmp_path))
    assert sorted(record.violations) == sorted(planted)
    assert sorted(fault.kind for fault, _ in record.faults.spans) == sorted(kinds)
    found: dict[str, Any] = report.summary(record)
    assert found["jobs"] == sum(found["ends"].values()) == 24
    assert found["ends"]["succeeded"] > 15


def test_a_run_that_breaks_is_neither_a_promise_kept_nor_one_broken(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("sys.argv", ["chaos", "--seed", "1", "--minutes", "0.1", "--jobs", "1"])
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("dyno.store.embedded.embedded_server", lambda: None)  # so that there is no Redis to start
    assert command.main() == command.BROKE
    assert command.BROKE not in (command.HELD, command.VIOLATED)
    assert "the run itself failed" in capsys.readouterr().err


@pytest.fixture
def resting(tmp_path):
    """A rig with Redis alone, and a client of it."""
    rig = Rig(tmp_path, "everysec")
    rig.server.start()
    try:
        with redis.Redis.from_url(rig.server.url) as client:
            yield rig, client
    finally:
        rig.close()


def test_a_slow_machine_has_time_while_jobs_end(resting):
    rig, client = resting
    client.zadd(KEYS.jobs_with_status(QUEUED), {f"job_{number}": number for number in range(4)})
    client.zadd(KEYS.leases, {"cpu:0-0@here": 1})
    patience_s, readings = 1.0, count(1)

    def clock():
        """Each reading is 0.4 s later. A job ends at every second one."""
        reading = next(readings)
        if reading % 2 == 0:
            client.zpopmin(KEYS.jobs_with_status(QUEUED))
        return 0.4 * patience_s * reading

    at_rest = [Violation(ViolationKind.HELD, "cpu:0-0@here is leased at rest")]
    assert asyncio.run(_rest(rig, patience_s, clock)) == (0, at_rest)
    assert clock() > 2 * patience_s


def test_jobs_without_an_end_are_reported_and_no_part_is_called_hung(resting, capsys):
    rig, client = resting
    client.zadd(KEYS.jobs_with_status(RUNNING), {"job_1": 1, "job_2": 2})
    assert asyncio.run(_settle(rig, 0.3, time.monotonic())) == []
    assert "2 jobs wait or run, and none has ended for 0.3 s" in capsys.readouterr().err
