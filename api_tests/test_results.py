"""Metrics of many jobs as one flat table."""

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest


def test_each_metric_of_a_job_that_succeeded_is_a_row(api, tiny):
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


def _moment(millis):
    return datetime.fromtimestamp(millis / 1000, UTC)


# Grafana's Infinity source writes the ends of a dashboard's range into the URL of a query as ${__from},
# ${__from:date:iso} and ${__from:date:seconds}, or by their backend ${__timeFrom}.
WRITTEN = {
    "epoch milliseconds": str,
    "ISO 8601": lambda millis: _moment(millis).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    "epoch seconds": lambda millis: str(millis // 1000),
    "ISO 8601 to the second": lambda millis: _moment(millis).strftime("%Y-%m-%dT%H:%M:%SZ"),
}


@pytest.fixture(scope="module")
def of_sizes(api):
    """A succeeded job with a list among its params."""
    measure = {"processes": 1, "min_samples": 3, "min_s": 0}
    job = api.submit({"workload": "matmul", "params": {"sizes": [64, 32]}, "measure": measure})
    return api.finished(job)


@pytest.mark.parametrize("form", WRITTEN)
def test_the_infinity_source_of_grafana_is_answered_with_a_flat_array_of_its_range(api, of_sizes, form):
    created = datetime.fromisoformat(of_sizes["created_at"])
    ends = [round((created + timedelta(seconds=by_s)).timestamp() * 1000) for by_s in (-60, 60, 120)]
    before, after, later = (WRITTEN[form](millis) for millis in ends)

    def table(since, until):
        query = {"from": since, "to": until, "workload": "matmul"}
        answer = api.http.get("/v1/results", params=query, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
        return [row for row in answer.json() if row["job"] == of_sizes["id"]]

    rows = table(before, after)
    assert {row["param.sizes"] for row in rows} == {"[64, 32]"}
    assert all(value is None or isinstance(value, str | int | float | bool) for row in rows for value in row.values())
    assert table(after, later) == []
