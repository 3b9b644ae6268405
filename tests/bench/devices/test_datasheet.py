"""The peak table: its figures, the devices that match a row, and errors in rows."""

import pytest

from dyno.bench.devices.datasheet import COLUMNS, DTYPES, datasheet_peaks, peak_table

ROW = "gpu,X1,X1-16GB|X1-32GB,1,8,16,32,32,64,,900,48,The X1 data sheet,2024-05"


def values(kind, model, chips=1):
    figures = datasheet_peaks(kind, model, chips).by_dtype
    return {dtype: figures[dtype].value and figures[dtype].value / 1e12 for dtype in DTYPES}


@pytest.mark.parametrize(
    ("model", "float32", "tf32", "float16"),
    [
        ("Tesla K80", 4.37, None, None),  # NVML lists each of the board's two GPUs
        ("Tesla P100-SXM2-16GB", 10.6, None, 21.2),
        ("Tesla V100-SXM2-32GB", 15.7, None, 125),
        ("Tesla T4", 8.1, None, 65),
        ("NVIDIA A10", 31.2, 62.5, 125),
        ("NVIDIA L4", 30.3, 60, 121),
        ("NVIDIA A100-SXM4-80GB", 19.5, 156, 312),
        ("A100-SXM4-40GB", 19.5, 156, 312),
        ("NVIDIA A100 80GB PCIe", 19.5, 156, 312),
        ("NVIDIA GeForce RTX 4090", 82.6, 82.6, 165),
        ("NVIDIA H100 PCIe", 51, 378, 756),
        ("NVIDIA H100 80GB HBM3", 67, 494.5, 989),
        ("NVIDIA H200", 67, 494.5, 989),
        ("NVIDIA B200", 80, 1125, 2250),
        ("NVIDIA A10G", 35, 35, 70),
        ("NVIDIA RTX A6000", 38.7, 77.4, 154.8),
        ("NVIDIA L40S", 91.6, 183, 362.05),
        ("NVIDIA GeForce RTX 5090", 104.8, 104.8, 209.5),
        ("NVIDIA H100 NVL", 60, 417.5, 835.5),
        ("NVIDIA H200 NVL", 60, 417.5, 835.5),
        ("NVIDIA GH200 480GB", 67, 494, 990),
        ("NVIDIA B300 SXM6 AC", 75, 1125, 2250),
    ],
)
def test_a_gpu_is_found_under_its_nvml_name(model, float32, tf32, float16):
    found = values("gpu", model)
    assert (found["float32"], found["tf32"], found["float16"]) == (float32, tf32, float16)


@pytest.mark.parametrize(
    ("model", "bfloat16", "integers"),
    [
        ("TPU v1", None, 92),
        ("TPU v2", 46, None),
        ("TPU v3", 123, None),
        ("TPU v4", 275, None),
        ("TPU v5e", 197, 393),
        ("TPU v5p", 459, 918),
        ("TPU v6e", 918, 1836),
        ("TPU v7x", 2307, None),
    ],
)
def test_the_peak_of_a_tpu_board_is_the_sum_of_its_chips(model, bfloat16, integers):
    found = values("tpu", model, chips=4)
    assert (found["bfloat16"], found["int8"]) == (bfloat16 and 4 * bfloat16, integers and 4 * integers)


@pytest.mark.parametrize(
    "model",
    [
        *("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA A10M", "NVIDIA L40", "NVIDIA L4 MIG 1g.12gb", "GRID T4-8Q"),
        *("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 5090 D", "NVIDIA GH200 144G HBM3e", "TPU v4", ""),
    ],
)
def test_a_mig_slice_a_similar_model_and_an_unknown_model_have_no_peak_and_a_reason(model):
    peaks = datasheet_peaks("gpu", model, 1)
    assert {figure.value for figure in (*peaks.by_dtype.values(), peaks.memory)} == {None}
    assert peaks.last_cache_bytes is None
    assert peaks.by_dtype["float32"].reason == f"the peak table has no {model}"


def test_a_missing_figure_is_null_with_a_reason_and_the_others_name_their_source():
    figures = datasheet_peaks("gpu", "Tesla T4", 1).by_dtype
    assert (figures["tf32"].value, figures["tf32"].reason) == (None, "the peak table has no tf32 figure for T4")
    assert (figures["int8"].unit, figures["float16"].unit) == ("OP/s", "FLOP/s")
    assert (figures["float16"].source or "").startswith("NVIDIA, T4 data sheet; L2: ")
    assert datasheet_peaks("gpu", "NVIDIA A100-SXM4-80GB", 2).memory.value == 2 * 2.039e12


@pytest.mark.parametrize(
    ("model", "mib"),
    [("Tesla V100-SXM2-16GB", 6), ("NVIDIA A100-PCIE-40GB", 40), ("NVIDIA H100 80GB HBM3", 50), ("NVIDIA L4", None)],
)
def test_the_last_cache_is_that_of_one_gpu_in_bytes_or_unknown(model, mib):
    assert datasheet_peaks("gpu", model, 4).last_cache_bytes == (None if mib is None else mib * 2**20)


def test_every_row_has_a_source_and_is_no_faster_in_a_wider_type():
    for row in peak_table():
        assert row.source
        ordered = [row.figures[dtype] for dtype in ("float32", "tf32", "float16", "int8") if dtype in row.figures]
        assert ordered == sorted(ordered), row.name


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (ROW.replace(",The X1 data sheet", ","), "line 3: empty: source"),
        (ROW.replace("X1-16GB|X1-32GB", ""), "line 3: empty: models"),
        (ROW.replace("gpu", "npu"), "line 3: kind must be gpu or tpu"),
        (ROW.replace("2024-05", "May 2024"), "dated must look like"),
        (f"{ROW},more", "one cell per column"),
        (",".join(ROW.split(",")[:6]), "line 3: empty: source, dated"),
        (ROW.replace("16,32,32", "16,-32,32"), 'line 3: "-32" is not a positive number'),
        (ROW.replace(",1,8,", ",0,8,"), '"0" is not a positive number'),
        ("gpu,X1,X1,1,,,,,,,900,48,The X1 data sheet,2024", "line 3: the row has no figure"),
        (ROW.replace("X1", "Y"), "duplicates: gpu row Y, gpu y-16gb, gpu y-32gb"),
        (ROW.replace("gpu,X1", "gpu,Z").replace("X1-16GB|X1-32GB", "Z|NVIDIA Y-16GB"), "duplicates: gpu y-16gb"),
    ],
)
def test_an_invalid_row_is_refused_with_its_line(tmp_path, row, complaint):
    path = tmp_path / "peaks.csv"
    path.write_text("\n".join([",".join(COLUMNS), ROW.replace("X1", "Y"), row, ""]))
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        peak_table(path)


def test_a_table_with_other_columns_is_refused_and_a_valid_one_is_read(tmp_path):
    path = tmp_path / "peaks.csv"
    path.write_text(f"{','.join(COLUMNS[1:])}\n")
    with pytest.raises(ValueError, match="the columns must be kind,name"):
        peak_table(path)
    right = tmp_path / "right.csv"
    right.write_text(f"{','.join(COLUMNS)}\n{ROW}\n")
    (row,) = peak_table(right)
    assert (row.models, row.source) == (("x1-16gb", "x1-32gb"), "The X1 data sheet, 2024-05")
    assert row.figures == {"float32": 8e12, "tf32": 16e12, "bfloat16": 32e12, "float16": 32e12, "int8": 64e12} | {
        "memory": 9e11,
        "last_cache": 48 * 2**20,
    }
