"""Operators whose every output element is one expression of the matching input elements.

Most are one line of a table: a function of expressions, with the operator's attributes by keyword.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import reduce
from typing import Final

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, DOUBLE, FLOAT, INT64, UINT64, numpy_dtype
from onnxc.errors import RefusalError
from onnxc.expression import Const, Expr, apply, cast, checked, compare, lift, literal, where
from onnxc.op import newest_schema, op
from onnxc.ops.checks import broadcasts_to, require_choice
from onnxc.status import Status
from onnxc.tensor import Tensor, elementwise

Element = Callable[..., Expr]

POWERS: Final = (1, 2, 3)
"""What products give, of at most 1 ulp."""


@op("Identity", exact=True)
def identity(input: Tensor) -> Tensor:
    return input


@op("Equal", exact=True)
def equal(A: Tensor, B: Tensor) -> Tensor:
    """By value: a NaN equals nothing, -0 equals +0, strings by all their bytes."""
    return elementwise(lambda a, b: compare("equal", a, b), A, B)


def is_float(value: Expr) -> bool:
    return value.dtype.kind == "float"


def in_double(function: Element, *values: Expr) -> Expr:
    """Of integers, by way of double; the result is converted as Cast does."""
    wide = function(*(cast(value, DOUBLE) for value in values))
    return cast(wide, values[0].dtype)


# Of one element.


def _math(name: str) -> Element:
    return lambda x: apply(name, x)


def _rounding(name: str) -> Element:
    return lambda x: apply(name, x) if is_float(x) else x


def magnitude(x: Expr) -> Expr:
    """|x|; that of the least integer is itself."""
    if x.dtype.kind == "signed":
        return where(x < 0, -x, x)
    return apply("abs", x) if is_float(x) else x


def _sign(x: Expr) -> Expr:
    """A NaN stays as it is; a zero of either sign gives +0."""
    other = where(x < 0, -1, x) if x.dtype.kind != "unsigned" else x
    return where(compare("equal", x, 0), 0, where(x > 0, 1, other))


def _erf(x: Expr) -> Expr:
    return apply("erf", x) if is_float(x) else in_double(_erf, x)


def _exponential(x: Expr, alpha: float) -> Expr:
    return apply("expm1", x) * alpha


def _gelu(x: Expr, *, approximate: str) -> Expr:
    require_choice("approximate", approximate, ("none", "tanh"))
    if approximate == "none":
        return x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1)
    # 1 + tanh(y) is 2 sigmoid(2 y), where nothing cancels.
    twice = (x + x * x * x * 0.044715) * math.sqrt(8 / math.pi)
    return x * apply("sigmoid", twice)


def _shrink(x: Expr, *, bias: float, lambd: float) -> Expr:
    if not is_float(x):
        return in_double(lambda wide: _shrink(wide, bias=bias, lambd=lambd), x)
    return where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))


def _clamped(x: Expr, least: float, greatest: float) -> Expr:
    return apply("min", apply("max", x, least), greatest)


def _number(x: Expr) -> Expr:
    """Of an 8-bit float, its value as float."""
    return cast(x, FLOAT) if x.dtype.kind == "bits" else x


def _is_inf(x: Expr, *, detect_negative: int, detect_positive: int) -> Expr:
    x = _number(x)
    found = apply("is_inf", x)
    if detect_negative and detect_positive:
        return found
    if not detect_negative and not detect_positive:
        return literal(BOOL, False)
    return found & (x > 0 if detect_positive else x < 0)


def _swish(x: Expr, *, alpha: float) -> Expr:
    return x * apply("sigmoid", x * alpha)


UNARY: dict[str, Element] = {
    **{name: _math(name.lower()) for name in ["Exp", "Log", "Sqrt", "Sigmoid", "Softplus"]},
    **{name: _math(name.lower()) for name in ["Acos", "Asin", "Atan", "Acosh", "Asinh", "Atanh"]},
    **{name: _math(name.lower()) for name in ["Cos", "Sin", "Tan", "Cosh", "Sinh", "Tanh"]},
    **{name: _rounding(name.lower()) for name in ["Ceil", "Floor", "Round"]},
    "Abs": magnitude,
    "BitwiseNot": lambda x: ~x,
    "Celu": lambda x, *, alpha: where(x > 0, x, _exponential(x / alpha, alpha)),
    "Elu": lambda x, *, alpha: where(x < 0, _exponential(x, alpha), x),
    "Erf": _erf,
    "Gelu": _gelu,
    "HardSigmoid": lambda x, *, alpha, beta: _clamped(x * alpha + beta, 0, 1),
    "HardSwish": lambda x: x * _clamped(x * (1 / 6) + 0.5, 0, 1),
    "IsInf": _is_inf,
    "IsNaN": lambda x: apply("is_nan", _number(x)),
    "LeakyRelu": lambda x, *, alpha: where(x < 0, x * alpha, x),
    "Mish": lambda x: x * apply("tanh", apply("softplus", x)),
    "Neg": lambda x: -x,
    "Not": lambda x: ~x,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: apply("max", x, 0),
    "Selu": lambda x, *, alpha, gamma: where(x > 0, x, _exponential(x, alpha)) * gamma,
    "Shrink": _shrink,
    "Sign": _sign,
    "Softsign": lambda x: x / (magnitude(x) + 1),
    "Swish": _swish,
    "ThresholdedRelu": lambda x, *, alpha: where(x > alpha, x, 0),
}


# Of two elements.


def _div(a: Expr, b: Expr) -> Expr:
    """Of integers toward zero; by zero the status says so."""
    return a / b if is_float(a) else checked(a / b, _not_zero(b), Status.DIVISION_BY_ZERO)


def _not_zero(value: Expr) -> Expr:
    return ~compare("equal", value, 0)


def _mod(a: Expr, b: Expr, *, fmod: int) -> Expr:
    """With `fmod` the sign of the dividend, as C has it, else that of the divisor."""
    if is_float(a):
        rest = apply("mod", a, b)
        opposite = (rest < 0) ^ (b < 0)
        signed = where(
            _not_zero(rest), where(opposite, rest + b, rest), where(b < 0, lift(-0.0, a.dtype), 0)
        )
        return rest if fmod else where(apply("is_nan", rest), rest, signed)
    rest = apply("remainder", a, b)
    if not fmod and a.dtype.kind == "signed":
        rest = where(_not_zero(rest) & ((rest < 0) ^ (b < 0)), rest + b, rest)
    return checked(rest, _not_zero(b), Status.DIVISION_BY_ZERO)


def _pow(x: Expr, y: Expr) -> Expr:
    """In the type of the base; integers wrap, and have 0 to -1 the greatest integer."""
    if isinstance(y, Const) and (is_float(x) or y.dtype.kind in ("signed", "unsigned")):
        factors = float(np.frombuffer(y.raw, numpy_dtype(y.dtype))[0])
        if factors in POWERS:
            return reduce(lambda a, b: a * b, [x] * int(factors))
    if is_float(x):
        return apply("pow", x, cast(y, x.dtype))
    if y.dtype.kind in ("float", "half"):
        return in_double(lambda a, b: apply("pow", a, b), x, y)
    exponent = apply("min", y, 2**63 - 1) if y.dtype is UINT64 else y
    return apply("power", x, cast(exponent, INT64), dtype=x.dtype)


def _bit_shift(x: Expr, y: Expr, *, direction: str) -> Expr:
    require_choice("direction", direction, ("LEFT", "RIGHT"))
    return apply(f"shift_{direction.lower()}", x, y)


BINARY: dict[str, Element] = {
    "Add": lambda a, b: a + b,
    "And": lambda a, b: a & b,
    "BitShift": _bit_shift,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "Div": _div,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Mod": _mod,
    "Mul": lambda a, b: a * b,
    "Or": lambda a, b: a | b,
    "Pow": _pow,
    "Sub": lambda a, b: a - b,
    "SwiGLU": lambda a, b, *, alpha: _swish(a, alpha=alpha) * b,
    "Xor": lambda a, b: a ^ b,
}


def _define(name: str, element: Element) -> None:
    """The operator `name` with the schema's names for what `element` takes."""
    parameters = inspect.signature(element).parameters.values()
    formal = [formal.name for formal in newest_schema("", name).inputs]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

    def function(*tensors: Tensor, **attributes: object) -> Tensor:
        return elementwise(lambda *values: element(*values, **attributes), *tensors)

    inputs = [inspect.Parameter(name, kind) for name in formal]
    op(name, signature=inspect.Signature([*inputs, *keywords]))(function)


