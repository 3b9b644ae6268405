"""Fixtures: claimed jobs and their files, with reachable and unreachable stores."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest

from dyno.bench.registry import registry, resolve, validate_params
from dyno.bench.runner.launcher import Launcher
from dyno.models.job import WorkerRef
from dyno.models.spec import Spec
from dyno.processes import free_port
from dyno.store.leases import Claim, Leases
from dyno.store.placement import queues_served
from dyno.store.redis import sync_client
from tests.workers.conftest import Store
from workers.artifact_upload import JobFiles
from workers.attempt import WorkerContext
from workers.heartbeat import AttemptEnded, Heartbeat
from workers.outcome import Failed

TRAINING = {"workload": "mnist_cnn", "device": "cpu"}


def training(**params):
    return resolve(Spec.model_validate(TRAINING | {"params": params})).spec


@pytest.fixture
def shared(quick, tmp_path):
    """Settings with a shared folder."""
    return quick.model_copy(update={"artifact_url": f"file://{tmp_path}/shared", "artifact_patience_s": 1.0})


@pytest.fixture
def by_api(quick):
    """Settings with an API that isn't running (yet)."""
    return quick.model_copy(update={"artifact_patience_s": 30.0, "api_url": f"http://127.0.0.1:{free_port()}"})


class Attempted:
    """A claimed job and its files. `spec`: the submitted spec."""

    def __init__(self, settings, here, spec):
        self.job_id = Store(settings).submit(spec)
        self.leases = Leases(sync_client(settings), settings)
        ref = WorkerRef(id="w", device=here.full_id, host=here.host)
        claim = self.leases.claim(here.full_id, queues_served(here), ref)
        assert claim is not None
        self.claim: Claim = claim
        self.context = WorkerContext(here, self.leases, Launcher("spawn", here.cores), settings, registry())
        heartbeat = Heartbeat(claim, self.leases, settings.heartbeat_s, self.context.clock, self.context.stop)
        self.files = JobFiles(claim, heartbeat, self.leases, settings)
        self.params = validate_params(registry()[spec.workload], spec.params)


@pytest.fixture
def attempt(here):
    with ExitStack() as stack:

        def attempted(settings, spec=None):
            made = Attempted(settings, here, spec or training())
            stack.enter_context(closing(made.context.launcher))
            stack.enter_context(made.files)
            return made

        yield attempted


def outcome_of(of):
    with pytest.raises(AttemptEnded) as raised:
        of()
    return raised.value.outcome


def reason(of):
    """Class and reason of its failure."""
    ended = outcome_of(of)
    assert isinstance(ended, Failed)
    return ended.failure.failure_class, ended.failure.reason
