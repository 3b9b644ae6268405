"""What only a request can get wrong, before there is a spec. Everything else is in `dyno.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dyno.errors import DynoError, InvalidSpec, StoreUnavailable


class MalformedBody(DynoError):
    """No JSON object could be read from the body."""

    code = "malformed-body"


class BodyTooLarge(DynoError):
    """More bytes than `settings.max_body_bytes`; the rest was not read."""

    code = "body-too-large"


class BodyTooSlow(DynoError):
    """The body didn't arrive in time."""

    code = "body-timeout"


class RepeatedHeader(DynoError):
    """A header that has one value is there twice, and says who asks: neither is believed."""

    code = "bad-request"


class UnsupportedMediaType(DynoError):
    """The body says it is something else than JSON in UTF-8."""

    code = "unsupported-media-type"


class NotAuthorized(DynoError):
    """The request needs a key or a token, and has none that is known."""

    code = "not-authorized"


class ScopeMissing(DynoError):
    """The key may do less than this."""

    code = "scope-missing"


class HostNotAllowed(DynoError):
    """Without a key: the request names a host that isn't this one's own."""

    code = "host-not-allowed"


class ProxyNotAllowed(DynoError):
    """Without a key: the request came through a proxy."""

    code = "proxy-not-allowed"


class OriginNotAllowed(DynoError):
    """Without a key: a page of another origin wants something changed."""

    code = "origin-not-allowed"


class NotReady(DynoError):
    """The store can't be reached, or would not keep jobs."""

    code = "not-ready"


class TooManyStreams(DynoError):
    """As many answers stay open as the settings allow."""

    code = "too-many-streams"


class InvalidRequest(InvalidSpec):
    """A parameter of the request is wrong, not its body."""

    code = "invalid-request"


@contextmanager
def as_to_a_stranger() -> Iterator[None]:
    """Whoever asks may be one while the block runs: if the store is away, it isn't told where it is."""
    try:
        yield
    except StoreUnavailable as error:
        raise StoreUnavailable("Redis can't be used now") from error


def pointer(parent: str, key: str | int) -> str:
    """`parent` and one step further, as RFC 6901 writes it."""
    step = str(key).replace("~", "~0").replace("/", "~1")
    return f"{parent}/{_printable(step)}"


def _printable(text: str) -> str:
    """Lone surrogates can't be sent back as UTF-8, so they are shown escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
