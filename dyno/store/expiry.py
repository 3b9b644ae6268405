"""Records of done jobs go by themselves; this drops what the indexes still say of them."""

from __future__ import annotations

from typing import Any

import redis

from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys

_AT_ONCE = 1000


def drop_expired(client: redis.Redis, settings: Settings) -> int:
    """Drop up to 1000 entries from all indexes; returns how many jobs they were. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors():
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        members: Any = client.zrange(keys.expiring, "-inf", now_ms, byscore=True, offset=0, num=_AT_ONCE)
        with client.pipeline() as pipeline:
            for member in members:
                job_id, status, workload, *owner = member.split(":", 3)
                indexes = [keys.jobs, keys.jobs_with_status(status), keys.jobs_of_workload(workload)]
                indexes += [keys.webhooks, keys.webhooks_due]
                of_owner = [name(each) for each in owner for name in (keys.jobs_of_owner, keys.webhooks_of_owner)]
                for index in (*indexes, *of_owner):
                    pipeline.zrem(index, job_id)
                pipeline.zrem(keys.expiring, member)
            pipeline.execute()
    return len(members)
