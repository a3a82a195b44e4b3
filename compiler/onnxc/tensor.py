"""Lazy tensors: operators are written with these and nothing else.

A tensor is a shape, a dtype and one expression over its own axes. Elementwise operations and views
compose expressions; fusion is that composition. Nothing is computed until passes/lower.py decides
that a value gets a buffer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc import expression
from onnxc.dtypes import INT64, ElementType, numpy_dtype
from onnxc.expression import (
    Apply,
    At,
    Axis,
    Buffer,
    Checked,
    Const,
    Expr,
    Extent,
    Fold,
    Guard,
    Index,
    Load,
    along,
    at,
    checked,
    guard,
    literal,
    load,
    where,
)
from onnxc.kernel import Loops, define
from onnxc.status import Status
from onnxc.traversal import axes_read, map_indices, substitute, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

Shape = tuple[Extent, ...]

SHARED_NODES: Final = 8
"""Of an expression with more nodes, what is read several times is stored."""
EXPENSIVE: Final = frozenset(
    {"exp", "expm1", "log", "log1p", "pow", "erf", "sigmoid", "softplus", "mod"}
    | {"sin", "cos", "tan", "asin", "acos", "atan"}
    | {"sinh", "cosh", "tanh", "asinh", "acosh", "atanh"}
)
"""Operations that are not to be repeated."""
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
        value = self.value
        if not isinstance(value, Load) or value.buffer.elements != self.elements:
            return None
        return value.buffer if value.flat == _row_major(self.axes) else None

    def __getitem__(self, indices: Sequence[Index]) -> Expr:
        """The element at `indices`, one a dimension."""
        moved = {
            axis: index
            for axis, index in zip(self.axes, indices, strict=True)
            if index != along(axis)
        }
        return _with_checks(substitute(self.value, moved), self.value, moved)

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

    def squeeze(self, positions: Iterable[int]) -> Tensor:
        """Without the dimensions at `positions` (each in 0 .. rank - 1), which are 1."""
        gone = set(positions)
        kept = [d for d in range(self.rank) if d not in gone]

        def element(*indices: Index) -> Expr:
            places = dict(zip(kept, indices, strict=True))
            return self[[places.get(d, Index()) for d in range(self.rank)]]

        return compute(tuple(self.shape[d] for d in kept), element)

    def cast(self, dtype: ElementType, operation: str = "cast") -> Tensor:
        """Each element in another type, by the rules of Cast."""
        value = expression.cast(self.value, dtype, operation)
        return Tensor(self.shape, dtype, self.axes, value)

    def transpose(self, perm: Sequence[int]) -> Tensor:
        """Dimension n of the result is dimension perm[n] of this."""

        def element(*indices: Index) -> Expr:
            return self[[indices[perm.index(d)] for d in range(self.rank)]]

        return compute(tuple(self.shape[p] for p in perm), element)

    def reshape(self, shape: Shape) -> Tensor:
        """The same elements in row-major order; a view where the indices allow, else stored."""
        if shape == self.shape:
            return self
        if self.elements == 0:
            return compute(shape, lambda *_: zero(self.dtype))
        groups = _groups(self.shape, shape)
        source = self if _merges(self, groups) else self.stored()
        flat = map_indices(source.value, lambda index: index, flat=True)
        axes = axes_of(shape)
        moved: dict[Axis, Index] = {}
        for old, new in groups:
            *outer, inner = (source.axes[d] for d in old)
            moved |= {axis: Index() for axis in outer}
            moved[inner] = _row_major(tuple(axes[d] for d in new))
        return Tensor(shape, self.dtype, axes, substitute(flat, moved))

    def stored(self, role: str = "") -> Tensor:
        """The same tensor in a buffer of its own, which an operator fills before it goes on.

        `role` tells readers of the C which part of the operator's work that is.
        """
        found = self.buffer
        if self.elements == 0 or (found is not None and not found.packed):
            return self
        buffer = Buffer("", self.shape, self.dtype, "workspace")
        walks = tuple(along(axis) for axis in self.axes)
        define((Loops(buffer, walks, self.axes, self.value, (), role),))
        return of_buffer(buffer)

    def held(self, role: str = "") -> Buffer:
        """The buffer of the tensor, which has elements; `stored` where it has none yet."""
        found = self.stored(role).buffer
        assert found is not None
        return found

    def shared(self, role: str = "") -> Tensor:
        """For readers that take an element more than once: stored if it is costly to repeat."""
        return self.stored(role) if costly(self.value) else self


@dataclass(frozen=True, eq=False)
class Sized:
    """A result whose size the data decides.

    tensor  of the largest shape; its leading elements, in row-major order, are the result
    shape   the actual shape: int64[rank], no dimension greater than that of `tensor`
    """

    tensor: Tensor
    shape: Tensor


def costly(value: Expr) -> bool:
    """Whether to store a value rather than compute it again for each of several readers."""
    nodes = list(walk(value))
    return len(nodes) > SHARED_NODES or any(
        isinstance(node, Fold | Guard)
        or (isinstance(node, Apply) and node.operation in EXPENSIVE)
        or (isinstance(node, Load) and node.buffer.packed)
        for node in nodes
    )


def _row_major(axes: tuple[Axis, ...]) -> Index:
    total, stride = Index(), 1
    for axis in reversed(axes):
        if axis.extent != 1:
            total = total + along(axis) * stride
        stride *= axis.extent
    return total


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """The fewest dimensions on either side that have the same product, in order; without ones."""
    left = [d for d, extent in enumerate(old) if extent != 1]
    right = [d for d, extent in enumerate(new) if extent != 1]
    groups = []
    while left and right:
        one, other = [left.pop(0)], [right.pop(0)]
        while (a := math.prod(old[d] for d in one)) != (b := math.prod(new[d] for d in other)):
            if a < b:
                one.append(left.pop(0))
            else:
                other.append(right.pop(0))
        groups.append((one, other))
    return groups


def _merges(tensor: Tensor, groups: list[tuple[list[int], list[int]]]) -> bool:
    """Whether every index walks the old dimensions of each group as one longer loop would."""
    pairs = [
        (tensor.axes[outer], tensor.axes[inner])
        for old, _ in groups
        for outer, inner in itertools.pairwise(old)
    ]
    return not pairs or all(
        index.walks_as_one(*pair) for index in _indices(tensor.value) for pair in pairs
    )


def _indices(root: Expr) -> Iterator[Index]:
    for node in walk(root):
        match node:
            case Load():
                yield node.flat
            case At(_, index):
                yield index
            case Guard(_, bounds):
                yield from (index for index, _ in bounds)


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


def zero(dtype: ElementType) -> Const:
    """0, false, or the empty string: of float8e8m0, which has no 0, the least."""
    return literal(dtype, b"" if dtype.kind == "string" else np.zeros((), numpy_dtype(dtype)))


def full(shape: Shape, value: Expr) -> Tensor:
    """One value everywhere."""
    return compute(shape, lambda *_: value)


def checks_of_all(tensor: Tensor) -> list[Checked]:
    """The checks that have no axes, as those of a run-time shape: due without elements, too."""
    found = [node for node in walk(tensor.value, inner=False) if isinstance(node, Checked)]
    return [check for check in found if not axes_read(check.condition)]


def _with_checks(value: Expr, source: Expr, moved: Mapping[Axis, Index]) -> Expr:
    """`value`, which `source` is at the indices `moved`, with their checks.

    A dimension that the elements do not depend on, such as one of extent 1, leaves its index out,
    and so what that would have reported.
    """
    reporting = [(axis, index) for axis, index in moved.items() if _may_report(index)]
    read = axes_read(source) if reporting else ()
    for axis, index in reporting:
        if axis not in read:
            place = at(index)
            inside = (place >= 0) & (place < axis.extent)
            value = checked(value, inside, Status.INDEX_OUT_OF_RANGE)
    return value


def _may_report(index: Index) -> bool:
    """Whether a run-time part has a check, or was stored by a kernel that may have one."""
    return any(
        isinstance(node, Checked) or (isinstance(node, Load) and node.buffer.kind == "workspace")
        for node in walk(*(expr for expr, _ in index.dynamic))
    )


def from_start(value: Expr, extent: Expr | Extent) -> Expr:
    """A position that counts from the end of `extent` elements where it is negative."""
    return where(value < 0, value + extent, value)


def checked_place(value: Expr, extent: Expr | Extent) -> Expr:
    """What checked_index finds, int64."""
    place = from_start(expression.cast(value, INT64), extent)
    inside = (place >= 0) & (place < extent)
    return checked(where(inside, place, 0), inside, Status.INDEX_OUT_OF_RANGE)


def checked_index(value: Expr, extent: Extent) -> Index:
    """A run-time index into `extent` elements, from the end where negative.

    One out of range becomes 0 and is reported. There must be an element.
    """
    return dynamic(checked_place(value, extent))


def dynamic(value: Expr) -> Index:
    """The index that an integer expression says; in range by the expression's own doing."""
    if isinstance(value, Const):
        return Index(int(np.frombuffer(value.raw, value.dtype.numpy)[0]))
    return Index(0, (), ((value, 1),))


