"""Tables of rows with different columns, as files."""

import csv
import tracemalloc

import pytest

from dyno.tables import save_table


def test_columns_that_only_later_rows_have_are_in_the_header(tmp_path):
    rows = [{"b": 1}, {"b": 2, "z": "x"}, {"b": None, "a": [1]}]
    assert save_table(rows, {"b": int}, tmp_path / "x.csv", "csv") == 3
    with (tmp_path / "x.csv").open(newline="") as file:
        assert [*csv.reader(file)] == [["b", "a", "z"], ["1", "", ""], ["2", "", "x"], ["", "[1]", ""]]


def test_memory_holds_few_of_many_rows(tmp_path):
    count, size = 20_000, 200
    rows = ({"a": number, f"param.{number % 50}": "x" * size} for number in range(count))
    tracemalloc.start()
    try:
        assert save_table(rows, {"a": int}, tmp_path / "x.csv", "csv") == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < count * size / 4


def test_a_failure_leaves_the_earlier_file(tmp_path):
    def broken():
        yield {"a": 1}
        raise ConnectionError

    file = tmp_path / "x.csv"
    file.write_text("before")
    with pytest.raises(ConnectionError):
        save_table(broken(), {"a": int}, file, "csv")
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_a_parquet_column_has_the_one_type_that_holds_all_its_values(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs PyArrow, which the extra `parquet` installs")
    rows = [
        {"whole": 1, "mixed": 1, "odd": 1, "large": 2**70, "none": None, "yes": True},
        {"whole": 2, "mixed": 0.5, "odd": "x", "large": 1, "none": None, "yes": None},
    ]
    save_table(iter(rows), {}, tmp_path / "x.parquet", "parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert {field.name: str(field.type) for field in table.schema} == {
        **{"large": "string", "mixed": "double", "none": "string", "odd": "string", "whole": "int64", "yes": "bool"},
    }
    assert table.to_pylist() == [
        {"large": str(2**70), "mixed": 1.0, "none": None, "odd": "1", "whole": 1, "yes": True},
        {"large": "1", "mixed": 0.5, "none": None, "odd": "x", "whole": 2, "yes": None},
    ]
