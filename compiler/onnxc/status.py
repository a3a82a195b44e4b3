"""What a run of the generated code returns."""

from __future__ import annotations

from enum import IntFlag


class Status(IntFlag):
    """What `<model>_run` returns. Kernels OR them; the lowest bit of the first bad kernel wins."""

    OK = 0
    MISALIGNED_WORKSPACE = 1
    INDEX_OUT_OF_RANGE = 2
    DIVISION_BY_ZERO = 4
    SHAPE_MISMATCH = 8
    VALUE_OUT_OF_RANGE = 16
    MISALIGNED_WEIGHTS = 32
    WEIGHTS_MISMATCH = 64
