"""evaluate against the slow reference, and the C against evaluate, on random kernels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from onnxc.dtypes import numpy_dtype
from onnxc.evaluate import constant_value, run
from onnxc.expression import Checked, compare
from onnxc.kernel import Program
from onnxc.passes.merge_axes import merge_axes
from onnxc.passes.widen_rows import widen_rows
from onnxc.status import Status
from onnxc.tensor import Tensor, constant, elementwise, of_buffer
from tests.kernels import reference
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    assert_same_bits,
    buffer,
    check_in_c,
    const,
    evaluated,
    over,
)
from tests.kernels.strategies import Case, cases


def by_reference(case: Case) -> tuple[Status, list[NDArray[Any]]]:
    status, outputs = Status.OK, []
    for loops in case.loops:
        target = np.zeros(loops.out.shape, numpy_dtype(loops.out.dtype))
        status = status or reference.store(loops, case.inputs, target)
        outputs.append(target)
    return status, outputs


@given(cases())
@settings(max_examples=100)
def test_every_node_means_what_plain_numpy_says(case: Case) -> None:
    """Merged and widened it still does."""
    expected_status, (expected,) = by_reference(case)
    program = case.program
    for one in (program, merge_axes(program), widen_rows(merge_axes(program))):
        status, outputs = evaluated(one, case.inputs)
        assert status == expected_status
        assert_same_bits(outputs[program.outputs[0]], expected)


@given(cases(kernels=20))
@settings(max_examples=6)
def test_c_computes_the_same_bits(case: Case) -> None:
    check_in_c(case.program, case.inputs)


def test_c_computes_the_same_bits_with_clang(tool: Any) -> None:
    tool("clang")

    @given(cases(kernels=20))
    @settings(max_examples=4)
    def check(case: Case) -> None:
        check_in_c(case.program, case.inputs, "clang")

    check()


def test_constants_are_what_depends_on_no_input() -> None:
    """A value that would report a status is left to the run."""
    x = of_buffer(buffer("x", "input", FLOAT, 3))
    w = constant(np.array([1, 2, 3], np.float32), FLOAT)
    same = elementwise(lambda a, b: compare("equal", a, b), w, literal_of(2))
    values = constant_value(same)
    assert values is not None
    assert values.tolist() == [False, True, False]
    assert constant_value(elementwise(lambda a, b: compare("equal", a, b), w, x)) is None
    code = Status.INDEX_OUT_OF_RANGE
    checked = elementwise(lambda a, b: Checked(FLOAT, a, b, code), w, same)
    assert constant_value(checked) is None


def literal_of(value: float) -> Tensor:
    return constant(np.asarray(value, np.float32), FLOAT)


def test_a_failed_run_raises_with_the_name_of_the_status() -> None:
    y = buffer("y", "output", FLOAT)
    value = Checked(FLOAT, const(1, FLOAT), const(False, BOOL), Status.DIVISION_BY_ZERO)
    with pytest.raises(ArithmeticError, match="DIVISION_BY_ZERO"):
        run(Program((), (y,), (over(y, value),)), {})
