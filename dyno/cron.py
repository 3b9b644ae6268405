"""The times of a cron expression in a time zone, as Debian's cron has them."""

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

import cronsim

from dyno.errors import FieldError, InvalidSchedule

_FIELDS = 5  # cronsim also accepts a field of seconds
_UTC = "UTC"


def times(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """The times after `after`, in UTC. Raises InvalidSchedule with all that is wrong.

    On the day that clocks go forward, a time in the missing hour moves to its end. When they go back, a time in the
    repeated hour counts once. Expressions whose minute or hour begins with `*` follow real time instead.
    """
    if wrong := [*_expression_errors(cron), *_zone_errors(timezone)]:
        raise InvalidSchedule(wrong)
    zone = UTC if timezone == _UTC else zoneinfo.ZoneInfo(timezone)  # cronsim is twice as fast with UTC itself
    return _later(cronsim.CronSim(cron, after.astimezone(zone)), after)


def _later(found: Iterator[datetime], after: datetime) -> Iterator[datetime]:
    for moment in found:
        in_utc = moment.astimezone(UTC)
        if in_utc > after:  # from within a repeated hour, cronsim starts with times of the first one
            yield in_utc


def _expression_errors(cron: str) -> Iterator[FieldError]:
    given = len(cron.split())
    if given != _FIELDS:
        detail = f"{given} fields given; use five: minute, hour, day of month, month, day of week"
        yield FieldError("/cron", "invalid-cron", detail)
        return
    try:
        if next(cronsim.CronSim(cron, datetime.now(UTC)), None) is None:
            yield FieldError("/cron", "never-fires", f'"{cron}" has no time in the next 50 years')
    except cronsim.CronSimError as error:
        yield FieldError("/cron", "invalid-cron", f'"{cron}" is no cron expression: {str(error).lower()}')


def _zone_errors(name: str) -> Iterator[FieldError]:
    if name != _UTC and name not in _known_zones():
        detail = f'unknown time zone "{name}"; use a name such as Europe/Zurich, or UTC'
        yield FieldError("/timezone", "unknown-timezone", detail)


@lru_cache(maxsize=1)
def _known_zones() -> frozenset[str]:
    """Reads the folders of the system's time zones, which takes 60 ms."""
    return frozenset(zoneinfo.available_timezones()) - {"localtime"}  # the zone of whichever host fires
