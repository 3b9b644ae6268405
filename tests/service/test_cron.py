"""Times of cron expressions: time zones, daylight saving, and expressions that are refused."""

import contextlib
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.errors import InvalidSchedule
from service.schedules.scheduler import cron_times

ZURICH = "Europe/Zurich"


def some(expression, timezone, after, number=3):
    found = islice(cron_times(expression, timezone, datetime.fromisoformat(after)), number)
    return [f"{moment:%m-%d %H:%M}" for moment in found]


@pytest.mark.parametrize(
    ("expression", "timezone", "after", "expected"),
    [
        ("0 3 * * *", "UTC", "2026-11-23T02:59:59+00:00", ["11-23 03:00", "11-24 03:00", "11-25 03:00"]),
        ("0 3 * * *", "UTC", "2026-11-23T03:00:00+00:00", ["11-24 03:00", "11-25 03:00", "11-26 03:00"]),
        ("0 3 * * *", ZURICH, "2026-11-23T00:00:00+00:00", ["11-23 02:00", "11-24 02:00", "11-25 02:00"]),
        ("0 3 * * 1-5", ZURICH, "2026-07-03T12:00:00+00:00", ["07-06 01:00", "07-07 01:00", "07-08 01:00"]),
        (
            "*/30 9-10 1 1,7 *",
            "Asia/Kolkata",
            "2026-02-01T00:00:00+00:00",
            ["07-01 03:30", "07-01 04:00", "07-01 04:30"],
        ),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00+00:00", ["02-29 00:00", "02-29 00:00", "02-29 00:00"]),
        ("0 0 1 * mon", "UTC", "2026-11-23T00:00:00+00:00", ["11-30 00:00", "12-01 00:00", "12-07 00:00"]),
    ],
)
def test_times_are_those_of_the_zone(expression, timezone, after, expected):
    assert some(expression, timezone, after) == expected


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [  # on 2026-03-29 at 02:00, clocks go forward to 03:00: 01:00 in UTC
        ("30 2 * * *", "2026-03-28T12:00:00+00:00", ["03-29 01:00", "03-30 00:30"]),
        ("0,30 2 * * *", "2026-03-28T12:00:00+00:00", ["03-29 01:00", "03-30 00:00"]),
        ("30 3 * * *", "2026-03-28T12:00:00+00:00", ["03-29 01:30", "03-30 01:30"]),
        ("0 * * * *", "2026-03-28T23:30:00+00:00", ["03-29 00:00", "03-29 01:00", "03-29 02:00"]),
        # on 2026-10-25 at 03:00, they go back to 02:00: 01:00 in UTC
        ("30 2 * * *", "2026-10-24T12:00:00+00:00", ["10-25 00:30", "10-26 01:30"]),
        ("30 2 * * *", "2026-10-25T00:30:00+00:00", ["10-26 01:30", "10-27 01:30"]),
        ("0 * * * *", "2026-10-24T23:30:00+00:00", ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),
        ("*/20 2 * * *", "2026-10-25T00:30:00+00:00", ["10-25 00:40", "10-25 01:00", "10-25 01:20", "10-25 01:40"]),
        # from within the repeated hour: it has had its time already
        ("30 2 * * *", "2026-10-25T01:15:00+00:00", ["10-26 01:30"]),
        ("45 2 * * *", "2026-10-25T01:15:00+00:00", ["10-26 01:45"]),
    ],
)
def test_daylight_saving_neither_skips_nor_repeats_a_daily_time(expression, after, expected):
    assert some(expression, ZURICH, after, len(expected)) == expected


@given(
    st.sampled_from(["* * * * *", "30 2 * * *", "0,30 1-3 * * *", "*/7 * * * *", "15 2 29 3 *", "0 2-3 * * sun"]),
    st.sampled_from([ZURICH, "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]),
    st.datetimes(datetime(2025, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
)
def test_times_are_later_and_ascend_from_any_moment(expression, timezone, after):
    found = list(islice(cron_times(expression, timezone, after), 20))
    assert all(before < later for before, later in pairwise([after, *found]))


@given(st.datetimes(datetime(2026, 3, 28), datetime(2026, 3, 31), timezones=st.just(UTC)), st.integers(1, 100))
def test_a_day_has_the_same_times_wherever_one_starts(after, minutes):
    """As after an outage, and after a restart in the middle of it."""
    later = after + timedelta(minutes=minutes)
    for expression in ("30 2 * * *", "0 1-3 * * *", "*/15 * * * *"):
        from_first = [each for each in islice(cron_times(expression, ZURICH, after), 30) if each > later]
        assert from_first[:5] == list(islice(cron_times(expression, ZURICH, later), len(from_first)))[:5]


@pytest.mark.parametrize(
    ("expression", "timezone", "pointer", "code"),
    [
        ("", "UTC", "/cron", "invalid-cron"),
        ("* * * *", "UTC", "/cron", "invalid-cron"),
        ("0 * * * * *", "UTC", "/cron", "invalid-cron"),
        ("@daily", "UTC", "/cron", "invalid-cron"),
        ("60 * * * *", "UTC", "/cron", "invalid-cron"),
        ("0 24 * * *", "UTC", "/cron", "invalid-cron"),
        ("*/0 * * * *", "UTC", "/cron", "invalid-cron"),
        ("0 0 31 2 *", "UTC", "/cron", "invalid-cron"),
        ("0 0 ² * *", "UTC", "/cron", "invalid-cron"),
        ("0 3 * * *", "Europe/Zuerich", "/timezone", "unknown-timezone"),
        ("0 3 * * *", "../../etc/passwd", "/timezone", "unknown-timezone"),
        ("0 3 * * *", "Europe", "/timezone", "unknown-timezone"),
        ("0 3 * * *", "localtime", "/timezone", "unknown-timezone"),
    ],
)
def test_what_is_no_schedule_is_refused(expression, timezone, pointer, code):
    with pytest.raises(InvalidSchedule) as refused:
        cron_times(expression, timezone, datetime.now(UTC))
    [error] = refused.value.errors
    assert (error.pointer, error.code) == (pointer, code)


@given(st.text("*/-,LW#0123456789 MONJAN", max_size=20))
def test_any_text_is_times_or_a_refusal(expression):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with contextlib.suppress(InvalidSchedule):
        assert next(cron_times(expression, "UTC", start)) > start
