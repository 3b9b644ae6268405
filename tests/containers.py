"""Run docker-compose.yml without a container engine: each service in a root, with the user and rights of its image.

    unshare --mount --net --pid --fork --kill-child --mount-proc python -P -m tests.containers FOLDER SCRIPT

Starts `secrets`, `redis`, `api` and `worker-cpu` with no variable set, each when those before it are healthy. Then runs
SCRIPT with sh in the container of the API, and prints its output. FOLDER has `api` and `worker`, the trees of
/opt/dyno, and gets the volumes and the logs. Needs root.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.waiting import eventually

ROOT = Path(__file__).parent.parent
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"  # of the images python and redis
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_USERS = {"root": (0, 0), "redis": (999, 1000)}  # of redis:7.2-alpine
_WRITE = 'for folder in / /etc /opt /opt/dyno /usr /var; do touch "$folder/new" && echo "wrote to $folder"; done; true'
_TRY = 'for folder; do touch "$folder/new"; rm "$folder/new"; done'


@dataclass(frozen=True)
class Image:
    """What a container takes from its image. `folders`: those that it makes, with their owner."""

    env: dict[str, str]
    user: tuple[int, int]
    folders: dict[str, tuple[int, int]]
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)


class Mount(NamedTuple):
    """A volume or a folder of this checkout in a container."""

    source: str
    path: str
    mode: str


def stages(dockerfile: str) -> dict[str, list[tuple[str, str]]]:
    """Stage -> its instructions, after those of the stage that it is made from."""
    found: dict[str, list[tuple[str, str]]] = {}
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE)).splitlines()
    for word, _, rest in (line.partition(" ") for line in lines if line.strip()):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = list(found.get(base, []))
        elif found:
            found[name].append((word, rest.strip()))
    return found


def image_of(service: dict[str, Any]) -> Image:
    """The image that the service names. Redis' official image has no file here."""
    if "build" not in service:
        return Image({"PATH": PATH}, _USERS[service["user"]], {"/data": _USERS["redis"]})
    build = service["build"]
    instructions = stages((ROOT / build["dockerfile"]).read_text())[build["target"]]
    last = dict(instructions)
    pairs = [pair.partition("=") for word, rest in instructions if word == "ENV" for pair in shlex.split(rest)]
    uid, _, gid = last["USER"].partition(":")
    owner = int(uid), int(gid)
    runs = " ".join(rest for word, rest in instructions if word == "RUN")
    made = re.search(r"install --directory --owner=dyno --group=dyno ([^&]+)", runs)
    _, _, check = last["HEALTHCHECK"].partition("CMD ")
    return Image(
        env={name: value.replace("$PATH", PATH) for name, _, value in pairs},
        user=owner,
        folders=dict.fromkeys(made[1].split() if made else [], owner),
        command=json.loads(last["CMD"]),
        healthcheck=json.loads(check) if check else [],
    )


def interpolated(value: Any) -> Any:
    """The value as compose reads it when no variable is set."""
    if isinstance(value, dict):
        return {key: interpolated(each) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value).replace("$$", "$")
    return value


def mounts_of(service: dict[str, Any]) -> list[Mount]:
    found = [interpolated(volume).split(":") for volume in service["volumes"]]
    return [Mount(source, path, mode[0] if mode else "rw") for source, path, *mode in found]


def make_tree(folder: Path, site: Path, packages: Sequence[str]) -> None:
    """Make `folder` what an image has at /opt/dyno: the wheel unpacked in `site`, and the installed `packages`.

    `packages`: files and folders of this interpreter's site-packages, which containers see at /opt/packages.
    """
    own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    shutil.copytree(site, own)
    for name in packages:
        (own / name).symlink_to(Path("/opt/packages") / name)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(_interpreter())
    (folder / "bin" / "dyno").write_text("#!/opt/dyno/bin/python\nfrom dyno.cli import main\nmain()\n")
    (folder / "bin" / "dyno").chmod(0o755)
    (folder / "pyvenv.cfg").write_text(f"home = {_interpreter().parent}\ninclude-system-site-packages = false\n")


def _interpreter() -> Path:
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


