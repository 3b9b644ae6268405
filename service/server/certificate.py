"""TLS' two files, looked at before anything listens: OpenSSL names neither, and asks a terminal for a password."""

from __future__ import annotations

import ssl
from pathlib import Path

from dyno.settings import Settings

_CERT, _KEY = "DYNO_TLS_CERT_FILE", "DYNO_TLS_KEY_FILE"
_OF_ANOTHER = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED")  # the second: it is for another algorithm


class _PasswordAsked(Exception):
    """The key is encrypted."""


def wrong_of_tls(settings: Settings) -> str | None:
    """Why the API can't speak TLS with these files, and which setting to change; null where it can, or need not."""
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        return f"TLS needs both {_CERT} and {_KEY}"
    unreadable = _unreadable(_CERT, cert) or _unreadable(_KEY, key)
    return unreadable or _wrong_of_certificate(cert) or _wrong_of_both(cert, key)


def _unreadable(setting: str, file: Path) -> str | None:
    try:
        with file.open("rb"):
            return None
    except OSError as error:
        return f"{setting}: {file} can't be read: {error.strerror}"


def _wrong_of_certificate(cert: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cert)
    except ssl.SSLError:
        return f"{_CERT}: {cert} holds no certificate in PEM"
    return None


def _wrong_of_both(cert: Path, key: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, _refuse_password)
    except _PasswordAsked:
        return f"{_KEY}: {key} is encrypted; it has to be there without a password, readable by Dyno alone"
    except ssl.SSLError as error:
        if error.reason in _OF_ANOTHER:
            return f"{_KEY}: {key} is not the key of {cert}"
        if error.reason is None:  # PEM can't be read, and the certificate could
            return f"{_KEY}: {key} holds no private key in PEM"
        return f"{_CERT}, {_KEY}: OpenSSL refuses {cert} and {key}: {error.reason}"
    return None


def _refuse_password() -> str:
    raise _PasswordAsked
