"""TLS by the API itself, and by a proxy in front of it as in docs/operations.md."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dyno.preflight import free_port
from dyno.settings import Settings
from service.server.process import tls_error
from tests.certificates import certificate_for
from tests.service.keys.conftest import make_key
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
SERVICE = [sys.executable, "-P", "-m", "service"]
[PROXY] = re.findall(r"^```nginx\n(.*?)^```$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE | re.DOTALL)
TEMPORARY = "\n".join(f"{what}_temp_path {what};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    return certificate_for("IP:127.0.0.1", tmp_path_factory.mktemp("tls"))


@contextmanager
def serving(**settings: str | Path) -> Iterator[str]:
    """The URL that an API process prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    env |= {f"DYNO_{name.upper()}": str(value) for name, value in settings.items()}
    env["DYNO_PORT"] = "0"
    process = subprocess.Popen(SERVICE, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("dyno serves ").strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_api_speaks_tls_itself(redis_url: str, namespace: str, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    trusting = ssl.create_default_context(cafile=str(cert))
    with serving(redis_url=redis_url, namespace=namespace, tls_cert_file=cert, tls_key_file=key) as url:
        assert url.startswith("https://127.0.0.1:")
        assert httpx.get(f"{url}/readyz", verify=trusting).status_code == 200
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(f"{url}/livez")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/livez".replace("https", "http"))


def test_a_missing_handshake_times_out(redis_url: str, namespace: str, certificate: tuple[Path, Path]) -> None:
    tls = {"tls_cert_file": certificate[0], "tls_key_file": certificate[1]}
    with serving(redis_url=redis_url, namespace=namespace, head_timeout_s="0.2", **tls) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as silent:
            assert silent.recv(1) == b""


def test_a_missing_tls_file_prevents_the_start(redis_url: str, certificate: tuple[Path, Path]) -> None:
    [said] = refused(redis_url, certificate[0], None)
    assert "DYNO_TLS_KEY_FILE" in said


def refused(redis_url: str, cert: Path, key: Path | None) -> list[str]:
    """The output of an API that refuses to start with these files. It has no terminal for a password prompt."""
    env = os.environ | {"DYNO_REDIS_URL": redis_url, "DYNO_TLS_CERT_FILE": str(cert), "DYNO_PORT": "0"}
    env |= {} if key is None else {"DYNO_TLS_KEY_FILE": str(key)}
    done = subprocess.run(
        SERVICE, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, start_new_session=True
    )
    assert done.returncode == 2, done.stderr
    return done.stderr.splitlines()


def of(**files: Path) -> Settings:
    return Settings(tls_cert_file=files["cert"], tls_key_file=files["key"])


def test_unusable_tls_files_are_named_with_their_setting(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    text, absent, encrypted = tmp_path / "text.pem", tmp_path / "absent.pem", tmp_path / "encrypted.pem"
    text.write_text("no PEM")
    others = certificate_for("IP:127.0.0.2", tmp_path)
    sealed = ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:word", "-out", encrypted]
    subprocess.run(sealed, check=True, capture_output=True)

    assert tls_error(of(cert=cert, key=key)) is None
    for wrong in (text, key):
        assert tls_error(of(cert=wrong, key=key)) == f"DYNO_TLS_CERT_FILE: {wrong} has no certificate in PEM"
    for wrong in (text, cert):
        assert tls_error(of(cert=cert, key=wrong)) == f"DYNO_TLS_KEY_FILE: {wrong} has no private key in PEM"
    assert tls_error(of(cert=cert, key=others[1])) == f"DYNO_TLS_KEY_FILE: {others[1]} is not the key of {cert}"
    assert f"DYNO_TLS_KEY_FILE: {encrypted} is encrypted" in str(tls_error(of(cert=cert, key=encrypted)))
    for setting, files in (("CERT", {"cert": absent, "key": key}), ("KEY", {"cert": cert, "key": tmp_path})):
        assert str(tls_error(of(**files))).startswith(f"DYNO_TLS_{setting}_FILE: ")
        assert "can't be read" in str(tls_error(of(**files)))


def test_a_weak_certificate_is_reported_with_openssls_reason(tmp_path: Path) -> None:
    cert, key = certificate_for("IP:127.0.0.1", tmp_path, "rsa:512")
    assert "EE_KEY_TOO_SMALL" in str(tls_error(of(cert=cert, key=key)))


def test_unusable_tls_files_prevent_the_start_with_one_line(
    redis_url: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no PEM")
    assert refused(redis_url, certificate[0], text) == [f"dyno: DYNO_TLS_KEY_FILE: {text} has no private key in PEM"]


def test_the_proxy_of_the_operator_s_page_serves_the_api(
    redis_url: str, namespace: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    if (nginx := shutil.which("nginx")) is None:
        pytest.skip("nginx is not on this machine")
    cert, key = certificate
    port, own = free_port(), {"redis_url": redis_url, "namespace": f"{namespace}-proxy"}
    with serving(**own) as inner:
        site = PROXY.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("http://127.0.0.1:8000", inner)
        site = site.replace("/etc/ssl/dyno/fullchain.pem", str(cert)).replace("/etc/ssl/dyno/key.pem", str(key))
        whole = f"daemon off; pid nginx.pid; events {{}}\nhttp {{ access_log off; {TEMPORARY}\n{site} }}"
        (tmp_path / "nginx.conf").write_text(whole)
        server = subprocess.Popen([nginx, "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", "stderr"])
        try:
            trusting = ssl.create_default_context(cafile=str(cert))
            with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusting) as http:
                eventually(lambda: server.poll() is not None or _answers(http))
                answer = http.get("/readyz", headers={"X-Request-ID": "through-the-proxy"})
                assert answer.status_code == 200
                assert answer.headers["x-request-id"] == "through-the-proxy"
                assert answer.headers["strict-transport-security"]
                assert http.get("/metrics").status_code == 403
                assert http.get("/v1/jobs").json()["code"] == "proxy-not-allowed"
                mine = {"Authorization": f"Bearer {make_key(Settings(**own))[1]}"}
                assert http.get("/v1/jobs", headers=mine).json()["data"] == []
        finally:
            server.terminate()
            server.wait(60)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/livez").status_code == 200
    except httpx.ConnectError:
        return False
