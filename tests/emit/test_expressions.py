"""The C of expressions: casts, literals and parentheses only where C needs them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxc.dtypes import BOOL, BY_NAME, FLOAT, INT32, INT64, UINT8, ElementType
from onnxc.emit.ranges import Range, limits, range_of
from onnxc.expression import (
    Axis,
    Checked,
    Expr,
    Load,
    affine,
    along,
    apply,
    at,
    cast,
    compare,
    load,
    where,
)
from onnxc.kernel import Program
from onnxc.status import Status
from onnxc.traversal import walk
from tests.kernels.programs import buffer, emitted, evaluated, over

INT8 = BY_NAME["int8"]
AXIS = Axis(4)


def element(dtype: ElementType, name: str = "x") -> Expr:
    return load(buffer(name, "input", dtype, 4), [along(AXIS)])


SMALL, BYTE, INT, LONG, TRUE = map(element, (INT8, UINT8, INT32, INT64, BOOL), "abcde")
REAL, OTHER = element(FLOAT, "f"), element(FLOAT, "g")


def program_of(value: Expr) -> Program:
    out = buffer("out", "output", value.dtype, 4)
    inputs = dict.fromkeys(node.buffer for node in walk(value) if isinstance(node, Load))
    return Program(tuple(inputs), (out,), (over(out, value, AXIS),))


def assigned(value: Expr) -> str:
    """What the kernel assigns to out[i], on one line."""
    text = emitted(program_of(value)).c_source
    (found,) = re.findall(r"out\[i\] = (.*?);", text, re.DOTALL)
    return re.sub(r"\s+", " ", found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # Where the result fits, C's own arithmetic; where it may not, unsigned.
        (cast(SMALL, INT32) - 83, "(int32_t)a[i] - 83"),
        (cast(SMALL, INT32) * cast(BYTE, INT32), "(int32_t)a[i] * (int32_t)b[i]"),
        (INT - 83, "(int32_t)((uint32_t)a[i] - (uint32_t)83)"),
        (cast(TRUE, INT8) + 1, "(int8_t)((int8_t)a[i] + 1)"),
        (-cast(BYTE, INT64), "-(int64_t)a[i]"),
        (-SMALL, "(int8_t)(0 - (uint32_t)a[i])"),
        (at(along(AXIS)) + 1, "(int64_t)i + 1"),
        # A negative literal is subtracted.
        (REAL + -2, "a[i] - 2.0f"),
        (REAL - -2, "a[i] + 2.0f"),
        (cast(SMALL, INT32) - -5, "(int32_t)a[i] + 5"),
        # A literal is plain beside an int64, and has its own type beside a literal.
        (where(TRUE, LONG, -1), "a[i] ? b[i] : -1"),
        (where(TRUE, at(affine(1, [])), 0), "a[i] ? INT64_C(1) : INT64_C(0)"),
        # Logic needs no cast, and what is not equal is written so.
        ((LONG > 0) & TRUE, "(0 < a[i]) & b[i]"),
        (~compare("equal", LONG, 7), "a[i] != 7"),
        # An argument needs no parentheses.
        (apply("max", REAL - OTHER, 0), "onnxc_at_least_float(a[i] - b[i], 0.0f)"),
    ],
)
def test_text(value: Expr, text: str) -> None:
    assert assigned(value) == text


@pytest.mark.parametrize("value", [SMALL, INT, LONG])
def test_what_changes_no_integer_is_left_out(value: Expr) -> None:
    assert value + 0 is value
    assert 0 + value is value
    assert value - 0 is value
    assert value * 1 is value
    assert value / 1 is value
    assert 0 - value is not value


def test_what_changes_no_truth_is_left_out() -> None:
    true, false = compare("equal", LONG, LONG), ~compare("equal", LONG, LONG)
    assert TRUE & true is TRUE
    assert TRUE | false is TRUE
    assert TRUE & false is not false  # what TRUE reports must not be lost
    assert REAL + 0 is not REAL  # -0 + 0 is +0


def test_a_wider_integer_on_the_way_makes_no_difference() -> None:
    assert cast(cast(SMALL, INT64), FLOAT) is cast(SMALL, FLOAT)
    assert cast(cast(SMALL, INT64), INT8) is SMALL
    assert cast(cast(BYTE, INT8), INT32) is not cast(BYTE, INT32)


def test_the_same_check_is_made_once() -> None:
    fine = LONG > 0
    one = Checked(INT64, where(fine, LONG, 1), fine, Status.INDEX_OUT_OF_RANGE)
    other = Checked(INT64, where(fine, LONG, 2), fine, Status.INDEX_OUT_OF_RANGE)
    assert emitted(program_of(one * other)).c_source.count("flags |=") == 1


def test_adding_to_a_float_is_written_so() -> None:
    out = buffer("out", "output", FLOAT, 4)
    steps = [over(out, REAL, AXIS), over(out, OTHER, AXIS)]
    object.__setattr__(steps[1], "accumulate", "add")
    inputs = tuple(node.buffer for node in (REAL, OTHER) if isinstance(node, Load))
    assert "out[i] += a[i];" in emitted(Program(inputs, (out,), tuple(steps))).c_source


Step = Callable[[Expr, Expr], Expr]
STEPS: list[Step] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: -x,
    lambda x, y: x / y,
    lambda x, y: apply("remainder", x, y),
    lambda x, y: apply("max", x, y),
    lambda x, y: apply("min", x, y),
    lambda x, y: where(x < y, x, y),
    lambda x, y: x + 100,
    lambda x, y: x / 7,
    lambda x, y: apply("remainder", y, 5),
    lambda x, y: cast(cast(x, INT8), x.dtype),
    lambda x, y: cast(cast(x, UINT8), x.dtype),
    lambda x, y: cast(x < y, x.dtype),
]


@st.composite
def integers(draw: st.DrawFn) -> Expr:
    dtype = draw(st.sampled_from([INT32, INT64]))
    values = [cast(SMALL, dtype), cast(BYTE, dtype), cast(at(along(AXIS)), dtype)]
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6)):
        one, other = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
        values.append(step(one, other))
    return values[-1]


@given(integers(), st.integers(0, 2**32))
def test_every_value_lies_within_its_range(value: Expr, seed: int) -> None:
    known: dict[Expr, Range] = {}
    for node in walk(value):
        found = range_of(node, known)
        if found is not None:
            known[node] = found
    program = program_of(value)
    random = np.random.default_rng(seed)
    inputs = {
        b: np.asarray(random.choice([*limits(b.dtype), *random.integers(*limits(b.dtype), 4)], 4))
        for b in program.inputs
    }
    given = {b: array.astype(b.dtype.numpy) for b, array in inputs.items()}
    _, outputs = evaluated(program, given)
    (result,) = outputs.values()
    least, greatest = known[value]
    assert least <= result.min() <= result.max() <= greatest
