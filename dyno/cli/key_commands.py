"""`dyno keys`: create, list and revoke API keys directly in Redis, without the service."""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import ValidationError

from dyno.cli import listings, up
from dyno.cli.app import Show, app, command, error_console, expand_home
from dyno.errors import DynoError, StoreUnavailable
from dyno.logging import AUDIT_LOG, PLAIN_FORMAT, PlainFormatter, audit
from dyno.models.api_key import Limits, NewKey, Scope
from dyno.settings import WrongSettings, load_settings
from dyno.validation_messages import validation_message

if TYPE_CHECKING:  # an installation of only the client has no redis
    from dyno.store.api_keys import ApiKeys

T = TypeVar("T")
keys = typer.Typer(
    no_args_is_help=True, help="API keys. Needs DYNO_REDIS_URL, or a running `dyno up` and its --data-dir."
)
app.add_typer(keys, name="keys")

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def parse_duration(text: str) -> int:
    """The duration in a text such as "30d", in seconds. Raises BadParameter."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if match is None:
        raise typer.BadParameter("write a number and a unit (s, m, h, d or w), such as 30d")
    return int(match[1]) * _UNITS_S[match[2]]


HOST = "host"
KeyId = Annotated[str, typer.Argument(help="Id from `dyno keys list`: key_…")]
_DATA_DIR_HELP = "The --data-dir of the running `dyno up`; ignored with DYNO_REDIS_URL."
DataDir = Annotated[Path, typer.Option(callback=expand_home, help=_DATA_DIR_HELP)]


@command(keys)
def create(
    show: Show,
    name: Annotated[str, typer.Option(help="The purpose of the key, for people.")],
    scope: Annotated[Scope, typer.Option(help="read; submit, which includes read; admin, which includes everything.")],
    queued_jobs: Annotated[
        int | None, typer.Option(help="Limit: number of queued jobs; by default DYNO_KEY_QUEUE_SHARE of the queue.")
    ] = None,
    device_s_per_day: Annotated[int | None, typer.Option(help="Limit: device time per UTC day, in seconds.")] = None,
    requests_per_s: Annotated[int | None, typer.Option(help="Limit: requests per second.")] = None,
    stored_jobs: Annotated[int | None, typer.Option(help="Limit: number of stored jobs that are done.")] = None,
    expires_in_s: Annotated[int | None, typer.Option(help="Limit: seconds that results of its jobs are kept.")] = None,
    high_priority: Annotated[bool, typer.Option("--high-priority", help="Allow jobs of priority high.")] = False,
    expires: Annotated[
        int | None, typer.Option(parser=parse_duration, metavar="DURATION", help="Time until the key expires: 30d.")
    ] = None,
    data_dir: DataDir = up.DEFAULT_DATA_DIR,
) -> None:
    """Create a key and print its secret, which is never shown again. Requests to the service then need a key."""
    try:
        limits = Limits(
            queued_jobs=queued_jobs,
            device_s_per_day=device_s_per_day,
            requests_per_s=requests_per_s,
            stored_jobs=stored_jobs,
            expires_in_s=expires_in_s,
        )
        request = NewKey(name=name, scope=scope.value, limits=limits, high_priority=high_priority, expires_in_s=expires)
    except ValidationError as invalid:
        wrong = "; ".join(f"{error['loc'][-1]}: {validation_message(error)}" for error in invalid.errors())
        raise typer.BadParameter(wrong) from invalid
    key, secret = _call_store(data_dir, lambda store: store.create(request))
    _audit("key-created", key=key.id, name=key.name, scope=key.scope)
    show({**key.model_dump(mode="json"), "secret": secret}, lambda *_: typer.echo(secret))


@command(keys, "list")
def list_keys(show: Show, data_dir: DataDir = up.DEFAULT_DATA_DIR) -> None:
    """List all keys, including revoked and expired ones, which jobs may name as their owners."""
    show(_call_store(data_dir, lambda store: store.list()), listings.keys)


@command(keys)
def revoke(show: Show, key_id: KeyId, data_dir: DataDir = up.DEFAULT_DATA_DIR) -> None:
    """Revoke a key at once. Its jobs continue."""
    if _call_store(data_dir, lambda store: store.revoke(key_id)):
        _audit("key-revoked", key=key_id)
    else:
        error_console.print(f"{key_id} was already revoked", markup=False, highlight=False)
    show({"key": key_id, "revoked": True}, lambda *_: None)


@command(keys, "open")
def open_again(show: Show, data_dir: DataDir = up.DEFAULT_DATA_DIR) -> None:
    """Delete all keys, which must be revoked, and accept requests without a key again."""
    if not _call_store(data_dir, lambda store: store.open_again()):
        raise DynoError(
            "some keys aren't revoked; find them with `dyno keys list`, revoke them with `dyno keys revoke`"
        )
    _audit("keys-opened")
    show({"open": True}, lambda *_: None)


def _call_store(data_dir: Path, command: Callable[["ApiKeys"], Awaitable[T]]) -> T:
    up.check_installed()
    from dyno.store.api_keys import ApiKeys
    from dyno.store.redis import async_client

    configured = load_settings()
    settings = configured if configured.redis_url else configured.model_copy(update={"redis_url": _url(data_dir)})

    async def run() -> T:
        async with async_client(settings) as client:
            return await command(ApiKeys(client, settings))

    try:
        return asyncio.run(run())
    except StoreUnavailable as error:
        if configured.redis_url:
            raise
        raise StoreUnavailable(f"{error.detail}; is the `dyno up` with --data-dir {data_dir} still running?") from error


def _url(data_dir: Path) -> str:
    from dyno.store.embedded import url_file

    try:
        return url_file(data_dir).read_text()
    except (NotADirectoryError, PermissionError) as error:
        raise WrongSettings(
            f"the data folder {data_dir} can't be used: {error.strerror}; pass the --data-dir of `dyno up`"
        ) from None
    except OSError:
        raise DynoError(
            f"no `dyno up` has run with --data-dir {data_dir}; start it, pass its --data-dir, or set DYNO_REDIS_URL"
        ) from None


def _audit(action: str, **facts: object) -> None:
    """Log to stderr, so that stdout has only the secret."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(PLAIN_FORMAT))
    AUDIT_LOG.addHandler(handler)
    audit(action, HOST, **facts)
    AUDIT_LOG.removeHandler(handler)
