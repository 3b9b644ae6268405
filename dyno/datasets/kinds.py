"""Which data a workload may be asked to use."""

from __future__ import annotations

from typing import Literal

# auto: the real set if it is here, else the sample that ships, else the synthetic twin
DataKind = Literal["auto", "real", "sample", "synthetic"]
UnsampledKind = Literal["auto", "real", "synthetic"]  # of a set that no licence allows to ship a sample of
UNSAMPLED = "auto: the real set if the worker has it, else one that is made; no sample of it ships"
