"""Growth with the number of jobs: copies of a finished job, and a moment with small sizes."""

import json

import pytest

from benchmarks import scale
from benchmarks.scale import OPERATIONS, lines, measure, sizes


def test_a_copy_is_a_job_like_its_source():
    with sizes([(1, 3)]) as [size]:
        source, page = size.request("GET", f"/v1/jobs/{size.job_id}").body, size.request("GET", "/v1/jobs").body
        jobs = {job["id"]: job for job in json.loads(page)["data"] if job["status"] == "succeeded"}
        assert len(jobs) == 3
        for job_id, job in jobs.items():
            own, theirs = job_id.encode(), size.job_id.encode()
            assert size.request("GET", f"/v1/jobs/{job_id}").body.replace(own, theirs) == source
            assert job["urls"]["self"].endswith(job_id)
            for part in ("result", "samples"):
                of_source, of_copy = (
                    size.request("GET", f"/v1/jobs/{each}/{part}").body for each in (size.job_id, job_id)
                )
                assert of_copy.replace(own, theirs) == of_source
            assert size.key_bytes(job_id) == pytest.approx(size.key_bytes(size.job_id), rel=0.1)
        copy = next(job_id for job_id in jobs if job_id != size.job_id)
        size.request("DELETE", f"/v1/jobs/{copy}")
        assert size.key_bytes(copy) == 0
        left = size.request("GET", "/v1/jobs?status=succeeded").body
        assert copy not in left.decode()


def test_a_size_that_does_not_fit_into_memory_is_left_out(capsys):
    with sizes([(1, 1), (1, 10**9)]) as opened:
        assert [(size.queued, size.finished) for size in opened] == [(1, 1)]
    assert "skipped 1 queued, 1,000,000,000 finished: too little memory" in capsys.readouterr().out


def test_each_operation_is_measured_at_each_size_and_leaves_the_jobs_as_they_were(monkeypatch):
    for name, value in {"STRETCH_S": 0.2, "STRETCHES": 1, "READ_S": 0.3, "EACH": 2}.items():
        monkeypatch.setattr(scale, name, value)
    found = json.loads(json.dumps(measure([10, 30], [2, 20], rounds=2, readers=3)))
    assert [(size["queued"], size["finished"]) for size in found["sizes"]] == [(10, 2), (30, 2), (10, 20)]
    assert all(len(size["ms"][each]) == 4 for size in found["sizes"] for each in OPERATIONS)
    assert 500 < found["key_bytes"]["queued"] < found["key_bytes"]["finished"] < 100_000
    assert all(row["alone_ms"] and row["beside_ms"] and row["lists"] for row in found["others"])
    assert found["readers"]["missed"] == 0
    assert found["readers"]["n"] >= 3
    page = [line for line in lines(found) if line.startswith("| ")]
    assert page[0] == "|  | 10 | 30 |"
    assert all(line.count("(1.00)") == 1 for line in page if line.startswith("| poll |"))
