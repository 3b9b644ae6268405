"""Readable names of processors.

A device's `model` is the identity of its processor, such as "AuthenticAMD family 25 model 17 stepping 1"; results are
grouped by it. The readable name is the marketing name if that has a product number, or else the name of the
microarchitecture: virtual machines often shorten the marketing name to "AMD EPYC" or "Intel Xeon Processor".

Sources: the Linux kernel's arch/x86/include/asm/intel-family.h, arch/x86/kernel/cpu/amd.c and
arch/arm64/include/asm/cputype.h.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_X86 = re.compile(r"(?P<vendor>\S+) family (?P<family>\d+) model (?P<model>\d+) stepping \S+")
_ARM = re.compile(r"Arm implementer (?P<implementer>0x[0-9a-f]+)(?: part (?P<part>0x[0-9a-f]+))?.*")
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
_DECORATION = re.compile(
    r"\((R|TM)\)|\(.*\)|@.*|\bCPU\b|\b[\w-]+-Core\b|\bProcessor\b|\bwith .* Graphics\b", re.IGNORECASE
)
_INTEL = {
    **dict.fromkeys((60, 63, 69, 70), "Haswell"),
    **dict.fromkeys((61, 71, 79, 86), "Broadwell"),
    **dict.fromkeys((78, 94), "Skylake"),
    85: "Skylake or Cascade Lake",
    **dict.fromkeys((142, 158), "Kaby Lake or Coffee Lake"),
    **dict.fromkeys((165, 166), "Comet Lake"),
    **dict.fromkeys((106, 108, 125, 126), "Ice Lake"),
    **dict.fromkeys((140, 141), "Tiger Lake"),
    167: "Rocket Lake",
    143: "Sapphire Rapids",
    207: "Emerald Rapids",
    **dict.fromkeys((173, 174), "Granite Rapids"),
    175: "Sierra Forest",
    **dict.fromkeys((151, 154), "Alder Lake"),
    **dict.fromkeys((183, 186, 191), "Raptor Lake"),
    **dict.fromkeys((170, 172), "Meteor Lake"),
    **dict.fromkeys((197, 198), "Arrow Lake"),
    189: "Lunar Lake",
}
# (family, models of a range) -> name
_AMD = {
    (23, range(0x01, 0x02)): "Zen",
    (23, range(0x11, 0x12)): "Zen",
    (23, range(0x08, 0x09)): "Zen+",
    (23, range(0x18, 0x19)): "Zen+",
    (23, range(0x30, 0xB0)): "Zen 2",
    (25, range(0x00, 0x10)): "Zen 3",
    (25, range(0x10, 0x20)): "Zen 4",
    (25, range(0x20, 0x60)): "Zen 3",
    (25, range(0x60, 0x80)): "Zen 4",
    (25, range(0xA0, 0xB0)): "Zen 4",
    (26, range(0x00, 0x30)): "Zen 5",
    (26, range(0x40, 0x50)): "Zen 5",
    (26, range(0x60, 0x80)): "Zen 5",
}
_ARM_PARTS = {
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
    ("0x41", "0xd84"): "Arm Neoverse V3",
    ("0x41", "0xd8e"): "Arm Neoverse N3",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1A",
}


def device_name(device: Mapping[str, Any]) -> str:
    """The readable name of a result's device. Only processors have a name besides their model."""
    return str(device.get("name") or device.get("model"))


def model_name(model: str) -> str:
    """The readable name of a device's `model`. A model that isn't a processor's identity stays unchanged.

    Processors with one name may differ, for example in the stepping. Then their results aren't compared as peers.
    """
    if (found := _X86.fullmatch(model)) is not None:
        vendor, code = _VENDORS.get(found["vendor"], found["vendor"]), _code_name(found)
        return f"{vendor} {code}" if code else f"{vendor} (family {found['family']}, model {found['model']})"
    if (found := _ARM.fullmatch(model)) is not None:
        known = _ARM_PARTS.get((found["implementer"], found["part"] or ""))
        return known or f"Arm (implementer {found['implementer']}, part {found['part'] or 'unknown'})"
    return model


def model_names(values: Sequence[Any]) -> list[Any]:
    """The values with readable names instead of processors' identities; the unchanged values if names would clash."""
    names = [model_name(value) if isinstance(value, str) else value for value in values]
    distinct = [len({*map(repr, each)}) for each in (names, values)]
    return names if distinct[0] == distinct[1] else [*values]


def processor_name(model: str, marketing_name: str | None) -> str:
    """The readable name of a processor of this machine. `marketing_name`: from /proc/cpuinfo, if there is one."""
    brand = _without_decoration(marketing_name or "")
    if re.search(r"\d{3}", brand):
        return brand
    found = _X86.fullmatch(model)
    if found is None or (code := _code_name(found)) is None or not brand.startswith(f"{_VENDORS[found['vendor']]} "):
        return model_name(model)
    return f"{brand} ({code})"


def _code_name(identity: re.Match[str]) -> str | None:
    family, model = int(identity["family"]), int(identity["model"])
    if identity["vendor"] == "GenuineIntel" and family == 6:
        return _INTEL.get(model)
    if identity["vendor"] == "AuthenticAMD":
        return next((name for (of, models), name in _AMD.items() if of == family and model in models), None)
    return None


def _without_decoration(marketing_name: str) -> str:
    """The name alone: "Intel Xeon Platinum 8481C" for "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"."""
    return " ".join(_DECORATION.sub(" ", marketing_name).split())
