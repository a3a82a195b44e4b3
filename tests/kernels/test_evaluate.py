"""evaluate against the slow reference, and the C against evaluate, on random kernels."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from numpy.typing import NDArray

from onnxc.dtypes import numpy_dtype
from onnxc.kernel import Status
from onnxc.passes.merge_axes import merge_axes
from onnxc.passes.widen_rows import widen_rows
from tests.kernels import reference
from tests.kernels.programs import (
    assert_same_bits,
    check_in_c,
    evaluated,
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
@settings(max_examples=150)
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
