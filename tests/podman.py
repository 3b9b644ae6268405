"""docker-compose.yml in real containers: podman runs them, podman-compose reads the file.

Images and volumes are in build/containers, apart from the host's own. If no registry of images can be reached, images
of Debian's packages stand for the two base images.
"""

import hashlib
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "containers"
PYTHON, REDIS = "docker.io/library/python:3.11-slim-bookworm", "docker.io/library/redis:7.2-alpine"
# Debian's own excludes for its slim images; the lists and the packages that apt downloaded.
LEFT_OUT = [
    "usr/share/doc",
    "usr/share/info",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
]
# The user, group and folder of Redis are those of its official image. uv trusts the certificates that the host does.
STAND_INS = """
FROM localhost/debian AS python
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip \
    && rm -rf /var/lib/apt/lists /var/cache/apt /usr/lib/python3*/EXTERNALLY-MANAGED \
    && ln -s python3 /usr/bin/python && mkdir /etc/uv && echo 'native-tls = true' > /etc/uv/uv.toml
FROM localhost/debian AS redis
RUN groupadd --gid 1000 redis && useradd --uid 999 --gid 1000 redis && install -d -o redis -g redis /data \
    && apt-get update && apt-get install --yes --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists /var/cache/apt
WORKDIR /data
"""
NEEDED = ("podman", "runc", "conmon", "netavark", "aardvark-dns", "iptables")
_BUILD = ["--format=docker", "--pull=never", "--network=host", "--ulimit=nproc=4096:4096", "--ulimit=nofile=4096:4096"]


class Failed(Exception):
    """A command is missing, took too long or ended with another code than 0; the message has its output."""


def why_not():
    """Why this host can't run containers; None if it can, as far as that shows before one starts."""
    programs = os.pathsep.join([os.environ["PATH"], "/usr/lib/podman", "/usr/libexec/podman"])
    missing = [name for name in NEEDED if shutil.which(name, path=programs) is None]
    if os.geteuid() != 0:
        return "needs root, to run containers"
    if importlib.util.find_spec("podman_compose") is None:
        return "podman-compose is not installed"
    return f"{', '.join(missing)} not on this machine" if missing else None


def podman(*words, timeout_s=120):
    return run(["podman", *words], timeout_s)


def compose(*words, timeout_s=300, **variables):
    """Run podman-compose on docker-compose.yml, with these variables in its environment."""
    arguments = ["--podman-run-args=--pull=never", f"--podman-build-args={' '.join(_BUILD)}", "--no-ansi"]
    return run([sys.executable, "-m", "podman_compose", *arguments, *words], timeout_s, **variables)


def run(command, timeout_s, **variables):
    """Standard output. Raises Failed with all output if the command fails."""
    shell = {name: value for name, value in os.environ.items() if not name.startswith(("DYNO_", "REDIS_"))}
    files = {
        "CONTAINERS_CONF": str(FOLDER / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(FOLDER / "storage.conf"),
    }
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**shell, **files, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def inspect(name):
    """What podman knows about a container or an image."""
    [found] = json.loads(podman("inspect", name))
    return dict(found)


def build(file, target, image, context, **arguments):
    """`file`: relative to the context."""
    given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    options = ["--quiet", f"--file={context / file}", f"--target={target}", f"--tag={image}"]
    podman("build", *_BUILD, *given, *options, context, timeout_s=2400)


def remove_leftovers():
    """Of earlier runs too: all containers and volumes in this folder, none of the host's."""
    while containers := podman("ps", "--all", "--quiet").split():
        podman("rm", "--force", "--depend", "--time=0", containers[0])  # and those that depend on it
    podman("volume", "prune", "--force")
    podman("network", "prune", "--force")


def write_settings():
    """The engine's own limits can be higher than this process may set, and its folders belong to the host."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    limits = {name: resource.getrlimit(number)[1] for name, number in _LIMITS.items()}
    ulimits = [f"{name}={limit}:{limit}" for name, most in limits.items() for limit in [_limit(most)]]
    (FOLDER / "containers.conf").write_text(
        f"[containers]\ndefault_ulimits = {json.dumps(ulimits)}\n"
        f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{FOLDER}/networks"\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "file"\n'
    )
    (FOLDER / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{FOLDER}/store"\nrunroot = "{FOLDER}/run"\n'
    )


_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}


def _limit(most):
    return 4608 if most == resource.RLIM_INFINITY else min(4608, most)


def add_base_images():
    """Pull Python's and Redis' images, or build what stands for them."""
    try:
        for image in (PYTHON, REDIS):
            podman("pull", "--quiet", image, timeout_s=300)
    except Failed:
        add_debian()
        (FOLDER / "context").mkdir(exist_ok=True)
        (FOLDER / "context" / "Containerfile").write_text(STAND_INS)
        for target, image in (("python", PYTHON), ("redis", REDIS)):
            build("Containerfile", target, image, FOLDER / "context")


def add_debian():
    """The image localhost/debian, with Python, from the package archive that this machine's apt uses."""
    recipe = hashlib.sha256(f"{LEFT_OUT}".encode()).hexdigest()[:12]
    if podman("images", "--quiet", f"localhost/debian:{recipe}"):
        return
    targets = run(["apt-get", "indextargets", "--format", "$(CODENAME) $(SITE)"], 60).splitlines()
    sites = [site for codename, _, site in (line.partition(" ") for line in targets) if codename == "bookworm"]
    if not sites:
        raise Failed("apt has no package archive of Debian bookworm")
    folder = FOLDER / "debian"
    shutil.rmtree(folder, ignore_errors=True)
    include = "--include=python3,python3-venv,ca-certificates"
    run(["debootstrap", "--variant=minbase", include, "bookworm", folder, sites[0]], 900)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", folder / "etc/ssl/certs")
    excludes = [f"--exclude=./{name}/*" for name in LEFT_OUT]
    run(["tar", "--create", *excludes, "--file", FOLDER / "debian.tar", "--directory", folder, "."], 300)
    podman("import", "--quiet", FOLDER / "debian.tar", "localhost/debian", timeout_s=300)
    podman("tag", "localhost/debian", f"localhost/debian:{recipe}")
    shutil.rmtree(folder)
    (FOLDER / "debian.tar").unlink()
