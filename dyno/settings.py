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
# All Dyno processes of a host share these device locks, so the folder isn't in XDG_RUNTIME_DIR, which differs by user.
RUN_DIR = Path(tempfile.gettempdir()) / "dyno"
Durability = Literal["everysec", "always", "none"]
LogFormat = Literal["plain", "json"]
SECRET_PREFIX = "whsec_"
_PREFIX = "DYNO_"


def _expand_home(folder: Path) -> Path:
    """Raise ValueError if `~` can't be expanded: otherwise, files would be written to the working directory."""
    try:
        return folder.expanduser()
    except RuntimeError as error:  # no HOME, and no passwd entry for the user
        raise ValueError("can't expand ~ to a home directory; name the folder in full") from error


def _none_if_empty(value: object) -> object:
    """Treat an empty value as unset, since compose files pass unset variables as empty strings."""
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
    """A JSON object as a tuple of (name, value), since settings must be hashable. Raises ValueError."""
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
    """Raises ValueError with a text that doesn't contain the secret. An empty value means unset."""
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
    """docs/settings.md is generated from these fields: defaults, bounds and descriptions (`make docs`).

    A name ends in its unit: `_s` is seconds, `_bytes` is bytes. Links in descriptions are relative to that page.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    # Redis, folders and data
    redis_url: Annotated[TextOrNone, AfterValidator(_valid_redis_url)] = Field(
        None,
        description="Redis or Valkey: `redis://`, `rediss://` or `unix://`; if unset, `dyno up` starts its own server",
    )
    redis_password: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = Field(
        None, description="password of the user in `DYNO_REDIS_URL`, unless the URL has one"
    )
    secrets_dir: PathOrNone = Field(None, description="folder of files, each with the value of one variable")
    namespace: str = Field(
        "dyno", min_length=1, description="first part of every Redis key, so that several fleets can share a server"
    )
    durability: Durability = Field(
        "everysec",
        description="how often Redis must sync its file; `everysec`: every second; `always`: before each response; "
        "`none`: never. `dyno up` and compose set this in Redis. While Redis syncs less often, the API accepts no new "
        "jobs, schedules, baselines or keys ([operations.md](operations.md#persistence))",
    )
    data_dir: PathOrNone = Field(
        None,
        description="folder of full data sets, such as `mnist/train-images-idx3-ubyte.gz`; if unset, workers use "
        "Keras' cache, or else the sample that ships with Dyno ([data.md](data.md))",
    )
    download: bool = Field(
        False, description="`1` lets workers download missing data sets from their official addresses"
    )
    workloads_dir: Annotated[Folder | None, BeforeValidator(_none_if_empty)] = Field(
        None,
        description="folder of [your own workloads](write-a-workload.md), one file each; the API and workers need the "
        "same files",
    )
    run_dir: Path = Field(
        RUN_DIR,
        description="folder of device locks, shared by all workers of all users of a host. If Dyno creates it, its "
        "mode is 1777. Each user's runs have their temporary files in a private subfolder "
        "([Users of one host](operations.md#users-of-one-host))",
    )
    spool_dir: Folder = Field(
        DATA_DIR / "spool",
        description="outbox of a worker: folder of outcomes that Redis couldn't take; this worker or a later one "
        "delivers them",
    )

    # Artifacts
    artifact_url: TextOrNone = Field(
        None,
        description="fsspec URL of a store that the API and workers share, such as `file:///srv/dyno`; if unset, "
        "workers upload through the API",
    )
    artifact_dir: Folder = Field(
        DATA_DIR / "artifacts", description="folder in which the API stores artifacts if `DYNO_ARTIFACT_URL` is unset"
    )
    artifact_max_bytes: int = Field(2 * 2**30, gt=0, description="maximum size of an artifact")
    artifact_patience_s: float = Field(
        300.0,
        gt=0,
        description="how long a worker retries an upload; after that the job still succeeds, with the warning "
        "ARTIFACTS_NOT_STORED",
    )
    api_url: TextOrNone = Field(
        None, description="URL at which workers find the API; if unset, this host and the port `DYNO_PORT`"
    )

    # API
    host: str = Field("127.0.0.1", description="address that the API binds")
    port: int = Field(8000, ge=0, le=65535, description="port of the API")
    require_keys: bool = Field(
        False,
        description="refuse every request without a key, even before the first key exists; set it on every API that "
        "other hosts can reach",
    )
    allow_unauthenticated: bool = Field(
        False, description="let the API bind an address other than loopback before the first key exists"
    )
    allowed_hosts: Annotated[tuple[HostName, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        (),
        description="host names, besides those of loopback, that requests may use before the first key exists: "
        "`dyno.lan,api` (without a port)",
    )
    cors_origins: Annotated[tuple[CorsOrigin, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        (), description="origins whose pages may read responses: `https://a.example.org,https://b.example.org`"
    )
    tls_cert_file: PathOrNone = Field(
        None, description="PEM file of the certificate and its chain; if the key's file is also set, the API serves TLS"
    )
    tls_key_file: PathOrNone = Field(None, description="PEM file of the certificate's key, without a password")
    processes: int = Field(1, ge=1, le=256, description="number of API processes; also `dyno serve --processes`")
    max_connections: int = Field(
        4000,
        ge=1,
        le=1_000_000,
        description="maximum number of connections of one process; half of the limit on its open files if that is less",
    )
    max_streams: int = Field(
        1000,
        gt=0,
        description="maximum number of open streaming responses (events and followed logs) of one process; a quarter "
        "of `DYNO_MAX_CONNECTIONS` if that is less. Each key may have a quarter of this number",
    )
    max_queued: int = Field(100_000, ge=0, description="maximum number of queued jobs")
    max_timeout_s: Annotated[float | None, Field(gt=0), BeforeValidator(_none_if_empty)] = Field(
        None, description="maximum `timeout_s` of a job, and the value for jobs without `timeout_s`; if unset: no limit"
    )
    max_sweep_jobs: int = Field(200, ge=1, le=1000, description="maximum number of jobs of one sweep")
    max_schedules: int = Field(100, ge=0, description="maximum number of [schedules](api.md#schedules) of one key")
    key_queue_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="share of `DYNO_MAX_QUEUED` that the queued jobs of one key may take, unless the key has its own "
        "limit",
    )
    key_expires_in_s: Annotated[int | None, Field(ge=60), BeforeValidator(_none_if_empty)] = Field(
        None, description="maximum `expires_in_s` of the jobs of a key, unless the key has its own limit"
    )
    key_stored_jobs: Annotated[int | None, Field(ge=1), BeforeValidator(_none_if_empty)] = Field(
        None,
        description="maximum number of done jobs that one key may have stored, including imported jobs, unless the "
        "key has its own limit; above it, the API deletes the jobs that were stored first",
    )
    max_done: Annotated[int | None, Field(ge=0), BeforeValidator(_none_if_empty)] = Field(
        None,
        description="maximum number of stored done jobs; above it, the API deletes done jobs of the key that has the "
        "most done jobs, beginning with those that were stored first",
    )
    max_store_bytes: Annotated[int | None, Field(gt=0), BeforeValidator(_none_if_empty)] = Field(
        None,
        description="memory that Redis may use and reserve; above it, the API deletes done jobs of the key whose jobs "
        "take the most bytes, beginning with those that were stored first. Set it below Redis' `maxmemory`",
    )
    max_body_bytes: int = Field(64 * 1024, ge=1024, le=2**24, description="maximum size of a JSON body")
    max_import_bytes: int = Field(4 * 2**20, ge=1024, le=2**28, description="maximum size of an import's body")
    max_head_bytes: int = Field(16 * 1024, ge=1024, le=2**20, description="maximum size of a request line and headers")
    head_timeout_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="time limit for a request line and headers, from the first byte or the opening of a connection",
    )
    body_timeout_s: float = Field(10.0, gt=0, le=600, description="time limit for receiving a JSON body")

    # Webhooks
    webhook_secret: Annotated[SecretStr | None, AfterValidator(_valid_webhook_secret)] = Field(
        None, description="secret (`whsec_…`) that switches webhooks on ([webhooks.md](webhooks.md))"
    )
    webhook_allowed_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(allowed_host)], ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = Field((), description="hosts that may have private addresses and use plain HTTP: `hooks.lan,127.0.0.1:9000`")
    webhook_retry_s: RetryDelays = Field(
        (5.0, 300.0, 1800.0, 7200.0, 14400.0, 21600.0, 32400.0),
        description="delays between attempts, each varied by up to a tenth; the defaults add up to about a day",
    )
    webhook_timeout_s: Seconds = Field(15.0, description="time limit for an attempt, from name lookup to response")
    webhook_every_s: Seconds = Field(1.0, description="how often an API checks for due deliveries")

    # Advice, history and schedules
    prices: Prices = Field(
        (),
        description="prices of a device-hour for the [advice](api.md#advice), as JSON: "
        '`{"gpu:0@host": 2.5, "gpu:1": 2, "NVIDIA H200": 3.9}`. Dyno uses the price for a '
        "device's id with its host, or else for its id, or else for its model",
    )
    alarms_every_s: SecondsOrZero = Field(
        600.0,
        description="how often one API process checks the [history](api.md#history) for new alarms and reruns their "
        "jobs; 0: never",
    )
    schedules_every_s: Seconds = Field(1.0, description="how often an API checks for schedules that are due")

    # Jobs and workers
    lease_s: Seconds = Field(30.0, description="time without a heartbeat after which a lease runs out")
    heartbeat_s: Seconds = Field(2.0, description="time between heartbeats")
    reap_every_s: Seconds = Field(5.0, description="how often APIs and workers check for leases that ran out")
    stall_s: Seconds = Field(300.0, description="time without progress after which a runner is killed (`stalled`)")
    term_grace_s: SecondsOrZero = Field(2.0, description="time between TERM and KILL of a runner's process group")
    device_ttl_s: Seconds = Field(15.0, description="time without a worker's report after which its device isn't live")
    shutdown_s: SecondsOrZero = Field(
        30.0, description="time that a worker has after TERM to finish its job; then it hands the job back"
    )
    hostname: Annotated[DeviceHost | None, BeforeValidator(_none_if_empty)] = Field(
        None,
        description="name of this host in the ids of its devices, unique for each machine; if unset, the system's name",
    )
    worker_start: Literal["auto", "fork", "spawn"] = Field(
        "auto", description="how runners start; `auto`: fork if the self-test passes"
    )
    reserved_cores: TextOrNone = Field(
        None,
        description="cores that benchmarks don't use, such as `0` or `0,4`; `none`: no core; if unset, `dyno up` "
        "reserves one core if there are at least four ([operations.md](operations.md#reserved-cores))",
    )
    runner_memory_bytes: Annotated[int | None, Field(gt=0), BeforeValidator(_none_if_empty)] = Field(
        None, description="maximum memory of a run; if unset, all memory of the host or the container"
    )
    runner_max_tasks: int = Field(4096, gt=0, description="maximum number of processes and threads of a run")
    runner_files_bytes: int = Field(
        16 * 2**30,
        gt=0,
        description="disk space of a run, including the job's artifacts and initial weights; at most 10,000 files. "
        "Each variant of a comparison has its own limit",
    )
    runner_env: Annotated[tuple[RunnerVariable, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        (),
        description="environment variables that a worker passes on to its runs, besides "
        "[those of Python and the frameworks](write-a-workload.md#environment-variables): names, or prefixes that end "
        "with `*`, such as `HF_HOME,LAB_*`",
    )

    # Logs and traces
    log_format: LogFormat = Field("plain", description="`json`: one JSON object per line")
    access_log: bool = Field(False, description="`1`: one line per request")
    traces: bool = Field(
        False,
        description="`1`: send OpenTelemetry spans; needs the extra `otel` ([operations.md](operations.md#traces))",
    )


class WrongSettings(DynoError):
    """A setting is invalid. No process starts with an invalid setting, so API clients never see this error."""

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
    """Field -> content of its file, without white space around it. Ignores empty files and files with other names."""
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
    """The URL with the password, or unchanged if it already contains a password."""
    if url is None or password is None:
        return url
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if ":" in user:
        return url
    secret = quote(password.get_secret_value(), safe="")
    return urlunsplit(parts._replace(netloc=f"{user}:{secret}@{host}"))
