"""Scaled units, unknown figures, and descriptions of JSON Schemas for people."""

import pytest

from dyno.bench.registry import registry
from dyno.formatting import describe_schema, format_quantity, ratio_in_words


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.177e10, "bytes/s", "41.77 GB/s"),
        (1.58e14, "FLOP/s", "158 TFLOP/s"),
        (1.5e11, "FLOP/s", "150 GFLOP/s"),
        (0.000182, "s", "182 µs"),
        (1.5, "s", "1.5 s"),
        (999.96, "s", "1,000 s"),
        (1.013e16, "B", "10,130 TB"),
        (0.0, "s", "0 s"),
        (3e-12, "s", "3e-12 s"),
        (2404.4, "samples/s", "2,404 samples/s"),
        (9999.7, "samples/s", "10,000 samples/s"),
        (1234567.8, "samples/s", "1,234,568 samples/s"),
        (25276514304, "B", "25.28 GB"),
        (0.9922, "1", "0.9922"),
        (None, "s", "–"),
    ],
)
def test_a_quantity_gets_the_prefix_that_fits(value, unit, text):
    assert format_quantity(value, unit) == text


@pytest.mark.parametrize(
    ("unit", "words"), [("s", "fast"), ("samples/s", "fast"), ("FLOP/s", "fast"), ("1", "good"), ("bytes", "good")]
)
def test_a_ratio_of_times_or_rates_is_one_of_speed(unit, words):
    assert ratio_in_words(unit) == f"times as {words}"


WEIGHTS = {"$defs": {"WeightsRef": {"type": "object", "properties": {"job": {}, "name": {}}}}}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 4096}, "integer from 1 to 4096"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "number above 0 below 1"),
        ({"type": "boolean"}, "boolean"),
        ({"enum": ["png", "jpeg"], "type": "string"}, "png, jpeg"),
        ({"anyOf": [{"const": "auto"}, {"type": "boolean"}, {"type": "null"}]}, "auto, or boolean, or null"),
        ({"anyOf": [{"$ref": "#/$defs/WeightsRef"}, {"type": "null"}]}, '{"job": "…", "name": "…"}, or null'),
        (
            {"type": "array", "items": {"type": "number", "maximum": 2}, "minItems": 2, "maxItems": 2},
            "array of 2, each number to 2",
        ),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 32}, "array with 0 to 32, each boolean"),
        ({"type": "array", "items": {"type": "boolean"}}, "array, each boolean"),
        ({"$ref": "#/$defs/Unknown"}, "anything"),
        ({}, "anything"),
    ],
)
def test_a_schema_is_described_with_its_types_and_bounds(schema, text):
    assert describe_schema(schema, WEIGHTS) == text


@pytest.mark.parametrize("name", registry())
def test_all_bounds_of_the_params_of_a_workload_are_described(name):
    schema = registry()[name].params.model_json_schema()
    for of in schema["properties"].values():
        text = describe_schema(of, schema)
        assert "anything" not in text
        for option in of.get("anyOf", [of]):
            for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
                assert str(option.get(bound, "")) in text
