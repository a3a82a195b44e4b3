"""Random loop nests for hypothesis: broadcasts, offsets, flips, run-time indices, Folds, checks.

A drawn `Case` is a whole program of one kernel over inputs of its own, with values for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from onnxc.dtypes import BOOL, BY_NAME, INT64, ElementType, numpy_dtype
from onnxc.dump import dump
from onnxc.expression import (
    Apply,
    Axis,
    Buffer,
    Checked,
    Expr,
    Fold,
    Index,
    affine,
    along,
    apply,
    at,
    compare,
    guard,
    literal,
    load,
    where,
)
from onnxc.kernel import Loops, Program
from onnxc.status import Status
from tests.models import STRINGS

NUMBERS = [
    *(BY_NAME[name] for name in ("float", "double", "int8", "int16", "int32", "int64")),
    *(BY_NAME[name] for name in ("uint8", "uint16", "uint32", "uint64")),
]
OTHERS = [
    *(BY_NAME[name] for name in ("float16", "bfloat16", "complex64", "string")),
    *(BY_NAME[name] for name in ("int4", "uint2", "float4e2m1")),
]
COMPARED = [t for t in [*NUMBERS, *OTHERS, BOOL] if t.kind != "bits"]
CODES = (Status.INDEX_OUT_OF_RANGE, Status.DIVISION_BY_ZERO)
OPERATIONS = ("sum", "prod", "max", "min")
ARITHMETIC = ("add", "sub", "mul", "max", "min")


def some_values(dtype: ElementType, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    """Few different values, so that equal ones meet, with the odd ones of the type."""
    generator = np.random.default_rng(seed)
    count = int(np.prod(shape))
    numbers = generator.integers(0, 4, count)
    if dtype.kind == "string":
        array = np.empty(count, object)
        array[:] = [STRINGS[n] for n in numbers]
        return array.reshape(shape)
    if dtype.kind in ("float", "half", "complex"):
        odd = np.array([1.5, 0.1, np.inf, np.nan, -7.25e3, 3.0, 1e-3, -np.inf])
        numbers = odd[generator.choice(8, count, p=[0.3, 0.2, 0.01, 0.01, 0.1, 0.2, 0.17, 0.01])]
    elif dtype.bits > 4:
        edge = np.array([0, 1, 2, 3, 127, 100])
        numbers = edge[generator.choice(6, count)]
    else:
        numbers = numbers % 2
    return numbers.astype(numpy_dtype(dtype)).reshape(shape)


class Case:
    """Kernels with an output each, and the values of the inputs that they read."""

    def __init__(self) -> None:
        self.inputs: dict[Buffer, NDArray[Any]] = {}
        self.loops: list[Loops] = []

    def __repr__(self) -> str:
        values = "".join(f"\n{buffer.name} = {array!r}" for buffer, array in self.inputs.items())
        return f"\n{dump(self.program)}{values}\n"

    @property
    def program(self) -> Program:
        filled = dict.fromkeys(loops.out for loops in self.loops)
        outputs = tuple(buffer for buffer in filled if buffer.kind == "output")
        return Program(tuple(self.inputs), outputs, tuple(self.loops))


class Draw:
    """Draws expressions; the inputs that they need are made on the way."""

    def __init__(self, draw: st.DrawFn, case: Case) -> None:
        self.draw = draw
        self.case = case

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def index(self, axes: tuple[Axis, ...], depth: int) -> tuple[Index, int]:
        """An index that stays between 0 and an extent, and that extent."""
        total, top = Index(self.draw(st.integers(0, 2))), 0
        top = total.const
        for axis in axes:
            if self.chance(50):
                stride = self.draw(st.sampled_from([1, 1, 1, 2, -1]))
                last = max(axis.extent - 1, 0) * abs(stride)
                total = total + along(axis) * stride + (last if stride < 0 else 0)
                top += last
        if depth and self.chance(15):
            flag = self.value(BOOL, axes, depth - 1)
            total, top = total + affine(0, (), [(flag, 2)]), top + 2
        return total, top + 1 + self.draw(st.integers(0, 1))

    def read(self, dtype: ElementType, axes: tuple[Axis, ...], depth: int) -> Expr:
        places = [self.index(axes, depth) for _ in range(self.draw(st.integers(0, 3)))]
        shape = tuple(extent for _, extent in places)
        source = Buffer(f"x{len(self.case.inputs)}", shape, dtype, "input")
        self.case.inputs[source] = some_values(dtype, shape, self.draw(st.integers(0, 999)))
        found: Expr = load(source, [index for index, _ in places])
        return apply("truth", found) if dtype is BOOL else found

    def guarded(self, dtype: ElementType, axes: tuple[Axis, ...], depth: int) -> Expr:
        """An element at a place that may lie outside, where it is another value."""
        index, extent = self.index(axes, depth - 1)
        place = index + self.draw(st.integers(-2, 2))
        source = Buffer(f"x{len(self.case.inputs)}", (extent,), dtype, "input")
        self.case.inputs[source] = some_values(dtype, (extent,), self.draw(st.integers(0, 999)))
        found: Expr = load(source, [place])
        found = apply("truth", found) if dtype is BOOL else found
        if dtype in NUMBERS and self.chance(50):
            found = apply("add", found, self.value(dtype, axes, depth - 1))
        return guard([(place, extent)], found, self.value(dtype, axes, depth - 1))

    def value(self, dtype: ElementType, axes: tuple[Axis, ...], depth: int) -> Expr:
        if depth and self.chance(15):
            condition = self.value(BOOL, axes, depth - 1)
            code = self.draw(st.sampled_from(CODES))
            return Checked(dtype, self.value(dtype, axes, depth - 1), condition, code)
        if depth and dtype is BOOL and self.chance(70):
            kind = self.draw(st.sampled_from(COMPARED))
            sides = [self.value(kind, axes, depth - 1) for _ in range(2)]
            return compare("equal", *(sides if self.chance(80) else sides[:1] * 2))
        if depth and self.chance(15):
            return self.guarded(dtype, axes, depth)
        if depth and self.chance(15):
            sides = [self.value(dtype, axes, depth - 1) for _ in range(2)]
            return where(self.value(BOOL, axes, depth - 1), *sides)
        if depth and dtype in NUMBERS and self.chance(25):
            sides = [self.value(dtype, axes, depth - 1) for _ in range(2)]
            return apply(self.draw(st.sampled_from(ARITHMETIC)), *sides)
        if depth and dtype in NUMBERS and self.chance(60):
            wide = [0, 1, 2, 3, 17, 33, 150] if depth == 3 else [0, 1, 2, 3]
            rows = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=1)
            extents = [*self.draw(rows), self.draw(st.sampled_from(wide))]
            inner = tuple(map(Axis, extents))
            operation = self.draw(st.sampled_from(OPERATIONS))
            return Fold(dtype, operation, inner, self.value(dtype, (*axes, *inner), depth - 1))
        if dtype is INT64 and self.chance(20):
            return at(self.index(axes, 0)[0])
        if self.chance(15):
            return literal(dtype, b"a" if dtype.kind == "string" else 1)
        return self.read(dtype, axes, depth)


@st.composite
def cases(draw: st.DrawFn, kernels: int = 1) -> Case:
    """`kernels` kernels of 0 to 3 loops, each with an output of its own."""
    case = Case()
    for number in range(kernels):
        extents = st.lists(st.sampled_from([1, 2, 3]), max_size=3)
        axes = tuple(map(Axis, draw(extents)))
        dtype = draw(st.sampled_from([t for t in [*NUMBERS, *OTHERS, BOOL] if not t.packed]))
        value = Draw(draw, case).value(dtype, axes, 3)
        out = Buffer(f"y{number}", tuple(a.extent for a in axes), dtype, "output")
        case.loops.append(Loops(out, tuple(map(along, axes)), axes, value))
    return case


class RowDraw:
    """Draws kernels over `rows` rows of `length` elements that read what others have stored.

    Most read their own row; some another one, or a column.
    """

    def __init__(self, draw: st.DrawFn, dtype: ElementType) -> None:
        self.draw = draw
        self.dtype = dtype
        self.case = Case()
        self.rows = draw(st.sampled_from([2, 3, 4, 6, 7]))
        self.length = draw(st.sampled_from([16, 19, 64, 70, 70]))
        self.wide: list[Buffer] = []
        self.narrow: list[Buffer] = []
        for n in range(2):
            self.wide.append(self.input(f"x{n}", self.rows, self.length))
        self.bias = self.input("bias", self.length)

    def input(self, name: str, *shape: int) -> Buffer:
        source = Buffer(name, shape, self.dtype, "input")
        self.case.inputs[source] = some_values(self.dtype, shape, self.draw(st.integers(0, 999)))
        return source

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def element(self, row: Index, place: Index) -> Expr:
        """Of a row, of its one value, or of what all rows share."""
        last = self.rows - 1
        if self.chance(4):
            row = self.draw(st.sampled_from([row * -1 + last, Index(last)]))
        if self.chance(15):
            place = place * -1 + (self.length - 1)
        if self.narrow and self.chance(40):
            return load(self.draw(st.sampled_from(self.narrow)), [row])
        if self.chance(15):
            return load(self.bias, [place])
        return load(self.draw(st.sampled_from(self.wide)), [row, place])

    def value(self, row: Index, place: Index) -> Expr:
        found = self.element(row, place)
        for _ in range(self.draw(st.integers(0, 2))):
            operation, other = self.draw(st.sampled_from(ARITHMETIC)), self.element(row, place)
            if other is not found:  # compilers warn of a number that is compared with itself
                found = apply(operation, found, other)
        if self.chance(8):
            code = self.draw(st.sampled_from(CODES))
            found = Checked(self.dtype, found, compare("less", found, 1), code)
        return found

    def kernel(self, number: int) -> None:
        """One that fills a buffer of its own, or changes one that is filled already."""
        row, place = Axis(self.rows), Axis(self.length)
        kind = "output" if self.chance(25) else "workspace"
        stored = [b for b in self.wide if b.kind != "input"]
        if stored and self.chance(15):
            out = self.draw(st.sampled_from(stored))
            self.wide.remove(out)  # elements that are changed are not read at other places
            value = self.value(along(row), along(place))
            self.wide.append(out)
            where_ = (along(row), along(place))
            operation = self.draw(st.sampled_from(["add", "mul", "max"]))
            axes = (row, place)
            self.case.loops.append(Loops(out, where_, axes, value, accumulate=operation))
        elif self.chance(40):
            out = Buffer(f"y{number}", (self.rows,), self.dtype, kind)
            value = self.value(along(row), along(place))
            operation = self.draw(st.sampled_from(OPERATIONS))
            folded = Fold(self.dtype, operation, (place,), value)
            self.case.loops.append(Loops(out, (along(row),), (row,), folded))
            self.narrow.append(out)
        else:
            out = Buffer(f"y{number}", (self.rows, self.length), self.dtype, kind)
            walks = (along(row), along(place))
            self.case.loops.append(Loops(out, walks, (row, place), self.value(*walks)))
            self.wide.append(out)


@st.composite
def row_cases(draw: st.DrawFn) -> Case:
    """Two to six kernels over the same rows, of which many can run row by row."""
    drawn = RowDraw(draw, draw(st.sampled_from([BY_NAME["float"], BY_NAME["int32"]])))
    for number in range(draw(st.integers(2, 6))):
        drawn.kernel(number)
    last = drawn.case.loops[-1].out
    axes = tuple(map(Axis, last.shape))
    out = Buffer("y", last.shape, last.dtype, "output")
    walks = tuple(map(along, axes))
    drawn.case.loops.append(Loops(out, walks, axes, apply("neg", load(last, walks))))
    return drawn.case


__all__ = ["COMPARED", "NUMBERS", "Apply", "Case", "Draw", "cases", "row_cases", "some_values"]
