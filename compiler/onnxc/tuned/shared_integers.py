"""Layers of 8-bit integers without vectors whose code is one for all of them, as little as can be.

Each layer is a table of numbers for a function that makes the sums of a few lanes of two pixels.
What becomes of a sum is numbers too, where that is a scale, bounds and a divisor as nearly always;
else it is code of the layer's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import FLOAT, INT32, ElementType
from onnxc.expression import Buffer, Const, Load
from onnxc.traversal import axes_read
from onnxc.tuned.integer_finish import finish_of, float_of
from onnxc.tuned.integer_product import Epilogue
from onnxc.tuned.scalar import Layer
from onnxc.tuned.walks import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

PIXELS: Final = 2
"""Whose sums are made by one call; kernels/integer_sums.c.j2 is written for two."""
LANES: Final = 4
"""Whose filters of their own are summed at once."""
CHUNK: Final = 32
"""Lanes of a call."""
MOST_TAPS: Final = 64
"""There is room on the stack for their pointers, of both pixels."""


@dataclass(frozen=True)
class SharedIntegers:
    """What kernels/shared_integers.c.j2 calls, of the functions of kernels/integer_sums.c.j2.

    source    C type of what is read, without the _t; result: of what is stored
    numbers   the names of what its table holds
    pixels    lanes, pixel (elements from one to the next): of the output
    depthwise whether each lane reads elements of its own
    moves     of each addend: elements to the next pixel and the next lane
    finished  whether the shared function stores bytes, too
    """

    source: str
    result: str
    numbers: tuple[str, ...]
    pixels: int
    lanes: int
    pixel: int
    depthwise: bool
    moves: tuple[tuple[int, int], ...]
    finished: bool


def shared_integers(
    layer: Layer, source: ElementType, epilogue: Epilogue
) -> tuple[SharedIntegers, list[Buffer]] | None:
    """With its tables: of numbers, and of the divisor and the scales where it is finished.

    None where a window has too many taps, or few lanes a filter each.
    """
    beyond = layer.lanes % CHUNK
    if layer.tap_count > MOST_TAPS or (layer.is_depthwise and 0 < beyond < LANES):
        return None
    finish, name = finish_of(epilogue), layer.product.panel.buffer.name
    scales = None if finish is None else _scales(finish.scale, layer)
    assert epilogue.target is not None
    assert epilogue.zero is not None
    numbers = {
        **layer.numbers,
        "depthwise": layer.is_depthwise,
        "zero": int(float_of(epilogue.zero)),
        "least": finish.least if finish else 0,
        "most": finish.most if finish else 0,
        "scale": int(scales is not None and scales.size > 1),
    }
    tables = {f"{name}_layer": (np.array([*numbers.values()], np.int32), INT32)}
    if finish is not None and scales is not None:
        factors = np.concatenate([[finish.divisor], scales])
        tables[f"{name}_scales"] = factors.astype(np.float32), FLOAT
    found = SharedIntegers(
        source.c_type.removesuffix("_t"),
        epilogue.target.c_type,
        (*numbers,),
        layer.pixels,
        layer.lanes,
        layer.pixel,
        layer.is_depthwise,
        layer.moves if scales is None else (),
        scales is not None,
    )
    buffers = [
        Buffer(name, values.shape, dtype, "constant", values)
        for name, (values, dtype) in tables.items()
    ]
    return found, buffers


def _scales(scale: Const | Load, layer: Layer) -> Array | None:
    """One, or one a lane; None where they differ between pixels."""
    if isinstance(scale, Const):
        return np.array([float_of(scale)])
    lanes = layer.product.lanes
    if not axes_read(scale) <= {lanes}:
        return None
    return gathered(scale, (lanes,) if scale.flat.stride(lanes) else ()).reshape(-1)
