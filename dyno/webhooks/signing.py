"""Signatures of Standard Webhooks, and the secret that each API key's receivers check them with.

One secret for all would let a receiver of one key forge what another's believes, so each key's is derived from the
deployment's, which never leaves it. A key's needs no storing, and is the same at every API.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import SecretStr
from standardwebhooks import Webhook

from dyno.settings import SECRET_PREFIX

_PURPOSE = "dyno webhooks of "


def secret_of(deployment: SecretStr, owner: str | None) -> str:
    """What the owner's receivers are given; of jobs that nobody owns, where there are no keys."""
    key = base64.b64decode(deployment.get_secret_value().removeprefix(SECRET_PREFIX))
    derived = hmac.digest(key, f"{_PURPOSE}{owner or ''}".encode(), "sha256")
    return SECRET_PREFIX + base64.b64encode(derived).decode()


def signed(secret: str, message_id: str, at_s: float, text: str) -> Mapping[str, str]:
    """The three headers that go with `text`, sent at `at_s` (seconds since 1970)."""
    at = datetime.fromtimestamp(int(at_s), UTC)
    signature = Webhook(secret).sign(message_id, at, text)
    return {"webhook-id": message_id, "webhook-timestamp": str(int(at_s)), "webhook-signature": signature}
