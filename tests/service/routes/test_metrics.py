"""GET /metrics: without the store, with bounded labels, and checked by Prometheus' tools."""

import re
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest
import redis
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dyno.bench.registry import registry
from dyno.models.job import Holder
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.embedded import EmbeddedServer
from dyno.store.maintenance import REPAIRS
from dyno.store.redis import Keys
from service.app import create_app
from tests.service.workers import publish
from tests.waiting import eventually

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def families(http):
    answer = http.get("/metrics")
    assert answer.status_code == 200
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def values(family):
    """Values by label values, in the order of the labels' names."""
    return {tuple(value for _, value in sorted(s.labels.items())): s.value for s in family.samples}


def test_every_metric_exists_from_the_start(http, offered):
    found = families(http)
    assert values(found["dyno_store_up"]) == {(): 1}
    assert values(found["dyno_devices"]) == {("cpu", "idle"): 1}
    assert values(found["dyno_device_busy"]) == {(offered.full_id, "cpu"): 0}
    assert values(found["dyno_requeues"]) == {("handed_back",): 0, ("infrastructure",): 0, ("lost",): 0}
    assert values(found["dyno_leases_lost"]) == {("cpu",): 0, ("gpu",): 0, ("tpu",): 0}
    assert values(found["dyno_index_repairs"]) == {(kind,): 0 for kind in REPAIRS}
    ended = values(found["dyno_jobs_ended"])
    assert len(ended) == 7 * len(registry())
    assert set(ended.values()) == {0}
    [build] = found["dyno_build_info"].samples
    assert (build.value, build.labels["version"]) == (1, version("tensordyno"))


def test_the_oldest_queued_job_has_an_age_and_redis_a_size(http, submitted, client):
    first = submitted()
    eventually(lambda: values(families(http)["dyno_oldest_queued_seconds"])[()] > 0, what="the job has an age")
    http.post(f"/v1/jobs/{first}/cancel")
    found = families(http)
    assert values(found["dyno_oldest_queued_seconds"]) == {(): 0}
    assert 1e5 < values(found["dyno_store_memory_bytes"])[()] < 1e10
    assert values(found["dyno_store_memory_limit_bytes"]) == {(): client.info("memory")["maxmemory"]}


def test_a_device_that_a_hung_runner_uses_is_held_and_hung(http, client, settings, device):
    held = device(id="cpu:7", cores=[7])
    holder = Holder(device=held.full_id, pid=8, hung=True)
    worker = publish(client, settings, held, state="busy", held_by=holder)
    try:
        found = families(http)
    finally:
        fleet.withdraw(client, settings, worker)
    for name in ("dyno_device_held", "dyno_device_hung"):
        assert values(found[name])[held.full_id, "cpu"] == 1
        assert sum(values(found[name]).values()) == 1


def test_redis_file_and_the_disk_of_artifacts_have_sizes(http, submitted):
    submitted()
    found = families(http)
    assert values(found["dyno_store_aof_bytes"])[()] > 1000
    assert values(found["dyno_store_aof_rewrite_ok"]) == {(): 1}
    free, size = (values(found[f"dyno_artifact_disk_{name}"])[()] for name in ("free_bytes", "bytes"))
    assert 0 < free < size


def test_a_failed_rewrite_of_the_file_is_told(serve, tmp_path):
    folder = tmp_path / "redis"
    with (
        EmbeddedServer(folder) as server,
        serve(create_app(Settings(redis_url=server.url, artifact_dir=tmp_path))) as http,
        redis.Redis.from_url(server.url) as client,
    ):
        assert values(families(http)["dyno_store_aof_rewrite_ok"]) == {(): 1}
        shutil.rmtree(folder)
        with suppress(redis.ResponseError):
            client.bgrewriteaof()
        eventually(lambda: values(families(http)["dyno_store_aof_rewrite_ok"]) == {(): 0})


def test_results_that_a_host_keeps_are_counted_once(http, client, settings, device):
    there = [device(id=f"cpu:{core}", cores=[core], host="elsewhere") for core in (5, 6)]
    workers = [publish(client, settings, each, outbox=number) for number, each in enumerate(there, start=1)]
    try:
        found = values(families(http)["dyno_outbox_results"])
    finally:
        for worker in workers:
            fleet.withdraw(client, settings, worker)
    assert found["elsewhere",] == 2, "both workers see the same folder, one of them later"


