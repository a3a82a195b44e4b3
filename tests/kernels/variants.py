"""The register files that one C text can be built for."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest


@dataclass(frozen=True)
class Build:
    """Lanes of a vector, and what makes a compiler use no others; `needs` is of the processor."""

    lanes: int
    compiler: str
    flags: tuple[str, ...] = ()
    needs: str = ""

    def __str__(self) -> str:
        return f"{self.lanes} lanes"


ALONE: Final = "-DP_NO_DISPATCH"
"""Leaves only the variant that the flags say, in a model of the name p."""
BUILDS: Final = [
    Build(16, "gcc", ("-march=x86-64-v4", ALONE), "avx512f"),
    Build(8, "gcc", ("-march=x86-64-v3", ALONE), "avx2"),
    Build(4, "gcc", ("-march=x86-64", ALONE), "sse2"),
    Build(1, "gcc", ("-march=x86-64", ALONE, "-U__SSE2__"), "sse2"),
]


VARIANTS: Final = {
    "best": ("-march=x86-64", "sse2"),
    "AVX2": ("-march=x86-64 -mavx2 -mfma -DMODEL_NO_DISPATCH", "avx2"),
    "SSE2": ("-march=x86-64 -DMODEL_NO_DISPATCH", "sse2"),
}
"""Of a model of the default name: flags, and what they need of the processor."""


def require(build: Build) -> Build:
    """Skips the test where the processor is another."""
    require_processor(build.needs)
    return build


def require_processor(needs: str) -> None:
    """Skips the test where it lacks what code that the test runs is built for."""
    facts = Path("/proc/cpuinfo")
    flags = facts.read_text(encoding="utf-8").split() if facts.exists() else []
    if platform.machine() != "x86_64" or needs not in flags:
        pytest.skip(f"no {needs} here")


def flags_of(variant: str) -> str:
    """Of one of VARIANTS, where it can run."""
    flags, needs = VARIANTS[variant]
    require_processor(needs)
    return flags
