"""`python -m dyno.probe`, the health check of the API's image, against a real API: ready, not ready, TLS, keys."""

import subprocess
import sys

import pytest

from dyno.processes import free_port
from tests.certificates import certificate_for
from tests.service.processes import ROOT, environment, module, running
from tests.waiting import eventually


def probe(**settings):
    return subprocess.run(
        module("dyno.probe"),
        cwd=ROOT,
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_api_that_requires_keys_is_healthy_without_one_and_unhealthy_once_it_is_not_ready(
    redis_url, namespace, tmp_path
):
    store = tmp_path / "artifacts"
    public = {"host": "0.0.0.0", "require_keys": "true", "artifact_dir": str(store)}
    settings = public | {"port": free_port()}
    with running(redis_url=redis_url, namespace=namespace, **settings):
        healthy = probe(**settings)
        store.rmdir()
        store.write_text("no folder")
        unready = eventually(lambda: found if (found := probe(**settings)).returncode else None)
    assert (healthy.returncode, healthy.stderr) == (0, "")
    assert healthy.stdout.startswith('200 {"status":"ok"')
    assert unready.stdout.startswith("503 ")
    assert "artifact" in unready.stdout


@pytest.mark.verify
def test_an_api_with_tls_is_healthy_whatever_name_its_certificate_has(redis_url, namespace, tmp_path):
    cert, key = certificate_for("DNS:dyno.example.org", tmp_path)
    tls = {"tls_cert_file": str(cert), "tls_key_file": str(key)}
    settings = tls | {"port": free_port()}
    with running(redis_url=redis_url, namespace=namespace, **settings):
        assert probe(**settings).returncode == 0
        without = {name: value for name, value in settings.items() if name not in tls}
        assert probe(**without).returncode == 1


def test_without_an_api_the_probe_says_where_it_looked():
    done = probe(port=free_port())
    assert done.returncode == 1
    assert done.stdout.startswith("no response from 127.0.0.1, port ")
    assert done.stderr == ""


def test_the_probe_imports_the_standard_library_alone():
    program = "import sys; before = set(sys.modules); import dyno.probe; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} - set(sys.stdlib_module_names) == {"dyno"}
