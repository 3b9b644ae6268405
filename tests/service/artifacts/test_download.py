"""Downloads of a job's files and samples, and the files' use by other jobs."""

import hashlib
import json
import shutil

from dyno.models.result import Artifact, RunSamples
from service.artifacts.routes import csv_pieces

HTML = b"<script>alert(1)</script>"


def test_stored_files_can_be_downloaded_once_the_job_succeeded(http, worker):
    claim = worker.claim()
    kept = worker.put(claim, "a.txt", b"content")
    url = f"/v1/jobs/{claim.job_id}/artifacts/a.txt"
    assert kept.json() == {
        "name": "a.txt",
        "bytes": 7,
        "sha256": hashlib.sha256(b"content").hexdigest(),
        "url": url,
    }
    assert http.get(url).json()["code"] == "result-not-ready"
    worker.succeed(claim, [Artifact.model_validate(kept.json())])
    assert http.get(url).content == b"content"


def test_files_missing_from_the_result_cannot_be_downloaded(http, worker):
    claim = worker.claim()
    worker.put(claim, "stray.txt", b"content")
    worker.succeed(claim, [])
    assert http.get(f"/v1/jobs/{claim.job_id}/artifacts").json() == {"data": []}
    assert http.get(f"/v1/jobs/{claim.job_id}/artifacts/stray.txt").json()["code"] == "artifact-not-found"


def test_an_html_page_named_as_an_image_is_harmless(http, left):
    answer = http.get(f"/v1/jobs/{left(gallery__png=HTML)}/artifacts/gallery.png")
    assert answer.content == HTML
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_file_with_a_matching_etag_is_not_sent_again(http, left):
    url = f"/v1/jobs/{left(a__txt=b'content')}/artifacts/a.txt"
    again = http.get(url, headers={"If-None-Match": http.get(url).headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_head_describes_a_file_without_sending_it(http, left):
    url = f"/v1/jobs/{left(a__txt=b'content')}/artifacts/a.txt"
    told, sent = http.head(url), http.get(url)
    assert (told.status_code, told.content) == (200, b"")
    different = {"date", "transfer-encoding", "x-request-id"}
    assert {k: v for k, v in told.headers.items() if k not in different} == {
        k: v for k, v in sent.headers.items() if k not in different
    }
    assert told.headers["content-length"] == "7"
    assert http.head(url, headers={"If-None-Match": told.headers["etag"]}).status_code == 304
    assert http.head(url.replace("a.txt", "b.txt")).status_code == 404
    listed = url.removesuffix("/a.txt")
    assert http.head(listed).headers["content-length"] == http.get(listed).headers["content-length"]


def test_a_file_missing_from_the_store_is_a_404(http, left, settings):
    job = left(a__txt=b"content")
    shutil.rmtree(settings.artifact_dir / job)
    assert http.get(f"/v1/jobs/{job}/artifacts/a.txt").json()["code"] == "artifact-not-found"


def test_weights_of_a_job_that_failed_are_refused_with_its_status(http, worker):
    claim = worker.claim()
    worker.fail(claim)
    weights = {"job": claim.job_id, "name": "model.weights.h5"}
    refused = http.post("/v1/jobs", json={"workload": "mnist_cnn", "params": {"weights": weights}})
    [error] = refused.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/params/weights/job", "not-succeeded")
    assert "failed" in error["detail"]


def test_existing_weights_are_accepted(http, left):
    weights = {"job": left(model__keras=b"not opened before it runs"), "name": "model.keras"}
    body = {"workload": "mnist_cnn", "params": {"weights": weights}}
    assert http.post("/v1/jobs", json=body, params={"validate_only": True}).status_code == 200


def test_the_command_lists_and_saves_files(dyno, left, tmp_path):
    job = left(a__txt=b"content")
    listed = dyno("artifacts", job)
    assert listed.exit_code == 0
    assert "a.txt" in listed.output
    saved = dyno("artifacts", job, "--json", "--save", str(tmp_path / "new"))
    assert json.loads(saved.output)[0]["bytes"] == 7
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("a.txt", b"content")]


def test_the_command_saves_no_file_that_differs_from_its_listing(dyno, left, settings, tmp_path):
    job = left(a__txt=b"content")
    [file] = (settings.artifact_dir / job).iterdir()
    file.write_bytes(b"Content")
    saved = dyno("artifacts", job, "--save", str(tmp_path))
    assert saved.exit_code == 1
    assert "SHA-256" in saved.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_media_type_of_files_is_in_the_document(http, left):
    names = ["bars.svg", "figures.json", "notes.txt", "model.weights.h5", "table.CSV", "wrong.png"]
    job_id = left(**{name.replace(".", "__"): b"{}" for name in names})
    answers = [http.get(f"/v1/jobs/{job_id}/artifacts/{name}").raise_for_status() for name in names]
    path = http.get("/openapi.json").json()["paths"]["/v1/jobs/{job_id}/artifacts/{name}"]
    sent = {answer.headers["Content-Type"].partition(";")[0] for answer in answers}
    assert len(sent) == len(names)
    assert sent == path["get"]["responses"]["200"]["content"].keys()


def a_run(number, case=None, arm=None):
    cpu_s = [(0.5, 0.125)] * 2
    return RunSamples(
        run=number, case=case, arm=arm, warmup=[0.3], samples=[0.1, 0.2], sample_cpu_s=cpu_s, executions_per_sample=4
    )


def test_every_sample_is_a_line_and_warm_up_has_empty_cpu_times():
    assert "".join(csv_pieces([a_run(0), a_run(1, "n=64, k=2", "second")])).split("\r\n") == [
        "run,case,phase,index,time_s,user_s,system_s,executions,arm",
        "0,,warmup,0,0.3,,,,",
        "0,,sample,0,0.1,0.5,0.125,4,",
        "0,,sample,1,0.2,0.5,0.125,4,",
        '1,"n=64, k=2",warmup,0,0.3,,,,second',
        '1,"n=64, k=2",sample,0,0.1,0.5,0.125,4,second',
        '1,"n=64, k=2",sample,1,0.2,0.5,0.125,4,second',
        "",
    ]


def test_the_table_is_sent_one_run_per_piece():
    assert len([*csv_pieces([a_run(number) for number in range(5)])]) == 1 + 5
