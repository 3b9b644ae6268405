"""Compressed values: what is stored, and what older versions stored."""

import gzip
import hashlib

import pytest

from dyno.store import compression

TEXT = '{"näme":"a value","core_shares":null}'
# Values that need a dictionary are stored for weeks: it never changes. Add one under the next number instead.
DIGESTS = {1: "17295c4b934e0a3c97455be11a97cc9ad58685a0477f358cc0b36f4b4ea4ea97"}


def test_the_dictionaries_are_those_that_stored_values_need():
    found = {number: hashlib.sha256(text).hexdigest() for number, text in compression._DICTIONARIES.items()}
    assert found == DIGESTS


@pytest.mark.parametrize("name", ["", "0123abcd"])
def test_a_value_is_read_as_it_was_written(name):
    stored = compression.compress(TEXT.encode(), name)
    assert stored.startswith(compression.header(name))
    assert compression.decompress(stored) == TEXT


@pytest.mark.parametrize("older", [TEXT.encode(), gzip.compress(TEXT.encode())], ids=["plain", "gzip"])
def test_values_of_older_versions_are_read(older):
    assert compression.decompress(older) == TEXT
