"""The calls that are about who asks: the key sent, and for admins all of them."""

from __future__ import annotations

from dyno.access import ApiKey, CreatedKey, KeyList, Limits, Me, Scope
from dyno.client.answers import check
from dyno.client.call import call
from dyno.client.paths import in_path
from dyno.client.steps import Steps, asked, sent


class KeyCalls:
    """Of both clients."""

    @call
    def me(self) -> Steps[Me]:
        """The key that is sent, what it may do, and its limits."""
        return asked(Me, "GET", "/v1/me")

    @call
    def keys(self) -> Steps[list[ApiKey]]:
        """All keys, revoked ones too: jobs name them as their owners."""
        return (yield from asked(KeyList, "GET", "/v1/keys")).data

    @call
    def create_key(self, name: str, scope: Scope | str, limits: Limits | None = None) -> Steps[CreatedKey]:
        """Make a key: its secret is in this answer and nowhere else. Raises Refused with every wrong field."""
        wanted = {"name": name, "scope": scope, "limits": (limits or Limits()).model_dump(mode="json")}
        return asked(CreatedKey, "POST", "/v1/keys", json=wanted)

    @call
    def revoke_key(self, key_id: str) -> Steps[None]:
        """Let no further request through with it; its jobs go on. Repeating it changes nothing."""
        check((yield from sent("DELETE", f"/v1/keys/{in_path(key_id)}")))
