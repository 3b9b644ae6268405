"""`python -P -m dyno.probe`: whether the API of this container is ready. Exit code 0 or 1; prints the response.

It requests /readyz at the address and over the protocol that the environment sets for the API, and needs no key. It
runs every few seconds during benchmarks, so it imports only the standard library.
"""

import http.client
import os
import ssl
import sys
from collections.abc import Mapping

TIMEOUT_S = 4.0  # the API itself waits 2 s for a mount that hangs
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def main(environment: Mapping[str, str]) -> int:
    """Request /readyz from the API that these variables configure. Returns the exit code."""
    host = environment.get("DYNO_HOST") or "127.0.0.1"
    port = int(environment.get("DYNO_PORT") or 8000)
    connection = _connection(_EVERY_ADDRESS.get(host, host), port, bool(environment.get("DYNO_TLS_CERT_FILE")))
    try:
        connection.request("GET", "/readyz", headers={"Host": "localhost"})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stdout.write(f"no response from {host}, port {port}: {error}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{response.status} {text}\n")
    return 0 if response.status == http.HTTPStatus.OK else 1


def _connection(host: str, port: int, tls: bool) -> http.client.HTTPConnection:
    if not tls:
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    # The certificate has the name that clients use, not this address. The request contains no secret.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)


if __name__ == "__main__":
    sys.exit(main(os.environ))
