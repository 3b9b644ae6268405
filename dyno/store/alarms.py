"""Records of alarms: the rerun that checks an alarm, and who acknowledged the alarm.

Alarms themselves are computed from the results. All records of a series expire together. They are kept after the last
write until all results of that time have expired.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dyno.models.history import AlarmRecord
from dyno.models.job import Status
from dyno.models.spec import MAX_EXPIRES_IN_S
from dyno.settings import Settings
from dyno.store.pipelining import PipeliningRedis
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, pipelined, store_errors


@dataclass(frozen=True)
class Look:
    """A search for new alarms: its time by Redis' clock, and how many jobs of the workload had succeeded by then."""

    succeeded: int
    at_s: float


class AlarmRecords:
    """Every method raises StoreUnavailable while Redis is unreachable, full or read-only."""

    def __init__(self, client: PipeliningRedis, settings: Settings) -> None:
        self._client, self._keys = client, Keys(settings.namespace)
        self._script = client.cached_script(SCRIPT_SOURCES[Script.ALARM])

    async def read(self, series_ids: Sequence[str]) -> list[Mapping[str, AlarmRecord]]:
        """For each series, its records by the job of the alarm."""
        commands = [("hgetall", self._keys.alarms(series_id)) for series_id in series_ids]
        return [_records(reply) for reply in await pipelined(self._client, commands)]

    async def acknowledge(self, series_id: str, job_id: str, key_id: str | None) -> bool:
        """Returns False if the alarm was acknowledged before; then nothing changes."""
        fields = {"acknowledged_at": datetime.now(UTC).isoformat()} | ({"acknowledged_by": key_id} if key_id else {})
        return await self._record(series_id, job_id, fields)

    async def add_rerun(self, series_id: str, job_id: str, rerun_id: str) -> bool:
        """Returns False if a rerun was recorded before; then nothing changes."""
        return await self._record(series_id, job_id, {"rerun": rerun_id})

    async def take_turn(self, every_s: float) -> bool:
        """Returns whether this process should look for new alarms now. Within `every_s`, only one process gets True."""
        name, pause_ms = self._keys.alarms_checked, max(1, round(every_s * 1000))
        with store_errors():
            taken = bool(await self._client.set(name, 1, nx=True, px=pause_ms))
            if not taken:  # shortens a TTL that grew because Redis' clock stepped back
                await self._client.pexpire(name, pause_ms, lt=True)
        return taken

    async def looks(self, workload: str) -> tuple[Look, Look]:
        """The last completed search for new alarms of this workload, and the search that begins now."""
        succeeded_field = f"ended {workload} {Status.SUCCEEDED} none"
        commands = [("hget", self._keys.alarms_looked, workload), ("hget", self._keys.counts, succeeded_field)]
        last, succeeded, (now_s, micros) = await pipelined(self._client, [*commands, ("time",)])
        before = (last or "0 0").split()
        return Look(int(before[0]), float(before[1])), Look(int(succeeded or 0), now_s + micros / 1e6)

    async def end_look(self, workload: str, look: Look) -> None:
        with store_errors():
            await self._client.hset(self._keys.alarms_looked, workload, f"{look.succeeded} {look.at_s:.6f}")

    async def _record(self, series_id: str, job_id: str, fields: Mapping[str, str]) -> bool:
        flat = [part for name, value in fields.items() for part in (f"{job_id} {name}", value)]
        args = [self._keys.namespace, MAX_EXPIRES_IN_S * 1000, *flat]
        with store_errors():
            outcome = await self._script([self._keys.alarms(series_id)], args)
        return bool(outcome == "recorded")


def _records(fields: Mapping[str, str]) -> Mapping[str, AlarmRecord]:
    by_job = defaultdict[str, dict[str, str]](dict)
    for name, value in fields.items():
        job_id, _, field = name.partition(" ")
        by_job[job_id][field] = value
    return {job_id: AlarmRecord.model_validate(values) for job_id, values in by_job.items()}
