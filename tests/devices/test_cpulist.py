"""Lists of cores as the kernel writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.devices.cpulist import format_cpulist, parse_cpulist
from dyno.models.spec import DEVICE_ID


@pytest.mark.parametrize(
    ("text", "cores"), [("0", [0]), ("0-0", [0]), ("0-2,5", [0, 1, 2, 5]), ("3,1,1-2\n", [1, 2, 3])]
)
def test_a_cpulist_names_its_cores_in_order_and_once(text: str, cores: list[int]) -> None:
    assert parse_cpulist(text) == cores


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "2-1", "0,,1", "0 1", "1000000"])
def test_what_is_no_cpulist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no list of cores|backwards"):
        parse_cpulist(text)


@pytest.mark.parametrize(("cores", "text"), [([0], "0-0"), ([1, 0], "0-1"), ([0, 1, 2, 4], "0-2,4"), ([1, 3], "1,3")])
def test_cores_are_written_as_short_as_possible(cores: list[int], text: str) -> None:
    assert format_cpulist(cores) == text


@given(st.sets(st.integers(0, 99999), min_size=1))
def test_every_set_of_cores_survives_writing_and_reading_and_fits_in_a_device_id(cores: set[int]) -> None:
    text = format_cpulist(cores)
    assert parse_cpulist(text) == sorted(cores)
    assert DEVICE_ID.match(f"cpu:{text}")
