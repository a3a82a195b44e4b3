"""Sums of products of 8-bit numbers, exact modulo 2^32, four products at once.

With u = x, or x + 128 of an int8, and s = w, or w - 128 of a uint8, the zero points move likewise:
the sum of (u - a) * (s - b) is that of u * s, less a * (the sum of s - b), less b * (the sum of u).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.centred import Centred, centred, constant_of
from onnxc.dtypes import BY_NAME, FLOAT, INT32, ElementType
from onnxc.expression import Apply, Axis, Buffer, Const, Expr, Fold, Index, Load, along, load
from onnxc.kernel import Loops, Micro
from onnxc.target import Target, Variant
from onnxc.traversal import axes_read, replace_loads, walk
from onnxc.tuned.product import only_fold
from onnxc.tuned.scalar import is_scalar
from onnxc.tuned.walks import gathered, joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_WORK: Final = 4096
"""Multiplications below which the plain loops stay."""
GROUP: Final = 4
"""Products that are summed at once: the bytes of an int32."""
VECTORS: Final = 2
"""Of a tile, along the lanes."""
OFFSET: Final = 128
"""Between int8 and uint8."""
INT8: Final = BY_NAME["int8"]


@dataclass(frozen=True)
class Zero:
    """A zero point, of u or s: `value`, plus what `buffer` holds, `lane` elements from one lane to
    the next.
    """

    value: int
    buffer: Buffer | None = None
    start: int = 0
    lane: int = 0


@dataclass(frozen=True)
class IntegerProduct:
    """What kernels/integer_product.c.j2 writes.

    outer     extents of loops around the tiles; columns: the extent that tiles divide
    lanes     the extent of the innermost axis of the output
    folds     (extent, stride of the source), outermost first; the last stride is 1
    panel     lanes of a panel; `last` of the last one
    source    (start, stride of each outer loop, stride of a column), and so the result
    signed    whether the source and the panel operand are int8
    zero      of u, and `panel_zero` of s
    placed    (start, stride along the sum, stride of a lane) of a panel operand that is no constant
    addends   (start, stride of a lane) of each load of the epilogue
    sums      whether the sums of u are needed: unless all zero points of s are 0
    """

    outer: tuple[int, ...]
    columns: int
    lanes: int
    folds: tuple[tuple[int, int], ...]
    panel: int
    last: int
    source: tuple[int, tuple[int, ...], int]
    result: tuple[int, tuple[int, ...], int]
    signed: tuple[bool, bool]
    zero: Zero
    panel_zero: Zero
    placed: tuple[int, int, int] | None
    addends: tuple[tuple[int, int], ...]
    sums: bool

    @property
    def length(self) -> int:
        return math.prod(extent for extent, _ in self.folds)

    @property
    def groups(self) -> int:
        """Of a lane of a panel; each outer fold begins one."""
        inner = self.folds[-1][0]
        return self.length // inner * -(-inner // GROUP)

    @property
    def width(self) -> int:
        """Lanes of all panels."""
        return (self.lanes - 1) // self.panel * self.panel + self.last


@dataclass(frozen=True)
class Epilogue:
    """What becomes of a sum: `bias` is added; `quotient` is a function of `number`, a float of it;
    it is quantised to `target`.

    loads   of them all
    """

    bias: Expr | None = None
    number: Expr | None = None
    quotient: Expr | None = None
    zero: Const | None = None
    target: ElementType | None = None
    loads: tuple[Load, ...] = ()


def epilogue_of(value: Expr, fold: Fold) -> Epilogue | None:
    """None of what the vectors of integer products cannot compute."""
    zero, target, quotient, number = None, None, None, None
    if isinstance(value, Apply) and value.operation == "quantise" and value.dtype.bits == 8:
        target = value.dtype
        value, point = value.args
        if not isinstance(point, Const):
            return None
        zero = point
    floats: tuple[Load, ...] = ()
    if value.dtype is FLOAT:
        quotient = value
        nodes = [node for node in walk(value, inner=False) if node.dtype is FLOAT]
        casts = [n for n in nodes if isinstance(n, Apply) and n.operation == "cast"]
        if len(casts) != 1 or casts[0].args[0].dtype is not INT32:
            return None
        (number,) = casts
        others = [node for node in nodes if node is not number]
        if not all(_is_simple(node) for node in others):
            return None
        floats = tuple(node for node in others if isinstance(node, Load))
        (value,) = number.args
    bias = None
    if value is not fold:
        if not (isinstance(value, Apply) and value.operation == "add" and fold in value.args):
            return None
        bias = value.args[value.args[0] is fold]
        if not (isinstance(bias, Const) or (isinstance(bias, Load) and not bias.flat.dynamic)):
            return None
    loads = (bias, *floats) if isinstance(bias, Load) else floats
    return Epilogue(bias, number, quotient, zero, target, loads)


def _is_simple(node: Expr) -> bool:
    if isinstance(node, Load):
        return not node.flat.dynamic
    simple = ("add", "sub", "mul", "div", "max", "min")
    return isinstance(node, Const) or (isinstance(node, Apply) and node.operation in simple)


def widened(
    value: Expr, loads: Sequence[Load], lanes: Axis, width: int, side: int = 1
) -> tuple[Expr, tuple[Load, ...]]:
    """An epilogue whose constants have a number for each of `width` lanes, those of `side` pixels
    and zeros after them, so that whole vectors are read; and its loads.
    """
    moved: dict[Load, Load] = {}
    for number in loads:
        if number.buffer.data is None or not number.flat.stride(lanes):
            continue
        values = np.tile(gathered(number, (lanes,)), side)
        data = np.pad(values, (0, width - values.size))
        buffer = Buffer(number.buffer.name, data.shape, number.dtype, "constant", data)
        moved[number] = load(buffer, (along(lanes),))
    return replace_loads(value, dict(moved)), tuple(moved.get(number, number) for number in loads)


def is_wide(number: Load, width: int) -> bool:
    """Whether whole vectors can be read of all lanes of a load, as `widened` makes it."""
    return number.buffer.data is not None and number.buffer.elements == width


def rows_of(parameters: IntegerProduct, variant: Variant, *, dot: bool) -> int:
    """Columns of a tile: as many as leave registers for the panel and what is broadcast.

    `dot` says whether the processor sums four products of bytes in one instruction.
    """
    spare = 3 if dot else 8
    most = max(1, (variant.registers - spare) // VECTORS)
    return -(-parameters.columns // -(-parameters.columns // most))


def integer_product(loops: Loops, target: Target) -> Micro | None:
    """The Micro of a merged kernel that stores the sums; None where it is no such product."""
    fold = only_fold(loops)
    if fold is None or fold.dtype is not INT32 or loops.partial:
        return None
    if is_scalar(target):
        return None
    found = _operands(loops, fold)
    if found is None:
        return None
    rows, panel, lanes = found
    epilogue = epilogue_of(loops.value, fold)
    if epilogue is None or not _along(lanes, epilogue.loads):
        return None
    points = [axis for axis in loops.axes if axis is not lanes and axis.extent > 1]
    source, weights, where = rows.source.flat, panel.source.flat, loops.where[0]
    folds = sorted(fold.axes, key=lambda axis: -abs(source.stride(axis)))
    work = math.prod(axis.extent for axis in (*loops.axes, *folds))
    if work < LEAST_WORK or any(weights.stride(axis) for axis in points):
        return None
    given = panel.source.buffer.data is None
    if source.stride(folds[-1]) != 1 or (given and len(folds) > 1):
        return None
    points.sort(key=lambda axis: -abs(where.stride(axis)))
    outer, column = points[:-1], points[-1] if points else None
    signed = rows.source.dtype.kind == "signed", panel.source.dtype.kind == "signed"
    zero = _zero(rows.zero, OFFSET if signed[0] else 0, ())
    panel_zero = _zero(panel.zero, 0 if signed[1] else -OFFSET, (lanes,))
    if zero is None or panel_zero is None:
        return None

    def walked(index: Index) -> tuple[int, tuple[int, ...], int]:
        strides = tuple(index.stride(axis) for axis in outer)
        return index.const, strides, index.stride(column) if column else 0

    width = (lanes.extent - 1) // target.panel * target.panel + last_of(lanes.extent, target)
    value, loads = widened(loops.value, epilogue.loads, lanes, width)
    parameters = IntegerProduct(
        outer=tuple(axis.extent for axis in outer),
        columns=column.extent if column else 1,
        lanes=lanes.extent,
        folds=joined([(axis.extent, source.stride(axis)) for axis in folds]),
        panel=target.panel,
        last=last_of(lanes.extent, target),
        source=walked(source),
        result=walked(where),
        signed=signed,
        zero=zero,
        panel_zero=panel_zero,
        placed=(weights.const, weights.stride(folds[0]), weights.stride(lanes)) if given else None,
        addends=tuple((number.flat.const, number.flat.stride(lanes)) for number in loads),
        sums=panel_zero.buffer is not None or panel_zero.value != 0,
    )
    inputs, scratch = [rows.source.buffer, panel.source.buffer], []
    if given:
        scratch.append(
            Buffer("", (parameters.groups * parameters.width * GROUP,), INT8, "workspace")
        )
        scratch.append(Buffer("", (2, parameters.width), INT32, "workspace"))
    else:
        constants = _constants(panel, (*folds, lanes), parameters)
        if constants is None:
            return None
        inputs[1:] = constants
    inputs += [zero.buffer] if zero.buffer else []
    inputs += [panel_zero.buffer] if panel_zero.buffer and given else []
    if parameters.sums:
        points_ = math.prod(parameters.outer) * parameters.columns
        scratch.append(Buffer("", (points_,), INT32, "workspace"))
    return Micro(
        "integer_product",
        loops,
        tuple(inputs),
        parameters,
        value,
        fold,
        loads,
        scratch=tuple(scratch),
    )


def _along(lanes: Axis, loads: Sequence[Load]) -> bool:
    """Whether vectors of lanes are read of each, or one number for all."""
    return all(
        axes_read(number) <= {lanes} and number.flat.stride(lanes) in (0, 1) for number in loads
    )


def last_of(lanes: int, target: Target) -> int:
    """Lanes of the last panel, with those that are padding."""
    return -(-(lanes % target.panel or target.panel) // target.whole) * target.whole


def _operands(loops: Loops, fold: Fold) -> tuple[Centred, Centred, Axis] | None:
    """The operand whose elements are broadcast, the other one, and the axis that walks it alone."""
    factors = factors_of(fold)
    lanes = next((a for a in reversed(loops.axes) if loops.where[0].stride(a) == 1), None)
    if factors is None or lanes is None:
        return None
    one, other = factors
    walks = [bool(operand.source.flat.stride(lanes)) for operand in (one, other)]
    if walks == [True, False]:
        return other, one, lanes
    return (one, other, lanes) if walks == [False, True] else None


def factors_of(fold: Fold) -> tuple[Centred, Centred] | None:
    """The two 8-bit operands of a sum of products; None where it is another."""
    if not (isinstance(fold.value, Apply) and fold.value.operation == "mul"):
        return None
    one, other = map(centred, fold.value.args)
    if one is None or other is None or one.source.flat.dynamic or other.source.flat.dynamic:
        return None
    return one, other


def constant_zeros(zero: Expr | None, lanes: Axis) -> NDArray[Any] | None:
    """The zero points along `lanes`, one or as many, as int64; None where they are not known."""
    known = constant_of(zero)
    if known is not None:
        return np.array(known, np.int64)
    source = zero.args[0] if isinstance(zero, Apply) and zero.operation == "cast" else None
    if not isinstance(source, Load) or source.buffer.data is None or source.flat.dynamic:
        return None
    if not axes_read(source) <= {lanes}:
        return None
    return gathered(source, (lanes,)).astype(np.int64)


def _zero(value: Expr | None, offset: int, axes: Sequence[Axis]) -> Zero | None:
    """Of a zero point that moves along `axes` only; None of others."""
    known = constant_of(value)
    if known is not None:
        return Zero(known + offset)
    if not (isinstance(value, Apply) and value.operation == "cast" and value.dtype is INT32):
        return None
    (source,) = value.args
    if not isinstance(source, Load) or source.flat.dynamic or source.dtype.bits != 8:
        return None
    if not axes_read(source) <= set(axes):
        return None
    lane = source.flat.stride(axes[0]) if axes else 0
    return Zero(offset, source.buffer, source.flat.const, lane)


def _constants(
    panel: Centred, axes: Sequence[Axis], parameters: IntegerProduct
) -> list[Buffer] | None:
    """The packed panels, and of each lane the sum of s - b, and b."""
    name, lanes = panel.source.buffer.name, parameters.lanes
    values = gathered(panel.source, axes).astype(np.int32)
    signed = values if parameters.signed[1] else values - OFFSET
    inner = parameters.folds[-1][0]
    signed = signed.reshape(-1, inner, lanes)
    known = constant_zeros(panel.zero, axes[-1])
    if known is None:
        return None
    zeros = np.broadcast_to(known if parameters.signed[1] else known - OFFSET, (lanes,))
    sums = signed.sum((0, 1), dtype=np.int64) - parameters.length * zeros
    room = parameters.width - lanes
    columns = np.pad(np.stack([sums, zeros]), ((0, 0), (0, room)))
    padded = np.pad(signed, ((0, 0), (0, -inner % GROUP), (0, room))).astype(np.int8)
    packed = packed_panels(padded.reshape(-1, GROUP, parameters.width), parameters.panel)
    return [
        Buffer(name, packed.shape, INT8, "constant", packed),
        Buffer("", columns.shape, INT32, "constant", columns.astype(np.int32)),
    ]


def packed_panels(values: NDArray[Any], panel: int) -> NDArray[Any]:
    """[groups][4][lanes] as [panels][groups][panel][4], the last panel narrower, in one line."""
    starts = range(0, values.shape[2], panel)
    parts = (values[:, :, n : n + panel].transpose(0, 2, 1).reshape(-1) for n in starts)
    return np.concatenate(list(parts))
