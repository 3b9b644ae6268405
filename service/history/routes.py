"""The history of results: series over time, change points, and alarms to acknowledge."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from dyno.logging import audit
from dyno.models.history import Alarm, History
from service import auth, dependencies, problems
from service.history import result_history
from service.state import State

router = APIRouter(prefix="/v1/history", tags=["history"])


class HistoryFilter(BaseModel, extra="forbid"):
    """Results that match all given conditions."""

    since: dependencies.TimestampOrEpoch | None = Field(None, alias="from")
    until: dependencies.TimestampOrEpoch | None = Field(None, alias="to")
    workload: Annotated[str, Field(max_length=64)] | None = None
    device: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="A device kind or id, as for a list of jobs"
    )
    metric: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="By default the headline metric, the first one that is sampled"
    )
    label: Annotated[str, Field(max_length=257)] | None = Field(None, description="`name` or `name=value`")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next_cursor` of a newer page")
    limit: Annotated[
        int, Field(ge=1, le=result_history.MOST_RESULTS, description="Maximum number of results to read")
    ] = result_history.MOST_RESULTS


Wanted = Annotated[HistoryFilter, Query()]


async def _read(state: State, request: Request, query: HistoryFilter) -> History:
    filters: dict[str, Any] = query.model_dump(include={"workload", "device", "label", "cursor", "limit"})
    filters |= {"created_after": query.since, "created_before": query.until}
    with dependencies.as_parameter_errors():
        return await result_history.read_history(state, query.metric, query=request.url.query, **filters)


@router.get(
    "",
    operation_id="getHistory",
    summary="Read results over time, with changes and alarms",
    responses={
        200: dependencies.sends("Link"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def show(state: dependencies.StateDep, request: Request, query: Wanted, response: Response) -> History:
    """Read up to `limit` of the newest matching results, grouped into series with points, change points and alarms.

    A series has the results of one spec on one device. Dyno searches for changes only in the results that this request
    reads. So narrow the request with `workload`, `device` and `label`, or read older results with `cursor`.
    """
    history = await _read(state, request, query)
    dependencies.link_next(request, response, history.next_cursor)
    return history


@router.post(
    "/alarms/{alarm_id}/acknowledge",
    operation_id="acknowledgeAlarm",
    summary="Acknowledge an alarm",
    responses=problems.documented("alarm-not-found"),
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def acknowledge(
    alarm_id: Annotated[str, Path(description="The `id` of the alarm", max_length=100)],
    state: dependencies.StateDep,
    request: Request,
    query: Wanted,
    caller: auth.CallerDep,
) -> Alarm:
    """Acknowledge an alarm, so that its state is `acknowledged`. Repeating the request changes nothing.

    The query must select a history that contains the alarm, as the query of the alarm's `acknowledge_url` does.
    """
    alarm = await result_history.acknowledge(state, alarm_id, await _read(state, request, query))
    audit("alarm-acknowledged", caller.name, alarm=alarm.id)
    return alarm
