"""The reproduce command of a result, run unchanged and with a required verdict."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import Any

import pytest

DYNO = [sys.executable, "-c", "from dyno.cli import main; main()"]


@pytest.fixture(scope="module")
def asked(api):
    """A job for a live device model, with values that a shell would split."""
    model = api.http.get("/v1/devices").json()["data"][0]["model"]
    params = {"sizes": [48, 64], "repeats": 3}
    job: dict[str, Any] = api.finished(api.submit(params=params, device={"kind": "cpu", "model": model}, seed=7))
    return job


def _run(result, url, *options):
    program, *words = shlex.split(result["reproduce"])
    assert program == "dyno"
    command = [*DYNO, *words, "--url", url, "--json", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.verify
def test_the_reproduce_command_submits_the_same_spec_and_fails_on_a_missed_verdict(api, url, asked):
    result = api.http.get(asked["urls"]["result"]).raise_for_status().json()
    done = _run(result, url, "--require", "trusted")
    assert done.returncode == 1, done.stderr
    again = json.loads(done.stdout)
    assert again["job"] != result["job"]
    told = " ".join(done.stderr.split())
    assert "trusted is required" in told
    assert "fewer than five runs" in told
    specs = [api.job({"urls": {"self": f"/v1/jobs/{each['job']}"}})["spec"] for each in (result, again)]
    assert specs[0] | {"labels": {}} == specs[1]
    assert again["reproduce"] == result["reproduce"]


@pytest.mark.verify
def test_a_met_verdict_succeeds(api, url, asked):
    result = api.http.get(asked["urls"]["result"]).raise_for_status().json()
    done = _run(result, url, "--require", "untrusted")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] in ("untrusted", "indicative")
