"""`dyno export` and `dyno import`, against the service."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from dyno.cli import app
from dyno.client import endpoints
from dyno.models.result import RunSamples
from dyno.settings import Settings
from dyno.store.leases import Claim, Leases
from service.app import create_app
from tests.comparisons import a_metric, of_metrics

Asked = Callable[..., Result]


@pytest.fixture
def asked(http: httpx.Client) -> Asked:
    return lambda *words: CliRunner().invoke(app, [*map(str, words), "--url", str(http.base_url)])


@pytest.fixture(scope="module")
def there(settings: Settings, serve: Any) -> Iterator[Asked]:
    with serve(create_app(settings.model_copy(update={"namespace": f"{settings.namespace}-there"}))) as http:
        yield lambda *words: CliRunner().invoke(app, [*map(str, words), "--url", str(http.base_url)])


@pytest.fixture
def three(finished: Callable[..., str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The label of three results, on pages of two."""
    monkeypatch.setattr(endpoints, "MAX_PAGE_SIZE", 2)
    monkeypatch.setattr(endpoints, "EXPORTED_JOBS", 2)
    label = request.node.name
    finished(spec={"labels": {"test": label}})
    finished(spec={"labels": {"test": label, "commit": "=1"}, "params": {"n": 128}})
    finished(spec={"labels": {"test": label}}, metrics=[a_metric(), a_metric("latency", by_run=[], better="lower")])
    return f"test={label}"


def test_csv_has_all_rows_and_columns_of_all_pages(asked: Asked, three: str, tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    told = asked("export", "--out", file, "--label", three)
    assert (told.exit_code, told.stdout) == (0, f"{file}: 4 rows\n"), told.output
    with file.open(newline="") as lines:
        rows = [*csv.DictReader(lines)]
    assert {row["metric"] for row in rows} == {"throughput", "latency"}
    assert [row["label.commit"] for row in rows] == ["", "", "'=1", ""]
    assert [row["param.n"] for row in rows] == ["64", "64", "128", "64"]
    assert asked("export", "--out", file, "--label", three, "--metric", "latency").stdout == f"{file}: 1 rows\n"
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_parquet_has_typed_columns(asked: Asked, three: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs PyArrow, which the extra `parquet` installs")
    file = tmp_path / "results.parquet"
    told = asked("export", "--out", file, "--label", three, "--json")
    assert (told.exit_code, json.loads(told.stdout)) == (0, {"file": str(file), "count": 4}), told.output
    table = parquet.read_table(file)
    kinds = {field.name: str(field.type) for field in table.schema}
    assert {"time": "timestamp[us, tz=UTC]", "value": "double", "imported": "bool", "param.n": "int64"}.items() <= (
        kinds.items()
    )
    assert (kinds["label.commit"], kinds["low"], kinds["warnings"]) == ("string", "double", "string")
    rows = table.to_pylist()
    assert [row["label.commit"] for row in rows] == [None, None, "=1", None]
    assert all(isinstance(row["time"], datetime) for row in rows)


def test_without_pyarrow_parquet_says_what_to_install(
    asked: Asked, three: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    told = asked("export", "--out", tmp_path / "x", "--format", "parquet", "--label", three)
    assert told.exit_code == 1
    assert "pip install '.[parquet]'" in told.stderr
    assert [*tmp_path.iterdir()] == []


def test_json_lines_are_imported_by_another_dyno(asked: Asked, there: Asked, three: str, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    assert asked("export", "--out", file, "--label", three).stdout == f"{file}: 3 results\n"
    told = there("import", file, "--from", "laptop")
    assert (told.exit_code, told.stdout) == (0, "3 results imported, 0 were here before\n"), told.output
    assert there("import", file).stdout == "0 results imported, 3 were here before\n"
    listed = json.loads(there("jobs", "--imported", "--label", three, "--json").stdout)
    assert [job["imported"]["from"] for job in listed] == ["laptop"] * 3
    assert json.loads(there("jobs", "--no-imported", "--label", three, "--json").stdout) == []


def test_a_wrong_line_is_named_by_its_number_in_the_file(
    asked: Asked, there: Asked, three: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.jsonl"
    asked("export", "--out", file, "--label", three)
    lines = file.read_text().splitlines()
    monkeypatch.setattr(endpoints, "MAX_LINES", 2)
    file.write_text("\n".join([lines[0], lines[1], "", lines[2], '{"job": 1}']))
    told = there("import", file)
    assert told.exit_code == 3
    assert "stopped after: 2 results imported, 0 were here before" in told.stderr
    assert "/5/job: line 5: " in told.stderr
    assert len(json.loads(there("jobs", "--label", three, "--json").stdout)) == 2


def test_a_file_that_is_not_there_is_named(there: Asked, tmp_path: Path) -> None:
    told = there("import", tmp_path / "none.jsonl")
    assert told.exit_code == 1
    assert "none.jsonl" in told.stderr


def test_a_file_that_is_not_text_is_named(there: Asked, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl.gz"
    file.write_bytes(b"\x1f\x8b\x08")
    told = there("import", file)
    assert (told.exit_code, "stopped after: 0 results imported" in told.stderr) == (1, True), told.output
    assert "results.jsonl.gz isn't a file of `dyno export --format jsonl`" in told.stderr


def test_samples_of_a_job_are_exported(
    asked: Asked, claimed: Callable[[], tuple[Leases, Claim]], tmp_path: Path, http: httpx.Client
) -> None:
    leases, claim = claimed()
    run = RunSamples(run=0, warmup=[0.3], samples=[0.25], sample_cpu_s=[(0.2, 0.1)], executions_per_sample=4)
    result = of_metrics([a_metric()]).model_copy(update={"job": claim.job_id})
    assert leases.finish(claim, "succeed", result=result, samples=[run])
    for name in ("samples.csv", "samples.jsonl"):
        told = asked("export", "--samples-of", claim.job_id, "--out", tmp_path / name)
        assert told.stdout == f"{tmp_path / name}: 2 samples\n", told.output
    format_csv, lines = (
        http.get(f"/v1/jobs/{claim.job_id}/samples", params={"format": format}) for format in ("csv", "jsonl")
    )
    assert (tmp_path / "samples.csv").read_bytes() == format_csv.content
    assert (tmp_path / "samples.jsonl").read_text() == lines.text == run.model_dump_json() + "\n"
    assert lines.headers["content-type"].startswith("application/x-ndjson")


def test_a_file_without_a_known_ending_needs_a_format(asked: Asked, tmp_path: Path) -> None:
    told = asked("export", "--out", tmp_path / "results")
    assert told.exit_code == 2
    assert "--format" in told.stderr
