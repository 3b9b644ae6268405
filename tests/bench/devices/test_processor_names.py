"""What people call processors: marketing names that say enough, else the microarchitecture."""

import pytest

from dyno.models.processor_names import device_name, model_name, model_names, processor_name

GENOA = "AuthenticAMD family 25 model 17 stepping 1"
ROCKET = "GenuineIntel family 6 model 167 stepping 1"
RAPIDS = "GenuineIntel family 6 model 143 stepping 8"
GRACE = "Arm implementer 0x41 part 0xd4f variant 0x0 revision 0"


@pytest.mark.parametrize(
    ("model", "marketing", "name"),
    [
        (GENOA, "AMD EPYC", "AMD EPYC (Zen 4)"),
        (GENOA, "AMD EPYC 9554 64-Core Processor", "AMD EPYC 9554"),
        (GENOA, None, "AMD Zen 4"),
        (
            "AuthenticAMD family 25 model 97 stepping 2",
            "AMD Ryzen 9 7950X3D with Radeon Graphics",
            "AMD Ryzen 9 7950X3D",
        ),
        (RAPIDS, "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "Intel Xeon Platinum 8481C"),
        (RAPIDS, "Intel Xeon Processor (SapphireRapids)", "Intel Xeon (Sapphire Rapids)"),
        (RAPIDS, "Intel(R) Xeon(R) Processor @ 2.80GHz", "Intel Xeon (Sapphire Rapids)"),
        (ROCKET, "11th Gen Intel(R) Core(TM) i7-11700K @ 3.60GHz", "11th Gen Intel Core i7-11700K"),
        (ROCKET, "QEMU Virtual CPU version 2.5+", "Intel Rocket Lake"),
        ("GenuineIntel family 6 model 250 stepping unknown", "Intel Xeon Processor", "Intel (family 6, model 250)"),
        ("GenuineIntel family 15 model 6 stepping 1", "Common KVM processor", "Intel (family 15, model 6)"),
        ("ExampleMaker family 999 model 999 stepping unknown", "Example 1", "ExampleMaker (family 999, model 999)"),
        (GRACE, None, "Arm Neoverse V2"),
        ("Arm implementer 0x99 part 0x123", None, "Arm (implementer 0x99, part 0x123)"),
        ("Arm implementer 0x41", None, "Arm (implementer 0x41, part unknown)"),
        ("POWER9 (architected), altivec supported", None, "POWER9 (architected), altivec supported"),
        ("x86_64", None, "x86_64"),
    ],
)
def test_a_processor_has_the_name_that_says_most(model, marketing, name):
    assert processor_name(model, marketing) == name


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", "emulated gpu", "TPU v5 lite"])
def test_other_models_are_names_already(model):
    assert model_name(model) == model


def test_a_device_without_a_name_is_called_by_its_model():
    assert device_name({"model": "NVIDIA H100 80GB HBM3", "name": None}) == "NVIDIA H100 80GB HBM3"
    assert device_name({"model": ROCKET, "name": "Intel Core i7-11700K, 2 cores"}) == "Intel Core i7-11700K, 2 cores"


def test_identities_stay_where_names_would_not_tell_them_apart():
    assert model_names([GENOA, RAPIDS]) == ["AMD Zen 4", "Intel Sapphire Rapids"]
    steppings = [GENOA, GENOA.replace("stepping 1", "stepping 2")]
    assert model_names(steppings) == steppings
    assert model_names([GENOA, GENOA, None, 4096]) == ["AMD Zen 4", "AMD Zen 4", None, 4096]
