"""The figures of many jobs as one flat table."""

from __future__ import annotations

import csv
import io
from typing import Any


def test_each_metric_of_a_job_that_succeeded_is_a_row(api: Any, tiny: dict[str, Any]) -> None:
    job = api.finished(api.submit(tiny, labels={"of": "the results"}))
    wanted = {"label": "of=the results", "workload": "matmul"}
    answer = api.http.get("/v1/results", params=wanted)
    assert answer.status_code == 200
    found = [row for row in answer.json() if row["job"] == job["id"]]
    metrics = {metric["name"]: metric for metric in api.http.get(job["urls"]["result"]).json()["metrics"]}
    assert {row["metric"] for row in found} == metrics.keys()
    for row in found:
        same = ("unit", "value", "low", "high", "better")
        assert {name: row[name] for name in same} == {name: metrics[row["metric"]][name] for name in same}
        assert (row["time"], row["label.of"], row["param.n"]) == (job["created_at"], "the results", 64)
        assert row["device"].startswith(job["worker"]["device"].partition("@")[0])
    one = api.http.get("/v1/results", params=wanted | {"metric": "throughput", "format": "csv"})
    table = list(csv.DictReader(io.StringIO(one.text)))
    (row,) = [row for row in table if row["job"] == job["id"]]
    assert float(row["value"]) == metrics["throughput"]["value"]