def test_open_streams_are_counted(http):
    def streams():
        return values(families(http)["dyno_streams"])[()]

    assert streams() == 0
    with http.stream("GET", "/v1/events") as opened:
        assert opened.status_code == 200
        assert streams() == 1
    eventually(lambda: streams() == 0, what="the stream has ended")


def test_a_part_that_is_not_ready_is_named(serve, redis_url, tmp_path):
    folder = tmp_path / "artifacts"
    with serve(create_app(Settings(redis_url=redis_url, artifact_dir=folder))) as http:
        before = values(families(http)["dyno_ready"])
        folder.rmdir()
        folder.write_text("no folder")
        assert before["artifact_store",] == 1
        after = before | {("artifact_store",): 0}
        eventually(lambda: values(families(http)["dyno_ready"]) == after, what="the next check finds it")


def test_without_the_store_it_reports_its_own_metrics(serve):
    with EmbeddedServer() as server, serve(create_app(Settings(redis_url=server.url))) as http:
        assert values(families(http)["dyno_store_up"]) == {(): 1}
        assert http.get("/v1/jobs").status_code == 200
        server.kill()
        eventually(lambda: values(families(http)["dyno_ready"])["store",] == 0, what="the next check finds it")
        found = families(http)
    assert values(found["dyno_store_up"]) == {(): 0}
    assert "dyno_jobs" not in found
    counted = {
        (sample.labels["route"], sample.labels["status"])
        for sample in found["dyno_http_request_duration_seconds"].samples
    }
    assert {("/v1/jobs", "200"), ("/metrics", "200")} <= counted
    assert "process_resident_memory_bytes" in found


def test_counts_of_a_newer_version_have_the_label_other(http, client, settings):
    counts = Keys(settings.namespace).counts
    strange = {
        "ended later_workload succeeded none": 2,
        "ended even_later failed sunspots": 3,
        "submitted later_workload": 5,
        "requeued whim": 7,
        "lost npu": 1,
        "ended with too many words in it": 1,
        "unheard of": 1,
    }
    client.hset(counts, mapping=strange)
    try:
        found = families(http)
    finally:
        client.hdel(counts, *strange)
    assert values(found["dyno_jobs_ended"])["none", "succeeded", "other"] == 2
    assert values(found["dyno_jobs_ended"])["other", "failed", "other"] == 3
    assert values(found["dyno_jobs_submitted"])["other",] == 5
    assert values(found["dyno_requeues"])["other",] == 7
    assert values(found["dyno_leases_lost"])["other",] == 1
    assert len(values(found["dyno_jobs_ended"])) == 7 * len(registry()) + 2


def test_unknown_methods_have_the_label_other(http):
    for word in ("PROPFIND", "PURGE"):
        assert http.request(word, "/livez").status_code == 405
    counted = families(http)["dyno_http_request_duration_seconds"].samples
    assert {sample.labels["method"] for sample in counted} <= {"GET", "POST", "other"}


def test_promtool_reports_no_problems(http, offered):
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not on this machine")
    text = http.get("/metrics").text
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_rules_of_the_operations_page_are_valid(tmp_path):
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not on this machine")
    [config] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    questions = re.findall(r"^\| [^|]+\? \| `(.+)` \|$", PAGE, re.MULTILINE)
    assert len(questions) >= 5
    rules = {"groups": [{"name": "page", "rules": [{"record": f"q{n}", "expr": q} for n, q in enumerate(questions)]}]}
    for what, text in (("config", config), ("rules", yaml.safe_dump(rules))):
        (tmp_path / what).write_text(text)
        command = [promtool, "check", what, tmp_path / what]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_operations_page_lists_exactly_the_metrics(http, submitted):
    submitted()
    named = set(re.findall(r"^\| `(dyno_\w+)", PAGE, re.MULTILINE))
    told = set(re.findall(r"^# TYPE (dyno_\w+) ", http.get("/metrics").text, re.MULTILINE))
    assert named == told
