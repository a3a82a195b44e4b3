"""What the output is for: register files, as data.

A target is a list of variants of the tuned kernels. The last one is the base, which every compiler
builds; on x86-64 the run function picks the first variant that the processor has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True)
class Variant:
    """One register file.

    suffix      of the C names, "" for the base
    lanes       floats a vector
    registers   vectors
    level       what onnxc_level() returns where the processor has it
    attribute   of functions that use it, for __attribute__((target(...)))
    dot         what to add to it where the processor sums four products of bytes at once
    """

    suffix: str
    lanes: int
    registers: int
    level: int = 0
    attribute: str = ""
    dot: str = ""


@dataclass(frozen=True)
class Target:
    """Whom the tuned kernels are for.

    panel     output channels that a panel of packed weights holds
    whole     to how many the last panel is rounded up
    halo      whether padding is stored around what convolutions read
    small     whether little code is wanted before fast code
    portable  whether float results have the same bits whatever compiles and runs the C
    """

    name: str
    variants: tuple[Variant, ...]
    panel: int
    whole: int
    halo: bool = True
    small: bool = False
    portable: bool = False

    @property
    def dispatches(self) -> bool:
        return len(self.variants) > 1


_AVX512: Final = Variant(
    "_avx512", 16, 32, 2, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma", "avx512vnni"
)
_AVX2: Final = Variant("_avx2", 8, 16, 1, "avx2,fma")

TARGETS: Final = {
    target.name: target
    for target in (
        Target("generic", (_AVX512, _AVX2, Variant("", 4, 16)), 32, 16),
        Target("x86-64", (_AVX512, _AVX2, Variant("", 4, 16)), 32, 16),
        Target("aarch64", (Variant("", 4, 32),), 32, 4),
        Target("cortex-m4", (Variant("", 1, 32),), 4, 1, halo=False),
    )
}
OPTIMIZE: Final = ("speed", "size")


def target_of(name: str, optimize: str = "speed", *, portable: bool = False) -> Target:
    """The target of a name in TARGETS; for size with the kernels of the base alone."""
    target = replace(TARGETS[name], portable=portable)
    if optimize == "speed":
        return target
    return replace(target, variants=target.variants[-1:], small=True)
