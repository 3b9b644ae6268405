"""`--require`: fail a script whose result misses the required verdict."""

import pytest
from typer.testing import CliRunner

from dyno.bench.measure.warnings import warning
from dyno.cli import app as command
from dyno.models.result import Verdict


@pytest.mark.parametrize(
    ("verdict", "required", "exit_code"),
    [
        (Verdict.TRUSTED, "trusted", 0),
        (Verdict.INDICATIVE, "trusted", 1),
        (Verdict.INDICATIVE, "indicative", 0),
        (Verdict.UNTRUSTED, "indicative", 1),
        (Verdict.UNTRUSTED, "untrusted", 0),
    ],
)
def test_a_verdict_below_the_required_one_ends_with_1(http, finished, verdict, required, exit_code):
    job = finished(verdict=verdict)
    told = CliRunner().invoke(command, ["result", job, "--require", required, "--url", str(http.base_url)])
    assert told.exit_code == exit_code, told.output


def test_a_missed_verdict_prints_the_warnings_and_the_result(http, finished):
    job = finished(verdict=Verdict.UNTRUSTED, warnings=[warning("ABOVE_PEAK"), warning("POW2_ONLY")])
    asked = ["result", job, "--require", "trusted", "--json", "--url", str(http.base_url)]
    told = CliRunner().invoke(command, asked, env={"COLUMNS": "250"})
    assert f'"job": "{job}"' in told.stdout
    assert "trusted is required" in told.stderr
    assert "ABOVE_PEAK" in told.stderr
    assert "POW2_ONLY" not in told.stderr
