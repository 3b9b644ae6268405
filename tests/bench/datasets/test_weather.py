import csv
import gzip
import lzma

import numpy as np
import pytest

from dyno.bench.datasets import weather
from dyno.bench.datasets.weather import QUANTITIES, SIGNALS
from dyno.errors import DatasetDamaged
from dyno.settings import Settings


@pytest.mark.parametrize("kind", ["auto", "real", "sample"])
def test_the_whole_set_ships_so_it_is_real_wherever_dyno_runs(kind):
    data = weather.load(Settings(), kind)
    assert (data.origin.kind, data.origin.sha256) == ("real", {weather.SHIPPED.name: weather.SHIPPED_SHA256})
    assert (data.values.shape, data.values.dtype) == ((35_064, 20), np.float32)
    assert (data.origin.train_samples, data.origin.test_samples) == (31_557, 3_507)
    assert data.signals == SIGNALS
    assert np.isfinite(data.values).all()
    assert (data.origin.note or "").startswith("1,807 of 701,280 values missing")
    by_quantity = data.values.reshape(-1, 5, 4)
    assert -20 < by_quantity[..., 0].min() < by_quantity[..., 0].max() < 42
    assert 980 < by_quantity[..., 1].min() < by_quantity[..., 1].max() < 1045
    assert set(np.unique(by_quantity[..., 3] / 22.5)) <= set(range(16))


def test_the_shipped_file_has_a_line_for_each_signal():
    lines = lzma.decompress(weather.SHIPPED.read_bytes()).decode().splitlines()
    assert tuple(line.partition(",")[0] for line in lines) == SIGNALS


def test_the_shipped_values_are_the_published_ones(real_data):
    published = real_data.data_dir / "weather" / "beijing_weather_hourly_2013-2017.csv.gz"
    values: dict[str, list[float]] = {signal: [] for signal in SIGNALS}
    with gzip.open(published, "rt") as file:
        for row in csv.DictReader(file):
            for quantity in QUANTITIES:
                if (signal := f"{row['station']} {quantity}") in values:
                    values[signal].append(float(row[quantity] or "nan"))
    assert np.array_equal(np.array([*values.values()], np.float32).T, weather.read_shipped(), equal_nan=True)


def test_another_file_in_its_place_is_damaged_and_named(tmp_path, monkeypatch):
    for content in (weather.SHIPPED.read_bytes()[:-1], b"", None):
        file = tmp_path / "weather.xz"
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        monkeypatch.setattr(weather, "SHIPPED", file)
        with pytest.raises(DatasetDamaged, match=r"weather\.xz: "):
            weather.load(Settings())


def test_gaps_are_filled():
    values = np.ones((6, 20), np.float32)
    values[:, 0], values[:, 3] = [np.nan, 1.5, np.nan, np.nan, 4.5, 5.5], [np.nan, 22.5, np.nan, np.nan, 90, 112.5]
    complete = weather.filled(values)
    assert complete[:, 0].tolist() == [1.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert complete[:, 3].tolist() == [22.5, 22.5, 22.5, 22.5, 90, 112.5]


def _error(predicted, true):
    return float(np.abs(predicted - true).mean())


def test_synthetic_weather_has_days_and_years_and_is_predictable():
    data, again = (weather.load(Settings(), "synthetic") for _ in range(2))
    assert data.origin.kind == "synthetic"
    assert data.values.shape == (35_064, 20)
    assert (data.values == again.values).all()
    temp = data.values[:, 0]
    by_hour, by_month = temp[: 24 * 1461].reshape(-1, 24).mean(axis=0), temp[: 720 * 48].reshape(-1, 720).mean(axis=1)
    assert 12 <= by_hour.argmax() <= 18
    assert np.ptp(by_month) > 20
    assert _error(temp[:-24], temp[24:]) < 0.5 * _error(np.full_like(temp, temp.mean()), temp)
