"""API keys: their scopes and limits, and who sees which jobs.

A key is `dyno_` and 256 random bits; the store keeps its SHA-256 only. A key is too long to guess, so it needs no slow
hash as passwords do. Dyno finds a key by its hash, and then compares the whole hash in constant time.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints

from dyno.models.job import Stored
from dyno.models.spec import MAX_EXPIRES_IN_S, MIN_EXPIRES_IN_S, Model, without_unknown_fields

SECRET = re.compile(r"dyno_[0-9a-f]{64}")
KEY_ID = re.compile(r"key_[0-9a-f]{16}")
_SHOWN = len("dyno_") + 8

Limit = Annotated[int, Field(ge=1, le=10**9)]


class Scope(StrEnum):
    """What a key may do. Each scope includes the ones before it."""

    READ = "read"  # read own jobs, workloads, devices and workers
    SUBMIT = "submit"  # create and cancel own jobs and comparisons
    ADMIN = "admin"  # everything: keys, cordons, the jobs of all keys and jobs without a key

    @property
    def implied(self) -> Sequence["Scope"]:
        """The scopes that a key of this scope has: this scope and the scopes before it."""
        return _IMPLIED[self]


_IMPLIED = {scope: tuple(Scope)[: place + 1] for place, scope in enumerate(Scope)}


class Limits(Model):
    """Limits of one key. For `queued_jobs`, `stored_jobs` and `expires_in_s`, null means the service's default; for the
    other fields, it means no limit."""

    queued_jobs: Limit | None = Field(
        None, description="Maximum number of the key's queued jobs; by default a quarter of the service's maximum"
    )
    device_s_per_day: Limit | None = Field(
        None, description="Device time per UTC day in seconds, running jobs included. Above it, Dyno refuses new jobs"
    )
    requests_per_s: Limit | None = Field(None, description="Maximum number of requests per second, and in a burst")
    stored_jobs: Limit | None = Field(
        None,
        description="Maximum number of the key's done jobs, including imported jobs. Above it, Dyno deletes the oldest",
    )
    expires_in_s: Annotated[int, Field(ge=MIN_EXPIRES_IN_S, le=MAX_EXPIRES_IN_S)] | None = Field(
        None, description="Maximum `expires_in_s` of the key's jobs: how long their results are kept"
    )


class NewKey(Model):
    """The request for a new key."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 ._@:/+-]{1,64}$")] = Field(
        description="A name for people"
    )
    scope: Literal["read", "submit", "admin"]
    limits: Limits = Limits()
    high_priority: bool = Field(
        False, description="Whether the key may submit jobs of priority `high`; an admin key always may"
    )
    expires_in_s: Limit | None = Field(
        None,
        description="Time until the key expires. The service refuses expired keys. Null: the key doesn't expire. "
        "`limits.expires_in_s` limits how long the results of the key's jobs are kept",
    )


class ApiKey(Stored):
    """A key without its secret. `id` is the `owner` of the jobs submitted with the key."""

    id: str
    prefix: str = Field(description="The first characters of the secret")
    name: str
    scope: Scope
    limits: Annotated[Limits, BeforeValidator(partial(without_unknown_fields, Limits))]
    high_priority: bool = Field(description="Whether the key may submit jobs of priority `high`")
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = Field(
        None, description="The time from which the service refuses the key; null if the key doesn't expire"
    )
    last_used_at: AwareDatetime | None = Field(None, description="Exact to the minute; null if the key was never used")
    revoked_at: AwareDatetime | None = None

    @property
    def viewer(self) -> "Viewer":
        return Viewer(self.id, self.scope is Scope.ADMIN, self.high_priority, self.limits.expires_in_s)


class Me(Stored):
    """The key of this request and its scopes. `key` is null while the service needs no key and allows everything."""

    key: ApiKey | None
    scopes: list[Scope]


class CreatedKey(ApiKey):
    """A new key with its secret. No other response contains the secret."""

    secret: str = Field(description="Send it as `Authorization: Bearer <secret>`")


class KeyList(Stored):
    """All keys, including revoked ones, since jobs name them as their owners."""

    data: list[ApiKey]


class Viewer(NamedTuple):
    """The permissions of a request's sender: which jobs it sees, and what owner and what rights its new jobs get.

    The default has no owner, sees all jobs, and may request any priority and storage. `expires_in_s`: see `Limits`.
    """

    owner: str | None = None
    sees_all: bool = True
    high_priority: bool = True
    expires_in_s: int | None = None

    def sees(self, owner: str | None) -> bool:
        return self.sees_all or owner == self.owner


EVERYBODY = Viewer()


def new_secret() -> str:
    return f"dyno_{secrets.token_hex(32)}"


def digest_of(secret: str) -> str:
    """The SHA-256 of a secret, the only part of it that Dyno stores."""
    return hashlib.sha256(secret.encode()).hexdigest()


def id_of(digest: str) -> str:
    """The key's id: the first digits of the hash, which reveal nothing about the secret."""
    return f"key_{digest[:16]}"


def prefix_of(secret: str) -> str:
    """The part of a secret that identifies the key in a list; 224 bits stay unknown."""
    return secret[:_SHOWN]
