"""The compose file and the images, as far as text shows them. tests/test_containers.py runs them."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath

import pytest
import yaml
from typer.testing import CliRunner

from dyno.cli import app
from dyno.settings import Settings
from dyno.store.redis import check_server, sync_client
from tests import containers
from tests.schemas import conforms
from tests.servers import answers
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
WORKERS = ["worker-cpu", "worker-gpu", "worker-tpu"]
BIN = Path(sys.executable).parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_compose_file_is_valid():
    conforms(COMPOSE, "vendor.compose-spec")


def test_the_images_pass_hadolint():
    command = [BIN / "hadolint", "--failure-threshold", "warning", ROOT / "deploy" / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_published_port_is_on_loopback_only():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_contained(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "cap_add", "pid", "ipc"}
    assert {"mem_limit", "pids_limit"} <= service.keys()
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert all(path.split(":")[0] in ("/tmp", "/data") for path in service["tmpfs"])


@pytest.mark.parametrize("name", sorted({"api", *WORKERS}))
def test_the_images_run_as_the_fixed_user_that_the_volumes_belong_to(name):
    assert containers.user_of(SERVICES[name]) == (999, 999)
    assert "user" not in SERVICES[name]


def test_the_image_of_the_api_has_no_framework():
    assert SERVICES["api"]["build"]["args"]["LOCK"] == "server"
    locked = (ROOT / "requirements" / "server.txt").read_text()
    names = set(re.findall(r"^([\w.-]+)==", locked, re.MULTILINE))
    assert {"fastapi", "celery", "redis"} <= names
    assert not names & {"tensorflow", "tensorflow-cpu", "jax", "torch", "keras", "h5py"}


@pytest.mark.parametrize("name", sorted({"api", *WORKERS}))
def test_every_image_has_a_lock_and_the_version_of_the_package(name):
    build = SERVICES[name]["build"]
    assert (ROOT / "requirements" / f"{build['args']['LOCK']}.txt").exists()
    assert build["args"]["PYTHON_DIGEST"] == "${PYTHON_DIGEST:-}"
    assert SERVICES[name]["image"].endswith(f":{VERSION}")


def test_redis_is_reached_from_the_network_of_the_store_alone():
    assert COMPOSE["networks"]["store"] == {"internal": True}
    assert SERVICES["redis"]["networks"] == ["store"]
    assert "ports" not in SERVICES["redis"]


def test_the_cores_of_redis_and_the_api_are_those_that_workers_leave_free():
    for name in ("redis", "api"):
        assert SERVICES[name]["cpuset"] == "${DYNO_RESERVED_CORES:-}"
    for name in WORKERS:
        assert SERVICES[name]["environment"]["DYNO_RESERVED_CORES"] == "${DYNO_RESERVED_CORES:-}"
        assert "cpuset" not in SERVICES[name]


@pytest.mark.parametrize("durability", ["everysec", "always"])
def test_the_started_redis_is_fit_to_keep_jobs(durability, short_folder):
    service = SERVICES["redis"]
    shell, script, *_ = service["command"]
    [folder] = [path for path, (source, _) in mounts("redis").items() if source == "./deploy/redis"]
    assert service["environment"]["DYNO_DURABILITY"] == "${DYNO_DURABILITY:-everysec}"
    script = ROOT / "deploy" / "redis" / PurePosixPath(script).relative_to(folder)
    settings = Settings(redis_url=f"unix://{short_folder}/redis.sock", durability=durability)
    options = ["--port", "0", "--unixsocket", "redis.sock"]
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server on PATH")
    env = os.environ | {"DYNO_DURABILITY": durability}
    server = subprocess.Popen([shell, script, *options], cwd=short_folder, env=env, stdout=subprocess.DEVNULL)
    try:
        with sync_client(settings) as client:
            eventually(lambda: server.poll() is not None or answers(client))
            assert check_server(client, settings) == []
    finally:
        server.terminate()
        server.wait()


def secrets_made(folder, **environment):
    """Path -> content of what make-secrets.sh leaves in the folder."""
    for part in ("api", "worker"):
        (folder / part).mkdir(exist_ok=True)
    script = ROOT / "deploy" / "redis" / "make-secrets.sh"
    env = {"PATH": os.environ["PATH"]} | environment
    subprocess.run(["sh", script, folder], env=env, check=True, timeout=60)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o444 for path in files)
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_passwords_are_made_once_and_kept(tmp_path):
    made = secrets_made(tmp_path)
    assert made.keys() == {"api/DYNO_REDIS_PASSWORD", "worker/DYNO_REDIS_PASSWORD"}
    assert all(re.fullmatch("[0-9a-f]{48}", password) for password in made.values())
    assert len(set(made.values())) == 2
    assert secrets_made(tmp_path) == made
    (tmp_path / "api" / "DYNO_REDIS_PASSWORD.new").write_text("of a start that was interrupted")
    (tmp_path / "api" / "DYNO_REDIS_PASSWORD.new").chmod(0o444)
    (tmp_path / "api" / "DYNO_REDIS_PASSWORD").unlink()
    again = secrets_made(tmp_path, REDIS_API_PASSWORD="")
    assert again["worker/DYNO_REDIS_PASSWORD"] == made["worker/DYNO_REDIS_PASSWORD"]
    assert again.keys() == made.keys()


def test_secrets_of_the_environment_replace_those_in_the_files(tmp_path):
    before = secrets_made(tmp_path)
    given = {"REDIS_WORKER_PASSWORD": "worker's &$own", "DYNO_WEBHOOK_SECRET": f"whsec_{'A' * 32}"}
    assert secrets_made(tmp_path, **given) == before | {
        "worker/DYNO_REDIS_PASSWORD": "worker's &$own",
        "api/DYNO_WEBHOOK_SECRET": f"whsec_{'A' * 32}",
    }
    assert "api/DYNO_WEBHOOK_SECRET" not in secrets_made(tmp_path)


@pytest.mark.parametrize("content", [None, "", " ", " begins", "ends\t"])
def test_redis_does_not_start_if_a_password_is_missing_or_has_spaces_around_it(content, tmp_path):
    (tmp_path / "worker").write_text("secret")
    if content is not None:
        (tmp_path / "api").write_text(content)
    files = {f"REDIS_{name.upper()}_PASSWORD_FILE": str(tmp_path / name) for name in ("api", "worker")}
    script = ["sh", ROOT / "deploy" / "redis" / "start.sh", "--port", "0"]
    done = subprocess.run(
        script, cwd=tmp_path, env=os.environ | files, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "secret" not in done.stdout + done.stderr
    if content:
        assert "REDIS_API_PASSWORD begins or ends with a space" in done.stderr


@pytest.mark.parametrize(("service", "role"), [("api", "api"), *((worker, "worker") for worker in WORKERS)])
def test_each_part_sees_its_own_password_of_redis_alone(service, role):
    environment = SERVICES[service]["environment"]
    assert environment["DYNO_REDIS_URL"] == f"redis://{role}@redis:6379/0"
    assert mounts(service)[environment["DYNO_SECRETS_DIR"]] == (f"{role}-secrets", "ro")
    assert [source for source, _ in mounts(service).values() if "secrets" in source] == [f"{role}-secrets"]
    assert SERVICES["redis"]["environment"][f"REDIS_{role.upper()}_PASSWORD_FILE"] == (
        f"/run/secrets/{role}/DYNO_REDIS_PASSWORD"
    )
    assert mounts("redis")[f"/run/secrets/{role}"] == (f"{role}-secrets", "ro")
    assert mounts("secrets")[f"/secrets/{role}"] == (f"{role}-secrets", "rw")


def test_no_container_that_stays_has_a_secret_in_its_environment():
    for name, service in SERVICES.items():
        environment = {key: value for key, value in service["environment"].items() if not key.endswith("_FILE")}
        assert name == "secrets" or not re.search("PASSWORD|WEBHOOK_SECRET|API_KEY", str(environment)), name


def test_every_dyno_command_of_the_compose_file_exists():
    commands = [s["command"] for s in SERVICES.values() if s["command"][0] == "dyno"]
    assert len(commands) == 4
    for _, name, *options in commands:
        text = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
        assert all(option in text for option in options if option.startswith("--"))


def test_every_setting_of_the_compose_file_exists():
    names = {name for s in SERVICES.values() for name in s.get("environment", {}) if name[:6] != "REDIS_"}
    assert names <= {f"DYNO_{field.upper()}" for field in Settings.model_fields}


def mounts(service):
    """Path in the container -> (source, mode). If the host's environment may set the source, this is its default."""
    return {each.path: (each.source, each.mode) for each in containers.mounts_of(SERVICES[service])}