class Container:
    """One service. The constructor makes its root; mounts end with the mount namespace."""

    def __init__(self, name: str, service: dict[str, Any], folder: Path) -> None:
        self.name, self.service, self.image = name, service, image_of(service)
        self._folder, self._root = folder, folder / "roots" / name
        self.process: subprocess.Popen[bytes] | None = None
        self._root.mkdir(parents=True)
        run_mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", self._root)
        self._add_system()
        self._add_files()
        for path, owner in self.image.folders.items():
            os.chown(self._new(path), *owner)
        for mount in mounts_of(service):
            self._add_volume(mount)
        for words in service["tmpfs"]:
            path, _, options = words.partition(":")
            run_mount("-t", "tmpfs", "-o", options, "tmpfs", self._new(path))
        run_mount("-o", "remount,ro", self._root)

    def _new(self, path: str | Path) -> Path:
        made = self._root / str(path).lstrip("/")
        made.mkdir(parents=True, exist_ok=True)
        return made

    def _bind(self, source: Path, path: str | Path, *, read_only: bool = True) -> None:
        target = self._new(path)
        run_mount("--bind", source, target)
        if read_only:
            run_mount("-o", "remount,ro,bind", target)

    def _add_system(self) -> None:
        """What stands for the base image: this machine's programs and libraries, and its Python."""
        for name in _SYSTEM:
            path = Path("/", name)
            if path.is_symlink():
                (self._root / name).symlink_to(path.readlink())
            elif path.exists():
                self._bind(path, path)
        for name in ("proc", "sys", "dev"):
            run_mount("--rbind", Path("/", name), self._new(name))
        if not Path(sys.base_prefix).is_relative_to("/usr"):
            self._bind(Path(sys.base_prefix), sys.base_prefix)

    def _add_files(self) -> None:
        etc = self._new("/etc")
        uid, gid = self.image.user
        (etc / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\n{self.name}:x:{uid}:{gid}::/tmp:/usr/sbin/nologin\n")
        (etc / "hosts").write_text("127.0.0.1 localhost redis api\n")
        (etc / "nsswitch.conf").write_text("hosts: files\n")
        shutil.copy("/etc/ld.so.cache", etc)
        if "build" in self.service:
            tree = "api" if self.service["build"]["target"] == "api" else "worker"
            self._bind(self._folder / tree, "/opt/dyno")
            self._bind(Path(sysconfig.get_path("purelib")), "/opt/packages")

    def _add_volume(self, mount: Mount) -> None:
        """A new volume has the owner of the folder in the image, or is root's."""
        if mount.source.startswith("."):
            self._bind(ROOT / mount.source, mount.path)
            return
        volume = self._folder / "volumes" / mount.source
        if not volume.exists():
            volume.mkdir(parents=True)
            os.chown(volume, *self.image.folders.get(mount.path, (0, 0)))
        self._bind(volume, mount.path, read_only=mount.mode == "ro")

    def command(self, *words: str) -> list[str | Path]:
        """`words` as they run in this container: its root, user and environment, and no capability."""
        uid, gid = self.image.user
        environment = self.image.env | {name: str(value) for name, value in self.service["environment"].items()}
        become = [shutil.which("setpriv") or "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        become += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', self.service.get("hostname", self.name)]
        clean = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        return [*named, "chroot", self._root, *become, *clean, *words]

    def run(self, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as `docker compose exec` does."""
        return subprocess.run(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self) -> None:
        log = (self._folder / f"{self.name}.log").open("wb")
        words = self.service["command"]
        self.process = subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_healthy(self) -> bool:
        """Run the health check of the service or its image. Exits if the process has ended."""
        assert self.process is not None
        if self.process.poll() is not None:
            sys.exit(f"{self.name} ended with {self.process.returncode}: {self.said()}")
        kind, *words = self.service.get("healthcheck", {}).get("test", ["CMD", *self.image.healthcheck])
        return self.run(*(["sh", "-c", *words] if kind == "CMD-SHELL" else words)).returncode == 0

    def said(self) -> str:
        return (self._folder / f"{self.name}.log").read_text(errors="replace")

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def run_mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


def raise_loopback() -> None:
    """Bring up the loopback interface of a new network namespace: SIOCSIFFLAGS with IFF_UP and IFF_RUNNING."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x41))


def main(folder: Path, script: str) -> int:
    raise_loopback()
    services = interpolated(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))["services"]
    found = {name: Container(name, services[name], folder) for name in ("secrets", "redis", "api", "worker-cpu")}
    for container in found.values():
        if written := container.run("sh", "-c", _WRITE).stdout:
            sys.exit(f"{container.name} {written}")
        volumes = [mount.path for mount in mounts_of(container.service) if mount.mode == "rw"]
        if (tried := container.run("sh", "-euc", _TRY, "sh", *volumes)).returncode != 0:
            sys.exit(f"{container.name}: {tried.stderr}")
    if (made := found["secrets"].run(*services["secrets"]["command"])).returncode != 0:
        sys.exit(made.stderr)
    for name in ("redis", "api"):
        found[name].start()
        eventually(found[name].is_healthy, what=f"{name} is healthy")
    found["worker-cpu"].start()
    done = found["api"].run("sh", "-euc", script, timeout_s=120)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    codes = {name: found[name].stop() for name in ("worker-cpu", "api", "redis")}
    is_wrong = bool(done.returncode or set(codes.values()) - {0, -signal.SIGTERM})
    for name, code in codes.items() if is_wrong else ():
        sys.stderr.write(f"{name} ended with {code}:\n{found[name].said()}")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
