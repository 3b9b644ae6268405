"""What each route is called in clients made from the document, and what follows from its answer."""

from __future__ import annotations

import re
from typing import Any

TAGS = {
    "jobs": "Submit a benchmark, wait for it, read what it measured",
    "artifacts": "Files that a job left behind",
    "results": "Figures of many jobs, for dashboards",
    "comparisons": "Results beside each other, and specs run in turns",
    "events": "What happens, as Server-Sent Events",
    "workloads": "What there is to run",
    "fleet": "What there is to run it on",
    "webhooks": "Who is told that a job is done",
    "keys": "Who may ask",
    "health": "Whether the service is well, for probes and Prometheus",
}

# (method, path) -> operationId, summary. A route without a row is named after its path.
OPERATIONS: dict[tuple[str, str], tuple[str, str]] = {
    ("POST", "/v1/jobs"): ("submitJob", "Submit a job"),
    ("GET", "/v1/jobs"): ("listJobs", "List jobs"),
    ("GET", "/v1/jobs/{job_id}"): ("getJob", "Look at a job, or wait for it"),
    ("DELETE", "/v1/jobs/{job_id}"): ("deleteJob", "Delete a done job"),
    ("POST", "/v1/jobs/{job_id}/rerun"): ("rerunJob", "Run a job's spec again"),
    ("POST", "/v1/jobs/{job_id}/cancel"): ("cancelJob", "Cancel a job"),
    ("GET", "/v1/jobs/{job_id}/result"): ("getResult", "Read a job's result"),
    ("GET", "/v1/jobs/{job_id}/logs"): ("getLogs", "Read or follow a job's log"),
    ("GET", "/v1/jobs/{job_id}/events"): ("followJob", "Follow a job"),
    ("GET", "/v1/jobs/{job_id}/samples"): ("getSamples", "Read a job's samples"),
    ("HEAD", "/v1/jobs/{job_id}/artifacts"): ("checkArtifacts", "Whether a job's files can be listed"),
    ("GET", "/v1/jobs/{job_id}/artifacts"): ("listArtifacts", "List a job's files"),
    ("HEAD", "/v1/jobs/{job_id}/artifacts/{name}"): ("checkArtifact", "Look at a file without reading it"),
    ("GET", "/v1/jobs/{job_id}/artifacts/{name}"): ("getArtifact", "Download a file"),
    ("PUT", "/v1/jobs/{job_id}/artifacts/{name}"): ("putArtifact", "Store a file"),
    ("GET", "/v1/results"): ("listResults", "Read figures of many jobs"),
    ("POST", "/v1/comparisons"): ("createComparison", "Compare results, or two specs"),
    ("GET", "/v1/comparisons/{comparison_id}"): ("getComparison", "Read a comparison"),
    ("GET", "/v1/comparisons/{comparison_id}/bars.svg"): ("getBars", "See a comparison"),
    ("GET", "/v1/events"): ("followAll", "Follow all jobs"),
    ("GET", "/v1/webhook-deliveries"): ("listDeliveries", "List deliveries of webhooks"),
    ("POST", "/v1/webhook-deliveries/{delivery_id}/redeliver"): ("redeliver", "Tell a webhook again"),
    ("GET", "/v1/webhook-secret"): ("getWebhookSecret", "Read what signs your webhooks"),
    ("GET", "/v1/workloads"): ("listWorkloads", "List workloads"),
    ("GET", "/v1/workloads/{name}"): ("getWorkload", "Look at a workload"),
    ("GET", "/v1/devices"): ("listDevices", "List devices"),
    ("GET", "/v1/workers"): ("listWorkers", "List workers"),
    ("POST", "/v1/devices/{device_id}/cordon"): ("cordonDevice", "Cordon a device"),
    ("POST", "/v1/devices/{device_id}/uncordon"): ("uncordonDevice", "Uncordon a device"),
    ("GET", "/v1/me"): ("getMe", "Look at the key sent"),
    ("POST", "/v1/keys"): ("createKey", "Make a key"),
    ("GET", "/v1/keys"): ("listKeys", "List keys"),
    ("DELETE", "/v1/keys/{key_id}"): ("revokeKey", "Revoke a key"),
    ("GET", "/metrics"): ("getMetrics", "Read metrics"),
    ("GET", "/livez"): ("getLiveness", "Whether the process lives"),
    ("GET", "/readyz"): ("getReadiness", "Whether jobs can be taken"),
}

_Links = list[tuple[tuple[str, ...], dict[str, str]]]
_OF_JOB = (
    *("getJob", "cancelJob", "rerunJob", "deleteJob", "getResult", "getSamples", "getLogs", "followJob"),
    "listArtifacts",
)
_OF_COMPARISON = (("getComparison", "getBars"), {"comparison_id": "$response.body#/id"})
_QUEUED: _Links = [(_OF_JOB, {"job_id": "$response.body#/id"})]

# (operationId, status) -> what can be asked next, with which part of the answer.
LINKS: dict[tuple[str, str], _Links] = {
    ("submitJob", "202"): _QUEUED,
    ("rerunJob", "202"): _QUEUED,
    ("cancelJob", "200"): [(("getJob", "rerunJob", "deleteJob"), {"job_id": "$response.body#/id"})],
    ("listJobs", "200"): [(("getJob",), {"job_id": "$response.body#/data/0/id"})],
    ("listArtifacts", "200"): [
        (("getArtifact",), {"job_id": "$request.path.job_id", "name": "$response.body#/data/0/name"})
    ],
    ("createComparison", "201"): [_OF_COMPARISON],
    ("createComparison", "202"): [_OF_COMPARISON, (("getJob", "cancelJob"), {"job_id": "$response.body#/job"})],
    ("listDeliveries", "200"): [
        (("redeliver",), {"delivery_id": "$response.body#/data/0/id"}),
        (("getJob",), {"job_id": "$response.body#/data/0/job"}),
    ],
    ("listWorkloads", "200"): [(("getWorkload",), {"name": "$response.body#/data/0/name"})],
    ("listDevices", "200"): [(("cordonDevice", "uncordonDevice"), {"device_id": "$response.body#/data/0/id"})],
    ("createKey", "201"): [(("revokeKey",), {"key_id": "$response.body#/id"})],
}


def link(operation_id: str, parameters: dict[str, str]) -> dict[str, Any]:
    """As OpenAPI has it."""
    return {"operationId": operation_id, "parameters": parameters}


def named(method: str, path: str) -> tuple[str, str]:
    """operationId and summary of a route that has no row."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", path) if word]
    return method.lower() + "".join(map(str.capitalize, words)), f"{method} {path}"
