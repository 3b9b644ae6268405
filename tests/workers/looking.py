"""Helpers that check from outside which process holds a device, and whether it is free."""

import fcntl
from pathlib import Path

from dyno.bench.devices.locks import lock_paths
from dyno.store.redis import Keys
from tests.waiting import eventually


def runner_of(here, settings, not_in=()):
    """The process that holds the device's lock, once there is a new one."""
    [path] = [Path(name) for name in lock_paths(here, settings)]
    found = []

    def held():
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found[:] = [int(file.readline() or 0)]
        return bool(found) and found[0] not in (0, *not_in)

    eventually(held)
    return found[0]


def device_is_free(client, settings, here):
    return not client.exists(Keys(settings.namespace).lease(here.full_id))
