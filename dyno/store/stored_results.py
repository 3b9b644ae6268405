"""Results and samples in the format that Redis stores: JSON with rounded figures, compressed.

A value is deflated with a dictionary: texts that most results share, such as the names of fields and sentences of
warnings. A result of 17 to 37 kB takes 1.7 to 5 kB, half the size of a gzip file, and is read in 20 to 40 µs.

A dictionary never changes, because values that need it are stored for weeks. If the texts change much, add a dictionary
under the next number.

Parsing a result's summary takes a tenth of the time that parsing the whole result takes.
"""

import asyncio
import contextlib
import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import redis.asyncio
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json, to_jsonable_python
from redis.client import NEVER_DECODE

from dyno.models.job import BaselineOutcome
from dyno.models.result import Peer, Result, ResultSummary, RunSamples
from dyno.settings import Settings
from dyno.store.records import parse_stored
from dyno.store.redis import Keys, store_errors

log = logging.getLogger(__name__)

_LEVEL, _MEMORY = 9, 9  # 2 ms on the worker, after the measurement
_FAST = 1  # 0.2 ms of an event loop
_DICTIONARIES = {1: (Path(__file__).parent / "dictionary-1.txt").read_bytes()}  # by the first byte of a value
_NEWEST = max(_DICTIONARIES)


def execute_raw(client: Any, *command: str) -> Any:
    """The reply of redis-py's client or pipeline as bytes: compressed values can't be decoded as text."""
    return client.execute_command(*command, **{NEVER_DECODE: True})


def compress(text: bytes, name: str = "") -> bytes:
    """The compressed text, with `name` in front."""
    deflate = zlib.compressobj(_LEVEL, memLevel=_MEMORY, zdict=_DICTIONARIES[_NEWEST])
    return header(name) + deflate.compress(text) + deflate.flush()


def header(name: str) -> bytes:
    """The first bytes of every value that `compress` makes with this name: dictionary, length of the name, name."""
    return bytes([_NEWEST, len(name)]) + name.encode()


def decompress(stored: bytes) -> str:
    """The text of a value. Raises ValueError if the value is damaged or needs a newer version's dictionary."""
    try:
        return _inflate(stored).decode()
    except (zlib.error, IndexError) as error:
        raise ValueError(f"damaged value: {error}") from error


@lru_cache(maxsize=128)  # dashboards read the same results again and again
def as_gzip(stored: bytes) -> bytes:
    """The text of a value as a gzip file. Raises ValueError for a damaged value."""
    return gzip.compress(decompress(stored).encode(), _FAST, mtime=0)


def _inflate(stored: bytes) -> bytes:
    if (dictionary := _DICTIONARIES.get(stored[0])) is None:
        raise ValueError(f"damaged value, or of a newer version: no dictionary has the number {stored[0]}")
    inflate = zlib.decompressobj(zdict=dictionary)
    text = inflate.decompress(memoryview(stored)[2 + stored[1] :])
    if not inflate.eof:
        raise ValueError("damaged value: its end is missing")
    return text


_SCHEMA = json.dumps(Result.model_json_schema(mode="serialization")).encode()
RESULT_SHAPE: Final = hashlib.sha256(_SCHEMA).hexdigest()[:8]  # stored results have the shape as their name
_COMPRESSED = header(RESULT_SHAPE)
_SAMPLES = TypeAdapter(list[RunSamples])
_DIGITS = 6  # significant digits: runs scatter by a thousandth and more
_SHARE_DIGITS = 4  # for shares of cores, most of which come from times in hundredths of a second
_TIME_DECIMALS = 4  # decimals of Unix times, in seconds


def shortened(value: Any, name: str = "") -> Any:
    """A JSON value with its floats rounded: readings have up to 17 digits, which would take half of a result's memory.

    Params, and descriptions of the device and its software, stay as they are. `name`: the name of the value's field.
    """
    if isinstance(value, float):
        if name.endswith("_at_s"):
            return round(value, _TIME_DECIMALS)
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        if name in ("params", "device", "environment"):
            return value
        if name == "core_shares":
            return {key: share and float(f"{share:.{_SHARE_DIGITS}g}") for key, share in value.items()}
        return {key: shortened(part, key) for key, part in value.items()}
    return [shortened(part, name) for part in value] if isinstance(value, list) else value


