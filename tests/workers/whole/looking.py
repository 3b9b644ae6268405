"""Helpers for a fleet of whole workers: submit jobs and read their state, like the API."""

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx

from dyno.celery_app import send_wake_up
from dyno.processes import die_with_parent
from dyno.store.fleet import devices
from dyno.store.jobs import Jobs
from dyno.store.redis import Keys, async_client, sync_client
from tests.waiting import eventually
from tests.workers.conftest import children_of

SHORT = {"min_samples": 20, "min_s": 3, "max_s": 3}


def environment_of(settings):
    """The environment for a process with these settings, without defaults."""
    given = settings.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return {f"DYNO_{name.upper()}": str(value) for name, value in given.items()}


@contextmanager
def api(settings, *program):
    """A client of an API in a process of its own, which is killed at the end."""
    command = [sys.executable, "-P", *program]
    env = os.environ | environment_of(settings) | {"DYNO_PORT": "0"}
    begin = partial(die_with_parent, os.getpid())
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=begin) as process:
        try:
            with httpx.Client(base_url=process.stdout.readline().split()[-1], timeout=30) as http:
                yield http
        finally:
            process.kill()


def family_of(pid):
    """All descendants of the process."""
    family = set()
    for child in children_of(pid):
        family |= {child} | (family_of(child) if Path(f"/proc/{child}").exists() else set())
    return family


def submit(settings, *specs, call=send_wake_up):
    """Submit jobs like the API: first the record, then a wake-up if the queue was empty."""

    async def submitted():
        async with async_client(settings) as client:
            jobs = Jobs(client, settings)
            return [accepted(await jobs.submit(spec)) for spec in specs]

    def accepted(submitted):
        if submitted.wake:
            call(settings, submitted.job.queue.name)
        return submitted.job.id

    return asyncio.run(submitted())


def jobs_of(settings, *ids):
    async def got():
        async with async_client(settings) as client:
            return [await Jobs(client, settings).get(job_id) for job_id in ids]

    return asyncio.run(got())


def offered(settings):
    async def got():
        async with async_client(settings) as client:
            return await devices(client, settings)

    return asyncio.run(got())


def until_idle(settings, count):
    eventually(lambda: [device.state for device in offered(settings)] == ["idle"] * count, within_s=60)


def until_status(settings, job_id, status, within_s=60):
    eventually(lambda: jobs_of(settings, job_id)[0].status is status, within_s)
    return jobs_of(settings, job_id)[0]


def until_measuring(settings, job_id, *phases):
    """Wait until its runner reports that it warms up or samples, or is in one of `phases`."""

    def measuring():
        progress = jobs_of(settings, job_id)[0].progress
        return progress is not None and progress.phase in (phases or ("warmup", "sampling"))

    eventually(measuring)
    return jobs_of(settings, job_id)[0]


def until_sampling(settings, job_id):
    return until_measuring(settings, job_id, "sampling")


def events_of(settings, job_id):
    """The job's events, except progress."""
    with sync_client(settings) as client:
        found = [fields["event"] for _, fields in client.xrange(Keys(settings.namespace).job_events(job_id))]
    return [event for event in found if event != "heartbeat"]
