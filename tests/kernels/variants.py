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


def require(build: Build) -> Build:
    """Skips the test where the processor is another."""
    facts = Path("/proc/cpuinfo")
    flags = facts.read_text(encoding="utf-8").split() if facts.exists() else []
    if platform.machine() != "x86_64" or build.needs not in flags:
        pytest.skip(f"no {build.needs} here")
    return build
