"""fix: --fix, which makes an input of the graph a constant."""

from __future__ import annotations

import difflib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Union

import numpy as np
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.errors import OptionError, OptionFault, RefusalError
from onnxc.protobuf.where import quoted
from onnxc.values import element_type_of, shape_text, static_shape, tensor_of, type_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scalar = str | int | float | bool
Fix = Union[Scalar, Sequence[Scalar], "NDArray[Any]"]
"""One value, which fills an input, or one for each of its elements, row by row."""
_BOOLS: Final = {"true": True, "1": True, "false": False, "0": False}


class FixError(OptionError):
    """Wrong values: of each its input, the value, and what is wrong."""

    option = "--fix"
    argument = "fix"


def options(fix: Mapping[str, Fix]) -> str:
    """Values as the command line takes them."""
    return " ".join(f"--fix {shlex.quote(f'{name}={text(value)}')}" for name, value in fix.items())


def argument(fix: Mapping[str, Fix]) -> str:
    """Values as onnxc.compile takes them."""
    given = (f"{json.dumps(name, ensure_ascii=False)}: {value!r}" for name, value in fix.items())
    return f"fix={{{', '.join(given)}}}"


def text(value: Fix) -> str:
    """As in "true", "16000" or "1,3,2"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    return ",".join(map(text, np.asarray(value).reshape(-1).tolist()))


def fix_inputs(model: ir.Model, fix: Mapping[str, Fix]) -> dict[str, NDArray[Any]]:
    """Makes inputs constants, of one value or one for each element; returns their arrays by name.

    A text, of values between commas, is read by the input's type. Raises FixError for names that
    are no inputs, values that the type does not have, as many as there are no elements, and inputs
    of open shape; the model is then unchanged.
    """
    inputs = {value.name or "": value for value in model.graph.inputs}
    arrays: dict[str, NDArray[Any]] = {}
    faults: list[OptionFault] = []
    for name, value in fix.items():
        try:
            if name not in inputs:
                raise RefusalError(Kind.UNKNOWN_INPUT, _unknown(name, list(inputs)))
            arrays[name] = _filled(inputs[name], value)
        except RefusalError as refusal:
            faults.append(OptionFault(refusal.kind, name, value, refusal.fact))
    if faults:
        raise FixError(faults)
    for name, array in arrays.items():
        fixed = inputs[name]
        assert fixed.dtype is not None
        fixed.const_value = tensor_of(array, element_type_of(fixed.dtype), name)
        model.graph.inputs.remove(fixed)
        model.graph.initializers.add(fixed)
    return arrays


def _unknown(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean {quoted(close[0])}?" if close else ""
    return f"the model has no such input{meant}"


def _filled(value: ir.Value, given: Fix) -> NDArray[Any]:
    if not isinstance(value.type, ir.TensorType):
        raise RefusalError(Kind.FIX_TYPE, f"the input is {type_text(value.type)}, not a tensor")
    dtype = element_type_of(value.type.dtype)
    shape = static_shape(value)
    if shape is None:
        raise RefusalError(
            Kind.FIX_OPEN_SHAPE, "the shape of the input is open: fix its dimensions with --dim"
        )
    elements = [_element(dtype, scalar) for scalar in _scalars(dtype, given)]
    if len(elements) not in (1, math.prod(shape)):
        fact = f"{len(elements)} values where {shape_text(value)} has {math.prod(shape):,}"
        raise RefusalError(Kind.FIX_VALUE, f"{fact}: give one, which fills it, or as many")
    array = np.empty(shape, numpy_dtype(dtype))
    array.reshape(-1)[:] = elements
    return array


def _scalars(dtype: ElementType, given: Fix) -> list[Scalar]:
    if isinstance(given, str):
        return list(given.split(","))
    if isinstance(given, bool | int | float | np.generic):
        return [given]
    try:
        scalars: list[Scalar] = np.asarray(given).reshape(-1).tolist()
    except ValueError:  # rows of different lengths
        raise RefusalError(Kind.FIX_VALUE, f"not values of type {dtype.name}") from None
    return scalars


def _element(dtype: ElementType, given: Scalar) -> bool | int | float:
    """Raises RefusalError where `given` is no value of the type."""
    fact = f"not a value of type {dtype.name}"
    try:
        match dtype.kind:
            case "bool":
                return _bool(given)
            case "signed" | "unsigned":
                number = _integer(given)
                low = -(1 << dtype.bits - 1) if dtype.kind == "signed" else 0
                if not low <= number < low + (1 << dtype.bits):
                    raise ValueError
                return number
            case "float" | "half":
                return _float(dtype, given)
    except (ValueError, KeyError, OverflowError):
        raise RefusalError(Kind.FIX_VALUE, fact) from None
    raise RefusalError(Kind.FIX_TYPE, f"inputs of type {dtype.name} cannot be fixed")


def _bool(given: Scalar) -> bool:
    if isinstance(given, bool | np.bool_):
        return bool(given)
    return _BOOLS[str(given).lower()]


def _integer(given: Scalar) -> int:
    if isinstance(given, str):
        return int(given)
    if isinstance(given, bool | float):
        raise ValueError
    return int(given)


def _float(dtype: ElementType, given: Scalar) -> float:
    if isinstance(given, bool):
        raise ValueError
    number = float(given)
    with np.errstate(over="ignore"):
        if math.isfinite(number) and not np.isfinite(np.asarray(number, numpy_dtype(dtype))):
            raise ValueError
    return number
