"""The settings of Dyno: one class, each field read from the environment as DYNO_<NAME>."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dyno.errors import DynoError
from dyno.validation_messages import validation_message
from dyno.webhook_url import allowed_host

DATA_DIR = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "dyno"  # what has to last
Durability = Literal["everysec", "always"]
LogFormat = Literal["plain", "json"]
SECRET_PREFIX = "whsec_"
_PREFIX = "DYNO_"


def _expand_home(folder: Path) -> Path:
    """Raises ValueError where `~` stands for no folder: the files would land wherever the process happens to be."""
    try:
        return folder.expanduser()
    except RuntimeError as error:  # no HOME, and a user without an entry
        raise ValueError("there is no such home, name the folder in full") from error


def _none_if_empty(value: object) -> object:
    """An empty one stands for none, as compose files leave it."""
    return value or None


def _valid_redis_url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("a Redis is named redis://…, rediss://… or unix://…")
    try:
        urlsplit(url or "").port  # noqa: B018
    except ValueError:
        raise ValueError("behind the last colon of a Redis' host is a port") from None  # not what is there instead
    return url


TextOrNone = Annotated[str | None, BeforeValidator(_none_if_empty)]
PathOrNone = Annotated[Path | None, BeforeValidator(_none_if_empty)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Folder = Annotated[Path, AfterValidator(_expand_home)]
# What a browser sends as Origin. No "*": whoever may read answers is named.
CorsOrigin = Annotated[str, Field(pattern=r"^https?://[a-z0-9.-]+(:[0-9]{1,5})?$")]
HostName = Annotated[str, Field(pattern=r"^[a-z0-9._-]+$")]


def _split_at_commas(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


RetryDelays = Annotated[tuple[Annotated[float, Field(ge=0)], ...], NoDecode, BeforeValidator(_split_at_commas)]


def _valid_webhook_secret(value: SecretStr | None) -> SecretStr | None:
    """Raises ValueError, which must not name it. An empty one is none: compose passes on variables that are not set."""
    text = value.get_secret_value().strip() if value else ""
    if not text:
        return None
    try:
        decoded = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        decoded = b""
    if not text.startswith(SECRET_PREFIX) or not 24 <= len(decoded) <= 64:
        raise ValueError(f'a webhook secret is "{SECRET_PREFIX}" and 24 to 64 bytes in base64')
    return SecretStr(text)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    # where things are
    redis_url: Annotated[TextOrNone, AfterValidator(_valid_redis_url)] = (
        None  # redis://, rediss:// or unix://; null: `dyno up` starts a server of its own
    )
    namespace: Annotated[str, Field(min_length=1)] = (
        "dyno"  # first part of every key, so that tests and fleets can share a server
    )
    data_dir: PathOrNone = None  # data sets: <data_dir>/mnist/train-images-idx3-ubyte.gz, …
    download: bool = False  # may fetch data sets that are not here from their official addresses
    run_dir: Path = Path(tempfile.gettempdir()) / "dyno"  # device locks; one per host, shared by all workers
    spool_dir: Folder = DATA_DIR / "spool"  # endings that Redis couldn't take; outlasts a restart of the host
    durability: Durability = "everysec"  # how often Redis' file is synced; "always": each answer

    # files that jobs leave behind
    artifact_url: TextOrNone = None  # an fsspec URL that API and workers share: file:///srv/x, s3://…; else by the API
    artifact_dir: Folder = DATA_DIR / "artifacts"  # where the API keeps them without artifact_url
    artifact_max_bytes: Annotated[int, Field(gt=0)] = 2 * 2**30  # of one file
    artifact_patience_s: Annotated[float, Field(gt=0)] = 300.0  # what a worker can't deliver in that time is lost
    api_url: TextOrNone = None  # where workers find the API; null: on this host, at `port`

    # logs and traces
    log_format: LogFormat = "plain"  # "json": one object a line
    access_log: bool = False  # a line for each request
    traces: bool = False  # to where OTEL_EXPORTER_OTLP_ENDPOINT says; needs the extra `otel`

    # the API
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    allow_unauthenticated: bool = False  # without keys the API binds loopback only, unless this says otherwise
    require_keys: bool = False  # nobody is served without a key, not even while there is none
    allowed_hosts: Annotated[
        tuple[HostName, ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = ()  # names of the API besides loopback's while no key is needed, without a port: "dyno.lan,api"
    max_body_bytes: Annotated[int, Field(ge=1024, le=2**24)] = 64 * 1024  # of JSON; a file has artifact_max_bytes
    max_head_bytes: Annotated[int, Field(ge=1024, le=2**20)] = 16 * 1024  # of a request: its line and its fields
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 4000  # or half of the open files that it may have
    head_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0  # from a head's first byte, or a connection's opening
    body_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0  # for all of a body of JSON
    max_queued: Annotated[int, Field(ge=0)] = 100_000
    cors_origins: Annotated[
        tuple[CorsOrigin, ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = ()  # "https://a.org,https://b.org"
    tls_cert_file: PathOrNone = None  # PEM, with the chain; with tls_key_file the API speaks TLS itself
    tls_key_file: PathOrNone = None
    max_streams: Annotated[int, Field(gt=0)] = 1000  # answers that stay open: events, and logs that are followed

    # webhooks
    webhook_secret: Annotated[SecretStr | None, AfterValidator(_valid_webhook_secret)] = (
        None  # "whsec_…"; null: no job may have one
    )
    webhook_allowed_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(allowed_host)], ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = ()  # may be called over http, and where they aren't public: "hooks.lan,127.0.0.1:9000"
    webhook_retry_s: RetryDelays = (
        5.0,
        300.0,
        1800.0,
        7200.0,
        14400.0,
        21600.0,
        32400.0,
    )  # a tenth more or less: in a day
    webhook_timeout_s: Seconds = 15.0  # for one try, from the look at its name to the answer
    webhook_every_s: Seconds = 1.0  # how often an API looks for what is due

    # the life of a job
    lease_s: Seconds = 30.0
    heartbeat_s: Seconds = 2.0
    reap_every_s: Seconds = 5.0
    stall_s: Seconds = 300.0  # a runner that sends no frame for so long is killed
    term_grace_s: SecondsOrZero = 2.0  # between TERM and KILL of a runner's process group
    device_ttl_s: Seconds = 15.0  # a device whose worker hasn't reported for so long is not offered
    shutdown_s: SecondsOrZero = 30.0

    # workers
    worker_start: Annotated[str, Field(pattern="^(auto|fork|spawn)$")] = "auto"
    runner_memory_bytes: Annotated[int | None, Field(gt=0)] = None  # null: all that the host or the container has
    runner_max_tasks: Annotated[int, Field(gt=0)] = 4096  # processes and threads; TensorFlow has six threads per core
    runner_files_bytes: Annotated[int, Field(gt=0)] = 16 * 2**30  # of one run's files and what its job starts from
    reserved_cores: TextOrNone = None  # a cpulist kept free of runners for API, Redis and supervisors


class WrongSettings(DynoError):
    """Nothing starts with them, so no caller of the API is told."""

    code = "wrong-settings"


def load_settings() -> Settings:
    """What the environment says. Raises WrongSettings, which names each variable and shows none: it may be a secret."""
    try:
        return Settings()
    except ValidationError as error:
        wrong = (f"{_PREFIX}{str(each['loc'][0]).upper()}: {validation_message(each)}" for each in error.errors())
        raise WrongSettings("; ".join(wrong)) from None