def guarded(tensor: Tensor, indices: Sequence[Index], otherwise: Expr) -> Expr:
    """The element at indices that may lie outside, where it is `otherwise`."""
    if tensor.elements == 0:
        return otherwise
    bounds = zip(indices, tensor.shape, strict=True)
    return guard(bounds, tensor[indices], otherwise)


def constant(array: NDArray[Any], dtype: ElementType, name: str = "") -> Tensor:
    """A tensor known at compile time; `array` has the dtype that numpy_dtype(dtype) says.

    One value everywhere becomes a literal in the code, unless C has no literal for it (NaN,
    infinity) or it is a long string.
    """
    if _is_uniform(array) and _has_literal(array, dtype):
        return full(array.shape, literal(dtype, array.reshape(-1)[0]))
    return of_buffer(Buffer(name, array.shape, dtype, "constant", array))


def _is_uniform(array: NDArray[Any]) -> bool:
    """Whether all elements, of which there is one at least, have the same bits."""
    if array.size <= 1 or array.dtype == object:
        return array.size == 1
    flat = np.ascontiguousarray(array).reshape(-1)
    raw = flat.view(np.uint8).reshape(flat.size, flat.itemsize)
    return bool((raw[1] == raw[0]).all()) and bool((raw == raw[0]).all())


def _has_literal(array: NDArray[Any], dtype: ElementType) -> bool:
    first = array.reshape(-1)[0]
    if dtype.kind == "string":
        return len(first) <= LONGEST_STRING
    return dtype.kind not in ("float", "complex") or bool(np.isfinite(first))
