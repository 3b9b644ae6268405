"""Install Dyno as docs/deployment.md says for systemd, and run its units without systemd.

    unshare --mount --net --pid --fork --kill-child --mount-proc python -P -m tests.units FOLDER SCRIPT

The guide's commands run as root, on copies of the host's folders. Then each unit's command runs as its user, without
any capability: with its variables, its credentials and its folders, and everything else read-only. SCRIPT runs as root
once all are up, and prints the result. FOLDER has `tree`, which stands for what pip installs in /opt/dyno, and gets the
logs.
"""

import fcntl
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.guides import ROOT, blocks
from tests.waiting import eventually

UNITS = {"dyno-redis": "", "dyno-api": "", "dyno-worker@": "cpu"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WRITABLE = ("/opt", "/run", "/var/lib", "/var/cache")  # by the commands of the guide; empty at first
# What the guide's commands find instead of a package index and a running systemd.
STANDS_IN = {
    "python3.11": "test \"$*\" = '-m venv /opt/dyno'; cp -a {tree} $3; cp {folder}/bin/systemctl $3/bin/pip",
    "systemctl": "exit 0",
}
# ProtectSystem=strict with PrivateTmp: the arguments up to "--" are the folders that stay writable.
_PROTECTED = """
while [ "$1" != -- ]; do mount --bind "$1" "$1"; shift; done; shift
mount -t tmpfs -o mode=1777 tmpfs /tmp
for folder in / /etc /opt /run /var/lib /var/cache; do mount -o remount,ro,bind "$folder"; done
umask 077
exec "$@"
"""
_WRITE = 'for folder in / /etc /opt/dyno /usr /var/lib; do touch "$folder/new" && echo "wrote to $folder"; done; true'


class Unit:
    """A service, as far as its unit says how to run it. The constructor makes its folders and credentials."""

    def __init__(self, name, instance, folder):
        text = Path("/etc/systemd/system", f"{name}.service").read_text().replace("%i", instance)
        self._options: list[tuple[str, str]] = re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)
        self.name, self._log = name, folder / f"{name}.log"
        [user] = self._of("User")
        self._user = pwd.getpwnam(user)
        self._credentials = Path("/run/credentials", name)
        self._make(self._credentials)
        for credential in self._of("LoadCredential"):
            file, _, source = credential.partition(":")
            shutil.copyfile(source, self._credentials / file)
            os.chown(self._credentials / file, self._user.pw_uid, self._user.pw_gid)
            (self._credentials / file).chmod(0o400)
        bases = {"StateDirectory": "/var/lib", "CacheDirectory": "/var/cache"}
        self._folders = [
            Path(base, each) for option, base in bases.items() for each in " ".join(self._of(option)).split()
        ]
        for path in self._folders:
            self._make(path)
        self.process: subprocess.Popen[bytes] | None = None

    def _of(self, option):
        return [value for name, value in self._options if name == option]

    def _make(self, path):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _environment(self):
        found = [f"PATH={PATH}", "HOME=/", f"USER={self._user.pw_name}"]
        found += [
            word.replace("%d", str(self._credentials)) for line in self._of("Environment") for word in shlex.split(line)
        ]
        for name in self._of("EnvironmentFile"):
            file = Path(name.removeprefix("-"))
            found += file.read_text().split() if file.exists() else []
        return found

    def command(self, *words):
        """`words` as they run in this service."""
        become = ["setpriv", f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
        become += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        protected = ["unshare", "--mount", "sh", "-euc", _PROTECTED, "sh", *map(str, self._folders), "--"]
        return [*protected, *become, "env", "-i", *self._environment(), *words]

    def start(self):
        written = subprocess.run(self.command("sh", "-c", _WRITE), capture_output=True, text=True, check=True).stdout
        if written:
            sys.exit(f"{self.name} {written}")
        [command] = self._of("ExecStart")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(self.command(*shlex.split(command)), stdout=log, stderr=log)

    def answers(self, *words):
        """Whether a command succeeds beside the service. Exits if the service has ended."""
        if self.process.poll() is not None:
            sys.exit(f"{self.name} ended with {self.process.returncode}: {self.said()}")
        return subprocess.run(self.command(*words), capture_output=True, check=False).returncode == 0

    def said(self):
        return self._log.read_text(errors="replace")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def make_tree(folder, site, packages):
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


def _interpreter():
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def run_mount(*words):
    subprocess.run(["mount", *words], check=True)


def raise_loopback():
    """Bring up the loopback interface of a new network namespace: SIOCSIFFLAGS with IFF_UP and IFF_RUNNING."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x41))


def _open_interpreter(folder):
    """Let other users than root reach this Python, if it is in a folder of root's."""
    base, home = Path(sys.base_prefix), Path("/root")
    if base.is_relative_to(home):
        (folder / "python").mkdir()
        run_mount("--bind", base, folder / "python")
        run_mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", home)
        base.mkdir(parents=True)
        run_mount("--bind", folder / "python", base)


def _install(folder):
    """Run the guide's commands, on copies of /etc and empty folders."""
    shutil.copytree("/etc", folder / "etc", symlinks=True)
    run_mount("--bind", folder / "etc", "/etc")
    for path in WRITABLE:
        run_mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", path)
    _open_interpreter(folder)
    Path("/opt/packages").mkdir()
    run_mount("--bind", sysconfig.get_path("purelib"), "/opt/packages")
    (folder / "bin").mkdir()
    for name, text in STANDS_IN.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh -eu\n{text.format(folder=folder, tree=folder / 'tree')}\n")
        program.chmod(0o755)
    page = ROOT / "docs" / "deployment.md"
    [commands] = [block.text for block in blocks(page) if "systemctl" in block.text]
    env = {"PATH": f"{folder / 'bin'}:{PATH}"}
    subprocess.run(["sh", "-euc", commands], cwd=ROOT, env=env, stdout=sys.stderr, check=True)


def main(folder, script):
    raise_loopback()
    _install(folder)
    # What the guide says for hosts with fewer than four cores.
    Path("/etc/dyno/worker.env").write_text("DYNO_RESERVED_CORES=none\n")
    redis, api, worker = units = [Unit(name, instance, folder) for name, instance in UNITS.items()]
    redis.start()
    ping = 'REDISCLI_AUTH=$(cat "$REDIS_API_PASSWORD_FILE") redis-cli --user api ping | grep -q PONG'
    eventually(lambda: redis.answers("sh", "-c", ping), what="Redis answers")
    api.start()
    eventually(lambda: api.answers("/opt/dyno/bin/python", "-P", "-m", "dyno.probe"), what="the API is ready")
    worker.start()
    done = subprocess.run(
        ["sh", "-euc", script], env={"PATH": PATH}, capture_output=True, text=True, timeout=120, check=False
    )
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    codes = {unit.name: unit.stop() for unit in reversed(units)}
    is_wrong = bool(done.returncode or set(codes.values()) - {0, -signal.SIGTERM})
    for unit in units if is_wrong else ():
        sys.stderr.write(f"{unit.name} ended with {codes[unit.name]}:\n{unit.said()}")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
