"""The reproduce command of a result, run unchanged and with a required verdict."""

import json
import shlex
import sys

import pytest

from api_tests.conftest import ran

DYNO = [sys.executable, "-c", "from dyno.cli import main; main()"]


@pytest.fixture(scope="module")
def asked(api):
    """A job for a live device model, with values that a shell would split."""
    model = api.http.get("/v1/devices").json()["data"][0]["model"]
    params = {"sizes": [48, 64], "repeats": 3}
    return api.finished(api.submit(params=params, device={"kind": "cpu", "model": model}, seed=7))


@pytest.mark.verify
@pytest.mark.parametrize(
    ("required", "lower"), [("trusted", {"indicative", "untrusted"}), ("indicative", {"untrusted"})]
)
def test_the_reproduce_command_submits_the_same_spec_and_fails_on_a_lower_verdict(api, url, asked, required, lower):
    result = api.http.get(asked["urls"]["result"]).raise_for_status().json()
    program, *words = shlex.split(result["reproduce"])
    assert program == "dyno"
    done = ran(*DYNO, *words, "--url", url, "--json", "--require", required, timeout=120)
    again = json.loads(done.stdout)
    assert done.returncode == (again["verdict"] in lower), done.stderr
    assert again["verdict"] != "trusted", "of one run"
    told = " ".join(done.stderr.split())
    assert (f"{required} is required" in told) == ("fewer than five runs" in told) == (done.returncode == 1)
    assert again["job"] != result["job"]
    specs = [api.job({"urls": {"self": f"/v1/jobs/{each['job']}"}})["spec"] for each in (result, again)]
    assert specs[0] | {"labels": {}} == specs[1]
    assert again["reproduce"] == result["reproduce"]