for _name, _element in (UNARY | BINARY).items():
    _define(_name, _element)


@op("PRelu")
def prelu(X: Tensor, slope: Tensor) -> Tensor:
    """The slope broadcasts to X, X never to the slope."""
    if not broadcasts_to(slope.shape, X.shape):
        fact = f"the slope {list(slope.shape)} does not broadcast to X {list(X.shape)}"
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST,
            fact,
            "a slope a channel needs a dimension of 1 for each after it",
        )
    return elementwise(lambda x, factor: where(x < 0, x * factor, x), X, slope)


# Of any number of elements.


def _of_all(operation: str, tensors: tuple[Tensor, ...]) -> Tensor:
    return elementwise(
        lambda *values: reduce(lambda a, b: apply(operation, a, b), values), *tensors
    )


@op("Sum")
def sum_(*data_0: Tensor) -> Tensor:
    return _of_all("add", data_0)


@op("Mean")
def mean(*data_0: Tensor) -> Tensor:
    return elementwise(lambda x: x / len(data_0), _of_all("add", data_0))


@op("Max")
def max_(*data_0: Tensor) -> Tensor:
    return _of_all("max", data_0)


@op("Min")
def min_(*data_0: Tensor) -> Tensor:
    return _of_all("min", data_0)


@op("Clip")
def clip(input: Tensor, min: Tensor | None, max: Tensor | None) -> Tensor:
    """Min(max, Max(input, min)): where the bounds cross, the greatest; a NaN bound gives NaN."""
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and not broadcasts_to(bound.shape, input.shape):
            raise RefusalError(
                Kind.NOT_ONE_ELEMENT, f"{name} has shape {list(bound.shape)}", "give a scalar"
            )
    bounded = input
    if min is not None:
        bounded = elementwise(lambda x, least: apply("max", x, least), bounded, min)
    if max is not None:
        bounded = elementwise(lambda x, most: apply("min", x, most), bounded, max)
    return bounded
