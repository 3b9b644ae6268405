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
        "`none`: never. `dyno up` and compose configure Redis so. While Redis syncs less often, the API accepts no new "
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
        description="outbox of a worker: outcomes that Redis couldn't take, until the worker or its successor delivers "
        "them",
    )

    # Artifacts
    artifact_url: TextOrNone = Field(
        None,
        description="store shared by the API and workers, an fsspec URL such as `file:///srv/dyno`; if unset, workers "
        "upload through the API",
    )
    artifact_dir: Folder = Field(
        DATA_DIR / "artifacts", description="where the API keeps artifacts if `DYNO_ARTIFACT_URL` is unset"
    )
    artifact_max_bytes: int = Field(2 * 2**30, gt=0, description="largest artifact")
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
        "other hosts reach",
    )
    allow_unauthenticated: bool = Field(
        False, description="let the API bind an address other than loopback before the first key exists"
    )
    allowed_hosts: Annotated[tuple[HostName, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        (),
        description="host names that requests may use before the first key exists, besides those of loopback; without "
        "a port: `dyno.lan,api`",
    )
    cors_origins: Annotated[tuple[CorsOrigin, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        (), description="origins whose pages may read responses: `https://a.example.org,https://b.example.org`"
    )
    tls_cert_file: PathOrNone = Field(
        None, description="PEM file of the certificate and its chain; with the key's file also set, the API serves TLS"
    )
    tls_key_file: PathOrNone = Field(None, description="PEM file of the certificate's key, without a password")
    processes: int = Field(1, ge=1, le=256, description="API processes that share the port; `dyno serve --processes`")
    max_connections: int = Field(
        4000,
        ge=1,
        le=1_000_000,
        description="maximum number of connections of one process; half of its limit on open files if that is less",
    )
    max_streams: int = Field(
        1000,
        gt=0,
        description="maximum number of open streaming responses (events and followed logs) of one process; a quarter "
        "of `DYNO_MAX_CONNECTIONS` if that is less. Each key may have a quarter of this number",
    )
    max_queued: int = Field(100_000, ge=0, description="maximum number of queued jobs")
    max_timeout_s: Annotated[float | None, Field(gt=0), BeforeValidator(_none_if_empty)] = Field(
        None, description="longest `timeout_s` of a job, which jobs without one get; null: no limit"
    )
    max_sweep_jobs: int = Field(200, ge=1, le=1000, description="maximum number of jobs of one sweep")
    max_schedules: int = Field(100, ge=0, description="maximum number of [schedules](api.md#schedules) of one key")
    key_queue_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="part of `DYNO_MAX_QUEUED` that the queued jobs of one key may take, unless the key has its own "
        "limit",
    )
    key_expires_in_s: Annotated[int | None, Field(ge=60), BeforeValidator(_none_if_empty)] = Field(
        None, description="longest `expires_in_s` of the jobs of a key, unless the key has its own limit"
    )
    key_stored_jobs: Annotated[int | None, Field(ge=1), BeforeValidator(_none_if_empty)] = Field(
        None,
        description="maximum number of done jobs that one key may have stored, including imported jobs, unless the "
        "key has its own limit; above it, the API deletes the jobs that were stored first",
    )
    max_done: Annotated[int | None, Field(ge=0), BeforeValidator(_none_if_empty)] = Field(
        None,
        description="maximum number of done jobs that are stored; above it, the API deletes jobs of the key that has "
        "most of them, those stored first",
    )
    max_store_bytes: Annotated[int | None, Field(gt=0), BeforeValidator(_none_if_empty)] = Field(
        None,
        description="memory that Redis may use and reserve; above it, the API deletes done jobs of the key whose jobs "
        "take the most bytes, those stored first. Set it below Redis' `maxmemory`",
    )
    max_body_bytes: int = Field(64 * 1024, ge=1024, le=2**24, description="largest JSON body")
    max_import_bytes: int = Field(4 * 2**20, ge=1024, le=2**28, description="largest body of results to import")
    max_head_bytes: int = Field(16 * 1024, ge=1024, le=2**20, description="largest request line with its headers")
    head_timeout_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="time for a request's head, from its first byte, or from the opening of a new connection",
    )
    body_timeout_s: float = Field(10.0, gt=0, le=600, description="time for a JSON body")

    # Webhooks
    webhook_secret: Annotated[SecretStr | None, AfterValidator(_valid_webhook_secret)] = Field(
        None, description="`whsec_…`: switches webhooks on ([webhooks.md](webhooks.md))"
    )
    webhook_allowed_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(allowed_host)], ...], NoDecode, BeforeValidator(_split_at_commas)
    ] = Field((), description="hosts that may have private addresses and use plain http: `hooks.lan,127.0.0.1:9000`")
    webhook_retry_s: RetryDelays = Field(
        (5.0, 300.0, 1800.0, 7200.0, 14400.0, 21600.0, 32400.0),
        description="delays between attempts, each varied by up to a tenth; the defaults add up to about a day",
    )
    webhook_timeout_s: Seconds = Field(15.0, description="time for one attempt, from the name lookup to the response")
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
    device_ttl_s: Seconds = Field(15.0, description="a device isn't live if its worker hasn't reported for this time")
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
        description="cores kept free of benchmarks, such as `0` or `0,4`; `none`: no core; if unset, `dyno up` "
        "reserves one of four or more ([operations.md](operations.md#reserved-cores))",
    )
    runner_memory_bytes: Annotated[int | None, Field(gt=0), BeforeValidator(_none_if_empty)] = Field(
        None, description="memory that a run may have; if unset, all memory of the host or the container"
    )
    runner_max_tasks: int = Field(4096, gt=0, description="processes and threads that a run may have at once")
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
    log_format: LogFormat = Field("plain", description="`json`: one object a line")
    access_log: bool = Field(False, description="`1`: one line per request")
    traces: bool = Field(
        False,
        description="`1`: send OpenTelemetry spans; needs the extra `otel` ([operations.md](operations.md#traces))",
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
    """Field -> content of its file, without white space around it. Ignores empty files and files of other names."""
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
