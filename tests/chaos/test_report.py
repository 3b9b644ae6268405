"""The summary that is kept of a run, and the page of all runs."""

from chaos import report
from chaos.checks import Violation, ViolationKind
from chaos.clients import Responses
from chaos.faults import FaultInjector
from chaos.plan import Fault, FaultKind, Span
from chaos.rig import Rig
from chaos.run import RunConfig, RunRecord
from chaos.snapshot import Event, Streams

GENERAL = [
    Event(10.0, "a", "submit", "queued", 1),
    Event(11.5, "a", "claim", "running", 2),
    Event(12.0, "a", "expire", "queued", 3, "worker_lost"),
    Event(20.0, "a", "claim", "running", 4),
    Event(21.0, "a", "succeed", "succeeded", 5),
    Event(23.0, "b", "fail", "failed", 3, "timeout"),
]
LOST = [Violation(ViolationKind.LOST, f"job {number} was lost") for number in range(1000)]


def summary(folder, *violations):
    """Of a made-up run of two jobs."""
    faults = FaultInjector(Rig(folder, "everysec"))
    faults.spans += [(Fault(1.0, FaultKind.KILL, "worker-0", 2.0), Span(13.0, 18.0))] * 2
    responses = Responses()
    responses.accepted.update({"key-a": {"a"}, "key-b": {"b"}})
    responses.retries["503"] += 4
    config = RunConfig(seed=7, minutes=10, jobs=2, durability="everysec", patience_s=60)
    return report.summary(RunRecord(config, responses, faults, Streams(GENERAL, {}), violations, 611.0))


def test_a_run_is_kept_in_a_few_kilobytes_and_replaced_unless_it_was_broken(tmp_path):
    whole, broken, kept = summary(tmp_path), summary(tmp_path, *LOST), tmp_path / "kept"
    for run in (whole, whole, whole | {"durability": "always"}, broken, whole):
        report.keep(7, run, kept)
    found = [(seed, run["durability"], report.violation_count(run)) for seed, run in report.kept(kept)]
    assert found == [(7, "always", 0), (7, "everysec", 0), (7, "everysec", 1000)]
    assert all(path.stat().st_size < 4000 for path in kept.iterdir())


def test_the_page_has_a_row_for_each_run_and_names_its_faults_and_violations(tmp_path):
    lines = report.page([(7, summary(tmp_path)), (8, summary(tmp_path, *LOST))])
    good, bad = (line for line in lines if line.startswith(("| 7 |", "| 8 |")))
    assert good.endswith(" | 10 | everysec | 2 | 1 | 1 | 0 | 1 | 2 | 0 |")
    assert bad.endswith(" | 2 | 1000 |")
    text = " ".join(" ".join(lines).split())
    assert "Seed 7: KILL 2; expired leases 1, jobs handed back 0; reasons of failures: timeout 1; retries" in text
    assert "retries of clients 4; violations: none." in text
    assert "violations: lost jobs 1000." in text
