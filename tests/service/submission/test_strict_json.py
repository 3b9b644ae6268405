import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.problems import MalformedBody
from service.validation import MAX_DEPTH, MAX_PARTS, parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_standard_json_is_read_as_by_the_standard_library(document):
    assert parse_json(json.dumps(document).encode()) == (document, [])


@given(st.binary(max_size=60))
def test_bytes_only_raise_malformed_body(body):
    try:
        document, _ = parse_json(body)
    except MalformedBody:
        return
    assert isinstance(document, dict)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing",
        b"[]",
        b'"text"',
        b"17",
        b"null",
        b'{"a": 1',
        b'{"a": 1} {}',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',  # a surrogate encoded like UTF-8
        b"\xef\xbb\xbf{}",
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "\x01"}',
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_anything_but_a_json_object_in_utf8_is_malformed(body):
    with pytest.raises(MalformedBody):
        parse_json(body)


@pytest.mark.parametrize("opening", [b'{"a":', b'{"a":[['])
def test_nesting_is_bounded_before_anything_recurses(opening):
    with pytest.raises(MalformedBody, match="nested"):
        parse_json(opening * 100)
    with pytest.raises(MalformedBody, match="brackets"):
        parse_json(opening * 10_000)


def test_as_many_levels_as_allowed_are_read():
    text = '{"a":' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}"
    assert parse_json(text.encode())[1] == []
    with pytest.raises(MalformedBody):
        parse_json(text.replace("[]", "[[]]").encode())


@pytest.mark.parametrize("part", [b"[],", b"{},", b"1,", b'{"a":[],"b":[]},'])
def test_a_body_of_very_many_parts_is_not_parsed(part):
    """Parsing all parts that fit into 64 KiB would block other requests for tens of milliseconds."""
    with pytest.raises(MalformedBody, match="brackets"):
        parse_json(b'{"a":[' + part * (65_000 // len(part)) + b"1]}")
    assert parse_json(b'{"a":[' + part * (MAX_PARTS // 6) + b"1]}")[1] == []


def test_brackets_inside_strings_do_not_count_as_nesting():
    assert parse_json(json.dumps({"a": '[{"' * 100}).encode()) == ({"a": '[{"' * 100}, [])


@pytest.mark.parametrize("text", [",", "[", "{", '\\",'])
def test_contents_of_strings_do_not_count_as_parts(text):
    document = {"labels": {f"label-{number}": text * 128 for number in range(16)}, "note": text * MAX_PARTS}
    assert parse_json(json.dumps(document).encode()) == (document, [])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_a_non_finite_number_is_named_with_its_pointer(number):
    _, faults = parse_json(f'{{"params": {{"x": [0, {number}]}}}}'.encode())
    assert [(f.pointer, f.code) for f in faults] == [("/params/x/1", "not-finite")]


def test_each_repeated_key_is_named_once():
    _, faults = parse_json(b'{"a": 1, "b": {"c": 1, "c": 2, "c": 3, "d/e": 1, "d/e": 1}, "a": 2}')
    assert [(f.pointer, f.code) for f in faults] == [
        ("/a", "duplicate-key"),
        ("/b/c", "duplicate-key"),
        ("/b/d~1e", "duplicate-key"),
    ]


def test_a_lone_surrogate_is_named_with_a_pointer_that_can_be_sent():
    _, faults = parse_json(rb'{"a": "x\ud800", "\udfff": 1, "whole": "\ud83d\ude00"}')
    assert [(f.pointer, f.code) for f in faults] == [("/a", "lone-surrogate"), ("/\\udfff", "lone-surrogate")]
    for fault in faults:
        fault.pointer.encode("utf-8")


@pytest.mark.parametrize(
    "body",
    [
        b'"' * 65_536,
        b'"\\' * 32_768,
        b'{"a":"' + b'\\"' * 32_000,
        b"{" + b",".join(b'"%d":1,"%d":2' % (i, i) for i in range(4000)) + b"}",
        b'{"a":"' + b"," * 65_000 + b'"}',
    ],
    ids=["quotes", "backslashes", "escaped quotes", "repeated keys", "commas in a string"],
)
def test_the_worst_body_of_64_kib_is_read_in_linear_time(body):
    start_s = time.thread_time()
    with contextlib.suppress(MalformedBody):
        parse_json(body)
    assert time.thread_time() - start_s < 1  # quadratic would be tens of seconds; linear is milliseconds


@pytest.mark.parametrize(("written", "number"), [("1.0", 1), ("1e3", 1000), ("-0.0", 0), ("4096.00", 4096)])
def test_a_number_without_a_fraction_is_an_integer_however_it_is_written(written, number):
    [(_, found)] = parse_json(f'{{"n": {written}}}'.encode())[0].items()
    assert (type(found), found) == (int, number)


@pytest.mark.parametrize("written", ["1.5", "1e-3", "1e300"])
def test_other_numbers_keep_their_type(written):
    assert parse_json(f'{{"n": {written}}}'.encode())[0] == {"n": float(written)}
    assert isinstance(parse_json(f'{{"n": {written}}}'.encode())[0]["n"], float)
