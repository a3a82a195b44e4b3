"""Every operation of OPERATIONS, in C and in numpy, over hard values of every kind it allows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc.conversion import CONVERTIBLE
from onnxc.dtypes import BOOL, BY_NAME, ELEMENT_TYPES, UINT8, ElementType, numpy_dtype
from onnxc.expression import (
    Apply,
    Axis,
    Buffer,
    Const,
    Expr,
    Index,
    along,
    apply,
    cast,
    compare,
    literal,
    load,
    where,
)
from onnxc.kernel import Loops, Program
from onnxc.operations import HALVES, OPERATIONS, ROUND_MODES, cast_name
from tests.kernels.exact_operations import BOOLS, COMPARISONS, FLOATS, INTEGERS, exact
from tests.kernels.programs import INT32, Values, assert_same_bits, built, check_in_c, evaluated
from tests.runtime.test_math import REFERENCES, bound, float_errors

Array = NDArray[Any]
FLOAT, DOUBLE, INT64 = (BY_NAME[name] for name in ("float", "double", "int64"))
NUMBERS = [t for t in ELEMENT_TYPES if t.kind in ("float", "signed", "unsigned") and not t.packed]
CASTS = {cast_name(saturate, mode) for saturate in (True, False) for mode in ROUND_MODES}


def hard_values(dtype: ElementType) -> Array:
    """The ends of the type, zeros, ones, what overflows, rounds, ties; shifts past the width."""
    of_numpy = numpy_dtype(dtype)
    if dtype.kind in ("signed", "unsigned"):
        low, high = int(np.iinfo(of_numpy).min), int(np.iinfo(of_numpy).max)
        near = [low, low + 1, high // 3, high - 1, high, high // 2 + 1]
        small = [
            n for n in (-100, -64, -8, -3, -2, -1, 0, 1, 2, 3, 7, 8, 31, 32, 63, 64) if n >= low
        ]
        return np.array([*near, *small], of_numpy)
    if dtype.kind == "bool":
        return np.array([False, True])
    info = ml_dtypes.finfo(of_numpy)
    least, most = float(info.smallest_subnormal), float(info.max)
    positive = [
        0.0,
        least,
        float(info.tiny),
        0.3,
        0.5,
        1.0,
        1.5,
        2.5,
        7.75,
        8388609.0,
        most,
        np.inf,
    ]
    with np.errstate(over="ignore"):
        return np.array([*positive, *(-v for v in positive), np.nan]).astype(of_numpy)


def meshed(*columns: Array) -> list[Array]:
    """Every combination, one after the other."""
    return [np.ascontiguousarray(part.reshape(-1)) for part in np.meshgrid(*columns)]


class Cases:
    """One program of a kernel an operation and type: its inputs, and what each must give."""

    def __init__(self) -> None:
        self.inputs: Values = {}
        self.steps: list[Loops] = []
        self.wanted: Values = {}

    def add(
        self,
        element: Callable[..., Expr],
        dtypes: list[ElementType],
        arrays: list[Array],
        wanted: Array,
        name: str,
    ) -> None:
        number = len(self.steps)
        axis = Axis(arrays[0].size)
        reads = []
        for position, (dtype, array) in enumerate(zip(dtypes, arrays, strict=True)):
            given = Buffer(f"x{number}_{position}", array.shape, dtype, "input")
            self.inputs[given] = array
            reads.append(load(given, [along(axis)]))
        value = element(*reads)
        out = Buffer(f"y{number}_{name}", arrays[0].shape, value.dtype, "output")
        self.steps.append(Loops(out, (along(axis),), (axis,), value))
        self.wanted[out] = wanted

    def add_exact(self, operation: str, *dtypes: ElementType) -> None:
        """`dtypes` of the operands."""
        arrays = meshed(*map(hard_values, dtypes))
        leading = dtypes[1] if operation == "where" else dtypes[0]
        values = [exact(operation, leading, *row) for row in zip(*arrays, strict=True)]
        result = BOOL if operation in COMPARISONS else leading
        wanted = np.array(values).astype(numpy_dtype(result))

        def element(*reads: Expr) -> Expr:
            kept = {"dtype": leading} if operation == "power" else {}
            return apply(operation, *reads, **kept)

        self.add(element, list(dtypes), arrays, wanted, f"{operation}_{leading.name}")

    @property
    def program(self) -> Program:
        return Program(tuple(self.inputs), tuple(self.wanted), tuple(self.steps))

    def check(self, compiler: str = "cc") -> None:
        """In programs of so many kernels as tcc can call with so many operands."""
        found: Values = {}
        for start in range(0, len(self.steps), 60):
            steps = tuple(self.steps[start : start + 60])
            inputs = tuple(dict.fromkeys(b for step in steps for b in step.reads()))
            program = Program(inputs, tuple(step.out for step in steps), steps)
            found |= check_in_c(program, {b: self.inputs[b] for b in inputs}, compiler)
        for buffer, wanted in self.wanted.items():
            try:
                assert_same_bits(found[buffer], wanted)
            except BaseException as difference:
                raise AssertionError(f"{buffer.name}: {difference}") from None


def arity(function: Callable[..., Any]) -> int:
    """Of an entry of exact_operations, found by calling it."""
    return 1 if function is abs else function.__code__.co_argcount


def exact_cases() -> Cases:
    cases = Cases()
    for dtype in NUMBERS:
        table = FLOATS if dtype.kind == "float" else INTEGERS
        for operation, function in table.items():
            operands = arity(function) - (dtype.kind != "float")
            if operation != "power":
                cases.add_exact(operation, *[dtype] * operands)
    for operation, function in BOOLS.items():
        cases.add_exact(operation, *[BOOL] * arity(function))
    for operation, function in COMPARISONS.items():
        for dtype in NUMBERS:
            if dtype.kind in OPERATIONS[operation].kinds:
                cases.add_exact(operation, *[dtype] * arity(function))
    for dtype in (BOOL, BY_NAME["float16"], BY_NAME["bfloat16"]):
        cases.add_exact("equal", dtype, dtype)
    for dtype in (*NUMBERS, BOOL, BY_NAME["float16"]):
        cases.add_exact("where", BOOL, dtype, dtype)
    for base, exponent in itertools.product((INT32, INT64), (INT32, INT64)):
        cases.add_exact("power", base, exponent)
    return cases


def quantised(ratio: float, zero: float, least: int, most: int) -> int:
    if np.isnan(ratio):
        return int(zero)
    nearest = round(ratio) if abs(ratio) < 1e6 else int(np.sign(ratio)) * 10**6
    return min(max(nearest + int(zero), least), most)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16"])
def test_quantise(name: str) -> None:
    """To nearest, half to even, and the zero point after that; saturated; a NaN gives it."""
    cases, dtype = Cases(), BY_NAME[name]
    limits = np.iinfo(name)
    least, most = int(limits.min), int(limits.max)
    near = [n + part for n in (least, -3, 0, 1, 2, most, most - least) for part in (-0.5, 0.5, 0.6)]
    zeros = np.array([least, least + 1, most // 2, most], np.float32)
    ratios = np.array([*hard_values(FLOAT), *near, 2.0**22, -(2.0**24), 3e9], np.float32)
    arrays = meshed(ratios, zeros)
    wanted = [quantised(float(r), float(z), least, most) for r, z in zip(*arrays, strict=True)]

    def element(ratio: Expr, zero: Expr) -> Expr:
        return apply("quantise", ratio, zero, dtype=dtype)

    cases.add(element, [FLOAT, FLOAT], arrays, np.array(wanted, name), name)
    for compiler in ("gcc", "clang", "tcc"):
        cases.check(compiler)


def test_exact_operations() -> None:
    exact_cases().check()


@pytest.mark.parametrize("compiler", ["clang", "tcc"])
def test_other_compilers(compiler: str, tool: Any) -> None:
    tool(compiler)
    exact_cases().check(compiler)


def test_every_operation_is_tested() -> None:
    """Here, the casts by tests/runtime/test_conversion.py, rounding by test_hold_floats.py."""
    known = {*INTEGERS, *FLOATS, *BOOLS, *COMPARISONS, *REFERENCES, *CASTS}
    known |= {f"as_{half}" for half in HALVES}
    assert set(OPERATIONS) == known | {"where", "truth", "pack", "pow", "reinterpret", "quantise"}
    for name, operation in OPERATIONS.items():
        kinds = {"float"} if name in FLOATS else set()
        kinds |= {"signed", "unsigned"} if name in INTEGERS else set()
        if name in (*FLOATS, *INTEGERS) and name not in COMPARISONS:
            assert operation.kinds == kinds, name
    assert {t for t in ELEMENT_TYPES if t.kind not in ("string", "complex")} == CONVERTIBLE


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE], ids=str)
def test_mathematical_functions(dtype: ElementType) -> None:
    """Within the bounds of their comments; of double, what numpy itself may be wrong by is more."""
    cases = Cases()
    x = hard_values(dtype)
    for name in REFERENCES:
        cases.add(lambda v, name=name: apply(name, v), [dtype], [x], x, name)
    first, second = meshed(x, x)
    cases.add(lambda a, b: apply("pow", a, b), [dtype] * 2, [first, second], first, "pow")
    program = cases.program
    in_c, in_numpy = built(program).run(cases.inputs)[1], evaluated(program, cases.inputs)[1]
    for buffer, name in zip(program.outputs, [*REFERENCES, "pow"], strict=True):
        limit = bound(name, dtype.name) + (2 if dtype is DOUBLE else 0)
        errors = errors_of(in_c[buffer], in_numpy[buffer], name, dtype)
        assert errors.max() <= limit, (name, errors.max())


def errors_of(found: Array, rounded: Array, name: str, dtype: ElementType) -> Array:
    """In ulp, against the value in double."""
    x = hard_values(dtype).astype(np.float64)
    with np.errstate(all="ignore"):
        if dtype is FLOAT:
            wide = np.power(*meshed(x, x)) if name == "pow" else REFERENCES[name].numpy(x)
            assert_same_bits(rounded, wide.astype(np.float32))
            return float_errors(found, wide)
        same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        unit = np.spacing(np.where(np.isfinite(rounded), np.abs(rounded), 1.0))
        return np.where(same, 0, np.abs(found - rounded) / unit)


def test_truth_of_any_byte() -> None:
    x = np.arange(256, dtype=np.uint8).view(np.bool_)
    cases = Cases()
    cases.add(lambda v: apply("truth", v), [BOOL], [x], np.arange(256) != 0, "truth")
    cases.check()


def test_reinterpret_keeps_the_bits() -> None:
    """Of every pair of types of one size but bool; NaN and all."""
    cases = Cases()
    kinds = ("float", "half", "bits", "signed", "unsigned")
    types = [t for t in ELEMENT_TYPES if t.kind in kinds and not t.packed]
    for one, other in itertools.permutations(types, 2):
        if one.bits == other.bits and "unsigned" in (one.kind, other.kind):
            bits = np.random.default_rng(one.code).bytes(16 * one.size)
            given = np.frombuffer(bits, numpy_dtype(one))
            wanted = given.view(numpy_dtype(other))
            cases.add(
                lambda v, t=other: apply("reinterpret", v, dtype=t),
                [one],
                [given],
                wanted,
                f"{one.name}_{other.name}",
            )
    found = built(cases.program).run(cases.inputs)[1]
    for buffer, wanted in cases.wanted.items():
        assert found[buffer].tobytes() == wanted.tobytes(), buffer.name
        assert evaluated(cases.program, cases.inputs)[1][buffer].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4e2m1"])
def test_pack_fills_a_byte_from_its_low_bits(name: str) -> None:
    dtype, axis = BY_NAME[name], Axis(3)
    count = dtype.per_byte
    x = Buffer("x", (3 * count,), dtype, "input")
    y = Buffer("y", (3 * count,), dtype, "output")
    elements = [load(x, [along(axis) * count + n]) for n in range(count)]
    value = apply("pack", *elements, dtype=UINT8)
    program = Program((x,), (y,), (Loops(y, (along(axis),), (axis,), value),))
    codes = np.random.default_rng(1).integers(0, 1 << dtype.bits, 3 * count).astype(np.uint8)
    array = codes.view(numpy_dtype(dtype))
    assert check_in_c(program, {x: array})[y].tolist() == array.tolist()


# Expressions that are known at compile time, and the operators of Python.


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_of_literals_apply_gives_their_result(dtype: ElementType) -> None:
    """The very bits that the run would give."""
    values = hard_values(dtype)
    table = FLOATS if dtype.kind == "float" else INTEGERS
    for operation, function in table.items():
        kept = {"dtype": dtype} if operation == "power" else {}
        count = arity(function) - (dtype.kind != "float")
        for row in itertools.product(values[::2], repeat=count):
            found = apply(operation, *(literal(dtype, v) for v in row), **kept)
            assert isinstance(found, Const)
            assert found.dtype is dtype
            got = np.frombuffer(found.raw, numpy_dtype(dtype))
            assert_same_bits(got, np.array([exact(operation, dtype, *row)]))


def test_what_is_no_literal_is_an_operation() -> None:
    x = load(Buffer("x", (), FLOAT, "input"), [])
    assert apply("add", x, 0) is Apply(FLOAT, "add", (x, literal(FLOAT, 0)))
    assert apply("less", 1, x).dtype is BOOL
    assert apply("add", literal(FLOAT, 1), x) is not apply("add", x, literal(FLOAT, 1))
    packed = apply("pack", *[literal(BY_NAME["int4"], 1)] * 2, dtype=UINT8)
    assert isinstance(packed, Apply)


def test_pythons_operators() -> None:
    """Each on two expressions and, where a number may stand, on either side of it."""
    x, y = (load(Buffer(name, (), INT32, "input"), []) for name in "xy")
    three = literal(INT32, 3)
    pairs = [
        (x + y, apply("add", x, y)),
        (x + 3, apply("add", x, three)),
        (3 + x, apply("add", three, x)),
        (x - y, apply("sub", x, y)),
        (3 - x, apply("sub", three, x)),
        (x * 3, apply("mul", x, three)),
        (3 * x, apply("mul", three, x)),
        (x / y, apply("div", x, y)),
        (3 / x, apply("div", three, x)),
        (-x, apply("neg", x)),
        (x < y, apply("less", x, y)),
        (x <= 3, apply("less_equal", x, three)),
        (x > y, apply("less", y, x)),
        (x > 3, apply("less", three, x)),
        (x >= 3, apply("less_equal", three, x)),
        (x & y, apply("bit_and", x, y)),
        (x | y, apply("bit_or", x, y)),
        (x ^ y, apply("bit_xor", x, y)),
        (~x, apply("bit_not", x)),
    ]
    for found, wanted in pairs:
        assert found is wanted
    one, other = x < y, x < 3
    assert (one & other) is apply("and", one, other)
    assert (one | other) is apply("or", one, other)
    assert (one ^ other) is apply("xor", one, other)
    assert ~one is apply("not", one)


def test_where_and_compare_that_are_known() -> None:
    x, y = (load(Buffer(name, (), FLOAT, "input"), []) for name in "xy")
    yes, no = literal(BOOL, True), literal(BOOL, False)
    assert where(yes, x, y) is x
    assert where(no, x, y) is y
    assert where(compare("equal", x, y), x, x) is x
    assert where(no, 1, y) is y
    assert where(yes, 1, y) is literal(FLOAT, 1)
    assert isinstance(compare("equal", x, x), Apply)  # it may be a NaN
    assert compare("less", literal(FLOAT, 1), 2) is yes
    text = [literal(BY_NAME["string"], value) for value in (b"a", b"a\0")]
    assert compare("equal", *text) is no
    with pytest.raises(TypeError):
        where(yes, 1, 2)


def test_casts_of_literals_and_there_and_back() -> None:
    half, double = BY_NAME["float16"], BY_NAME["double"]
    x, f = load(Buffer("x", (), half, "input"), []), load(Buffer("f", (), FLOAT, "input"), [])
    assert cast(literal(FLOAT, 2.7), INT32) is literal(INT32, 2)
    assert cast(literal(FLOAT, np.nan), INT32) is literal(INT32, 0)
    assert cast(literal(INT32, 300), BY_NAME["int8"]) is literal(BY_NAME["int8"], 44)
    assert cast(x, half) is x
    assert cast(cast(x, FLOAT), half) is x
    assert cast(cast(f, double), FLOAT) is f
    assert cast(cast(f, half), FLOAT) is not f
    assert cast(cast(f, INT32), FLOAT) is not f


def test_an_index_has_an_affine_part_that_is_compared_by_value() -> None:
    axis = Axis(4)
    assert along(axis) * 2 + 1 == Index(1, ((axis, 2),))


@pytest.mark.parametrize("name", ["int8", "uint16", "bool", "float16"])
def test_one_choice_within_another(name: str) -> None:
    """Of short types too C has no warning of it."""
    dtype = BY_NAME[name]
    a, b, c = (np.array([v, 1 - v, v, 1 - v]).astype(numpy_dtype(dtype)) for v in (0, 1, 1))
    flag = np.array([True, True, False, False])
    cases = Cases()

    def element(test: Expr, x: Expr, y: Expr, z: Expr) -> Expr:
        return where(test, where(apply("not", test), x, where(test, y, z)), z)

    cases.add(element, [BOOL, dtype, dtype, dtype], [flag, a, b, c], np.where(flag, b, c), "where")
    if dtype.kind in ("signed", "unsigned"):

        def greatest(test: Expr, x: Expr, y: Expr, z: Expr) -> Expr:
            return apply("max", apply("min", where(test, x, y), z), apply("max", x, y))

        wanted = np.maximum(np.minimum(np.where(flag, a, b), c), np.maximum(a, b))
        cases.add(greatest, [BOOL, dtype, dtype, dtype], [flag, a, b, c], wanted, "max")
    cases.check()
