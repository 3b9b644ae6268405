"""Baselines in Redis: one HASH for each API key, so two keys may use the same name."""

import builtins
import contextlib
from typing import Any

from dyno.errors import LimitReached, RecordUnreadable, UnknownBaseline
from dyno.models.api_key import Viewer
from dyno.models.baseline import Baseline
from dyno.settings import Settings
from dyno.store.pipelining import PipeliningRedis
from dyno.store.records import parse_stored
from dyno.store.redis import Keys, store_errors

MOST_BASELINES = 100  # per API key; about 4 kB each
_RETRY_S = 60


class Baselines:
    """The viewer's baselines. A viewer that sees all reads other keys' baselines, too.

    Every method raises StoreUnavailable while Redis is unreachable, full or read-only.
    """

    def __init__(self, client: PipeliningRedis, settings: Settings, viewer: Viewer) -> None:
        self._client, self._keys, self._viewer = client, Keys(settings.namespace), viewer

    async def put(self, baseline: Baseline) -> bool:
        """Save the viewer's baseline, or replace its baseline of this name. Returns whether it is new.

        Raises LimitReached.
        """
        own_key, text = self._keys.baselines(self._viewer.owner), baseline.model_dump_json(by_alias=True)
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.hset(own_key, baseline.name, text)
                pipeline.hlen(own_key)
                pipeline.sadd(self._keys.baseline_owners, self._viewer.owner or "")
                is_new, number, _ = await pipeline.execute()
            if is_new and number > MOST_BASELINES:
                await self._client.hdel(own_key, baseline.name)
                detail = f"there are {MOST_BASELINES} baselines already, the limit for a key; delete one first"
                raise LimitReached(detail, "baselines", MOST_BASELINES, None, _RETRY_S)
        return bool(is_new)

    async def own(self, name: str) -> Baseline:
        """The viewer's own baseline. Raises UnknownBaseline, RecordUnreadable."""
        return await self._first(name, [self._viewer.owner or ""])

    async def get(self, name: str) -> Baseline:
        """The viewer's own baseline, else the baseline of another key that it sees. Raises as `own` does."""
        return await self._first(name, await self._owners())

    async def delete(self, name: str) -> None:
        """Delete the viewer's own baseline. Jobs that name it keep their copies. Raises UnknownBaseline."""
        with store_errors():
            if not await self._client.hdel(self._keys.baselines(self._viewer.owner), name):
                raise _unknown(name)

    async def list(self) -> list[Baseline]:
        """All readable baselines that the viewer sees, by name; where keys share a name, its own first."""
        owners = await self._owners()
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for owner in owners:
                    pipeline.hgetall(self._keys.baselines(owner))
                replies: builtins.list[dict[str, str]] = await pipeline.execute()
        texts = [item for reply in replies for item in reply.items()]
        readable: builtins.list[Baseline] = []
        for name, text in sorted(texts, key=lambda item: item[0]):
            with contextlib.suppress(RecordUnreadable):  # logged already; it mustn't hide the others
                readable.append(parse_stored(Baseline.model_validate_json, text, f"the baseline {name}"))
        return readable

    async def _first(self, name: str, owners: builtins.list[str]) -> Baseline:
        """The baseline of the first owner who has one."""
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for owner in owners:
                    pipeline.hget(self._keys.baselines(owner), name)
                texts: builtins.list[str | None] = await pipeline.execute()
        text = next((text for text in texts if text is not None), None)
        if text is None:
            raise _unknown(name)
        return parse_stored(Baseline.model_validate_json, text, f"the baseline {name}")

    async def _owners(self) -> builtins.list[str]:
        """The owners whose baselines the viewer sees, itself first."""
        own_owner = self._viewer.owner or ""
        if not self._viewer.sees_all:
            return [own_owner]
        with store_errors():
            every: Any = await self._client.smembers(self._keys.baseline_owners)
        return [own_owner, *sorted(str(owner) for owner in every if owner != own_owner)]


def _unknown(name: str) -> UnknownBaseline:
    return UnknownBaseline(f'there is no baseline "{name[:64]}"')
