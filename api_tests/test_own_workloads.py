"""Workloads in a folder of one's own: the file of docs/write-a-workload.md as it stands, and files with faults."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
def folder(tmp_path, house):
    if house is None:
        pytest.skip("a live service has its own folder")
    return tmp_path


@pytest.fixture
def own(folder, house):
    """An API with the workload of the page, and a worker on another core."""
    (folder / "vector_add.py").write_text(SOURCE)
    named = {"DYNO_WORKLOADS_DIR": str(folder)}
    with house.another_api(**named) as (_, api), house.another_worker(**named):
        yield api


def result_of(api, *more):
    words = [*shlex.split(RUN), "--device", THERE, "--json", "--url", str(api.http.base_url).rstrip("/"), *more]
    done = subprocess.run(
        [sys.executable, "-P", "-c", DYNO, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


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
def test_the_gate_of_the_page_on_ci_fails_when_the_change_is_slower(folder, house):
    """The change takes ten times as long, so that it is found beside other tests.

    `THERE` stands for any device, since the other worker lacks the workload.
    """
    for version, terms in (("main", 100_000), ("change", 1_000_000)):
        (folder / version / "my_package").mkdir(parents=True)
        (folder / version / "my_package" / "__init__.py").write_text(f"def step():\n    return sum(range({terms}))\n")
    (folder / "workloads").mkdir()
    assert 'Path.home() / "versions"' in MY_CODE
    (folder / "workloads" / "my_code.py").write_text(
        MY_CODE.replace('Path.home() / "versions"', f"Path({str(folder)!r})")
    )
    script = GATE.replace('"measure"', f'"device": "{THERE}", "measure"').replace(".venv/bin/dyno", "dyno")
    (folder / "dyno").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c "{DYNO}" "$@"\n')
    (folder / "dyno").chmod(0o755)
    named = {"DYNO_WORKLOADS_DIR": str(folder / "workloads")}
    with house.another_api(**named) as (_, api), house.another_worker(**named):
        env = house.env | {"PATH": f"{folder}:{house.env['PATH']}", "PYTHONPATH": str(ROOT)}
        env["DYNO_URL"] = str(api.http.base_url).rstrip("/")
        command = ["bash", "-e", "-c", script]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
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
def test_the_test_of_the_page_passes_and_fails_where_the_sums_are_wrong(folder, house, factor):
    (folder / "workloads").mkdir()
    (folder / "workloads" / "vector_add.py").write_text(SOURCE.replace("left + right, *", f"(left + right){factor}, *"))
    (folder / "test_vector_add.py").write_text(TEST)
    command = folder / "dyno"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c "{DYNO}" "$@"\n')
    command.chmod(0o755)
    env = {name: value for name, value in house.env.items() if name not in ("DYNO_REDIS_URL", "DYNO_API_URL")}
    env |= {"DYNO_WORKLOADS_DIR": str(folder / "workloads"), "PATH": f"{folder}:{env['PATH']}", "PYTHONPATH": str(ROOT)}
    tests = [sys.executable, "-P", "-m", "pytest", "-q", "-k", "1000]", str(folder / "test_vector_add.py")]
    done = subprocess.run(tests, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert ("1 passed" in done.stdout) == (not factor), done.stdout + done.stderr
    assert ("RESULT_INCORRECT" in done.stdout.partition("short test summary")[0]) == bool(factor), done.stdout


@two_cores
@pytest.mark.verify
def test_a_wrong_sum_is_found(folder, house):
    wrong = SOURCE.replace("left + right, *self", "(left + right) * 1.001, *self")
    assert wrong != SOURCE
    (folder / "vector_add.py").write_text(wrong)
    named = {"DYNO_WORKLOADS_DIR": str(folder)}
    with house.another_api(**named) as (_, api), house.another_worker(**named):
        found = result_of(api)
    assert found["verdict"] == "untrusted"
    assert "RESULT_INCORRECT" in {raised["code"] for raised in found["warnings"]}


@pytest.mark.parametrize("module", ["service", pytest.param("workers", marks=pytest.mark.verify)])
def test_a_broken_file_stops_the_start_with_all_faults(folder, house, module):
    (folder / "vector_add.py").write_text(SOURCE.replace('name="vector_add"', 'name="vector"'))
    (folder / "absent.py").write_text("import no_such_module_anywhere")
    (folder / "matmul.py").write_text(SOURCE)
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *(["--device", THERE] if module == "workers" else [])],
        cwd=ROOT,
        env=os.environ | house.env | {"DYNO_WORKLOADS_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    for fault in (
        "absent.py: import failed: ModuleNotFoundError",
        "matmul.py: Dyno has a workload of this name",
        'vector_add.py: the workload is named "vector", unlike its file',
    ):
        assert fault in done.stderr, done.stderr
