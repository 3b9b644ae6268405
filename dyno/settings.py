"""The settings of Dyno: one class, each field read from the environment as DYNO_<NAME>."""

import base64
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dyno.errors import DynoError
from dyno.validation_messages import validation_message
from dyno.webhook_url import allowed_host

DATA_DIR = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "dyno"  # for files that must outlive a restart
# All Dynos of a host share this folder of device locks. So it isn't below XDG_RUNTIME_DIR, which differs by user.
RUN_DIR = Path(tempfile.gettempdir()) / "dyno"
Durability = Literal["everysec", "always", "none"]
LogFormat = Literal["plain", "json"]
SECRET_PREFIX = "whsec_"
_PREFIX = "DYNO_"


def _expand_home(folder: Path) -> Path:
    """Raises ValueError if `~` can't be expanded, as files would otherwise land in the working directory."""
    try:
        return folder.expanduser()
    except RuntimeError as error:  # no HOME, and no passwd entry for the user
        raise ValueError("can't expand ~ to a home directory; name the folder in full") from error


def _none_if_empty(value: object) -> object:
    """Treat an empty value as unset, since compose files pass on unset variables as empty."""
    return value or None


def _valid_redis_url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("a Redis URL starts with redis://, rediss:// or unix://")
    try:
        urlsplit(url or "").port  # noqa: B018
    except ValueError:
        # the message must not quote the URL, which may hold a password
        raise ValueError("a Redis URL needs a valid host, and a port number after the last colon") from None
    return url


TextOrNone = Annotated[str | None, BeforeValidator(_none_if_empty)]
PathOrNone = Annotated[Path | None, BeforeValidator(_none_if_empty)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Folder = Annotated[Path, AfterValidator(_expand_home)]
# The Origin header of a browser. "*" isn't allowed: list each origin that may read responses.
CorsOrigin = Annotated[str, Field(pattern=r"^https?://[a-z0-9.-]+(:[0-9]{1,5})?$")]
HostName = Annotated[str, Field(pattern=r"^[a-z0-9._-]+$")]
DeviceHost = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]


