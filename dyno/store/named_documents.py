"""Named documents in Redis, such as baselines: one HASH for each API key, so two keys may use the same name."""

import builtins
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from dyno.errors import DynoError, LimitReached, RecordUnreadable, UnknownBaseline
from dyno.models.api_key import Viewer
from dyno.models.baseline import Baseline
from dyno.settings import Settings
from dyno.store.pipelining import PipeliningRedis
from dyno.store.records import parse_stored
from dyno.store.redis import Keys, pipelined, store_errors

_RETRY_S = 60
T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class DocumentKind(Generic[T]):
    """`noun`: the word in messages; its plural must end in "s". `hash_of`: returns the Redis key of an owner's
    documents. `owners`: returns the Redis key of the set of owners.
    """

    noun: str
    model: type[T]
    unknown: type[DynoError]
    hash_of: Callable[[Keys], Callable[[str | None], str]]
    owners: Callable[[Keys], str]


@dataclass(frozen=True)
class StoredDocument(Generic[T]):
    """`text`: the document as it is stored, which a write that replaces it must name."""

    kind: DocumentKind[T]
    owner: str | None
    name: str
    text: str

    @property
    def document(self) -> T:
        """Raises RecordUnreadable."""
        return parse_stored(self.kind.model.model_validate_json, self.text, f"the {self.kind.noun} {self.name}")


class NamedDocuments(Generic[T]):
    """The viewer's documents of one kind. A viewer that sees all keys' documents finds its own before the others.

    Every method raises StoreUnavailable while Redis is unreachable, full or read-only.
    """

    kind: DocumentKind[T]

    def __init__(self, client: PipeliningRedis, settings: Settings, viewer: Viewer) -> None:
        self._client, self._viewer, self._keys = client, viewer, Keys(settings.namespace)
        self._hash, self._owners_key = self.kind.hash_of(self._keys), self.kind.owners(self._keys)

    async def get(self, name: str) -> T:
        """Raises the kind's error for an unknown name, RecordUnreadable."""
        return (await self._find(name)).document

    async def list(self) -> list[T]:
        """All readable documents that the viewer sees, by name. Among equal names, the viewer's own comes first."""
        owners = await self._owners()
        replies = await pipelined(self._client, [("hgetall", self._hash(owner)) for owner in owners])
        stored = [
            StoredDocument(self.kind, owner, *item)
            for owner, reply in zip(owners, replies, strict=True)
            for item in reply.items()
        ]
        readable: builtins.list[T] = []
        for document in sorted(stored, key=lambda document: document.name):
            with contextlib.suppress(RecordUnreadable):  # logged already; it mustn't hide the others
                readable.append(document.document)
        return readable

    async def read(self, owner: str | None, name: str) -> StoredDocument[T] | None:
        return await self._first(name, [owner])

    async def _find(self, name: str, *, own: bool = False) -> StoredDocument[T]:
        """The first document of this name that the viewer sees. With `own`, only the viewer's own document."""
        stored = await self._first(name, [self._viewer.owner] if own else await self._owners())
        if stored is None:
            raise self._unknown(name)
        return stored

    async def _first(self, name: str, owners: builtins.list[str | None]) -> StoredDocument[T] | None:
        texts = await pipelined(self._client, [("hget", self._hash(owner), name) for owner in owners])
        for owner, text in zip(owners, texts, strict=True):
            if text is not None:
                return StoredDocument(self.kind, owner, name, text)
        return None

    async def _owners(self) -> builtins.list[str | None]:
        """The owners whose documents the viewer sees. The viewer comes first."""
        viewer_owner = self._viewer.owner
        if not self._viewer.sees_all:
            return [viewer_owner]
        with store_errors():
            owners = sorted(str(owner) for owner in await self._client.smembers(self._owners_key))
        return [viewer_owner, *(owner or None for owner in owners if owner != (viewer_owner or ""))]

    def _unknown(self, name: str) -> DynoError:
        return self.kind.unknown(f'there is no {self.kind.noun} "{name[:64]}"')

    def _too_many(self, most: int) -> LimitReached:
        detail = f"there are {most} {self.kind.noun}s already, the limit for a key; delete one first"
        return LimitReached(detail, f"{self.kind.noun}s", most, None, _RETRY_S)


MOST_BASELINES = 100  # per API key; a baseline takes about 4 kB


class Baselines(NamedDocuments[Baseline]):
    """The viewer's baselines."""

    kind = DocumentKind(
        "baseline", Baseline, UnknownBaseline, lambda keys: keys.baselines, lambda keys: keys.baseline_owners
    )

    async def put(self, baseline: Baseline) -> bool:
        """Save the viewer's baseline. Replaces its baseline of the same name. Returns whether the name is new.

        Raises LimitReached.
        """
        own_key, text = self._hash(self._viewer.owner), baseline.model_dump_json(by_alias=True)
        commands = [("hset", own_key, baseline.name, text), ("hlen", own_key)]
        is_new, number, _ = await pipelined(
            self._client, [*commands, ("sadd", self._owners_key, self._viewer.owner or "")]
        )
        if is_new and number > MOST_BASELINES:
            with store_errors():
                await self._client.hdel(own_key, baseline.name)
            raise self._too_many(MOST_BASELINES)
        return bool(is_new)

    async def own(self, name: str) -> Baseline:
        """The viewer's own baseline. Raises UnknownBaseline, RecordUnreadable."""
        return (await self._find(name, own=True)).document

    async def delete(self, name: str) -> None:
        """Delete the viewer's own baseline. Jobs that name it keep copies of it. Raises UnknownBaseline."""
        with store_errors():
            if not await self._client.hdel(self._hash(self._viewer.owner), name):
                raise self._unknown(name)
