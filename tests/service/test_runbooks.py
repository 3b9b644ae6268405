"""The commands in the text of the runbooks and of the other guides, as they stand there: for Redis, the API and a host.

They run with the user "operator" that docs/operations.md describes.
"""

import os
import re
import shutil
import subprocess

import pytest
import redis

from dyno.processes import free_port
from dyno.store.embedded import EmbeddedServer
from tests.certificates import certificate_for
from tests.guides import GUIDES, ROOT, RUN, spans
from tests.servers import server_binary
from tests.service.processes import running

COMMANDS = sorted({span.text for page in GUIDES for span in spans(page) if span.text.startswith(RUN)})
# What they have to print, where the page says what to look for.
PRINTED = {
    "curl $DYNO_URL/livez": '"ok"',
    "curl $DYNO_URL/readyz": '"ok"',
    "redis-cli -u $REDIS_URL ping": "PONG",
    "redis-cli -u $REDIS_URL info memory": "used_memory:",
    "redis-cli -u $REDIS_URL info server": "uptime_in_seconds:",
    "redis-cli -u $REDIS_URL info persistence": "aof_last_bgrewrite_status:ok",
    "redis-cli -u $REDIS_URL bgrewriteaof": "rewriting started",
    "openssl x509 -noout -enddate -in $DYNO_TLS_CERT_FILE": "notAfter=",
    "du -s DYNO_ARTIFACT_DIR/job_* | sort -n | tail": "job_1",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The variables of a Redis with its operator, and of an API on it."""
    folder, port = tmp_path_factory.mktemp("place"), free_port()
    (folder / "artifacts" / "job_1").mkdir(parents=True)
    server = EmbeddedServer(folder / "redis", server_binary("redis"))
    with server, redis.Redis.from_url(server.url) as client:
        client.config_set("port", port)
        client.execute_command("ACL", "SETUSER", "operator", "on", ">secret", *_rights())
        with running(redis_url=server.url, artifact_dir=folder / "artifacts") as (_, url):
            yield {
                "DYNO_URL": url,
                "REDIS_URL": f"redis://operator:secret@127.0.0.1:{port}",
                "DYNO_TLS_CERT_FILE": str(certificate_for("IP:127.0.0.1", folder)[0]),
                "ARTIFACTS": str(folder / "artifacts"),
            }


def _rights():
    page = (ROOT / "docs" / "operations.md").read_text()
    [line] = re.findall(r"^ *user operator on #\S+ (.+)$", page, re.MULTILINE)
    return line.split()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_runbooks_work(place, command):
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command.split()[0]} is not on this machine")
    line = command.replace("DYNO_ARTIFACT_DIR", place["ARTIFACTS"])
    if command.startswith("taskset"):
        line += " true"  # the page has its beginning alone
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        env=os.environ | place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED.get(command, "") in done.stdout
    assert not re.match(r"(ERR|NOPERM|NOAUTH|WRONGPASS)\b", done.stdout), done.stdout


def test_what_they_print_is_of_commands_on_a_page():
    assert PRINTED.keys() <= set(COMMANDS)


def test_a_damaged_end_of_the_append_only_file_is_cut_off(tmp_path):
    """`redis-check-aof --fix`, with the file that the runbook names."""
    if (check := shutil.which("redis-check-aof")) is None:
        pytest.skip("redis-check-aof is not on this machine")
    folder, binary = tmp_path / "redis", server_binary("redis")
    with EmbeddedServer(folder, binary) as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", "1")
    [manifest] = folder.rglob("*.manifest")
    [last] = manifest.parent.glob("*.incr.aof")
    whole = last.read_bytes()
    last.write_bytes(whole + b"*3\r\n$3\r\nSET\r\n$4\r\nlo")
    done = subprocess.run([check, "--fix", manifest], input="y\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert last.read_bytes() == whole
    with EmbeddedServer(folder, binary) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"1"
