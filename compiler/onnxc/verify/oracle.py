"""The references that outputs are compared with: onnxruntime and ONNX's reference evaluator.

Either may be missing or refuse a model; RefusedError then says why.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import onnx

from onnxc.dtypes import numpy_dtype
from onnxc.packing import pack_elements, unpack_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Compiled, Interface

REASON_LENGTH: Final = 300


class RefusedError(Exception):
    """A reference cannot run this model, or not with these inputs."""


class Oracle(Protocol):
    title: str

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs in the model's order, dtypes as CompiledModel has them."""


class OnnxRuntime:
    """onnxruntime on the CPU: every graph optimisation off, one thread."""

    def __init__(self, source: Path | onnx.ModelProto, compiled: Compiled) -> None:
        if importlib.util.find_spec("onnxruntime") is None:
            raise RefusedError("it is not installed (pip install onnxruntime)")
        try:
            import onnxruntime
        except ImportError as error:
            raise RefusedError(f"it cannot be imported: {_reason(error)}") from None

        self.title = f"onnxruntime {onnxruntime.__version__}"
        self._runtime: Any = onnxruntime
        self._compiled = compiled
        model = str(source) if isinstance(source, Path) else source.SerializeToString()
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what it has to say comes as an exception
        try:
            self._session: Any = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exception classes have no common base
            raise RefusedError(_reason(error)) from None

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        try:
            if all(map(_numpy_has, (*self._compiled.inputs, *self._compiled.outputs))):
                return [np.asarray(output) for output in self._session.run(None, dict(inputs))]
            return self._run_raw(inputs)
        except RefusedError:
            raise
        except Exception as error:  # its exception classes have no common base
            raise RefusedError(_reason(error)) from None

    def _run_raw(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """By way of raw memory: its numpy interface lacks the small types."""
        values = {i.name: self._ort_value(i, inputs[i.name]) for i in self._compiled.inputs}
        for name in inputs.keys() - values.keys():  # of those that the C has as constants
            values[name] = self._runtime.OrtValue.ortvalue_from_numpy(inputs[name])
        results = self._session.run_with_ort_values(None, values)
        pairs = zip(self._compiled.outputs, results, strict=True)
        return [_array(interface, result) for interface, result in pairs]

    def _ort_value(self, interface: Interface, array: NDArray[Any]) -> Any:
        dtype = interface.dtype
        if dtype.kind == "string":
            raise RefusedError("its Python interface takes no strings beside the small types")
        value = self._runtime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), dtype.code)
        raw = pack_elements(array.reshape(-1), dtype) if dtype.packed else array
        data = np.ascontiguousarray(raw).tobytes()
        if data:
            ctypes.memmove(value.data_ptr(), data, len(data))
        return value


class ReferenceEvaluator:
    """ONNX's own reference implementation, in numpy."""

    def __init__(self, source: Path | onnx.ModelProto, compiled: Compiled) -> None:
        from onnx.reference import ReferenceEvaluator as Evaluator

        self.title = f"ONNX reference evaluator {onnx.__version__}"
        try:
            self._evaluator = Evaluator(str(source) if isinstance(source, Path) else source)
        except Exception as error:  # any, from the operator implementations that it imports
            raise RefusedError(_reason(error)) from None

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = self._evaluator.run(None, dict(inputs))
        except Exception as error:  # any, from the operator implementations
            raise RefusedError(_reason(error)) from None
        return [np.asarray(result) for result in results]


ORACLES: Final[Mapping[str, Callable[[Path | onnx.ModelProto, Compiled], Oracle]]] = {
    "onnxruntime": OnnxRuntime,
    "reference": ReferenceEvaluator,
}


def _numpy_has(interface: Interface) -> bool:
    return numpy_dtype(interface.dtype).type.__module__ == "numpy"


def _array(interface: Interface, value: Any) -> NDArray[Any]:
    """The tensor of an OrtValue."""
    dtype, shape = interface.dtype, tuple(value.shape())
    if dtype.kind == "string" or value.element_type() != dtype.code:
        return np.asarray(value.numpy())
    count = math.prod(shape)
    data = ctypes.string_at(value.data_ptr(), dtype.packed_bytes(count)) if count else b""
    if dtype.packed:
        return unpack_elements(np.frombuffer(data, np.uint8), count, dtype).reshape(shape)
    return np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["(no message)"]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]
