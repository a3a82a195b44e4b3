"""fix: --fix, which makes an input of the graph a constant."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.errors import RefusalError, UsageError
from onnxc.protobuf.where import quoted
from onnxc.values import element_type_of, static_shape, tensor_of, type_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

Fix = str | int | float | bool
_BOOLS: Final = {"true": True, "1": True, "false": False, "0": False}


class FixError(UsageError):
    """Wrong values: of each its input, the value, and what is wrong; worded for a command line."""

    def __init__(self, faults: Sequence[tuple[str, object, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(f"--fix {name}={value}: {fact}" for name, value, fact in faults))

    def in_python(self) -> UsageError:
        """The same for a caller of onnxc.compile."""
        return UsageError(
            "\n".join(f"fix[{name!r}] = {value!r}: {fact}" for name, value, fact in self.faults)
        )


def options(fix: Mapping[str, Fix]) -> str:
    """Values as the command line takes them."""
    return " ".join(f"--fix {shlex.quote(f'{name}={value}')}" for name, value in fix.items())


def fix_inputs(model: ir.Model, fix: Mapping[str, Fix]) -> dict[str, NDArray[Any]]:
    """Makes inputs constants, filled with one value each; returns their arrays by name.

    A text is read by the input's type. Raises FixError for names that are no inputs, values that
    the type does not have and inputs of open shape; the model is then unchanged.
    """
    inputs = {value.name or "": value for value in model.graph.inputs}
    arrays: dict[str, NDArray[Any]] = {}
    faults: list[tuple[str, object, str]] = []
    for name, value in fix.items():
        try:
            if name not in inputs:
                raise RefusalError(_unknown(name, list(inputs)))
            arrays[name] = _filled(inputs[name], value)
        except RefusalError as refusal:
            faults.append((name, value, refusal.fact))
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
        raise RefusalError(f"the input is {type_text(value.type)}, not a tensor")
    dtype = element_type_of(value.type.dtype)
    shape = static_shape(value)
    if shape is None:
        raise RefusalError("the shape of the input is open: fix its dimensions with --dim")
    element = _element(dtype, given)
    return np.full(shape, element, numpy_dtype(dtype))


def _element(dtype: ElementType, given: Fix) -> bool | int | float:
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
        raise RefusalError(fact) from None
    raise RefusalError(f"inputs of type {dtype.name} cannot be fixed")


def _bool(given: Fix) -> bool:
    if isinstance(given, bool | np.bool_):
        return bool(given)
    return _BOOLS[str(given).lower()]


def _integer(given: Fix) -> int:
    if isinstance(given, str):
        return int(given)
    if isinstance(given, bool | float):
        raise ValueError
    return int(given)


def _float(dtype: ElementType, given: Fix) -> float:
    if isinstance(given, bool):
        raise ValueError
    number = float(given)
    with np.errstate(over="ignore"):
        if math.isfinite(number) and not np.isfinite(np.asarray(number, numpy_dtype(dtype))):
            raise ValueError
    return number
