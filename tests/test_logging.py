"""Log records are single lines, plain or JSON, whatever text a caller sends."""

import io
import json
import logging
import re
import sys
from datetime import datetime

import pytest

from dyno.logging import (
    PLAIN_FORMAT,
    JsonFormatter,
    PlainFormatter,
    current_job_id,
    current_request_id,
    log_event,
    set_up_logging,
)

NASTY = 'a\nb\r\n2026-01-01 00:00:00,000 ERROR root: forged\x1b[2J\x00\u2028\u202e\ud800 "q" \\'


@pytest.fixture
def log():
    """A logger that writes to a string with the given formatter."""
    logger = logging.getLogger("dyno.tested")

    def with_formatter(formatter):
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        handler.setFormatter(formatter)
        logger.handlers[:] = [handler]
        return logger, text

    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield with_formatter
    logger.handlers[:] = []
    logger.propagate = True


def fail():
    try:
        raise ValueError(NASTY)
    except ValueError:
        logging.getLogger("dyno.tested").exception("broke: %s", NASTY)


def test_a_plain_line_has_time_level_logger_and_message(log):
    logger, text = log(PlainFormatter(PLAIN_FORMAT))
    logger.warning("no upkeep until Redis is back (%s)", "größer …")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING dyno\.tested: no upkeep until Redis is back \(größer …\)\n",
        text.getvalue(),
    )


def test_a_message_cannot_forge_a_plain_line(log):
    logger, text = log(PlainFormatter(PLAIN_FORMAT))
    logger.warning("asked for %s", NASTY)
    fail()
    lines = text.getvalue().splitlines()  # also at U+2028
    began = [line for line in lines if re.match(r"\d{4}-", line)]
    assert len(began) == 2
    assert all(line.startswith("  ") for line in lines if line not in began)
    assert "\\n2026-01-01" in began[0]
    assert text.getvalue().replace("\n", "").isprintable()


def test_a_json_record_is_one_object_on_one_line(log):
    logger, text = log(JsonFormatter())
    logger.warning("asked for %s", NASTY)
    fail()
    first, second = map(json.loads, text.getvalue().splitlines())
    assert text.getvalue().isascii()
    assert first.keys() == {"time", "level", "logger", "message"}
    assert (first["level"], first["logger"], first["message"]) == ("WARNING", "dyno.tested", f"asked for {NASTY}")
    assert first["time"].endswith("Z")
    assert abs(datetime.fromisoformat(first["time"]).timestamp() - datetime.now().timestamp()) < 60
    assert second["exception"].startswith("Traceback")
    assert NASTY in second["exception"]


def test_an_event_is_a_name_with_facts_in_json_and_pairs_in_a_plain_line(log):
    facts = {"job": "job_1", "attempt": 2, "why": "a b", "level": "mine"}
    logger, text = log(JsonFormatter())
    log_event(logger, logging.INFO, "claimed", facts)
    record = json.loads(text.getvalue())
    assert {name: record[name] for name in ("message", "level", "job_id", "attempt", "why")} == {
        "message": "claimed",
        "level": "INFO",
        "job_id": "job_1",
        "attempt": 2,
        "why": "a b",
    }
    logger, text = log(PlainFormatter("%(message)s"))
    log_event(logger, logging.INFO, "claimed", facts)
    assert text.getvalue() == 'claimed job="job_1" attempt=2 why="a b" level="mine"\n'


def test_a_record_says_which_request_and_job_it_belongs_to(log):
    logger, text = log(JsonFormatter())
    tokens = current_request_id.set("req_1"), current_job_id.set("job_1")
    try:
        logger.warning("x")
    finally:
        current_request_id.reset(tokens[0])
        current_job_id.reset(tokens[1])
    logger.warning("y")
    first, second = map(json.loads, text.getvalue().splitlines())
    assert (first["request_id"], first["job_id"]) == ("req_1", "job_1")
    assert not {"request_id", "job_id"} & second.keys()


@pytest.mark.parametrize("log_format", ["plain", "json"])
def test_other_libraries_use_the_same_format(log_format, monkeypatch):
    text, root = io.StringIO(), logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", text)
    try:
        root.handlers[:] = []
        set_up_logging(log_format)
        for name in ("uvicorn.error", "celery.worker.consumer", "kombu"):
            logging.getLogger(name).warning("hello")
            logging.getLogger(name).info("not logged")
    finally:
        root.handlers[:], root.level = before
        logging.captureWarnings(False)
    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    if log_format == "json":
        assert [json.loads(line)["logger"] for line in lines] == ["uvicorn.error", "celery.worker.consumer", "kombu"]
    else:
        assert all(line.endswith(": hello") for line in lines)
