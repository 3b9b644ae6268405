"""Workloads in a folder of one's own: the file of docs/write-a-workload.md as it stands, and files with faults."""

import json
import os
import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from api_tests.conftest import ran
from tests.cores import THERE, two_cores

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "write-a-workload.md").read_text()
SOURCE, TEST = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CI = (ROOT / "docs" / "ci.md").read_text()
[MY_CODE] = re.findall(r"^```python\n(.*?)^```$", CI, re.MULTILINE | re.DOTALL)
[GATE] = re.findall(r"^```sh\n(echo .*?my_code.*?)^```$", CI, re.MULTILINE | re.DOTALL)
[RUN] = re.findall(r"^\.venv/bin/dyno (run vector_add .*)$", PAGE, re.MULTILINE)
DYNO = "import sys; from dyno.cli import main; sys.argv[0] = 'dyno'; main()"
CHECKED = {"RESULT_INCORRECT", "OUTPUT_NONFINITE", "DEGENERATE_DATA"}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def own(tmp_path, house):
    """An API with the workload of the page, and a worker."""
    (tmp_path / "vector_add.py").write_text(SOURCE)
    with with_workloads(house, tmp_path) as api:
        yield api


def result_of(api, *more):
    words = [*shlex.split(RUN), "--device", THERE, "--json", "--url", str(api.http.base_url).rstrip("/"), *more]
    done = ran(sys.executable, "-P", "-c", DYNO, *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def put_command(folder):
    """The command `dyno` in the folder, for a PATH."""
    command = folder / "dyno"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c "{DYNO}" "$@"\n')
    command.chmod(0o755)


@contextmanager
def with_workloads(house, folder):
    """An API with the workloads of the folder, and a worker on another core."""
    named = {"DYNO_WORKLOADS_DIR": str(folder)}
    with house.another_api(**named) as (_, api), house.another_worker(**named):
        yield api


@pytest.mark.verify
@two_cores
def test_the_workload_of_the_page_runs_verified_like_any_other(own):
    found = result_of(own)
    bandwidth, execution_time = found["metrics"][:2]
    assert (bandwidth["name"], execution_time["name"]) == ("bandwidth", "execution_time")
    moved = [rate * each_s for rate, each_s in zip(bandwidth["by_run"], execution_time["by_run"], strict=True)]
    assert moved == pytest.approx([12e6] * len(moved), rel=0.05)  # medians of an even number of samples
    assert found["verdict"] == "indicative"
    assert not CHECKED & {*found["unchecked"], *(raised["code"] for raised in found["warnings"])}
    assert (
        "vector_add"
        in own.http.get("/openapi.json").json()["components"]["schemas"]["SubmitJob"]["discriminator"]["mapping"]
    )
    wrong = own.http.post("/v1/jobs", json={"workload": "vector_add", "params": {"n": 1}})
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "/params/n"


@pytest.mark.verify
@two_cores
def test_the_gate_of_the_page_on_ci_fails_when_the_change_is_slower(tmp_path, house):
    """The change takes ten times as long, so that it is found beside other tests.

    `THERE` stands for any device, since the other worker lacks the workload.
    """
    for version, terms in (("main", 100_000), ("change", 1_000_000)):
        (tmp_path / version / "my_package").mkdir(parents=True)
        (tmp_path / version / "my_package" / "__init__.py").write_text(f"def step():\n    return sum(range({terms}))\n")
    (tmp_path / "workloads").mkdir()
    assert 'Path.home() / "versions"' in MY_CODE
    (tmp_path / "workloads" / "my_code.py").write_text(
        MY_CODE.replace('Path.home() / "versions"', f"Path({str(tmp_path)!r})")
    )
    script = GATE.replace('"measure"', f'"device": "{THERE}", "measure"').replace(".venv/bin/dyno", "dyno")
    put_command(tmp_path)
    with with_workloads(house, tmp_path / "workloads") as api:
        env = house.env | {"PATH": f"{tmp_path}:{house.env['PATH']}", "PYTHONPATH": str(ROOT)}
        env["DYNO_URL"] = str(api.http.base_url).rstrip("/")
        done = ran("bash", "-e", "-c", script, cwd=tmp_path, env=env)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "SLOWER" in done.stdout
    assert "same work: yes" in done.stdout


@two_cores
@pytest.mark.verify
def test_it_runs_on_jax_too(own):
    found = result_of(own, "--framework", "jax")
    assert not CHECKED & {*found["unchecked"], *(raised["code"] for raised in found["warnings"])}


@pytest.mark.verify
@pytest.mark.parametrize("factor", ["", " * 1.001"])
def test_the_test_of_the_page_passes_and_fails_where_the_sums_are_wrong(tmp_path, house, factor):
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "vector_add.py").write_text(
        SOURCE.replace("left + right, *", f"(left + right){factor}, *")
    )
    (tmp_path / "test_vector_add.py").write_text(TEST)
    put_command(tmp_path)
    env = {name: value for name, value in house.env.items() if name not in ("DYNO_REDIS_URL", "DYNO_API_URL")}
    env |= {
        "DYNO_WORKLOADS_DIR": str(tmp_path / "workloads"),
        "PATH": f"{tmp_path}:{env['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    tests = [sys.executable, "-P", "-m", "pytest", "-q", "-k", "1000]", str(tmp_path / "test_vector_add.py")]
    done = ran(*tests, cwd=tmp_path, env=env)
    assert ("1 passed" in done.stdout) == (not factor), done.stdout + done.stderr
    assert ("RESULT_INCORRECT" in done.stdout.partition("short test summary")[0]) == bool(factor), done.stdout


@two_cores
@pytest.mark.verify
def test_a_wrong_sum_is_found(tmp_path, house):
    wrong = SOURCE.replace("left + right, *self", "(left + right) * 1.001, *self")
    assert wrong != SOURCE
    (tmp_path / "vector_add.py").write_text(wrong)
    with with_workloads(house, tmp_path) as api:
        found = result_of(api)
    assert found["verdict"] == "untrusted"
    assert "RESULT_INCORRECT" in {raised["code"] for raised in found["warnings"]}


@pytest.mark.parametrize("module", ["service", pytest.param("workers", marks=pytest.mark.verify)])
def test_a_broken_file_stops_the_start_with_all_faults(tmp_path, house, module):
    (tmp_path / "vector_add.py").write_text(SOURCE.replace('name="vector_add"', 'name="vector"'))
    (tmp_path / "absent.py").write_text("import no_such_module_anywhere")
    (tmp_path / "matmul.py").write_text(SOURCE)
    options = ["--device", THERE] if module == "workers" else []
    env = os.environ | house.env | {"DYNO_WORKLOADS_DIR": str(tmp_path)}
    done = ran(sys.executable, "-P", "-m", module, *options, cwd=ROOT, env=env, timeout=60)
    assert done.returncode != 0
    for fault in (
        "absent.py: import failed: ModuleNotFoundError",
        "matmul.py: Dyno has a workload of this name",
        'vector_add.py: the workload is named "vector", unlike its file',
    ):
        assert fault in done.stderr, done.stderr
