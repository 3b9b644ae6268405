"""The data a key can own: jobs with results, files and deliveries, a comparison, a baseline, a sweep, an alarm; and
texts that reveal it."""

import hashlib
from dataclasses import dataclass

from dyno.artifact_store import service_store
from dyno.models.result import Artifact
from dyno.store.redis import Keys
from tests.service.keys.matrix import IMPORT, QUEUED

FILE, CONTENT = "model.weights.h5", b"what it has learned"
WORD = "owners-own"  # in a label, in a URL and as an idempotency key
SCHEDULE = f"sch_{'owner':0>26}"
NAME = f"bl_{'owner':0>26}"  # as long as a name that never was
NEVER = {
    "jobs": "job_",
    "job": "job_",
    "comparisons": "cmp_",
    "sweeps": "swp_",
    "webhook-deliveries": "msg_",
    "baselines": "bl_",
    "schedules": "sch_",
    "alarms": "alm_",
}


@dataclass(frozen=True)
class Belongings:
    """`names` of the owner's data, and of data common to all. Responses to other callers have none of `marks`."""

    names: dict[str, str]
    marks: frozenset[str]

    @property
    def nowhere(self):
        """The names with unknown ids in place of the owner's."""
        return {**self.names, **{name: f"{NEVER[name]}{at:026}" for at, name in enumerate(NEVER)}}

    def renamed(self, text):
        """`text` with the unknown ids in place of the owner's."""
        for name in NEVER:
            text = text.replace(self.names[name], self.nowhere[name])
        return text


def make(http, hidden, everybodys, finished, client, settings):
    """Data of the key that `http` sends; `hidden` reveals it, too."""
    file = Artifact(name=FILE, bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest(), url="")
    spec = {"webhook": f"https://127.0.0.1:1/{WORD}", "labels": {"whose": WORD}}
    jobs = [finished(spec=spec, artifacts=[file]), finished()]
    _keep(settings, jobs[0], file)
    _say_that_it_runs(client, settings, jobs[0])
    queued = _made(http.post("/v1/jobs", json=QUEUED, headers={"Idempotency-Key": WORD}))
    comparison = _made(http.post("/v1/comparisons", json={"jobs": jobs}))
    http.put(f"/v1/baselines/{NAME}", json={"job": jobs[0]}).raise_for_status()
    nightly = {"cron": "0 3 * * *", "spec": QUEUED | {"labels": {"whose": WORD}}}
    http.put(f"/v1/schedules/{SCHEDULE}", json=nightly).raise_for_status()
    many = {"spec": QUEUED, "grid": {"params.n": [64, 65]}}
    sweep = http.post("/v1/sweeps", json=many).raise_for_status().json()
    [imported] = http.post("/v1/results/import", **IMPORT).raise_for_status().json()["lines"]
    names = {
        "jobs": jobs[0],
        "baselines": NAME,
        "schedules": SCHEDULE,
        "artifacts": FILE,
        "comparisons": comparison,
        "sweeps": sweep["id"],
        "webhook-deliveries": jobs[0].replace("job_", "msg_"),
        "alarms": _alarm(http, finished),
        "job": jobs[1],
        "label": f"whose={WORD}",
        "cursor": http.get("/v1/jobs", params={"limit": 1}).json()["next_cursor"],
        "idempotency-key": WORD,
    }
    ulids = {
        each.partition("_")[2] for each in (*jobs, imported["job"], queued, comparison, sweep["id"], *_jobs_of(sweep))
    }
    secret = http.get("/v1/webhook-secret").json()["secret"]
    return Belongings({**everybodys, **names}, frozenset({*ulids, *hidden, secret, WORD}))


def _alarm(http, finished):
    """The alarm of a series whose level falls."""
    for at, level in enumerate([100.0] * 6 + [80.0] * 6):
        finished([level * (1 + at % 3 / 500)] * 2, {"params": {"n": 65}, "labels": {"whose": WORD}})
    return str(http.get("/v1/history").raise_for_status().json()["alarms"][0]["id"])


def _jobs_of(sweep):
    return [str(point["job"]) for point in sweep["points"]]


def _made(answer):
    return str(answer.raise_for_status().json()["id"])


def _keep(settings, job_id, file):
    store = service_store(settings)
    path = store.incoming(job_id) / ".whole"
    path.write_bytes(CONTENT)
    store.keep(job_id, file.name, file.sha256, path)


def _say_that_it_runs(client, settings, job_id):
    name = Keys(settings.namespace).worker("worker-1")
    record = str(client.get(name))
    client.set(name, record.replace('"job":null', f'"job":"{job_id}"'), keepttl=True)
