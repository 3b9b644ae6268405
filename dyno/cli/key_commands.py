"""`dyno keys`: create, list and revoke API keys directly in Redis, without the service."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import ValidationError

from dyno.cli import render
from dyno.cli.app import AsJson, app, console, error_console, exit_codes, expand_home, print_result
from dyno.cli.up import DEFAULT_DATA_DIR
from dyno.errors import DynoError, StoreUnavailable
from dyno.logging import AUDIT_LOG, PLAIN_FORMAT, PlainFormatter, audit
from dyno.models.api_key import Limits, NewKey, Scope
from dyno.settings import WrongSettings, load_settings
from dyno.store.api_keys import ApiKeys
from dyno.store.embedded import url_file
from dyno.store.redis import async_client

T = TypeVar("T")
keys = typer.Typer(
    no_args_is_help=True, help="API keys. Needs DYNO_REDIS_URL, or a `dyno up` that runs, and its --data-dir."
)
app.add_typer(keys, name="keys")

HOST = "host"
KeyId = Annotated[str, typer.Argument(help="As `dyno keys list` lists it: key_…")]
_WHOSE = "Of the `dyno up` whose keys these are; ignored with DYNO_REDIS_URL."
DataDir = Annotated[Path, typer.Option(callback=expand_home, help=_WHOSE)]


@keys.command()
@exit_codes
def create(
    name: Annotated[str, typer.Option(help="What it is for, for people.")],
    scope: Annotated[Scope, typer.Option(help="read; submit, which may read; admin, which may do everything.")],
    queued_jobs: Annotated[int | None, typer.Option(help="Limit: jobs that wait at the same time.")] = None,
    device_s_per_day: Annotated[int | None, typer.Option(help="Limit: seconds of devices in a day of UTC.")] = None,
    requests_per_s: Annotated[int | None, typer.Option(help="Limit: requests in a second.")] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its secret, this once. From the first one on, the service asks for a key."""
    limits = {"queued_jobs": queued_jobs, "device_s_per_day": device_s_per_day, "requests_per_s": requests_per_s}
    try:
        asked = NewKey(name=name, scope=scope.value, limits=Limits(**limits))
    except ValidationError as invalid:
        wrong = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in invalid.errors())
        raise typer.BadParameter(wrong) from invalid
    key, secret = _ask(data_dir, lambda store: store.create(asked))
    _audit("key-created", key=key.id, name=key.name, scope=key.scope)
    print_result({**key.model_dump(mode="json"), "secret": secret}, as_json, lambda: typer.echo(secret))


@keys.command(name="list")
@exit_codes
def list_keys(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """List all keys, revoked ones too: jobs name them as their owners."""
    rows = _ask(data_dir, lambda store: store.list())
    print_result([row.model_dump(mode="json") for row in rows], as_json, lambda: render.keys(console, rows))


@keys.command()
@exit_codes
def revoke(key_id: KeyId, data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Revoke a key at once. Its jobs go on."""
    if _ask(data_dir, lambda store: store.revoke(key_id)):
        _audit("key-revoked", key=key_id)
    else:
        error_console.print(f"{key_id} was revoked before", markup=False, highlight=False)
    print_result({"key": key_id, "revoked": True}, as_json, lambda: None)


@keys.command(name="open")
@exit_codes
def open_again(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Forget all keys, once they are revoked, and let requests without a key in again."""
    if not _ask(data_dir, lambda store: store.open_again()):
        raise DynoError("there are keys that aren't revoked: `dyno keys list`, `dyno keys revoke`")
    _audit("keys-opened")
    print_result({"open": True}, as_json, lambda: None)


def _ask(data_dir: Path, question: Callable[[ApiKeys], Awaitable[T]]) -> T:
    named = load_settings()
    settings = named if named.redis_url else named.model_copy(update={"redis_url": _url(data_dir)})

    async def asked() -> T:
        async with async_client(settings) as client:
            return await question(ApiKeys(client, settings))

    try:
        return asyncio.run(asked())
    except StoreUnavailable as error:
        if named.redis_url:
            raise
        raise StoreUnavailable(f"{error.detail}; does the `dyno up` on {data_dir} still run?") from error


def _url(data_dir: Path) -> str:
    try:
        return url_file(data_dir).read_text()
    except (NotADirectoryError, PermissionError) as error:
        raise WrongSettings(
            f"the data folder {data_dir} can't be used: {error.strerror}; name that of `dyno up`: --data-dir"
        ) from None
    except OSError:
        raise DynoError(
            f"no `dyno up` has run on {data_dir}: start it first, give its --data-dir here, too, where it has one, "
            "or set DYNO_REDIS_URL"
        ) from None


def _audit(action: str, **facts: object) -> None:
    """On stderr, so that stdout is the secret alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(PLAIN_FORMAT))
    AUDIT_LOG.addHandler(handler)
    audit(action, HOST, **facts)
    AUDIT_LOG.removeHandler(handler)
