import gzip
import io
import zipfile
from datetime import datetime, timedelta

import numpy as np
import pytest

from dyno.bench.datasets import weather
from dyno.bench.datasets.weather import COMPASS, SIGNALS, STATIONS
from dyno.errors import DatasetDamaged, RunFailed
from dyno.settings import Settings

HOURS = 6
START = datetime(2013, 3, 1)


def _value(hour, station, quantity):
    """temp, pressure, wind_speed as numbers, and the direction as a point of the compass."""
    return (f"{hour - station}.5", f"{1000 + hour}", f"0.{station}", COMPASS[(hour + station) % 16])[quantity]


@pytest.fixture
def small(monkeypatch):
    """Treats six hours as the published data."""
    monkeypatch.setattr(weather, "times", lambda: tuple(f"2013-03-01T{hour:02}:00" for hour in range(HOURS)))


@pytest.fixture
def folder(tmp_path, small):
    path = tmp_path / "data" / "weather"
    path.mkdir(parents=True)
    return path


def _load(folder):
    return weather.load(Settings(data_dir=folder.parent))


COLUMNS = "No,year,month,day,hour,PM2.5,PM10,SO2,NO2,CO,O3,TEMP,PRES,DEWP,RAIN,wd,WSPM,station"


def _published(station):
    lines = [COLUMNS]
    for hour in range(HOURS):
        temp, pressure, speed, point = (_value(hour, station, quantity) for quantity in range(4))
        lines.append(f"{hour + 1},2013,3,1,{hour},,,,,,,{temp},{pressure},-1,0,{point},{speed},{STATIONS[station]}")
    return "\r\n".join(lines) + "\r\n"


def _name(station):
    return f"PRSA_Data_{STATIONS[station]}_20130301-20170228.csv"


def _loose(folder):
    (folder / "PRSA_Data_20130301-20170228").mkdir()
    for station in range(5):
        (folder / "PRSA_Data_20130301-20170228" / _name(station)).write_text(_published(station))


def _zip(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _archive():
    return _zip({f"PRSA_Data_20130301-20170228/{_name(station)}": _published(station).encode() for station in range(5)})


def _archived(folder):
    inner, outer = weather.ARCHIVES[1], weather.ARCHIVES[0]
    (folder / outer).write_bytes(_zip({inner: _archive(), "data.csv": b"of the reviewers"}))


def _inner(folder):
    (folder / weather.ARCHIVES[1]).write_bytes(_archive())


def _lines():
    yield "station,time,temp,pressure,dewpoint,rain,wind_speed,wind_dir,wind_dir_deg"
    for station, name in (*enumerate(STATIONS), (5, "Dongsi")):
        for hour in range(HOURS):
            temp, pressure, speed, point = (_value(hour, station, quantity) for quantity in range(4))
            degrees = COMPASS.index(point) * 22.5
            yield f"{name},2013-03-01T{hour:02}:00,{temp},{pressure},-1,0,{speed},{point},{degrees}"


def _combined(folder, change=str):
    content = change("\n".join(_lines()) + "\n").encode()
    (folder / weather.COMBINED).write_bytes(gzip.compress(content))


@pytest.mark.parametrize("written", [_combined, _loose, _archived, _inner])
def test_each_form_holds_the_same_weather(folder, written):
    written(folder)
    data = _load(folder)
    assert (data.origin.kind, data.origin.note) == ("real", None)
    assert data.values.shape == (HOURS, 20)
    station, hour = 3, 4
    huairou = data.values[hour, station * 4 : station * 4 + 4]
    assert data.signals[station * 4 : station * 4 + 4] == tuple(f"Huairou {q}" for q in weather.QUANTITIES)
    assert huairou.tolist() == pytest.approx([1.5, 1004, 0.3, 7 * 22.5])


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("Gucheng,2013-03-01T02:00", "Gucheng,2013-03-01T03:00", "expected the 6 hours of Gucheng"),
        ("Shunyi,2013-03-01T05:00", "Elsewhere,2013-03-01T05:00", "expected the 6 hours of Shunyi"),
        ("1004", "10o4", "could not convert"),
        ("1004", "inf", "an infinite one"),
        (",wind_speed,", ",speed,", "can't be read"),
        (",-1,0,0.2,", ",", "can't be read"),
    ],
)
def test_missing_duplicate_and_non_numeric_rows_are_refused(folder, before, after, complaint):
    _combined(folder, lambda text: text.replace(before, after))
    with pytest.raises(DatasetDamaged) as damaged:
        _load(folder)
    assert weather.COMBINED in damaged.value.detail
    assert complaint in damaged.value.detail


def _cut(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


@pytest.mark.parametrize("keep", [0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("written", [_combined, _loose, _archived, _inner])
def test_a_truncated_file_is_named(folder, written, keep):
    written(folder)
    file = sorted(path for path in folder.rglob("*") if path.is_file())[0]
    _cut(file, keep)
    with pytest.raises(DatasetDamaged) as damaged:
        _load(folder)
    assert str(file) in damaged.value.detail


def test_a_station_that_is_missing_is_named(folder):
    _loose(folder)
    next(folder.rglob("PRSA_Data_Huairou_*.csv")).unlink()
    with pytest.raises(DatasetDamaged, match=r"incomplete; missing: .* of Huairou"):
        _load(folder)


def test_gaps_are_filled_and_counted(folder):
    def with_gaps(text):
        rows = [line.split(",") for line in text.splitlines()]
        for line in (1, 3, 4):  # hours 0, 2 and 3 of the first station
            rows[line][2] = rows[line][8] = ""
        return "\n".join(map(",".join, rows))

    _combined(folder, with_gaps)
    data = _load(folder)
    assert data.values[:, 0].tolist() == [1.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert data.values[:, 3].tolist() == [22.5, 22.5, 22.5, 22.5, 90, 112.5]
    assert (data.origin.note or "").startswith("6 of 120 values missing: directions filled with the previous value")


def test_a_column_without_any_value_is_refused(folder):
    _combined(folder, lambda text: text.replace(",0.3,", ",,"))
    with pytest.raises(DatasetDamaged, match="a column has no numbers"):
        _load(folder)


def test_auto_falls_back_to_the_sample_with_every_hour_of_the_20_signals():
    data = weather.load(Settings())
    assert data.origin.kind == "sample"
    assert (data.values.shape, data.values.dtype) == ((35_064, 20), np.float32)
    assert data.start == START
    assert data.start + timedelta(hours=len(data.values) - 1) == datetime(2017, 2, 28, 23)
    assert (data.origin.train_samples, data.origin.test_samples) == (31_557, 3_507)
    assert data.signals == SIGNALS
    assert data.signals[:2] == ("Aotizhongxin temp", "Aotizhongxin pressure")
    assert np.isfinite(data.values).all()
    assert (data.origin.note or "").startswith("1,807 of 701,280 values missing")
    by_quantity = data.values.reshape(-1, 5, 4)
    assert -20 < by_quantity[..., 0].min() < by_quantity[..., 0].max() < 42
    assert 980 < by_quantity[..., 1].min() < by_quantity[..., 1].max() < 1045
    assert set(np.unique(by_quantity[..., 3] / 22.5)) <= set(range(16))


def test_the_error_for_a_missing_real_set_lists_the_searched_folders():
    with pytest.raises(RunFailed, match=r"PRSA_Data_<station>_\*\.csv in ") as failed:
        weather.load(Settings(), "real")
    assert failed.value.reason == "dataset_missing"


def test_the_sample_holds_the_values_of_the_real_files(real_data):
    assert (weather.load(real_data, "real").values == weather.load(Settings(), "sample").values).all()


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
