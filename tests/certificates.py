"""Self-signed certificates, made by openssl."""

import shutil
import subprocess

import pytest


def certificate_for(name, folder, algorithm="ec", days=2):
    """A certificate for a name such as `IP:127.0.0.1` or `DNS:hooks.example.org`, and its key.

    Skips the test without openssl.
    """
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl is not on this machine")
    cert, key = folder / "cert.pem", folder / "key.pem"
    curve = ["-pkeyopt", "ec_paramgen_curve:prime256v1"] if algorithm == "ec" else []
    command = [openssl, "req", "-x509", "-newkey", algorithm, *curve, "-nodes"]
    command += ["-days", str(days), "-subj", "/CN=dyno", "-addext", f"subjectAltName={name}"]
    subprocess.run([*command, "-out", cert, "-keyout", key], check=True, capture_output=True)
    return cert, key
