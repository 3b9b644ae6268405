"""Whether a spec's webhook may be called, asked before it is queued; its name is looked up at each attempt only."""

from __future__ import annotations

from dyno.errors import FieldError, InvalidSpec
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.webhook_url import parse_webhook_url, reject_reason

_OFF = "this service sends no webhooks: its DYNO_WEBHOOK_SECRET is not set"


def check_webhook(settings: Settings, spec: Spec) -> None:
    """Raises InvalidSpec."""
    if spec.webhook is None:
        return
    if settings.webhook_secret is None:
        raise InvalidSpec([FieldError("/webhook", "webhooks-off", _OFF)])
    detail = reject_reason(parse_webhook_url(spec.webhook.url), settings.webhook_allowed_hosts)
    if detail is not None:
        raise InvalidSpec([FieldError("/webhook", "webhook-refused", detail)])
