"""What stands in for workers: it claims as they do, ends jobs without running them, and leaves files behind."""

import base64
import contextlib
import threading
import time
from datetime import datetime
from itertools import count

from dyno.models.device import Device, PeakFigure
from dyno.models.job import Failure, FailureClass
from dyno.models.result import Artifact, RunSamples
from dyno.models.spec import InterleavedSpec
from dyno.store.leases import Leases
from tests.comparisons import a_metric, of_metrics
from tests.service.workers import claim_of, publish, take

WAITS_AT_MOST_S = 0.3  # a job that fits no device; whoever asked to be told of its end is told then
LOOK_EVERY_S = 0.02
FAILS_OF = 5  # one of so many
LOOKS = 10  # for a job, until what waits is looked at
SAMPLES = RunSamples(run=0, warmup=[0.3], samples=[0.1], sample_cpu_s=[(0.1, 0.0)], executions_per_sample=4)
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
FILES = {"model.weights.h5": b"weights", "wrong.png": base64.b64decode(DOT)}


class Devices:
    """Two, as their workers publish them: one takes jobs, the other holds one for ever."""

    def __init__(self, client, settings):
        self._leases = Leases(client, settings)
        self._taking, self._holding = (_device(cores) for cores in ([0, 1], [2, 3]))
        for device in (self._taking, self._holding):
            publish(client, settings, device)

    def claim(self):
        return take(self._leases, self._taking)

    def held(self, http, spec):
        """A job that runs from now on, and doesn't end."""
        http.post("/v1/jobs", json=spec).raise_for_status()
        return claim_of(self._leases, self._holding)

    def finish(self, claim, *, files):
        """With a result that has these files, or without one."""
        if files is None:
            failure = Failure(failure_class=FailureClass.BENCHMARK, reason="why", message="why")
            self._leases.finish(claim, "fail", failure=failure)
            return
        arms = [_result(claim, artifacts=[]) for _ in range(2)] if isinstance(claim.spec, InterleavedSpec) else []
        self._leases.finish(claim, "succeed", result=_result(claim, artifacts=files, arms=arms), samples=[SAMPLES])

    @property
    def names(self):
        return [self._taking.full_id, self._holding.full_id]


def _device(cores):
    return Device(
        id=f"cpu:{cores[0]}-{cores[-1]}",
        kind="cpu",
        model="Test CPU",
        host="here",
        cores=cores,
        memory_bytes=8 * 2**30,
        peak={"float32": PeakFigure(value=1e11, provenance="measured here")},
        frameworks={"tensorflow": "2.21.0", "jax": "0.10.2"},
    )


def _result(claim, **more):
    return of_metrics([a_metric()], workload=claim.spec.workload, **more).model_copy(update={"job": claim.job_id})


@contextlib.contextmanager
def at_work(devices, http, spec):
    """Ends what it claims, most with a result, cancels what waits for a device that isn't there, and submits
    `spec` from time to time, so that whoever follows all jobs is told of something."""
    ended = threading.Event()
    thread = threading.Thread(target=_work, args=(ended, devices, http, spec))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _work(ended, devices, http, spec):
    for number in count():
        if ended.wait(LOOK_EVERY_S):
            return
        claim = devices.claim()
        if claim is not None:
            devices.finish(claim, files=_left(http, claim) if number % FAILS_OF else None)
        elif number % LOOKS == 0:
            for name in devices.names:
                http.post(f"/v1/devices/{name}/uncordon")  # or nothing is taken from then on
            _cancel_what_waits(http)
            http.post("/v1/jobs", json=spec)


def _left(http, claim):
    holds = {"Authorization": f"Bearer {claim.token}"}
    urls = {name: f"/v1/jobs/{claim.job_id}/artifacts/{name}" for name in FILES}
    sent = [http.put(urls[name], content=content, headers=holds) for name, content in FILES.items()]
    return [Artifact.model_validate(answer.json()) for answer in sent if answer.is_success]


def _cancel_what_waits(http):
    for job in http.get("/v1/jobs", params={"status": "queued", "limit": 200}).json()["data"]:
        age_s = time.time() - datetime.fromisoformat(job["created_at"]).timestamp()
        if age_s > WAITS_AT_MOST_S:
            http.post(f"/v1/jobs/{job['id']}/cancel")
