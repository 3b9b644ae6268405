"""`dyno doctor`: check from this host that Dyno has everything it needs, and say how to fix each problem."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from dyno import errors, folders
from dyno.cli import up
from dyno.cli.app import Show, command, expand_home
from dyno.cli.listings import listing
from dyno.client import Client, Refused, ServerUnreachable
from dyno.formatting import format_quantity
from dyno.models.job import Stored
from dyno.settings import Settings, load_settings

CLOCKS_APART_S = 30.0  # signatures and TLS tolerate minutes, but events of two hosts would be sorted wrongly
LEAST_FREE_BYTES = 2**30


class Check(Stored):
    """The outcome of one check. A check that passed with a recommendation is a warning."""

    name: str
    is_well: bool
    found: str
    to_do: str | None = None


def diagnose(client: Client, settings: Settings, data_dir: Path) -> Iterator[Check]:
    """Run all checks. `data_dir`: the data folder of `dyno up`."""
    if find_spec("redis") is not None:  # otherwise only the client is installed
        yield from _of_redis(settings, data_dir)
    yield from _of_api(client)
    yield from _of_folders(settings, data_dir)


def _of_redis(settings: Settings, data_dir: Path) -> Iterator[Check]:
    from dyno.store.embedded import url_file
    from dyno.store.redis import check_server, store_errors, sync_client

    url = settings.redis_url or _read_or_none(url_file(data_dir))
    if url is None:
        found = f"not checked: DYNO_REDIS_URL is unset, and no `dyno up` runs with {data_dir}"
        yield Check(name="redis", is_well=True, found=found, to_do="set DYNO_REDIS_URL, or --data-dir of `dyno up`")
        return
    try:
        with sync_client(settings.model_copy(update={"redis_url": url})) as redis:
            faults = check_server(redis, settings)
            with store_errors():
                seconds, micros = redis.time()
                memory: Any = redis.info("memory")
    except errors.StoreUnfit as error:
        yield _check("redis", False, error.detail, "change its configuration; see docs/operations.md")
        return
    except errors.DynoError as error:
        to_start = "start Redis" if settings.redis_url else "start one with `dyno up`"
        yield _check("redis", False, error.detail, f"{to_start}, or set DYNO_REDIS_URL; see docs/operations.md")
        return
    is_kept = "persists its data" if settings.durability != "none" else "may lose its data (DYNO_DURABILITY is none)"
    found = "; ".join(fault.detail for fault in faults) or f"reachable, {is_kept}, doesn't evict keys"
    yield _check("redis", not faults, found, "change its configuration; see docs/operations.md")
    yield _of_memory(memory)
    apart_s = time.time() - (seconds + micros / 1e6)
    found = f"this host's clock is {apart_s:+.1f} s from Redis's clock"
    yield _check("clock", abs(apart_s) <= CLOCKS_APART_S, found, "run NTP on both hosts")


def _of_memory(memory: Mapping[str, Any]) -> Check:
    used, limit = (format_quantity(memory[name], "B") for name in ("used_memory", "maxmemory"))
    from dyno.store.redis import memory_note

    if memory_note(memory):
        to_do = "set maxmemory below the host's free memory, and keep maxmemory-policy noeviction"
        return Check(name="memory", is_well=True, found=f"{used} used, no limit (maxmemory is 0)", to_do=to_do)
    return _check("memory", True, f"{used} of {limit} used; a full Redis refuses new jobs")


def _of_api(client: Client) -> Iterator[Check]:
    if not client.alive():
        found = f"no response from {client.url}"
        yield _check("api", False, found, "start one with `dyno up`, or set --url or DYNO_URL")
        return
    complaint = client.not_ready_because()
    found = complaint or f"{client.url} is ready"
    yield _check("api", complaint is None, found, "fix the reported problem; see docs/operations.md")
    try:
        workers, devices = client.workers(), client.devices()
    except (Refused, ServerUnreachable) as error:
        yield _check(
            "workers",
            False,
            error.detail,
            "if the service needs a key, make one with `dyno keys create` and set DYNO_API_KEY",
        )
        return
    to_start = "start one with `dyno worker --device cpu`, on the API's Redis"
    yield _check("workers", bool(workers), f"{len(workers)} live", to_start)
    available = [device.full_id for device in devices if not device.cordoned and device.state != "draining"]
    found = f"{len(available)} of {len(devices)} take jobs: {', '.join(available) or '-'}"
    yield _check("devices", bool(available), found, "uncordon one with `dyno uncordon`" if devices else to_start)
    held = "; ".join(str(device.held_by) for device in devices if device.held_by)
    to_end = "wait for the process, end it, or give each Dyno its own cores with `--device cpu:0-1`"
    yield _check("locks", not held, held or "no other process uses a device that jobs wait for", to_end)


def _of_folders(settings: Settings, data_dir: Path) -> Iterator[Check]:
    sets = settings.data_dir
    if sets is None:
        yield _check("data sets", True, "DYNO_DATA_DIR is unset: Dyno uses Keras' cache, then the data it ships with")
    else:
        is_well = sets.is_dir() and os.access(sets, os.R_OK | os.X_OK)
        found = f"{sets} is " + ("readable" if is_well else "not a readable folder")
        yield _check("data sets", is_well, found, "set DYNO_DATA_DIR to a readable folder, or unset it")
    wrong = folders.write_error(data_dir)
    free = 0 if wrong else shutil.disk_usage(folders.nearest(data_dir)).free
    found = f"{data_dir} can't be used: {wrong}" if wrong else f"{data_dir}: {format_quantity(free, 'B')} free"
    yield _check(
        "data folder", free >= LEAST_FREE_BYTES, found, "free space, or choose another folder with `dyno up --data-dir`"
    )


def _check(name: str, is_well: bool, found: str, to_do: str | None = None) -> Check:
    return Check(name=name, is_well=is_well, found=found, to_do=None if is_well else to_do)


def _read_or_none(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None


@listing("check", "state", "found", "to do")
def _checks(check: Check) -> tuple[str | None, ...]:
    state = "problem" if not check.is_well else "warning" if check.to_do else "ok"
    return check.name, state, check.found, check.to_do


_KEPT = "Folder in which `dyno up` keeps jobs and results."


@command()
def doctor(
    client: Client,
    show: Show,
    data_dir: Annotated[Path, typer.Option(callback=expand_home, help=_KEPT)] = up.DEFAULT_DATA_DIR,
) -> None:
    """Check Redis, API, workers, devices, folders and the clock. Exit code 1 if a check fails."""
    checks = list(diagnose(client, load_settings(), data_dir))
    show(checks, _checks)
    if not all(check.is_well for check in checks):
        raise typer.Exit(errors.CommandExit.FAILED)
