"""A processor is named by what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from dyno.devices.identity import Processor, processor

EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1
flags\t\t: fpu sse4_2 avx2 fma avx512f avx512_bf16 unheard_of

processor\t: 1
vendor_id\t: Other
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd asimdhp asimddp sve bf16 i8mm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n"


def named(tmp_path: Path, text: str) -> Processor:
    (tmp_path / "cpuinfo").write_text(text)
    return processor(tmp_path / "cpuinfo")


def test_x86_is_named_by_vendor_family_and_model_and_never_by_its_marketing_name(tmp_path: Path) -> None:
    found = named(tmp_path, EPYC)
    assert found.model == "AuthenticAMD family 25 model 17 stepping 1"
    assert (found.vendor, found.family, found.number) == ("AuthenticAMD", 25, 17)


def test_only_instruction_sets_that_matter_for_matrices_are_kept(tmp_path: Path) -> None:
    assert named(tmp_path, EPYC).isa == ("sse4_2", "avx2", "fma", "avx512f", "avx512_bf16")


def test_arm_is_named_by_implementer_and_part(tmp_path: Path) -> None:
    found = named(tmp_path, GRAVITON)
    assert found.model == "Arm implementer 0x41 part 0xd40 variant 0x1 revision 1"
    assert found.family is None
    assert "bf16" in found.isa


@pytest.mark.parametrize(
    ("text", "model"), [(POWER, "POWER9, altivec supported"), ("uarch : sifive,u74-mc", "sifive,u74-mc")]
)
def test_other_processors_give_what_they_have(tmp_path: Path, text: str, model: str) -> None:
    assert named(tmp_path, text).model == model


def test_without_cpuinfo_the_machine_stands_for_the_model(tmp_path: Path) -> None:
    assert processor(tmp_path / "none").model
