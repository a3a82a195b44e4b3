"""How operands walk memory: constants in the order of some axes, loops that are one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.expression import Axis, Load


def gathered(load: Load, axes: Sequence[Axis]) -> NDArray[Any]:
    """The constant as the load reads it, with one dimension an axis."""
    index, data = load.flat, load.buffer.data
    assert data is not None
    places = np.full((1,) * len(axes), index.const, np.int64)
    for dimension, axis in enumerate(axes):
        steps = np.arange(axis.extent, dtype=np.int64) * index.stride(axis)
        places = places + steps.reshape([-1 if n == dimension else 1 for n in range(len(axes))])
    return np.asarray(np.ascontiguousarray(data).reshape(-1)[places])


def joined(folds: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Of (extent, stride) each: neighbouring loops that walk memory as one are one."""
    found: list[tuple[int, int]] = []
    for extent, stride in folds:
        if found and found[-1][1] == stride * extent:
            extent *= found.pop()[0]
        found.append((extent, stride))
    return tuple(found)
