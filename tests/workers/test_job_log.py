"""Output of runners: sent to the store in bounded pieces, and complete however a run ends."""

import pytest

from dyno.models.job import Status
from dyno.store.leases import LogPiece
from tests.waiting import eventually
from tests.workers.conftest import tiny
from tests.workers.outcomes import log_of
from tests.workers.programs import first_runner_is
from workers.heartbeat import PIECE_BYTES, JobLog


def a_log():
    log = JobLog(attempt=1)
    log.begin(0)
    return log


def next_text(log):
    piece = log.piece()
    log.sent()
    return piece.text


def test_a_piece_is_the_same_until_it_has_arrived():
    log = a_log()
    log.add(b"one\n")
    first = log.piece()
    log.add(b"two\n")
    assert log.piece() is first
    log.sent()
    assert log.piece() == LogPiece(1, "two\n")
    log.sent()
    assert log.piece() is None


def test_each_run_that_prints_is_named_once():
    log = JobLog(attempt=2)
    for run, words in enumerate((b"a\n", b"", b"c\n")):
        log.begin(run)
        if words:
            log.add(words)
    assert next_text(log) == "[attempt 2, run 1]\na\n[attempt 2, run 3]\nc\n"


def test_of_much_output_the_end_is_sent_with_the_number_of_missing_bytes():
    log = a_log()
    for _ in range(100):
        log.add(b"flood " * 1000)
    notice, _, kept = next_text(log).partition("\n")
    assert notice == f"[{100 * 6000 + len('[attempt 1, run 1]') + 1 - PIECE_BYTES} bytes left out]"
    assert len(kept) == PIECE_BYTES
    log.add(b"after\n")
    assert next_text(log) == "after\n"


def test_a_character_that_arrives_in_two_parts_is_decoded():
    log = JobLog(attempt=1)
    log.add("é".encode()[:1])
    halves = log.piece()
    log.sent()
    log.add("é".encode()[1:] + b"\xff")
    assert (halves.text if halves else "") + next_text(log) == "é\ufffd"


@pytest.mark.parametrize(
    ("end", "timeout_s", "status"),
    [
        ("raise SystemExit(3)", None, Status.FAILED),
        ("import os; os.kill(os.getpid(), 9)", None, Status.SUCCEEDED),  # by the next attempt
        ("import time; time.sleep(600)", 6, Status.FAILED),
    ],
)
def test_the_last_output_is_stored_however_a_run_ends(
    quick, store, supervisor_of, forking, monkeypatch, tmp_path, end, timeout_s, status
):
    first_runner_is(f"print('the last words', flush=True)\n{end}", forking, monkeypatch, tmp_path / "began")
    settings = quick.model_copy(update={"heartbeat_s": 600.0})  # so that no heartbeat has carried them
    job_id = store.submit(tiny(timeout_s=timeout_s))
    supervisor_of(settings, forking).serve()
    assert store.job(job_id).status is status
    assert "[attempt 1, run 1]\nthe last words\n" in log_of(settings, job_id)


def test_what_a_runner_prints_can_be_read_while_it_runs(
    quick, store, supervisor_of, forking, background, monkeypatch, tmp_path
):
    program = "import time; print('first', flush=True); time.sleep(600)"
    first_runner_is(program, forking, monkeypatch, tmp_path / "began")
    job_id = store.submit(tiny())
    supervisor = supervisor_of(quick, forking)
    background.submit(supervisor.serve)
    eventually(lambda: "first\n" in log_of(quick, job_id))
    assert store.job(job_id).status is Status.RUNNING
    supervisor.stop(0)
