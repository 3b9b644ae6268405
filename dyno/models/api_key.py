"""API keys: their scopes and limits, and who sees which jobs.

A key is `dyno_` and 256 random bits; the store keeps its SHA-256 only. Slow hashes are for passwords, which can be
guessed; a key can't be. A key is found by its hash, and the whole hash is then compared in constant time.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from enum import StrEnum
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints

from dyno.models.job import Stored
from dyno.models.spec import Model, without_unknown_fields

SECRET = re.compile(r"dyno_[0-9a-f]{64}")
KEY_ID = re.compile(r"key_[0-9a-f]{16}")
_SHOWN = len("dyno_") + 8

Limit = Annotated[int, Field(ge=1, le=10**9)]


class Scope(StrEnum):
    """What a key may do; each may do what those before it may."""

    READ = "read"  # look at own jobs, and at what there is
    SUBMIT = "submit"  # make and cancel own jobs and comparisons
    ADMIN = "admin"  # all of everybody's: keys, cordons, the jobs of other keys and of none

    @property
    def implied(self) -> list[Scope]:
        """What a key of this scope has: itself, and those before it."""
        every = list(Scope)
        return every[: every.index(self) + 1]


class Limits(Model):
    """Of one key; null: none."""

    queued_jobs: Limit | None = Field(None, description="Jobs of the key that wait at the same time")
    device_s_per_day: Limit | None = Field(
        None, description="Seconds of devices in a day of UTC, those of running jobs too; then new jobs are refused"
    )
    requests_per_s: Limit | None = Field(None, description="As many may also come at once")


class NewKey(Model):
    """What a key is asked for with."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 ._@:/+-]{1,64}$")] = Field(description="For people")
    scope: Literal["read", "submit", "admin"]
    limits: Limits = Limits()


class ApiKey(Stored):
    """A key as it is shown; nothing tells the secret. `id` is the `owner` of the jobs that it makes."""

    id: str
    prefix: str = Field(description="What the secret begins with")
    name: str
    scope: Scope
    limits: Annotated[Limits, BeforeValidator(partial(without_unknown_fields, Limits))]
    created_at: AwareDatetime
    last_used_at: AwareDatetime | None = Field(None, description="To the minute; null: never")
    revoked_at: AwareDatetime | None = None


class Me(Stored):
    """`key` is null where no request needs one yet, and everything is allowed."""

    key: ApiKey | None
    scopes: list[Scope]


class CreatedKey(ApiKey):
    """A new key with its secret, told this once."""

    secret: str = Field(description="To be sent as `Authorization: Bearer <secret>`")


class KeyList(Stored):
    """Revoked ones, too: jobs name them as their owners."""

    data: list[ApiKey]


class Viewer(NamedTuple):
    """Whom jobs are made for and shown to. By default nobody in particular, who sees all of them."""

    owner: str | None = None
    sees_all: bool = True

    def sees(self, owner: str | None) -> bool:
        return self.sees_all or owner == self.owner


EVERYBODY = Viewer()


def new_secret() -> str:
    return f"dyno_{secrets.token_hex(32)}"


def digest_of(secret: str) -> str:
    """All that is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def id_of(digest: str) -> str:
    """The id of the key: the beginning of the hash, which says nothing of the secret."""
    return f"key_{digest[:16]}"


def prefix_of(secret: str) -> str:
    """Enough to tell by which key of a list it is; 224 bits stay unknown."""
    return secret[:_SHOWN]
