"""deploy/systemd: systemd accepts the units, finds little exposed, and they fit the commands and the settings."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyno.cli import app
from dyno.settings import Settings
from tests import guides
from tests.test_packaging import needed, unpacked_wheel
from tests.units import make_tree

ROOT = Path(__file__).parent.parent
NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
RUN = "dyno run matmul --n 64 --repeats 1 --device cpu --processes 1 --measure min_samples=1 --measure min_s=0"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
# systemd's exposure of a unit is 0 (nothing) to 100. A unit without any of these options has 96.
MOST_EXPOSED = {"dyno-api": 16, "dyno-redis": 14, "dyno-worker@": 21}
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


@pytest.fixture
def analyze():
    if (found := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not on this machine")
    return found


def options(unit):
    return re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE)


def of(unit, name):
    return [value for option, value in options(unit) if option == name]


@pytest.fixture
def installed(unit, tmp_path):
    """The unit, with a command that exists here."""
    text = unit.read_text().replace("/opt/dyno/bin/dyno", f'"{sys.executable}"')
    copy = tmp_path / unit.name
    copy.write_text(text)
    return copy


@each_unit
def test_systemd_accepts_the_unit(unit, installed, analyze):
    done = subprocess.run([analyze, "verify", "--man=no", installed], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if unit.stem.partition("@")[0] in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@each_unit
def test_the_unit_exposes_little(unit, installed, analyze):
    threshold = f"--threshold={MOST_EXPOSED[unit.stem]}"
    command = [analyze, "security", "--offline=true", "--no-pager", threshold, installed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@each_unit
def test_the_unit_runs_without_rights_within_limits_and_with_its_secrets_as_credentials(unit):
    assert of(unit, "User") == ["dyno"]
    assert of(unit, "NoNewPrivileges") == ["yes"]
    assert of(unit, "ProtectSystem") == ["strict"]
    assert of(unit, "CapabilityBoundingSet") == [""]
    assert len(of(unit, "MemoryMax")) == len(of(unit, "TasksMax")) == 1
    assert of(unit, "LoadCredential")
    environment = " ".join(of(unit, "Environment"))
    assert not re.search(r"(PASSWORD|SECRET|KEY)=", environment)
    role = unit.stem.removeprefix("dyno-").rstrip("@")
    if role != "redis":
        secret = f"/etc/dyno/secrets/{role}/DYNO_REDIS_PASSWORD"
        assert of(unit, "LoadCredential") == [f"DYNO_REDIS_PASSWORD:{secret}"]
        assert f"DYNO_REDIS_URL=redis://{role}@127.0.0.1:6379/0" in environment
        assert "DYNO_SECRETS_DIR=%d" in environment


@each_unit
def test_every_command_and_setting_of_the_unit_exists(unit):
    names = set(re.findall(r"DYNO_\w+(?==)", " ".join(of(unit, "Environment"))))
    assert names <= {f"DYNO_{field.upper()}" for field in Settings.model_fields}
    [command] = of(unit, "ExecStart")
    if command.startswith("/opt/dyno/bin/dyno "):
        _, name, *words = command.split()
        text = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
        assert all(word in text for word in words if word.startswith("--"))


@each_unit
def test_the_folders_that_the_unit_names_are_its_own(unit):
    """With ProtectSystem=strict, a service may write to the folders of its directory options alone."""
    bases = {"StateDirectory": "/var/lib", "CacheDirectory": "/var/cache"}
    own = {f"{base}/{name}" for option, base in bases.items() for names in of(unit, option) for name in names.split()}
    named = re.findall(r"(/var/[\w/-]+)", " ".join(of(unit, "Environment") + of(unit, "ExecStart")))
    assert named
    assert all(any(Path(path).is_relative_to(folder) for folder in own) for path in named)


def test_redis_and_the_api_use_the_cores_that_workers_leave_free():
    api, redis, worker = UNITS
    assert (api.stem, redis.stem, worker.stem) == ("dyno-api", "dyno-redis", "dyno-worker@")
    assert of(api, "CPUAffinity") == of(redis, "CPUAffinity") == ["0"]
    assert "DYNO_RESERVED_CORES=0" in of(worker, "Environment")
    assert of(worker, "CPUAffinity") == []
    assert of(worker, "KillMode") == ["mixed"]
    assert of(worker, "OOMPolicy") == ["continue"]


def installed_for(site, extras):
    """The files and folders in site-packages of all that the wheel with these extras requires."""
    [metadata] = site.glob("*.dist-info")
    names = needed(PathDistribution(metadata), extras) - {"tensordyno"}
    files = [file for name in names for file in distribution(name).files or ()]
    return sorted({file.parts[0] for file in files} - {"..", "__pycache__"})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make namespaces and mounts")
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH")
@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not on this machine")
@pytest.mark.verify
@pytest.mark.timeout(300)
def test_the_commands_of_the_guide_install_what_the_units_name(tmp_path):
    """docs/deployment.md: its commands, then what the units start, a job, and the first key."""
    if subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", tmp_path], check=False).returncode != 0:
        pytest.skip("this machine allows no namespaces")
    site = unpacked_wheel(tmp_path / "wheel")
    make_tree(tmp_path / "tree", site, installed_for(site, ["server", "cpu"]))
    page = ROOT / "docs" / "deployment.md"
    [first_key] = [
        span.text for span in guides.spans(page) if span.text.endswith("keys create --scope admin --name me")
    ]
    script = f"""
    /opt/dyno/bin/{RUN} --measure max_s=0.02 --queue-if-absent --json
    {first_key} > /tmp/key 2> /dev/null
    DYNO_API_KEY=$(cat /tmp/key) /opt/dyno/bin/dyno jobs --json
    """
    command = [*NAMESPACES, sys.executable, "-P", "-m", "tests.units", tmp_path, script]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    result, end = json.JSONDecoder().raw_decode(done.stdout)
    assert result["metrics"]
    assert [job["id"] for job in json.loads(done.stdout[end:])] == [result["job"]]
