"""What follows sums of integers as a scale, bounds of the integer and a divisor: the same bytes."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from onnxc.dtypes import BY_NAME, FLOAT, INT32
from onnxc.expression import Axis, Buffer, Const, Expr, along, apply, cast, literal, load
from onnxc.tuned.integer_finish import Finish, finish_of
from onnxc.tuned.integer_product import Epilogue
from tests.kernels.programs import buffer

SUMS: Final = np.r_[-(2**31), 2**31 - 1, -3000:3000].astype(np.float32)
NUMBER: Final = cast(load(buffer("sums", "workspace", INT32, 1), [along(Axis(1))]), FLOAT)


def quotient(scale: float, least: float | None, most: float | None, divisor: float | None) -> Expr:
    value = NUMBER * literal(FLOAT, scale)
    for operation, bound in (("max", least), ("min", most), ("div", divisor)):
        if bound is not None:
            value = apply(operation, value, literal(FLOAT, bound))
    return value


def finish(value: Expr, zero: int, target: str) -> Finish | None:
    point = literal(FLOAT, float(zero))
    assert isinstance(point, Const)
    return finish_of(Epilogue(None, NUMBER, value, point, BY_NAME[target]))


@pytest.mark.parametrize(("target", "zero"), [("int8", -128), ("int8", 3), ("uint8", 200)])
@pytest.mark.parametrize(
    ("scale", "least", "most", "divisor"),
    [
        (0.013, None, None, None),
        (0.5, None, None, 1.0),
        (-0.25, 0.0, None, 0.5),
        (0.1, -0.0, 6.0, 0.023),
        (0.1, 0.35, 0.45, 0.1),
        (0.1, -1e30, 1e30, 3.0),
        (1e30, None, np.inf, 1e-9),
        (0.0, -2.5, -2.5, 1.0),
    ],
)
def test_bounds_of_the_integer_give_the_same_bytes(
    scale: float,
    least: float | None,
    most: float | None,
    divisor: float | None,
    target: str,
    zero: int,
) -> None:
    found = finish(quotient(scale, least, most, divisor), zero, target)
    assert found is not None
    with np.errstate(over="ignore"):
        products = SUMS * np.float32(scale)
        lower, upper = np.float32(-np.inf if least is None else least), most
        bounded = np.minimum(
            np.maximum(products, lower), np.float32(np.inf if upper is None else upper)
        )
        slow = np.rint(bounded / np.float32(1 if divisor is None else divisor))
        fast = np.rint(products / found.divisor)
    info = np.iinfo(target)
    wanted = np.clip(slow + zero, info.min, info.max)
    np.testing.assert_array_equal(np.clip(fast, found.least, found.most) + zero, wanted)


@pytest.mark.parametrize(
    "value",
    [
        quotient(np.inf, None, None, None),
        quotient(np.nan, None, None, None),
        quotient(0.1, 2.0, 1.0, 0.1),
        quotient(0.1, np.nan, None, 0.1),
        quotient(0.1, None, None, -0.1),
        quotient(0.1, None, None, 0.0),
        quotient(0.1, None, None, np.inf),
        quotient(0.1, 0.0, 6.0, 0.1) + literal(FLOAT, 1.0),
        NUMBER,
    ],
)
def test_what_is_more_than_that(value: Expr) -> None:
    """A ratio may be a NaN, bounds cross or are none, quotients are in another order."""
    assert finish(value, 0, "int8") is None


def test_scales_are_known() -> None:
    def scaled(data: list[float] | None) -> Finish | None:
        values = None if data is None else np.array(data, np.float32)
        kind = "workspace" if data is None else "constant"
        factor = load(Buffer("scales", (2,), FLOAT, kind, values), (along(Axis(2)),))
        return finish(NUMBER * factor, 0, "int8")

    assert scaled([0.5, 0.25])
    assert not scaled([0.5, np.inf])
    assert not scaled(None)
