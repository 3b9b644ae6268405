"""Workloads in a folder of one's own: the file of docs/write-a-workload.md as it stands, and files with faults."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cores import THERE, two_cores

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "write-a-workload.md").read_text()
[SOURCE] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
[RUN] = re.findall(r"^\.venv/bin/dyno (run vector_add .*)$", PAGE, re.MULTILINE)
DYNO = "import sys; from dyno.cli import main; sys.argv[0] = 'dyno'; main()"
CHECKED = {"RESULT_INCORRECT", "OUTPUT_NONFINITE", "DEGENERATE_DATA"}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def folder(tmp_path: Path, house: Any) -> Path:
    if house is None:
        pytest.skip("a live service has its own folder")
    return tmp_path


@pytest.fixture
def own(folder: Path, house: Any) -> Iterator[Any]:
    """An API with the workload of the page, and a worker on another core."""
    (folder / "vector_add.py").write_text(SOURCE)
    named = {"DYNO_WORKLOADS_DIR": str(folder)}
    with house.another_api(**named) as (_, api), house.another_worker(**named):
        yield api


def result_of(api: Any, *more: str) -> dict[str, Any]:
    words = [*shlex.split(RUN), "--device", THERE, "--json", "--url", str(api.http.base_url).rstrip("/"), *more]
    done = subprocess.run(
        [sys.executable, "-P", "-c", DYNO, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@two_cores
def test_the_workload_of_the_page_runs_verified_like_any_other(own: Any) -> None:
    found = result_of(own)
    assert [metric["name"] for metric in found["metrics"]][:2] == ["bandwidth", "execution_time"]
    assert found["metrics"][0]["value"] == pytest.approx(12e6 / found["metrics"][1]["value"], rel=0.1)
    assert found["verdict"] == "indicative"
    assert not CHECKED & {*found["unchecked"], *(raised["code"] for raised in found["warnings"])}
    assert (
        "vector_add"
        in own.http.get("/openapi.json").json()["components"]["schemas"]["SubmitJob"]["discriminator"]["mapping"]
    )
    wrong = own.http.post("/v1/jobs", json={"workload": "vector_add", "params": {"n": 1}})
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "/params/n"


@two_cores
@pytest.mark.verify
def test_it_runs_on_jax_too(own: Any) -> None:
    found = result_of(own, "--framework", "jax")
    assert not CHECKED & {*found["unchecked"], *(raised["code"] for raised in found["warnings"])}


@two_cores
@pytest.mark.verify
def test_a_wrong_sum_is_found(folder: Path, house: Any) -> None:
    wrong = SOURCE.replace("left + right, *self", "(left + right) * 1.001, *self")
    assert wrong != SOURCE
    (folder / "vector_add.py").write_text(wrong)
    named = {"DYNO_WORKLOADS_DIR": str(folder)}
    with house.another_api(**named) as (_, api), house.another_worker(**named):
        found = result_of(api)
    assert found["verdict"] == "untrusted"
    assert "RESULT_INCORRECT" in {raised["code"] for raised in found["warnings"]}


@pytest.mark.parametrize("module", ["service", "workers"])
def test_a_broken_file_stops_the_start_with_all_faults(folder: Path, house: Any, module: str) -> None:
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
