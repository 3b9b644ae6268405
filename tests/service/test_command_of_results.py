"""`dyno history`, `export` and `import`, against the service."""

import csv
import json
import sys
from datetime import datetime

import pytest
from typer.testing import CliRunner

from dyno.cli import app
from dyno.cli.result_commands import sparkline
from dyno.client import endpoints
from dyno.models.result import RunSamples
from service.app import create_app
from tests.comparisons import a_metric, of_metrics


def test_it_shows_series_new_environments_and_alarms(dyno, finished):
    for value in (100.0, 100.1, 99.9, 100.0, 100.2, 80.0, 80.1, 79.9, 80.0):
        finished([value * 1e9] * 2, {"labels": {"test": "shown"}}, environment={"driver": "550.54"})
    for value in (90.0, 90.1, 90.2):
        environment, context_id = {"driver": "560.28"}, "ctx_2"
        finished([value * 1e9] * 2, {"labels": {"test": "shown"}}, environment=environment, context_id=context_id)
    told = dyno("history", "--workload", "matmul", "--label", "test=shown")
    assert told.exit_code == 0, told.output
    table = told.stdout
    assert "matmul spec_" in table
    assert "12" in table
    assert "90.2 GFLOP/s indicative" in table
    assert "0.800 times as good (0.79" in table
    assert "new environment: 1.126 times as good (driver 550.54 → 560.28)" in table
    assert "alm_" in table
    found = json.loads(dyno("history", "--label", "test=shown", "--json").stdout)
    alarm = found["alarms"][0]["id"]
    told = dyno("history", "--label", "test=shown", "--acknowledge", alarm)
    assert told.stdout == f"{alarm} is acknowledged\n"
    assert "acknowledged" in dyno("history", "--label", "test=shown").stdout


def test_an_unknown_alarm_is_named(dyno):
    told = dyno("history", "--label", "test=none", "--acknowledge", "alm_1")
    assert told.exit_code == 1
    assert "no alarm alm_1 in this history" in told.stderr
    assert dyno("history", "--label", "test=none").stdout == "no results\n"


def test_series_of_one_workload_are_told_apart_by_their_params(dyno, finished):
    for n in (64, 128):
        finished([100e9] * 2, {"params": {"n": n, "repeats": 7}, "labels": {"test": "apart"}})
    table = dyno("history", "--label", "test=apart").stdout
    assert "matmul n 64 spec_" in table
    assert "matmul n 128 spec_" in table


def test_one_result_is_a_series(dyno, finished):
    finished([100e9] * 2, {"labels": {"test": "one"}})
    told = dyno("history", "--label", "test=one")
    assert told.exit_code == 0, told.output
    [row] = [line.split("│") for line in told.stdout.splitlines() if "matmul spec_" in line]
    assert [cell.strip() for cell in row[3:8]] == ["throughput", "1", "▁", "100 GFLOP/s indicative", ""]
    [series] = json.loads(dyno("history", "--label", "test=one", "--json").stdout)["series"]
    assert (len(series["points"]), series["changes"], series["of_class"]["outcome"]) == (1, [], "unknown")


def test_a_metric_that_no_result_has_is_named(dyno, finished):
    finished(spec={"labels": {"test": "other"}})
    told = dyno("history", "--label", "test=other", "--metric", "troughput")
    assert told.stdout == "no results with the metric troughput; results without it: 1\n"


def test_a_sparkline_has_a_character_for_each_value():
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█"
    assert sparkline([5.0, 5.0]) == "▁▁"
    assert sparkline([]) == ""


@pytest.fixture(scope="module")
def there(settings, serve):
    with serve(create_app(settings.model_copy(update={"namespace": f"{settings.namespace}-there"}))) as http:
        yield lambda *words: CliRunner().invoke(app, [*map(str, words), "--url", str(http.base_url)])


@pytest.fixture
def three(finished, request, monkeypatch):
    """The label of three results, on pages of two."""
    monkeypatch.setattr(endpoints, "MAX_PAGE_SIZE", 2)
    monkeypatch.setattr(endpoints, "EXPORTED_JOBS", 2)
    label = request.node.name
    finished(spec={"labels": {"test": label}})
    finished(spec={"labels": {"test": label, "commit": "=1"}, "params": {"n": 128}})
    finished(spec={"labels": {"test": label}}, metrics=[a_metric(), a_metric("latency", by_run=[], better="lower")])
    return f"test={label}"


