"""Compressed values: what is stored, and what is refused."""

import hashlib

import pytest

from dyno.store import stored_results

TEXT = '{"näme":"a value","core_shares":null}'
# Values that need a dictionary are stored for weeks: it never changes. Add one under the next number instead.
DIGESTS = {1: "17295c4b934e0a3c97455be11a97cc9ad58685a0477f358cc0b36f4b4ea4ea97"}


def test_the_dictionaries_are_those_that_stored_values_need():
    found = {number: hashlib.sha256(text).hexdigest() for number, text in stored_results._DICTIONARIES.items()}
    assert found == DIGESTS


@pytest.mark.parametrize("name", ["", "0123abcd"])
def test_a_value_is_read_as_it_was_written(name):
    stored = stored_results.compress(TEXT.encode(), name)
    assert stored.startswith(stored_results.header(name))
    assert stored_results.decompress(stored) == TEXT


@pytest.mark.parametrize("stored", [b"", TEXT.encode(), b"\xff\0newer"], ids=["empty", "plain", "newer"])
def test_a_value_without_a_known_dictionary_is_refused(stored):
    with pytest.raises(ValueError, match="damaged value"):
        stored_results.decompress(stored)
