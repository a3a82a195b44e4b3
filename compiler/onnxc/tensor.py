"""Lazy tensors: operators are written with these and nothing else.

A tensor is a shape, a dtype and one expression over its own axes. Elementwise operations and views
compose expressions; fusion is that composition. Nothing is computed until passes/lower.py decides
that a value gets a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.kernel import Axis, Buffer, Const, Expr, Extent, Index, Load, along, load, substitute

if TYPE_CHECKING:
    from numpy.typing import NDArray

Shape = tuple[Extent, ...]

LONGEST_STRING: Final = 64
"""Bytes of a string that stands in the code as a literal."""


@lru_cache(maxsize=4096)
def _axis(dimension: int, extent: Extent) -> Axis:
    """One axis a dimension and extent, so that most tensors of equal shape share their axes."""
    return Axis(extent)


def axes_of(shape: Shape) -> tuple[Axis, ...]:
    return tuple(_axis(dimension, extent) for dimension, extent in enumerate(shape))


@dataclass(frozen=True, eq=False)
class Tensor:
    """`value` is the element at the point that `axes`, one a dimension, stand for."""

    shape: Shape
    dtype: ElementType
    axes: tuple[Axis, ...]
    value: Expr

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def buffer(self) -> Buffer | None:
        """The buffer that holds exactly this tensor, element for element, if there is one."""
        if not isinstance(self.value, Load) or self.value.buffer.shape != self.shape:
            return None
        walks = (along(axis) if axis.extent != 1 else Index() for axis in self.axes)
        return self.value.buffer if self.value.indices == tuple(walks) else None

    def __getitem__(self, indices: Sequence[Index]) -> Expr:
        """The element at `indices`, one a dimension."""
        moved = {
            axis: index
            for axis, index in zip(self.axes, indices, strict=True)
            if index != along(axis)
        }
        return substitute(self.value, moved) if moved else self.value

    def expand(self, shape: Shape) -> Tensor:
        """Broadcast to `shape`, which numpy's rules allow: dimensions of 1 get a stride of 0."""
        own = [None] * (len(shape) - self.rank) + list(self.shape)
        return compute(
            shape,
            lambda *indices: self[
                [
                    Index() if extent == 1 else index
                    for extent, index in zip(own, indices, strict=True)
                    if extent is not None
                ]
            ],
        )

    def unsqueeze(self, positions: Iterable[int]) -> Tensor:
        """With a dimension of 1 at each of `positions` of the result (each in 0 .. rank - 1)."""
        new = set(positions)
        rest = iter(self.shape)
        shape = tuple(1 if d in new else next(rest) for d in range(self.rank + len(new)))
        return compute(
            shape,
            lambda *indices: self[[index for d, index in enumerate(indices) if d not in new]],
        )


def compute(shape: Shape, element: Callable[..., Expr]) -> Tensor:
    """The tensor whose element at some indices is `element(*indices)`."""
    axes = axes_of(shape)
    value = element(*(Index() if axis.extent == 1 else along(axis) for axis in axes))
    return Tensor(shape, value.dtype, axes, value)


def broadcast_shape(*shapes: Shape) -> Shape:
    """The shape that numpy's rules give, of any rank: numpy's own function ends at 32."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    found = tuple(next((n for n in extents if n != 1), 1) for extents in zip(*padded, strict=True))
    for shape in padded:
        if any(n not in (1, extent) for n, extent in zip(shape, found, strict=True)):
            raise ValueError(f"shapes {shapes} do not broadcast")
    return found


def elementwise(element: Callable[..., Expr], *tensors: Tensor) -> Tensor:
    """`element` of the matching elements, after multidirectional (numpy) broadcasting."""
    shape = broadcast_shape(*(tensor.shape for tensor in tensors))
    axes = axes_of(shape)
    wide = (tensor if tensor.axes == axes else tensor.expand(shape) for tensor in tensors)
    value = element(*(tensor.value for tensor in wide))
    return Tensor(shape, value.dtype, axes, value)


def of_buffer(buffer: Buffer) -> Tensor:
    return compute(buffer.shape, lambda *indices: load(buffer, indices))


def literal(dtype: ElementType, value: Any) -> Const:
    """One value; of a string, its bytes."""
    if dtype.kind == "string":
        return Const(dtype, bytes(value))
    return Const(dtype, np.asarray(value, numpy_dtype(dtype)).tobytes())


def constant(array: NDArray[Any], dtype: ElementType, name: str = "") -> Tensor:
    """A tensor known at compile time; `array` has the dtype that numpy_dtype(dtype) says.

    A single value becomes a literal in the code, unless C has no literal for it (NaN, infinity)
    or it is a long string.
    """
    if array.size == 1 and _has_literal(array, dtype):
        value = literal(dtype, array.reshape(-1)[0])
        return Tensor(array.shape, dtype, axes_of(array.shape), value)
    return of_buffer(Buffer(name, array.shape, dtype, "constant", array))


def _has_literal(array: NDArray[Any], dtype: ElementType) -> bool:
    if dtype.kind == "string":
        return len(array.reshape(-1)[0]) <= LONGEST_STRING
    return dtype.kind not in ("float", "complex") or bool(np.isfinite(array).all())