def test_csv_has_all_rows_and_columns_of_all_pages(dyno, three, tmp_path):
    file = tmp_path / "results.csv"
    told = dyno("export", "--out", file, "--label", three)
    assert (told.exit_code, told.stdout) == (0, f"{file}: 4 rows\n"), told.output
    with file.open(newline="") as lines:
        rows = [*csv.DictReader(lines)]
    assert {row["metric"] for row in rows} == {"throughput", "latency"}
    assert [row["label.commit"] for row in rows] == ["", "", "'=1", ""]
    assert [row["param.n"] for row in rows] == ["64", "64", "128", "64"]
    assert dyno("export", "--out", file, "--label", three, "--metric", "latency").stdout == f"{file}: 1 rows\n"
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_parquet_has_typed_columns(dyno, three, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs PyArrow, which the extra `parquet` installs")
    file = tmp_path / "results.parquet"
    told = dyno("export", "--out", file, "--label", three, "--json")
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


def test_without_pyarrow_parquet_says_what_to_install(dyno, three, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    told = dyno("export", "--out", tmp_path / "x", "--format", "parquet", "--label", three)
    assert told.exit_code == 1
    assert "pip install '.[parquet]'" in told.stderr
    assert [*tmp_path.iterdir()] == []


def test_json_lines_are_imported_by_another_dyno(dyno, there, three, tmp_path):
    file = tmp_path / "results.jsonl"
    assert dyno("export", "--out", file, "--label", three).stdout == f"{file}: 3 results\n"
    told = there("import", file, "--from", "laptop")
    assert (told.exit_code, told.stdout) == (0, "3 results imported, 0 were here before\n"), told.output
    assert there("import", file).stdout == "0 results imported, 3 were here before\n"
    listed = json.loads(there("jobs", "--imported", "--label", three, "--json").stdout)
    assert [job["imported"]["from"] for job in listed] == ["laptop"] * 3
    assert json.loads(there("jobs", "--no-imported", "--label", three, "--json").stdout) == []


def test_a_wrong_line_is_named_by_its_number_in_the_file(dyno, there, three, tmp_path, monkeypatch):
    file = tmp_path / "results.jsonl"
    dyno("export", "--out", file, "--label", three)
    lines = file.read_text().splitlines()
    monkeypatch.setattr(endpoints, "MAX_LINES", 2)
    file.write_text("\n".join([lines[0], lines[1], "", lines[2], '{"job": 1}']))
    told = there("import", file)
    assert told.exit_code == 3
    assert "stopped after: 2 results imported, 0 were here before" in told.stderr
    assert "/5/job: line 5: " in told.stderr
    assert len(json.loads(there("jobs", "--label", three, "--json").stdout)) == 2


def test_a_file_that_is_not_there_is_named(there, tmp_path):
    told = there("import", tmp_path / "none.jsonl")
    assert told.exit_code == 1
    assert "none.jsonl" in told.stderr


def test_a_file_that_is_not_text_is_named(there, tmp_path):
    file = tmp_path / "results.jsonl.gz"
    file.write_bytes(b"\x1f\x8b\x08")
    told = there("import", file)
    assert (told.exit_code, "stopped after: 0 results imported" in told.stderr) == (1, True), told.output
    assert "results.jsonl.gz isn't a file of `dyno export --format jsonl`" in told.stderr


def test_samples_of_a_job_are_exported(dyno, claimed, tmp_path, http):
    leases, claim = claimed()
    run = RunSamples(run=0, warmup=[0.3], samples=[0.25], sample_cpu_s=[(0.2, 0.1)], executions_per_sample=4)
    result = of_metrics([a_metric()]).model_copy(update={"job": claim.job_id})
    assert leases.finish(claim, "succeed", result=result, samples=[run])
    for name in ("samples.csv", "samples.jsonl"):
        told = dyno("export", "--samples-of", claim.job_id, "--out", tmp_path / name)
        assert told.stdout == f"{tmp_path / name}: 2 samples\n", told.output
    format_csv, lines = (
        http.get(f"/v1/jobs/{claim.job_id}/samples", params={"format": format}) for format in ("csv", "jsonl")
    )
    assert (tmp_path / "samples.csv").read_bytes() == format_csv.content
    assert (tmp_path / "samples.jsonl").read_text() == lines.text == run.model_dump_json() + "\n"
    assert lines.headers["content-type"].startswith("application/x-ndjson")


def test_a_file_without_a_known_ending_needs_a_format(dyno, tmp_path):
    told = dyno("export", "--out", tmp_path / "results")
    assert told.exit_code == 2
    assert "--format" in told.stderr
