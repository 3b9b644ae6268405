"""TLS by the API itself."""

import asyncio
import re
import shutil
import ssl
import subprocess

import httpx
import pytest

from dyno.settings import Settings
from service.middleware import HttpMetrics
from service.server import CertificateWatch, expiry_s, tls_error
from tests.certificates import certificate_for
from tests.service.processes import refused, running
from tests.waiting import eventually

EXPIRY = r"^dyno_tls_expiry_timestamp_seconds (.+)$"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1, and its key."""
    return certificate_for("IP:127.0.0.1", tmp_path_factory.mktemp("tls"))


def test_the_api_speaks_tls_and_tells_when_the_certificate_expires(redis_url, namespace, certificate):
    cert, key = certificate
    trusting = ssl.create_default_context(cafile=str(cert))
    with running(redis_url=redis_url, namespace=namespace, tls_cert_file=cert, tls_key_file=key) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        assert httpx.get(f"{url}/readyz", verify=trusting).status_code == 200
        [told] = re.findall(EXPIRY, httpx.get(f"{url}/metrics", verify=trusting).text, re.MULTILINE)
        assert float(told) == expiry_s(cert)
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(f"{url}/livez")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/livez".replace("https", "http"))


@pytest.mark.verify
def test_a_missing_tls_file_prevents_the_start(redis_url, certificate):
    code, said = refused(redis_url=redis_url, tls_cert_file=certificate[0])
    assert (code, said.count("\n"), "DYNO_TLS_KEY_FILE" in said) == (2, 1, True)


def of(**files):
    return Settings(tls_cert_file=files["cert"], tls_key_file=files["key"])


def test_unusable_tls_files_are_named_with_their_setting(certificate, tmp_path):
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


def test_a_weak_certificate_is_reported_with_openssls_reason(tmp_path):
    cert, key = certificate_for("IP:127.0.0.1", tmp_path, "rsa:512")
    assert "EE_KEY_TOO_SMALL" in str(tls_error(of(cert=cert, key=key)))


@pytest.mark.verify
def test_unusable_tls_files_prevent_the_start_with_one_line(redis_url, certificate, tmp_path):
    text = tmp_path / "text.pem"
    text.write_text("no PEM")
    said = f"dyno: DYNO_TLS_KEY_FILE: {text} has no private key in PEM\n"
    assert refused(redis_url=redis_url, tls_cert_file=certificate[0], tls_key_file=text) == (2, said)


def pair(folder):
    folder.mkdir()
    return certificate_for("IP:127.0.0.1", folder)


def install(certificate, folder):
    """Replace cert.pem and key.pem in `folder`, each in one step, as tools that renew certificates do."""
    for file in certificate:
        shutil.copy(file, folder / "new")
        (folder / "new").replace(folder / file.name)


def trusting(certificate):
    return ssl.create_default_context(cafile=str(certificate[0]))


def served(port):
    """The certificate that a new connection gets."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=30))


def content(certificate):
    return ssl.PEM_cert_to_DER_cert(certificate[0].read_text())


def test_a_renewed_certificate_is_served_without_a_restart(redis_url, namespace, tmp_path):
    old, new, live = pair(tmp_path / "old"), pair(tmp_path / "new"), tmp_path / "live"
    live.mkdir()
    install(old, live)
    files = {"tls_cert_file": live / "cert.pem", "tls_key_file": live / "key.pem"}
    lasting = httpx.Limits(keepalive_expiry=None)
    with (
        running(redis_url=redis_url, namespace=namespace, **files) as (_, url),
        httpx.Client(base_url=url, verify=trusting(old), limits=lasting) as before,
    ):
        assert before.get("/livez").status_code == 200
        install(new, live)
        port = int(url.rpartition(":")[2])
        eventually(lambda: served(port) == content(new), what="a new connection gets the new certificate")
        assert httpx.get(f"{url}/readyz", verify=trusting(new)).status_code == 200
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(f"{url}/livez", verify=trusting(old))
        assert before.get("/livez").status_code == 200, "an open connection goes on"


@pytest.mark.anyio
async def test_an_unusable_renewal_is_logged_once_and_the_old_certificate_stays(tmp_path, caplog):
    old, new, live = pair(tmp_path / "old"), pair(tmp_path / "new"), tmp_path / "live"
    live.mkdir()
    install(old, live)
    metrics = HttpMetrics("0")
    watch = CertificateWatch.of(of(cert=live / "cert.pem", key=live / "key.pem"), metrics)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(live / "cert.pem", live / "key.pem")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        shutil.copy(new[0], live / "cert.pem")  # half of a renewal
        for _ in range(2):
            await watch.reload(context)
            assert await asyncio.to_thread(served, port) == content(old)
        assert told_expiry(metrics) == expiry_s(old[0])
        [logged] = [each.getMessage() for each in caplog.records if each.name == "service.server"]
        assert f"{live / 'key.pem'} is not the key of {live / 'cert.pem'}" in logged
        (live / "key.pem").unlink()
        await watch.reload(context)
        assert await asyncio.to_thread(served, port) == content(old)
        install(new, live)
        await watch.reload(context)
        assert await asyncio.to_thread(served, port) == content(new)
        assert told_expiry(metrics) == expiry_s(new[0])


def told_expiry(metrics):
    [family] = [each for each in metrics.collect() if each.name == "dyno_tls_expiry_timestamp_seconds"]
    return float(family.samples[0].value)


@pytest.mark.parametrize(("algorithm", "days"), [("ec", 2), ("rsa:2048", 20_000)], ids=["UTCTime", "GeneralizedTime"])
def test_the_expiry_is_that_which_openssl_reads(tmp_path, algorithm, days):
    cert, _ = certificate_for("IP:127.0.0.1", tmp_path, algorithm, days)
    command = ["openssl", "x509", "-noout", "-enddate", "-in", cert]
    [end] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    cert.write_text("a comment: ä\n" + cert.read_text() * 2)
    assert expiry_s(cert) == ssl.cert_time_to_seconds(end.removeprefix("notAfter="))
