"""Hand-built programs that take every way through Folds, checks, run-time indices and control flow.

Their outputs do not depend on which NaN an operation gives: that of a machine is as good as any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxc.dtypes import BY_NAME, UINT8, ElementType, numpy_dtype
from onnxc.expression import (
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
    load,
)
from onnxc.kernel import Branch, Loops, Program, Repeat, Step
from onnxc.status import Status
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    Array,
    buffer,
    const,
    constant,
    copy,
    element,
    over,
)
from tests.kernels.strategies import NUMBERS, OPERATIONS
from tests.models import any_bits, strings

FLOATS = [BY_NAME["float"], BY_NAME["double"]]
BAD_INDEX, BAD_DIVISION = Status.INDEX_OUT_OF_RANGE, Status.DIVISION_BY_ZERO


@dataclass(frozen=True)
class Portable:
    """A program, what to run it on, and the status of each run."""

    name: str
    program: Program
    runs: Sequence[Mapping[Buffer, Array]]
    statuses: Sequence[Status]


def fine(name: str, program: Program, *runs: Mapping[Buffer, Array]) -> Portable:
    return Portable(name, program, runs, [Status.OK] * len(runs))


def numbers(dtype: ElementType, *shape: int) -> Array:
    """Integers of all sizes, whose sums wrap; floats of which each order has a sum of its own."""
    if dtype.kind != "float":
        return any_bits(dtype, *shape)
    generator = np.random.default_rng(dtype.code)
    scales = 10.0 ** generator.integers(-3, 4, shape)
    return np.asarray(generator.standard_normal(shape) * scales).astype(numpy_dtype(dtype))


def folds(
    name: str, dtypes: Sequence[ElementType], operations: Sequence[str], *shape: int
) -> Portable:
    """Each operation on each type, over all dimensions but the first."""
    inputs, outputs, steps, values = [], [], [], {}
    i, inner = Axis(shape[0]), tuple(map(Axis, shape[1:]))
    for dtype in dtypes:
        x = buffer(f"x_{dtype}", "input", dtype, *shape)
        inputs.append(x)
        values[x] = numbers(dtype, *shape)
        value = load(x, map(along, (i, *inner)))
        for operation in operations:
            y = buffer(f"{operation}_{dtype}", "output", dtype, shape[0])
            outputs.append(y)
            steps.append(over(y, Fold(dtype, operation, inner, value), i))
    return fine(name, Program(tuple(inputs), tuple(outputs), tuple(steps)), values)


SPECIAL_ROWS = [
    [1, 2, np.nan, 3],
    [np.nan, 1, 1, 1],
    [1, 1, 1, np.nan],
    [np.inf, -np.inf, 0, 1],
    [-np.inf, -np.inf, -np.inf, -np.inf],
    [np.inf, np.inf, 1, 1],
    [0.0, 1e-45, -1e-45, 5e-324],
]


def special_floats() -> Portable:
    """NaN, whether or not an operation gives it; infinities; denormals, which count."""
    inputs, outputs, steps, values = [], [], [], {}
    i, k = Axis(len(SPECIAL_ROWS)), Axis(4)
    for dtype in FLOATS:
        x = buffer(f"x_{dtype}", "input", dtype, len(SPECIAL_ROWS), 4)
        inputs.append(x)
        values[x] = np.array(SPECIAL_ROWS).astype(numpy_dtype(dtype))
        for operation in OPERATIONS:
            fold = Fold(dtype, operation, (k,), load(x, [along(i), along(k)]))
            for wanted, value in (("number", fold), ("infinity", const(np.inf, dtype))):
                y = buffer(f"{wanted}_{operation}_{dtype}", "output", BOOL, len(SPECIAL_ROWS))
                outputs.append(y)
                steps.append(over(y, compare("equal", fold, value), i))
    return fine("special_floats", Program(tuple(inputs), tuple(outputs), tuple(steps)), values)


def small_floats() -> Portable:
    """Zeros of either sign and denormals, whose bits do not depend on the machine."""
    inputs, outputs, steps, values = [], [], [], {}
    for dtype in FLOATS:
        tiny = float(np.finfo(numpy_dtype(dtype)).smallest_subnormal)
        rows = [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [tiny, tiny], [tiny, -tiny], [-tiny, 0.0]]
        i, k = Axis(len(rows)), Axis(2)
        x = buffer(f"x_{dtype}", "input", dtype, len(rows), 2)
        inputs.append(x)
        values[x] = np.array(rows, numpy_dtype(dtype))
        for operation in OPERATIONS:
            y = buffer(f"{operation}_{dtype}", "output", dtype, len(rows))
            outputs.append(y)
            value = load(x, [along(i), along(k)])
            steps.append(over(y, Fold(dtype, operation, (k,), value), i))
    return fine("small_floats", Program(tuple(inputs), tuple(outputs), tuple(steps)), values)


def nested_folds() -> Portable:
    """The largest row sum, beside how many elements are true for one bit or another."""
    x, flags = buffer("x", "input", FLOAT, 5, 20), buffer("flags", "input", BOOL, 20)
    largest, count = buffer("largest", "output", FLOAT), buffer("count", "output", INT64)
    i, k, m = Axis(5), Axis(20), Axis(20)
    row = Fold(FLOAT, "sum", (k,), load(x, [along(i), along(k)]))
    flag = apply("truth", load(flags, [along(m)]))
    number = at(affine(0, [], [(flag, 1)]))
    steps = (
        over(largest, Fold(FLOAT, "max", (i,), row)),
        over(count, Fold(INT64, "sum", (m,), number)),
    )
    bits = np.array([0, 1, 2, 255] * 5, np.uint8).view(np.bool_)
    values = {x: numbers(FLOAT, 5, 20), flags: bits}
    return fine("nested_folds", Program((x, flags), (largest, count), steps), values)


INDEX_TYPES = [
    *(BY_NAME[name] for name in ("bool", "int8", "uint8", "int16", "uint16")),
    *(BY_NAME[name] for name in ("int32", "uint32", "int64", "uint64")),
    *(BY_NAME[name] for name in ("int4", "uint4", "int2", "uint2")),
]


def dynamic_indices() -> Portable:
    """y[i][j] = x[1 + 2 * |n[i]|][4 - j]; n of every integer type, negative where it can be."""
    x = buffer("x", "input", FLOAT, 4, 5)
    inputs, outputs, steps, values = [x], [], [], {x: numbers(FLOAT, 4, 5)}
    i, j = Axis(7), Axis(5)
    for dtype in INDEX_TYPES:
        n = buffer(f"n_{dtype}", "input", dtype, 7)
        inputs.append(n)
        sign = -1 if dtype.kind == "signed" else 1
        values[n] = (sign * np.array([0, 1, 1, 0, 1, 0, 1])).astype(numpy_dtype(dtype))
        y = buffer(f"y_{dtype}", "output", FLOAT, 7, 5)
        outputs.append(y)
        given: Expr = load(n, [along(i)])
        place = affine(1, [], [(apply("truth", given) if dtype is BOOL else given, 2 * sign)])
        steps.append(over(y, load(x, [place, affine(4, [(j, -1)])]), i, j))
    return fine("dynamic_indices", Program(tuple(inputs), tuple(outputs), tuple(steps)), values)


def negative_indices() -> Portable:
    """Where an index of the data counts from the end; and one index that depends on another."""
    x, n = buffer("x", "input", INT32, 9), buffer("n", "input", INT64, 4)
    m, y = buffer("m", "input", BY_NAME["int8"], 4), buffer("y", "output", INT32, 4)
    z, i = buffer("z", "output", INT64, 4), Axis(4)
    there = load(n, [affine(3, [], [(load(m, [along(i)]), 1)])])
    steps = (
        over(y, load(x, [affine(8, [], [(there, -2)])]), i),
        over(z, at(affine(5, [(i, 10)], [(there, -100), (load(m, [along(i)]), 1)])), i),
    )
    values = {
        x: numbers(INT32, 9),
        n: np.array([4, 0, 3, 1]),
        m: np.array([0, -1, -3, -2], np.int8),
    }
    return fine("negative_indices", Program((x, n, m), (y, z), steps), values)


def checks() -> Portable:
    """A clamped index, a checked element in a Fold; the first bad kernel says what is reported."""
    x, n = buffer("x", "input", FLOAT, 2, 20), buffer("n", "input", INT32, 4)
    y, total = buffer("y", "output", FLOAT, 4), buffer("total", "output", INT64, 2)
    i, j, k = Axis(4), Axis(2), Axis(20)
    given = load(n, [along(i)])
    is_one = compare("equal", given, const(1, INT32))
    is_zero = compare("equal", given, const(0, INT32))
    known = compare("equal", compare("equal", is_one, is_zero), const(False, BOOL))
    safe = Checked(BOOL, is_one, known, BAD_INDEX)
    one = load(x, [along(j), along(k)])
    checked = Checked(INT64, at(along(k)), compare("equal", one, one), BAD_DIVISION)
    steps = (
        over(total, Fold(INT64, "sum", (k,), checked), j),
        over(y, load(x, [affine(0, [], [(safe, 1)]), affine(3, [(i, 1)])]), i),
    )
    good, bad = numbers(FLOAT, 2, 20), numbers(FLOAT, 2, 20)
    bad[1, 19] = np.nan
    indices = [np.array(row, np.int32) for row in ([0, 1, 1, 0], [0, 7, 1, -1])]
    runs = [{x: a, n: b} for a in (good, bad) for b in indices]
    statuses = [Status.OK, BAD_INDEX, BAD_DIVISION, BAD_DIVISION]
    return Portable("checks", Program((x, n), (total, y), steps), runs, statuses)


def codes_of_one_kernel() -> Portable:
    """Two codes in one kernel: the lower one is reported. No iteration reports nothing."""
    flags, y = buffer("flags", "input", BOOL, 2), buffer("y", "output", BOOL)
    none, i = buffer("none", "output", INT64, 0), Axis(0)
    one, two = (apply("truth", element(flags, n)) for n in range(2))
    sides = [
        Checked(INT64, const(1, INT64), one, BAD_DIVISION),
        Checked(INT64, const(2, INT64), two, BAD_INDEX),
    ]
    steps = (
        over(none, Checked(INT64, at(along(i)), const(False, BOOL), BAD_INDEX), i),
        over(y, compare("equal", *sides)),
    )
    given = [(True, True), (False, True), (True, False), (False, False)]
    statuses = [Status.OK, BAD_DIVISION, BAD_INDEX, BAD_INDEX]
    runs = [{flags: np.array(pair)} for pair in given]
    return Portable("codes_of_one_kernel", Program((flags,), (none, y), steps), runs, statuses)


def temporary(name: str, *shape: int) -> Buffer:
    return buffer(name, "workspace", INT64, *shape)


def total_of(source: Buffer) -> Fold:
    k = Axis(source.elements)
    return Fold(INT64, "sum", (k,), load(source, [along(k)]))


def store(out: Buffer, position: int, value: Expr) -> Loops:
    return Loops(out, (Index(position),), (), value)


def fibonacci(pair: Buffer, following: Buffer) -> tuple[Step, ...]:
    """following = (b, a + b) of pair = (a, b)."""
    return (
        store(following, 0, element(pair, 1)),
        store(following, 1, total_of(pair)),
    )


def branches() -> Portable:
    """A branch in a branch; a condition is true for any bit; both sides share memory."""
    outer, inner = buffer("outer", "input", BOOL), buffer("inner", "input", BOOL)
    y = buffer("y", "output", INT64, 100)

    def side(value: int) -> Program:
        axis, inside = Axis(100), temporary(f"inside{value}", 100)
        turned = load(inside, [affine(99, [(axis, -1)])])
        return Program(steps=(over(inside, at(along(axis) * value), axis), over(y, turned, axis)))

    choice = Branch(inner, side(1), side(2))
    steps = (Branch(outer, Program(steps=(choice,)), side(-3)),)
    values = [np.asarray(byte, np.uint8).view(np.bool_) for byte in (0, 1, 2, 255)]
    runs = [{outer: a, inner: b} for a in values for b in values]
    return fine("branches", Program((outer, inner), (y,), steps), *runs)


def counted_rounds() -> Portable:
    """Fibonacci numbers, after any number of rounds, also of less than none."""
    count, y = buffer("count", "input", INT64), buffer("y", "output", INT64, 2)
    pair, following = temporary("pair", 2), temporary("following", 2)
    start = constant(np.array([0, 1]), INT64)
    body = Program(steps=fibonacci(pair, following))
    loop = Repeat(count, None, None, body, ((pair, following),))
    program = Program((count,), (y,), (copy(pair, start), loop, copy(y, pair)))
    return fine("counted_rounds", program, *({count: np.asarray(n)} for n in (0, 1, 2, 90, -3)))


def rounds_while() -> Portable:
    """Powers of two until one is reached or 40 rounds are over."""
    wanted, y = buffer("wanted", "input", INT64), buffer("y", "output", INT64, 2)
    go, more = (buffer(name, "workspace", BOOL) for name in ("go", "more"))
    power, double, counter = temporary("power"), temporary("double"), temporary("counter")
    reached = compare("equal", load(double, []), load(wanted, []))
    body = (
        over(double, at(affine(0, [], [(load(power, []), 2)]))),
        over(more, compare("equal", reached, const(False, BOOL))),
    )
    limit = constant(np.asarray(40, np.int64), INT64)
    loop = Repeat(limit, go, counter, Program(steps=body), ((power, double), (go, more)))
    steps = (
        over(power, const(1, INT64)),
        over(counter, const(-1, INT64)),
        over(go, const(True, BOOL)),
        loop,
        store(y, 0, load(power, [])),
        store(y, 1, load(counter, [])),
    )
    runs = [{wanted: np.asarray(number)} for number in (1024, 3, 2)]
    return fine("rounds_while", Program((wanted,), (y,), steps), *runs)


def rounds_in_rounds() -> Portable:
    """In round i, i inner rounds, of which the first swaps and the others add; or no round."""
    flag, count = buffer("flag", "input", BOOL), buffer("count", "input", INT64)
    y, axis = buffer("y", "output", INT64, 2), Axis(2)
    pair, following, again = (temporary(name, 2) for name in ("pair", "following", "again"))
    i, j = temporary("i"), temporary("j")
    first = buffer("first", "workspace", BOOL)
    swap = over(following, load(pair, [affine(1, [(axis, -1)])]), axis)
    is_first = over(first, compare("equal", load(j, []), const(0, INT64)))
    choice = Branch(first, Program(steps=(swap,)), Program(steps=fibonacci(pair, following)))
    inner = Repeat(i, None, j, Program(steps=(is_first, choice)), ((pair, following),))
    outer = Repeat(count, None, i, Program(steps=(inner, copy(again, pair))), ((pair, again),))
    start = constant(np.array([3, 8]), INT64)
    then = Program(steps=(copy(pair, start), outer, copy(y, pair)))
    program = Program((flag, count), (y,), (Branch(flag, then, Program(steps=(copy(y, start),))),))
    pairs = [(True, rounds) for rounds in range(6)] + [(False, 5)]
    runs = [{flag: np.asarray(a), count: np.asarray(b)} for a, b in pairs]
    return fine("rounds_in_rounds", program, *runs)


def turned(out: Buffer, source: Buffer) -> Loops:
    """out = source, last element first; a packed type by the byte."""
    last, per_byte = source.elements - 1, out.dtype.per_byte if out.packed else 1
    axis = Axis(source.elements // per_byte)
    places = [affine(last - n, [(axis, -per_byte)]) for n in range(per_byte)]
    values = [load(source, [place]) for place in places]
    value = apply("pack", *values, dtype=UINT8) if out.packed else values[0]
    return Loops(out, (along(axis),), (axis,), value)


def carried_states() -> Portable:
    """States of types that C copies by values, bytes, pairs and pointers, turned in each round."""
    count = buffer("count", "input", INT64)
    inputs, outputs, starts, body, pairs, values = [count], [], [], [], [], {}
    for name in ("int4", "uint2", "complex64", "float16", "string", "double"):
        dtype = BY_NAME[name]
        x, y = buffer(f"x_{name}", "input", dtype, 4), buffer(f"y_{name}", "output", dtype, 4)
        following = buffer(f"z_{name}", "output", dtype, 4)
        texts = strings(b"a", b"", b"a\0b", b"\xff")
        values[x] = texts if name == "string" else any_bits(dtype, 4)
        inputs.append(x)
        outputs += [y, following]
        starts += [turned(y, x), turned(following, y)]
        body.append(turned(following, y))
        pairs.append((y, following))
    loop = Repeat(count, None, None, Program(steps=tuple(body)), tuple(pairs))
    program = Program(tuple(inputs), tuple(outputs), (*starts, loop))
    return fine("carried_states", program, *({count: np.asarray(n), **values} for n in (0, 1, 2)))


def checked_rounds() -> Portable:
    """The first bad kernel decides, in a round its lowest code; all rounds run to the end."""
    x, count = buffer("x", "input", INT64, 2), buffer("count", "input", INT64)
    y, i = buffer("y", "output", INT64), temporary("i")

    def checked(position: int, code: Status) -> Checked:
        same = compare("equal", element(x, position), load(i, []))
        return Checked(INT64, load(i, []), same, code)

    both = [(checked(0, BAD_DIVISION), 1), (checked(1, BAD_INDEX), 10)]
    step = over(y, at(affine(5, [], both)))
    steps = (over(y, const(7, INT64)), Repeat(count, None, i, Program(steps=(step,)), ()))
    given = {
        ((5, 5), 0): Status.OK,
        ((0, 0), 1): Status.OK,
        ((0, 1), 1): BAD_INDEX,
        ((1, 0), 1): BAD_DIVISION,
        ((1, 1), 1): BAD_INDEX,
        ((1, 0), 2): BAD_DIVISION,
        ((0, 0), 3): BAD_INDEX,
    }
    runs = [{x: np.array(pair), count: np.asarray(rounds)} for pair, rounds in given]
    return Portable("checked_rounds", Program((x, count), (y,), steps), runs, [*given.values()])


def portable_programs() -> Iterator[Portable]:
    yield folds("folds", NUMBERS, OPERATIONS, 3, 2, 19)
    yield folds("folds_of_one", NUMBERS, OPERATIONS, 2, 1)
    yield folds("empty_folds", NUMBERS, OPERATIONS, 2, 0, 4)
    for length in (15, 16, 17, 1000):
        yield folds(f"sums_of_{length}", FLOATS, ["sum"], 3, length)
    yield special_floats()
    yield small_floats()
    yield nested_folds()
    yield dynamic_indices()
    yield negative_indices()
    yield checks()
    yield codes_of_one_kernel()
    yield branches()
    yield counted_rounds()
    yield rounds_while()
    yield rounds_in_rounds()
    yield carried_states()
    yield checked_rounds()