def test_every_volume_is_declared():
    used = {source for name, s in SERVICES.items() if "volumes" in s for source, _ in mounts(name).values()}
    assert {source for source in used if not source.startswith(".")} == COMPOSE["volumes"].keys()


@pytest.mark.parametrize("worker", WORKERS)
def test_workers_read_data_sets_where_they_look_for_them_and_can_not_write_there(worker):
    service = SERVICES[worker]
    source, mode = mounts(worker)[service["environment"]["DYNO_DATA_DIR"]]
    assert (source, mode) == ("data", "ro")
    assert any(volume.startswith("${DYNO_DATA_DIR:-data}:") for volume in service["volumes"])


def test_artifacts_outlast_the_container():
    folder = PurePosixPath(SERVICES["api"]["environment"]["DYNO_ARTIFACT_DIR"])
    [mounted] = [path for path in mounts("api") if folder.is_relative_to(path)]
    assert mounts("api")[mounted] == ("artifacts", "rw")


@pytest.mark.parametrize("worker", WORKERS)
def test_the_spool_and_the_locks_of_a_worker_outlast_its_container(worker):
    environment = SERVICES[worker]["environment"]
    assert mounts(worker)[environment["DYNO_SPOOL_DIR"]] == ("spool", "rw")
    assert mounts(worker)[environment["DYNO_RUN_DIR"]] == ("locks", "rw")


def test_workers_send_their_files_to_the_service():
    for worker in WORKERS:
        assert SERVICES[worker]["environment"]["DYNO_API_URL"] == "http://api:8000"
