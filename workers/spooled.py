"""One ending in a file: who it belongs to in the first line, what it is in the second."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from dyno.models.job import SCHEMA, Stored
from dyno.store.leases import Claim
from dyno.store.records import read_spec
from workers.ending import Ending, Failed, HandedBack, Stopped, Succeeded

_KINDS: Final[dict[str, TypeAdapter[Any]]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Succeeded, Failed, Stopped, HandedBack)
}


class _Writer(Stored):
    """What is understood of the first line of a file, however much newer the Dyno is that wrote it."""

    schema_version: int = Field(alias="schema")
    version: str = ""


class _Header(_Writer):
    """The first line of a file: whose ending the second one is."""

    namespace: str
    job: str
    attempt: int
    token: str
    device: str
    queue: str
    spec: str
    kind: str


@dataclass(frozen=True)
class Spooled:
    path: Path
    claim: Claim
    ending: Ending


class NewerVersion(Exception):
    """A file of a newer Dyno, or with a kind of ending that isn't known here."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version


def text_of(ending: Ending, claim: Claim, namespace: str, version: str) -> bytes:
    header = {
        "schema": SCHEMA,
        "version": version,
        "namespace": namespace,
        "job": claim.job_id,
        "attempt": claim.attempt,
        "token": claim.token,
        "device": claim.device,
        "queue": claim.queue,
        "spec": claim.spec.model_dump_json(),
        "kind": type(ending).__name__,
    }
    return b"".join(to_json(line, inf_nan_mode="constants") + b"\n" for line in (header, ending))


def read(path: Path, namespace: str, most_bytes: int, version: str) -> Spooled | None:
    """None for another namespace's. Raises NewerVersion (than `version`), OSError, whatever else damage leads to."""
    first, _, second = _content(path, most_bytes).partition(b"\n")
    writer = _Writer.model_validate_json(first)
    if writer.schema_version > SCHEMA or _release(writer.version) > _release(version):
        raise NewerVersion(writer.version)
    header = _Header.model_validate_json(first)
    if header.kind not in _KINDS:
        raise NewerVersion(writer.version)
    if header.namespace != namespace:
        return None
    return Spooled(path, _claim(header), _KINDS[header.kind].validate_json(second))


def _release(version: str) -> list[int]:
    """[1, 2] of "1.2.dev3"; [] of what says no release."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in found[0].split(".")] if found else []


def _claim(header: _Header) -> Claim:
    return Claim(
        job_id=header.job,
        spec=read_spec(header.spec),
        attempt=header.attempt,
        token=header.token,
        queue=header.queue,
        left_behind=0,
        cancel_requested=False,
        device=header.device,
    )


def _content(path: Path, most_bytes: int) -> bytes:
    """Raises OSError, also for what is no plain file: a pipe would be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise OSError(f"{path.name} is no file of a spool")
        return file.read()