def _split_at_commas(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _pairs(value: object) -> object:
    """The names and values of a JSON object: settings have to be hashable. Raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        pairs = json.loads(value or "{}")
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, dict):
        raise ValueError('write a JSON object, such as {"gpu:0": 2.5}')
    return tuple(pairs.items())


def _valid_variable(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name) is None:
        raise ValueError('list names of variables, such as HF_HOME, or prefixes that end with "*", such as LAB_*')
    if name.startswith(_PREFIX):
        raise ValueError("leave out settings of Dyno: runners get those that they need")
    return name


RunnerVariable = Annotated[str, AfterValidator(_valid_variable)]
Price = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Prices = Annotated[tuple[tuple[str, Price], ...], NoDecode, BeforeValidator(_pairs)]
RetryDelays = Annotated[tuple[Annotated[float, Field(ge=0)], ...], NoDecode, BeforeValidator(_split_at_commas)]


def _valid_webhook_secret(value: SecretStr | None) -> SecretStr | None:
    """Raises ValueError, whose text must not contain the secret. An empty value is unset, as in compose files."""
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

    # locations
    redis_url: Annotated[TextOrNone, AfterValidator(_valid_redis_url)] = (
        None  # redis://, rediss:// or unix://; None: `dyno up` starts its own server
    )
    redis_password: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = (
        None  # of the user in redis_url, unless that has one itself
    )
    namespace: Annotated[str, Field(min_length=1)] = (
        "dyno"  # first part of every key, so that tests and fleets can share a server
    )
    secrets_dir: PathOrNone = None  # files that are named as variables, such as DYNO_REDIS_PASSWORD; they come first
    data_dir: PathOrNone = None  # data sets: <data_dir>/mnist/train-images-idx3-ubyte.gz, …
    download: bool = False  # download missing data sets from their official addresses
    workloads_dir: Annotated[Folder | None, BeforeValidator(_none_if_empty)] = None  # more workloads: a file for each
    run_dir: Path = RUN_DIR  # device locks; one per host, shared by all workers; private files in a folder of each user
    spool_dir: Folder = DATA_DIR / "spool"  # job outcomes that Redis couldn't take; survives a restart of the host
    durability: Durability = "everysec"  # how often Redis syncs its file at least; "always": before each reply

    # artifacts
    artifact_url: TextOrNone = None  # an fsspec URL that API and workers share: file:///srv/x, s3://…; else the API
    artifact_dir: Folder = DATA_DIR / "artifacts"  # the API's own store, used without artifact_url
    artifact_max_bytes: Annotated[int, Field(gt=0)] = 2 * 2**30  # of one file
    artifact_patience_s: Annotated[float, Field(gt=0)] = 300.0  # a worker gives up storing a file after this time
    api_url: TextOrNone = None  # the API's URL for workers; None: this host, at `port`

    # logs and traces
    log_format: LogFormat = "plain"  # "json": one object a line
    access_log: bool = False  # a line for each request
    traces: bool = False  # send spans to OTEL_EXPORTER_OTLP_ENDPOINT; needs the extra `otel`

    # the API
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    processes: Annotated[int, Field(ge=1, le=256)] = 1  # API processes that share the port
    allow_unauthenticated: bool = False  # let the API bind other addresses than loopback while there are no keys
    require_keys: bool = False  # every request needs a key, even before the first key is made
    allowed_hosts: Annotated[
        tuple[HostName, ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = ()  # accepted Host names besides loopback's while no key is needed, without a port: "dyno.lan,api"
    max_body_bytes: Annotated[int, Field(ge=1024, le=2**24)] = 64 * 1024  # of a JSON body; files: artifact_max_bytes
    max_import_bytes: Annotated[int, Field(ge=1024, le=2**28)] = 4 * 2**20  # of a body with results to import
    max_head_bytes: Annotated[int, Field(ge=1024, le=2**20)] = 16 * 1024  # of a request line with its headers
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 4000  # at most half of the process's open-file limit
    head_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0  # from the head's first byte, or from the connect
    body_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0  # for a whole JSON body
    max_queued: Annotated[int, Field(ge=0)] = 100_000
    max_sweep_jobs: Annotated[int, Field(ge=1, le=1000)] = 200  # jobs of one sweep
    max_schedules: Annotated[int, Field(ge=0)] = 100  # schedules of one key
    key_queue_share: Annotated[float, Field(gt=0, le=1)] = (
        0.25  # of max_queued: queued jobs of one key, unless the key has a limit of its own
    )
    key_expires_in_s: Annotated[int | None, Field(ge=60), BeforeValidator(_none_if_empty)] = (
        None  # longest time that results of a key's jobs are kept, unless the key has a limit of its own
    )
    key_stored_jobs: Annotated[int | None, Field(ge=1), BeforeValidator(_none_if_empty)] = (
        None  # done jobs of one key, imported ones too; beyond, its first are deleted; unless the key has its own limit
    )
    max_done: Annotated[int | None, Field(ge=0), BeforeValidator(_none_if_empty)] = (
        None  # done jobs stored; beyond, the first of the key with the most are deleted; None: they expire only
    )
    max_store_bytes: Annotated[int | None, Field(gt=0), BeforeValidator(_none_if_empty)] = (
        None  # used and reserved memory of Redis; beyond, the first jobs of the key with the most bytes are deleted
    )
    cors_origins: Annotated[
        tuple[CorsOrigin, ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = ()  # "https://a.org,https://b.org"
    tls_cert_file: PathOrNone = None  # PEM, with the chain; set both files and the API speaks TLS itself
    tls_key_file: PathOrNone = None
    max_streams: Annotated[int, Field(gt=0)] = 1000  # maximum number of open streaming responses (events, logs)

    # webhooks
    webhook_secret: Annotated[SecretStr | None, AfterValidator(_valid_webhook_secret)] = (
        None  # "whsec_…"; None: jobs may not have webhooks
    )
    webhook_allowed_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(allowed_host)], ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = ()  # receivers that may use http and private addresses: "hooks.lan,127.0.0.1:9000"
    webhook_retry_s: RetryDelays = (
        5.0,
        300.0,
        1800.0,
        7200.0,
        14400.0,
        21600.0,
        32400.0,
    )  # each varied by up to a tenth; together about a day
    webhook_timeout_s: Seconds = 15.0  # for one attempt, from the name lookup to the response
    webhook_every_s: Seconds = 1.0  # how often an API looks for due deliveries

    # advice
    prices: Prices = ()  # of a device-hour: {"gpu:0@host": 2.5, "gpu:1": 2, "NVIDIA H200": 3.9}

    # the history
    alarms_every_s: SecondsOrZero = 600.0  # how often one API looks for new alarms, and reruns their jobs; 0: never

    # schedules
    schedules_every_s: Seconds = 1.0  # how often an API looks for schedules that are due

    # the life of a job
    lease_s: Seconds = 30.0
    heartbeat_s: Seconds = 2.0
    reap_every_s: Seconds = 5.0
    stall_s: Seconds = 300.0  # the worker kills a runner that sends no frame for this long
    term_grace_s: SecondsOrZero = 2.0  # between TERM and KILL of a runner's process group
    device_ttl_s: Seconds = 15.0  # the API doesn't list a device whose worker hasn't reported for this long
    shutdown_s: SecondsOrZero = 30.0

    # workers
    hostname: Annotated[DeviceHost | None, BeforeValidator(_none_if_empty)] = None  # in device ids; None: the system's
    worker_start: Annotated[str, Field(pattern="^(auto|fork|spawn)$")] = "auto"
    runner_memory_bytes: Annotated[int | None, Field(gt=0)] = None  # None: all memory of the host or the container
    runner_max_tasks: Annotated[int, Field(gt=0)] = 4096  # processes and threads; TensorFlow has six threads per core
    runner_files_bytes: Annotated[int, Field(gt=0)] = 16 * 2**30  # of one run's files and its job's input files
    runner_env: Annotated[
        tuple[RunnerVariable, ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = ()  # further variables of a worker that its runners get: "HF_HOME,LAB_*"
    reserved_cores: TextOrNone = (
        None  # a cpulist kept free of runners for API, Redis and supervisors, or "none"; None: `dyno up` chooses
    )


class WrongSettings(DynoError):
    """A setting is invalid. Processes don't start with it, so API clients never see this error."""

    code = "wrong-settings"


def load_settings() -> Settings:
    """Read the environment, and the files in DYNO_SECRETS_DIR, which take precedence.

    Raises WrongSettings, which names each wrong variable but no value: it may be a secret.
    """
    try:
        settings = Settings(**_read_secrets(os.environ.get(f"{_PREFIX}SECRETS_DIR")))
    except ValidationError as error:
        wrong = (f"{_PREFIX}{str(fault['loc'][0]).upper()}: {validation_message(fault)}" for fault in error.errors())
        raise WrongSettings("; ".join(wrong)) from None
    return settings.model_copy(update={"redis_url": _with_password(settings.redis_url, settings.redis_password)})


def _read_secrets(folder: str | None) -> dict[str, Any]:
    """Field -> content of its file, without spaces and line ends around it. Empty files and other files don't count."""
    secrets: dict[str, Any] = {}
    try:
        for file in sorted(Path(folder).iterdir()) if folder else ():
            field = file.name.removeprefix(_PREFIX).lower()
            if file.name.startswith(_PREFIX) and field in Settings.model_fields and (text := file.read_text().strip()):
                secrets[field] = text
    except OSError as error:
        raise WrongSettings(f"DYNO_SECRETS_DIR: can't read {error.filename}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WrongSettings(f"DYNO_SECRETS_DIR: {file} has no text in UTF-8") from None
    return secrets


def _with_password(url: str | None, password: SecretStr | None) -> str | None:
    """The URL with the password, unless it has one already."""
    if url is None or password is None:
        return url
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if ":" in user:
        return url
    secret = quote(password.get_secret_value(), safe="")
    return urlunsplit(parts._replace(netloc=f"{user}:{secret}@{host}"))
