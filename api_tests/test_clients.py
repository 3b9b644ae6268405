"""Other clients than this repository's: the README's Python, requests, and a generated client."""

import importlib
import os
import re
import sys
from pathlib import Path

import pytest
import requests

from api_tests.conftest import ran
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent
README, CLIENT = (ROOT / "README.md").read_text(), (ROOT / "docs" / "client.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", README + CLIENT, re.MULTILINE | re.DOTALL)
[SHOWN] = re.findall(r"^# (\w+ .*FLOP/s .*\n)```$", README, re.MULTILINE)
WITHIN_S = 100
PACKAGE = "client_made_of_openapi"
CONFIG = f"post_hooks: []\nproject_name_override: {PACKAGE}\npackage_name_override: {PACKAGE}\n"


@pytest.mark.verify
def test_the_python_of_the_readme_and_of_the_page_on_the_client_runs(http, url):
    """As it stands, but for the address and a budget that takes less of the test's time."""
    program = "\n".join(PROGRAMS).replace("Client()", f"Client({url!r})").replace('"budget_s": 5}', '"budget_s": 1}')
    assert (program.count(url), program.count('"budget_s": 1}')) == (3, 1)
    done = ran(sys.executable, "-c", program, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout
    assert "FLOP/s" in done.stdout
    form = r"(trusted|indicative|untrusted) [0-9.]+ GFLOP/s \[[A-Z0-9_', ]*\]\n"
    assert re.fullmatch(form, SHOWN)
    assert re.match(form, done.stdout), done.stdout


def test_requests_submits_polls_and_reads_the_result(http, url, tiny):
    with requests.Session() as session:
        answer = session.post(f"{url}/v1/jobs", json=tiny, timeout=30)
        assert answer.status_code == 202
        self = url + answer.headers["Location"]
        job = eventually(lambda: (now := session.get(self, params={"wait": 20}, timeout=30).json())["done"] and now)
        result = session.get(url + job["urls"]["result"], timeout=30)
        result.raise_for_status()
        refused = session.post(f"{url}/v1/jobs", json=tiny | {"params": {"n": 0}}, timeout=30)
    assert (result.json()["job"], refused.status_code) == (job["id"], 422)
    assert refused.json()["errors"][0]["pointer"] == "/params/n"


@pytest.fixture
def generated(url, http, tmp_path, monkeypatch):
    """The package that openapi-python-client generates from the served document, importable."""
    config, package = tmp_path / "config.yml", tmp_path / PACKAGE
    config.write_text(CONFIG)
    made = ["generate", "--url", f"{url}/openapi.json", "--output-path", str(package)]
    options = ["--meta", "none", "--config", str(config)]
    done = ran(sys.executable, "-m", "openapi_python_client", *made, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Unable to" not in done.stdout  # warnings are only about responses that aren't JSON, such as images
    assert "will not be generated" not in done.stdout
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


def operation(package, method, path):
    """The module that sends this request, whatever its name and place."""
    wanted = re.compile(rf'"method": "{method}",\s+"url": "{re.escape(path)}"')
    (found,) = [each for each in package.glob("api/*/*.py") if wanted.search(each.read_text())]
    return importlib.import_module(".".join(found.with_suffix("").relative_to(package.parent).parts))


def test_a_generated_client_submits_polls_and_reads_the_result(generated, url, tiny):
    package = importlib.import_module(PACKAGE)
    models = importlib.import_module(f"{PACKAGE}.models")
    submit, show, result = (
        operation(generated, *asked)
        for asked in [("post", "/v1/jobs"), ("get", "/v1/jobs/{job_id}"), ("get", "/v1/jobs/{job_id}/result")]
    )
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get("DYNO_API_KEY")) else {}
    with package.Client(base_url=url, headers=headers, timeout=30) as client:
        job = submit.sync(client=client, body=models.SubmitMatmul.from_dict(tiny))
        assert isinstance(job, models.Job), job
        done = eventually(lambda: (now := show.sync(job.id, client=client, wait=20)).done and now)
        assert (done.id, done.status, done.spec.workload) == (job.id, "succeeded", "matmul")
        found = result.sync(job.id, client=client)
        assert isinstance(found, models.Result)
        assert "throughput" in {metric.name for metric in found.metrics}
        refused = submit.sync(client=client, body=models.SubmitMatmul.from_dict(tiny | {"params": {"n": 0}}))
        assert isinstance(refused, models.Problem)
        assert refused.errors[0].pointer == "/params/n"
