"""`dyno doctor` on a healthy installation, and on one with each part broken."""

import json

import pytest
from typer.testing import CliRunner

from dyno.cli import app, doctor
from dyno.models.job import Holder
from dyno.store.embedded import url_file
from tests.service.workers import publish
from tests.waiting import eventually


@pytest.fixture
def examined(http, settings, tmp_path):
    """The checks by name, after the exit code was checked."""

    def one(code, url=str(http.base_url), **env):
        known = {"DYNO_REDIS_URL": str(settings.redis_url), "DYNO_DATA_DIR": None} | env
        asked = ["doctor", "--json", "--url", url, "--data-dir", str(tmp_path / "not" / "yet")]
        done = CliRunner().invoke(app, asked, env=known)
        assert done.exit_code == code, done.output
        return {each["name"]: (each["is_well"], each["found"], each["to_do"]) for each in json.loads(done.stdout)}

    return one


def test_a_healthy_installation(examined, offered):
    found = examined(0)
    assert found.keys() == {
        "redis",
        "memory",
        "clock",
        "api",
        "workers",
        "devices",
        "locks",
        "data sets",
        "data folder",
    }
    assert all(is_well and to_do is None for is_well, _, to_do in found.values())
    assert offered.full_id in found["devices"][1]


def test_an_unreachable_url(examined):
    is_well, found, to_do = examined(1, url="http://127.0.0.1:9")["api"]
    assert (is_well, "127.0.0.1:9" in found) == (False, True)
    assert "dyno up" in str(to_do)


def test_a_dyno_up_that_has_ended(tmp_path):
    url_file(tmp_path).write_text(f"unix://{tmp_path}/server.sock")
    words = ["doctor", "--json", "--url", "http://127.0.0.1:9", "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(app, words, env={"DYNO_REDIS_URL": None})
    [found] = [each for each in json.loads(done.stdout) if each["name"] == "redis"]
    assert (done.exit_code, found["is_well"]) == (1, False)
    assert "`dyno up`" in found["to_do"]


def test_a_redis_that_nobody_names_is_a_warning(tmp_path):
    words = ["doctor", "--url", "http://127.0.0.1:9", "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(app, words, env={"DYNO_REDIS_URL": None, "COLUMNS": "300"})
    [line] = [line for line in done.stdout.splitlines() if "not checked" in line]
    assert "warning" in line
    assert "set DYNO_REDIS_URL" in line


def test_all_devices_are_cordoned(examined, http, offered):
    http.post(f"/v1/devices/{offered.full_id}/cordon").raise_for_status()
    found = examined(1)
    http.post(f"/v1/devices/{offered.full_id}/uncordon").raise_for_status()
    assert found["workers"][0]
    assert (found["devices"][0], "uncordon" in str(found["devices"][2])) == (False, True)


def test_a_device_that_another_process_uses_while_jobs_wait(examined, client, settings, offered):
    held_by = Holder(device=offered.full_id, pid=77, command="python -m workers --device cpu", job="job_1")
    publish(client, settings, offered, id="worker-1", state="busy", held_by=held_by)
    is_well, found, to_do = examined(1)["locks"]
    assert not is_well
    for words in (offered.full_id, "process 77", "python -m workers --device cpu", "job_1"):
        assert words in found
    assert "--device" in str(to_do)


def test_redis_is_unreachable_and_datasets_are_missing(examined, tmp_path):
    found = examined(1, DYNO_REDIS_URL="redis://127.0.0.1:9/0", DYNO_DATA_DIR=str(tmp_path / "none"))
    assert "clock" not in found
    for part in ("redis", "data sets"):
        is_well, _, to_do = found[part]
        assert (is_well, bool(to_do)) == (False, True)


def test_a_wrong_clock_and_a_full_disk(examined, monkeypatch):
    monkeypatch.setattr(doctor, "CLOCKS_APART_S", -1.0)
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 2**80)
    found = examined(1)
    assert {"clock", "data folder"} <= {name for name, (is_well, _, _) in found.items() if not is_well}


@pytest.fixture
def restored(client, http):
    before = client.config_get("maxmemory*")
    yield
    client.config_set("maxmemory", before["maxmemory"])
    client.config_set("maxmemory-policy", before["maxmemory-policy"])
    eventually(lambda: http.get("/readyz").status_code == 200)  # which is cached for a second


def test_a_redis_without_a_memory_limit_is_a_warning_and_one_that_evicts_a_problem(examined, offered, client, restored):
    assert "B used; a full Redis refuses new jobs" in examined(0)["memory"][1]
    client.config_set("maxmemory", 0)
    is_well, found, to_do = examined(0)["memory"]
    assert (is_well, "no limit" in found, "set maxmemory" in str(to_do)) == (True, True, True)
    client.config_set("maxmemory-policy", "allkeys-lru")
    is_well, found, to_do = examined(1)["redis"]
    assert not is_well
    assert "maxmemory-policy is allkeys-lru; set it to noeviction" in found
    assert "configuration" in str(to_do)


def test_the_report_is_a_table_by_default(http, offered, settings, tmp_path):
    asked = ["doctor", "--url", str(http.base_url), "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(app, asked, env={"DYNO_REDIS_URL": str(settings.redis_url), "COLUMNS": "250"})
    assert (done.exit_code, "devices" in done.output, "ok" in done.output) == (0, True, True), done.output
