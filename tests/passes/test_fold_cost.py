"""fold_cost: how many points a constant takes, or that it is none."""

from __future__ import annotations

import numpy as np

from onnxc.dtypes import BY_NAME
from onnxc.expression import Axis, Buffer, Expr, Fold, Index, along, guard, literal
from onnxc.op import load_operators
from onnxc.passes.fold_cost import points
from onnxc.tensor import Tensor, compute, constant, of_buffer

FLOAT = BY_NAME["float"]


def known(*shape: int) -> Tensor:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return constant(values, FLOAT)


def test_a_point_an_element() -> None:
    assert points(known(3, 4)) == 12
    assert points(known(3, 1).expand((3, 5))) == 15


def test_what_is_stored_on_the_way_counts() -> None:
    assert points(known(3, 4).stored().transpose([1, 0])) == 12
    assert points(known(3, 4).transpose([1, 0]).stored().expand((2, 4, 3))) == 12 + 24


def test_run_time_data_has_no_cost() -> None:
    x = of_buffer(Buffer("x", (3,), FLOAT, "input"))
    assert points(x) is None
    assert points(x.transpose([0]).stored()) is None
    assert points(x.expand((0, 3))) == 0


def test_a_fold_takes_a_point_a_term() -> None:
    """A matrix product of 2 x 3 x 4."""
    product = load_operators()["", "MatMul"].function(known(2, 3), known(3, 4))
    assert isinstance(product, Tensor)
    assert points(product) == 8 + 24


def test_what_is_under_a_condition_counts_with_what_it_folds() -> None:
    """y[i] = i < 3 ? sum over j of x[j] : 0, of 5 elements: each point of both."""
    terms = Axis(4)
    source = known(4)

    def element(i: Index) -> Expr:
        total = Fold(FLOAT, "sum", (terms,), source[[along(terms)]])
        return guard([(i, 3)], total, literal(FLOAT, 0))

    assert points(compute((5,), element)) == 5 + 5 + 5 * 4
