"""Schedules: a spec, and the times at which Dyno submits it as a job."""

from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field, JsonValue

from dyno.models.job import SCHEMA, Stored
from dyno.models.spec import BaselineName, Model, Spec, spec_without_unknown_fields

LABEL = "schedule"  # the label of every job of a schedule: its value is the schedule's name
MOST_KEPT = 20  # firings, and missed times, in a schedule's document
NEXT_SHOWN = 5
ScheduleName = BaselineName


class NewSchedule(Model):
    """A job, and when to submit it. Sweeps and comparisons can't be scheduled."""

    cron: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Minute, hour, day of month, month, day of week, as in Debian's cron"
    )
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        "UTC", description="The time zone of `cron`, such as Europe/Zurich"
    )
    spec: dict[str, JsonValue] = Field(description="A spec as for POST /v1/jobs")
    enabled: bool = Field(True, description="False keeps the schedule without firing it")


class Firing(Stored):
    """One firing: its job, or the code and the detail of the error if the submit was refused."""

    due_at: AwareDatetime
    fired_at: AwareDatetime
    job: str | None = None
    code: str | None = None
    detail: str | None = None


class ScheduleStop(Stored):
    """Why Dyno stopped a schedule for good."""

    code: str
    detail: str
    stopped_at: AwareDatetime


class JobSchedule(Stored):
    """A spec that Dyno submits at the times of a cron expression. `stopped` says why it doesn't fire any more."""

    name: str
    cron: str
    timezone: str
    spec: Annotated[Spec, BeforeValidator(spec_without_unknown_fields)]
    enabled: bool
    stopped: ScheduleStop | None = None
    next_firings: list[AwareDatetime] = Field(description="The next 5 times; empty if it is disabled or stopped")
    firings: list[Firing] = Field([], description="The last 20, newest first")
    missed: list[AwareDatetime] = Field([], description="The last 20 times without a firing, newest first")
    missed_count: int = Field(0, description="Number of times without a firing since the schedule was created")
    saved_at: AwareDatetime
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA


class ScheduleList(Stored):
    """All schedules of the caller's key, by name; an admin's list has those of all keys."""

    data: list[JobSchedule]
