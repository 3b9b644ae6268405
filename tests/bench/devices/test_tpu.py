"""Discovery of TPU chips in recorded folders, as this host has none."""

import importlib.machinery
import importlib.util

import pytest

from dyno.bench.devices.discovery import discover, installed_frameworks
from dyno.bench.devices.tpu import discover_tpu, tpu_facts
from dyno.errors import DeviceUnavailable
from dyno.settings import Settings

SETTINGS = Settings(reserved_cores=None)


@pytest.fixture(autouse=True)
def _no_addresses(monkeypatch):
    for name in ("TPU_NAME", "COLAB_TPU_ADDR", "TPU_ACCELERATOR_TYPE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def libtpu(monkeypatch):
    """Pretend that libtpu is installed: the package takes 170 MB and does nothing without a chip."""
    found = importlib.util.find_spec
    spec = importlib.machinery.ModuleSpec("libtpu", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "libtpu" else found(name))


def _chips(folder, count, number):
    """(/dev, PCI folder) of a host with `count` chips and one network card."""
    dev, pci = folder / "dev", folder / "pci"
    dev.mkdir()
    for index, (vendor, device) in enumerate([("0x8086", "0x10d3"), *[("0x1ae0", number)] * count]):
        (pci / f"0000:00:{index:02x}.0").mkdir(parents=True)
        (pci / f"0000:00:{index:02x}.0" / "vendor").write_text(f"{vendor}\n")
        (pci / f"0000:00:{index:02x}.0" / "device").write_text(f"{device}\n")
    for index in range(count):
        (dev / f"accel{index}").touch()
    return dev, pci


def test_the_error_for_a_missing_tpu_lists_the_sources_checked(tmp_path):
    with pytest.raises(DeviceUnavailable) as missing:
        discover_tpu(None, "here", SETTINGS, tmp_path, tmp_path)
    expected = "TPU not found: no /dev/accel*, no Google TPU on PCI or in /dev/vfio, no libtpu"
    assert missing.value.detail == f"{expected}, TPU_NAME unset, COLAB_TPU_ADDR unset"
    nothing = tpu_facts(tmp_path, tmp_path)
    assert nothing["chips"] == 0
    assert {name for name, value in nothing.items() if value} == set()


def test_a_host_without_chips_has_no_tpu():
    if tpu_facts()["chips"]:
        pytest.skip("a TPU is here")
    with pytest.raises(DeviceUnavailable, match=r"^TPU not found: no /dev/accel"):
        discover("tpu", SETTINGS)


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize(
    ("number", "count", "model", "units", "gib", "peak"),
    [
        ("0x0027", 4, "TPU v2 or v3", 8, 8, None),
        ("0x0063", 8, "TPU v5e", 8, 16, 8 * 197e12),
        ("0x005e", 4, "TPU v4", 4, 32, 4 * 275e12),
    ],
)
def test_the_chips_of_a_host_are_one_device(tmp_path, number, count, model, units, gib, peak):
    dev, pci = _chips(tmp_path, count, number)
    device = discover_tpu(None, "here", SETTINGS, dev, pci)
    assert (device.full_id, device.model, device.units) == ("tpu:0@here", model, units)
    assert device.memory_bytes == gib * 2**30
    assert device.peak["bfloat16"].value == peak
    assert device.peak["float32"].value is None
    assert all((figure.value is None) == bool(figure.reason) for figure in device.peak.values())
    seen = tpu_facts(dev, pci)
    assert (seen["chips"], seen["cores"], seen["memory_bytes"]) == (count, units, units * gib * 2**30)
    with pytest.raises(DeviceUnavailable, match="one device; use tpu:0"):
        discover_tpu("1", "here", SETTINGS, dev, pci)


@pytest.mark.usefixtures("libtpu")
def test_the_accelerator_type_tells_v3_from_v2(tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v3-8")
    device = discover_tpu(None, "here", SETTINGS, *_chips(tmp_path, 4, "0x0027"))
    assert (device.model, device.units, device.memory_bytes) == ("TPU v3", 8, 16 * 2**30)
    assert device.peak["bfloat16"].value == 4 * 123e12


@pytest.mark.usefixtures("libtpu")
def test_chips_missing_from_pci_are_counted_by_device_nodes(tmp_path):
    for name in ("accel0", "accel1", "accel"):  # the last is the folder of other makers' accelerators
        (tmp_path / name).touch()
    device = discover_tpu("0", "here", SETTINGS, tmp_path, tmp_path)
    assert (device.model, device.units) == ("TPU of an unknown generation", 2)


def test_a_tpu_without_libtpu_is_reported_as_unusable_not_missing(tmp_path):
    dev, pci = _chips(tmp_path, 1, "0x0063")
    with pytest.raises(DeviceUnavailable, match=r"libtpu is missing.*accel0, PCI device 0x0063"):
        discover_tpu(None, "here", SETTINGS, dev, pci)


def test_the_error_for_a_remote_tpu_names_its_address(tmp_path, monkeypatch):
    monkeypatch.setenv("COLAB_TPU_ADDR", "10.1.2.3:8470")
    with pytest.raises(DeviceUnavailable, match=r"COLAB_TPU_ADDR is 10\.1\.2\.3:8470, but .*TPU_NAME unset"):
        discover_tpu(None, "here", SETTINGS, tmp_path, tmp_path)


def test_tensorflow_is_never_offered_on_a_tpu():
    assert "tensorflow" not in installed_frameworks("tpu")
    assert installed_frameworks("tpu").keys() <= installed_frameworks().keys()
