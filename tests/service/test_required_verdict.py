"""`--require`: fail a script whose result misses the required verdict."""

import pytest

from dyno.bench.measure.warnings import warning
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
def test_a_verdict_below_the_required_one_ends_with_1(dyno, finished, verdict, required, exit_code):
    job = finished(verdict=verdict)
    told = dyno("result", job, "--require", required)
    assert told.exit_code == exit_code, told.output


def test_a_missed_verdict_prints_the_warnings_and_the_result(dyno, finished):
    job = finished(verdict=Verdict.UNTRUSTED, warnings=[warning("ABOVE_PEAK"), warning("POW2_ONLY")])
    told = dyno("result", job, "--require", "trusted", "--json")
    assert f'"job": "{job}"' in told.stdout
    assert "trusted is required" in told.stderr
    assert "ABOVE_PEAK" in told.stderr
    assert "POW2_ONLY" not in told.stderr
