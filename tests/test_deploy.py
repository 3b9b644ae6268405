"""The compose file and the images, as far as tests can check them without a container engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import redis
import yaml
from typer.testing import CliRunner

from dyno.cli import app
from dyno.settings import Durability, Settings
from dyno.store.redis import check_server, sync_client
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
BIN = Path(sys.executable).parent


def test_the_compose_file_is_valid() -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu"])
def test_the_images_pass_hadolint(name: str) -> None:
    command = [BIN / "hadolint", "--failure-threshold", "warning", ROOT / "deploy" / name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_published_port_is_on_loopback_only() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("durability", ["everysec", "always"])
def test_the_started_redis_is_fit_to_keep_jobs(durability: Durability, tmp_path: Path) -> None:
    service = COMPOSE["services"]["redis"]
    shell, script, *_ = service["command"]
    [folder] = [path for path, (source, _) in mounts("redis").items() if source == "./deploy/redis"]
    assert service["environment"]["DYNO_DURABILITY"] == "${DYNO_DURABILITY:-everysec}"
    script = ROOT / "deploy" / "redis" / PurePosixPath(script).relative_to(folder)
    settings = Settings(redis_url=f"unix://{tmp_path}/redis.sock", durability=durability)
    options = ["--port", "0", "--unixsocket", "redis.sock"]
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server on PATH")
    env = os.environ | {"DYNO_DURABILITY": durability}
    server = subprocess.Popen([shell, script, *options], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL)
    try:
        with sync_client(settings) as client:
            eventually(lambda: server.poll() is not None or answers(client))
            assert check_server(client, settings) == []
    finally:
        server.terminate()
        server.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.parametrize(("service", "role"), [("api", "API"), ("worker-cpu", "WORKER"), ("worker-gpu", "WORKER")])
def test_each_part_knows_its_own_password_for_redis_alone(service: str, role: str) -> None:
    environment = COMPOSE["services"][service]["environment"]
    user = f"REDIS_{role}_PASSWORD"
    assert f"${{{user}:+{role.lower()}:${{{user}}}@}}redis:" in environment["DYNO_REDIS_URL"]
    assert len(re.findall(r"REDIS_\w+_PASSWORD", str(environment))) == 2
    assert COMPOSE["services"]["redis"]["environment"][user] == f"${{{user}:-}}"


def test_every_dyno_command_of_the_compose_file_exists() -> None:
    commands = [s["command"] for s in COMPOSE["services"].values() if s["command"][0] == "dyno"]
    assert len(commands) == 3
    for _, name, *options in commands:
        text = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
        assert all(option in text for option in options if option.startswith("--"))


def test_every_setting_of_the_compose_file_exists() -> None:
    names = {name for s in COMPOSE["services"].values() for name in s.get("environment", {}) if name[:6] != "REDIS_"}
    assert names <= {f"DYNO_{field.upper()}" for field in Settings.model_fields}


def mounts(service: str) -> dict[str, tuple[str, str]]:
    """Path in the container -> (source, mode). If the host's environment may set the source, this is its default."""
    found = {}
    for volume in COMPOSE["services"][service]["volumes"]:
        source, path, *mode = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", volume).split(":")
        found[path] = (source, mode[0] if mode else "rw")
    return found


def test_every_volume_is_declared() -> None:
    used = {source for name, s in COMPOSE["services"].items() if "volumes" in s for source, _ in mounts(name).values()}
    assert {source for source in used if not source.startswith(".")} == COMPOSE["volumes"].keys()


@pytest.mark.parametrize("worker", ["worker-cpu", "worker-gpu"])
def test_workers_read_data_sets_where_they_look_for_them_and_can_not_write_there(worker: str) -> None:
    service = COMPOSE["services"][worker]
    source, mode = mounts(worker)[service["environment"]["DYNO_DATA_DIR"]]
    assert (source, mode) == ("data", "ro")
    assert any(volume.startswith("${DYNO_DATA_DIR:-data}:") for volume in service["volumes"])


def test_artifacts_outlast_the_container_and_its_user_may_write_them() -> None:
    folder = PurePosixPath(COMPOSE["services"]["api"]["environment"]["DYNO_ARTIFACT_DIR"])
    [mounted] = [path for path in mounts("api") if folder.is_relative_to(path)]
    assert mounts("api")[mounted] == ("artifacts", "rw")
    owned = re.search(r"install --directory --owner=dyno (.+)", (ROOT / "deploy" / "Dockerfile").read_text())
    assert owned is not None
    assert mounted in owned[1].split(), "a new volume takes its owner from the image"


@pytest.mark.parametrize(("worker", "image"), [("worker-cpu", "Dockerfile"), ("worker-gpu", "Dockerfile.gpu")])
def test_the_spool_of_a_worker_outlasts_its_container(worker: str, image: str) -> None:
    folder = COMPOSE["services"][worker]["environment"]["DYNO_SPOOL_DIR"]
    assert mounts(worker)[folder] == ("spool", "rw")
    owned = re.search(r"install --directory --owner=dyno (.+)", (ROOT / "deploy" / image).read_text())
    assert owned is not None
    assert folder in owned[1].split(), "a new volume takes its owner from the image"


def test_workers_send_their_files_to_the_service() -> None:
    for worker in ("worker-cpu", "worker-gpu"):
        assert COMPOSE["services"][worker]["environment"]["DYNO_API_URL"] == "http://api:8000"
