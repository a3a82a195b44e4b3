"""How operands walk memory: constants in the order of some axes, loops that are one, how far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.expression import Axis, Buffer, Load


def within_int32(*buffers: Buffer) -> bool:
    """Whether offsets in each, up to its end, are int32_t."""
    return all(buffer.elements < 2**31 for buffer in buffers)


def viewed(load: Load, axes: Sequence[Axis]) -> NDArray[Any]:
    """The constant as the load reads it, with one dimension an axis; not to be written to."""
    index, data = load.flat, load.buffer.data
    assert data is not None
    flat = np.ascontiguousarray(data).reshape(-1)
    extents, strides = [axis.extent for axis in axes], [index.stride(axis) for axis in axes]
    ends = [(extent - 1) * stride for extent, stride in zip(extents, strides, strict=True)]
    least = index.const + sum(min(0, end) for end in ends)
    greatest = index.const + sum(max(0, end) for end in ends)
    assert 0 in extents or 0 <= least <= greatest < flat.size
    return as_strided(
        flat[index.const :],
        extents,
        [stride * flat.itemsize for stride in strides],
        writeable=False,
    )


def gathered(load: Load, axes: Sequence[Axis]) -> NDArray[Any]:
    """The same as an array of its own, row by row."""
    return viewed(load, axes).copy()


def joined(folds: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Of (extent, stride) each: neighbouring loops that walk memory as one are one."""
    found: list[tuple[int, int]] = []
    for extent, stride in folds:
        if found and found[-1][1] == stride * extent:
            extent *= found.pop()[0]
        found.append((extent, stride))
    return tuple(found)
