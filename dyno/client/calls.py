"""The calls of both clients: one method per thing to ask, as steps."""

from __future__ import annotations

from datetime import datetime

import httpx

from dyno.client.answers import check
from dyno.client.call import call
from dyno.client.comparisons import ComparisonCalls
from dyno.client.errors import ConnectionBroken, Refused, ServerUnreachable
from dyno.client.files import FileCalls
from dyno.client.fleet import FleetCalls
from dyno.client.jobs import JobCalls
from dyno.client.keys import KeyCalls
from dyno.client.pages import LIMIT, rows_of
from dyno.client.steps import Ask, Steps, sent
from dyno.client.webhooks import WebhookCalls
from dyno.rows import ResultRow

_ALIVE_WITHIN_S = 2.0  # it asks nobody else; what keeps a port and says nothing is no service


class Calls(JobCalls, FileCalls, ComparisonCalls, FleetCalls, KeyCalls, WebhookCalls):
    """What Client and AsyncClient have alike; see `dyno.client.call`."""

    @call
    def results(
        self,
        *,
        workload: str | None = None,
        device: str | None = None,
        metric: str | None = None,
        label: str | None = None,
        created_after: datetime | str | None = None,
        created_before: datetime | str | None = None,
        limit: int | None = LIMIT,
    ) -> Steps[list[ResultRow]]:
        """A row for each metric of the newest `limit` jobs that succeeded, null for all of them, as a flat table."""
        filters = {"workload": workload, "device": device, "metric": metric, "label": label}
        return rows_of({**filters, "from": created_after, "to": created_before}, limit)

    @call
    def alive(self) -> Steps[bool]:
        """Whether the service answers at all, and soon. It isn't told the key: another program may have its port."""
        try:
            answer: httpx.Response = yield Ask("GET", "/livez", {"timeout": _ALIVE_WITHIN_S}, to_strangers=True)
        except ConnectionBroken:
            return False
        return answer.status_code == httpx.codes.OK

    @call
    def not_ready_because(self) -> Steps[str | None]:
        """Why not to rely on the service now: Redis is away, or keeps nothing; None if it is ready."""
        try:
            check((yield from sent("GET", "/readyz")))
        except (Refused, ServerUnreachable) as error:
            return error.detail
        return None
