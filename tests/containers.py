"""docker-compose.yml and deploy/Dockerfile as text. tests/test_containers.py runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_USERS = {"root": (0, 0), "redis": (999, 1000)}  # of redis:7.2-alpine


class Mount(NamedTuple):
    """A volume or a folder of this checkout in a container."""

    source: str
    path: str
    mode: str


def stages(dockerfile):
    """Stage -> its instructions, after those of the stage that it is made from."""
    found = {}
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE)).splitlines()
    for word, _, rest in (line.partition(" ") for line in lines if line.strip()):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = list(found.get(base, []))
        elif found:
            found[name].append((word, rest.strip()))
    return found


def user_of(service):
    """uid and gid that the service runs as. Redis' official image has no file here."""
    if "build" not in service:
        return _USERS[service["user"]]
    build = service["build"]
    uid, _, gid = dict(stages((ROOT / build["dockerfile"]).read_text())[build["target"]])["USER"].partition(":")
    return int(uid), int(gid)


def interpolated(value):
    """The value as compose reads it when no variable is set."""
    if isinstance(value, dict):
        return {key: interpolated(each) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value).replace("$$", "$")
    return value


def mounts_of(service):
    found = [interpolated(volume).split(":") for volume in service["volumes"]]
    return [Mount(source, path, mode[0] if mode else "rw") for source, path, *mode in found]