def encode_result(result: Result) -> bytes:
    """The result as it is stored: its JSON with rounded figures, compressed under the name RESULT_SHAPE."""
    document = shortened(result.model_dump(mode="json", by_alias=True))
    return compress(to_json(document, inf_nan_mode="null"), RESULT_SHAPE)


def encode_outcome(outcome: BaselineOutcome) -> str:
    """The outcome as a job's record stores it: its figures are rounded like the result's."""
    return to_json(shortened(outcome.model_dump(mode="json"))).decode()


def encode_samples(samples: Sequence[Any]) -> bytes:
    """Models or JSON values, as they are stored."""
    return compress(to_json(shortened(to_jsonable_python(samples)), inf_nan_mode="null"))


def decode_samples(stored: bytes, job_id: str) -> Sequence[RunSamples]:
    """The samples of a stored value. Raises RecordUnreadable."""
    return parse_stored(lambda value: _SAMPLES.validate_json(decompress(value)), stored, f"the samples of {job_id}")


@dataclass
class StoredResult:
    """A job's result, as GET returns it."""

    job_id: str
    stored: bytes

    @property
    def gzip(self) -> bytes | None:
        """The document as a gzip file; None if another version stored it."""
        if self.stored.startswith(_COMPRESSED):
            with contextlib.suppress(ValueError):  # `document` reports the damage
                return as_gzip(self.stored)
        return None

    @property
    def document(self) -> str:
        """The result as JSON. Raises RecordUnreadable."""
        if self.stored.startswith(_COMPRESSED):
            return parse_stored(decompress, self.stored, self._what)
        return self.result().model_dump_json(by_alias=True)

    def result(self) -> Result:
        """Raises RecordUnreadable."""
        return parse_stored(_read_result, self.stored, self._what)

    @property
    def _what(self) -> str:
        return f"the result of {self.job_id}"


def _read_result(stored: bytes) -> Result:
    return Result.model_validate_json(decompress(stored))


_RESULTS_AT_ONCE = 25  # results per read: some have a hundred runs


async def read_result_summaries(
    client: redis.asyncio.Redis, settings: Settings, job_ids: Sequence[str]
) -> list[ResultSummary | None]:
    """The summaries of the jobs' results; None for a missing or unreadable result. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    summaries: list[ResultSummary | None] = []
    for start in range(0, len(job_ids), _RESULTS_AT_ONCE):
        with store_errors():
            names = [keys.result(job_id) for job_id in job_ids[start : start + _RESULTS_AT_ONCE]]
            values: list[Any] = await execute_raw(client, "MGET", *names)
        summaries += await asyncio.to_thread(_parse_summaries, values)
    return summaries


def _parse_summaries(values: Sequence[bytes | None]) -> list[ResultSummary | None]:
    return [parse_result_summary(value) for value in values]


def parse_result_summary(stored: bytes | None) -> ResultSummary | None:
    """The summary of a stored result; None for a missing or unreadable result."""
    if stored is None:
        return None
    try:
        return ResultSummary.model_validate_json(decompress(stored))
    except ValueError as error:
        log.warning("skipping a result that can't be read: %s", error)
        return None


PEERS_KEPT = 50  # newest figures: more would hardly narrow the band, and old figures of a fleet should fade out


async def read_peers(client: redis.asyncio.Redis, settings: Settings, series: str) -> list[Peer]:
    """Figures of a series, newest first. Raises StoreUnavailable."""
    with store_errors():
        texts: Any = await client.lrange(Keys(settings.namespace).peers(series), 0, PEERS_KEPT - 1)
    return parse_peers(texts)


def parse_peers(texts: Iterable[str]) -> list[Peer]:
    """The figures of a series; unreadable ones are skipped."""
    peers = list[Peer]()
    for text in texts:
        try:
            peers.append(Peer.model_validate_json(text))
        except ValidationError as error:
            log.warning("skipping an unreadable figure of a series: %s", error)
    return peers
