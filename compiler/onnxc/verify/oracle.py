"""The references that outputs are compared with: onnxruntime and ONNX's reference evaluator.

Either may be missing or refuse a model; RefusedError then says why. `taps` are names of values of
the main graph, whose tensors follow the outputs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import onnx

from onnxc.dtypes import numpy_dtype
from onnxc.kernel import every_step
from onnxc.packing import pack_elements, unpack_elements
from onnxc.verify.execute import CrashedError, apart

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from numpy.typing import NDArray

    from onnxc.pipeline import Compiled, Interface

REASON_LENGTH: Final = 300
PROTOBUF_LIMIT: Final = 2**31 - 2**20


class RefusedError(Exception):
    """A reference cannot run this model, or not with these inputs."""


class Oracle(Protocol):
    """A reference with a model.

    title    its name and version
    version  of it alone
    """

    title: str
    version: str

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs in the model's order, then the taps; dtypes as CompiledModel has them."""


class OnnxRuntime:
    """onnxruntime on the CPU: every graph optimisation off, one thread."""

    def __init__(
        self, source: Path | onnx.ModelProto, compiled: Compiled, taps: Sequence[str] = ()
    ) -> None:
        if importlib.util.find_spec("onnxruntime") is None:
            raise RefusedError("it is not installed (pip install onnxruntime)")
        try:
            import onnxruntime
        except ImportError as error:
            raise RefusedError(f"it cannot be imported: {_reason(error)}") from None

        self.version = str(onnxruntime.__version__)
        self.title = f"onnxruntime {self.version}"
        self._runtime: Any = onnxruntime
        self._compiled = compiled
        self._taps = taps
        self._divides = any(
            origin.operator.partition("-")[0] in ("Div", "Mod") and "int" in origin.signature
            for step in every_step(compiled.program)
            for origin in step.origins
        )
        if taps:
            source = _with_outputs(source, taps)
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
        """In a process of its own where it may divide the least integer by -1, which traps."""
        if not self._divides:
            return self._run(inputs)

        def send(sender: Connection) -> None:
            try:
                sender.send(self._run(inputs))
            except RefusedError as refusal:
                sender.send(refusal)

        try:
            with apart(send) as receive:
                found: list[NDArray[Any]] | RefusedError = receive()
        except CrashedError as crash:
            raise RefusedError(f"it crashed ({crash})") from None
        if isinstance(found, RefusedError):
            raise found
        return found

    def _run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        try:
            if self._taps or all(
                map(_numpy_has, (*self._compiled.inputs, *self._compiled.outputs))
            ):
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

    def __init__(
        self, source: Path | onnx.ModelProto, compiled: Compiled, taps: Sequence[str] = ()
    ) -> None:
        from onnx.reference import ReferenceEvaluator as Evaluator

        self.version = str(onnx.__version__)
        self.title = f"ONNX reference evaluator {self.version}"
        self._taps = taps
        try:
            self._evaluator = Evaluator(str(source) if isinstance(source, Path) else source)
        except Exception as error:  # any, from the operator implementations that it imports
            raise RefusedError(_reason(error)) from None

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                every: Any = self._evaluator.run(None, dict(inputs), intermediate=True)
                names = (*self._evaluator.output_names, *self._taps)
                results = [every[name] for name in names]
        except Exception as error:  # any, from the operator implementations
            raise RefusedError(_reason(error)) from None
        return [np.asarray(result) for result in results]


Make = Callable[["Path | onnx.ModelProto", "Compiled", Sequence[str]], Oracle]
ORACLES: Final[Mapping[str, Make]] = {
    "onnxruntime": OnnxRuntime,
    "reference": ReferenceEvaluator,
}


def _with_outputs(source: Path | onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy of the model that returns these values, too."""
    model = onnx.load(source) if isinstance(source, Path) else onnx.ModelProto()
    if isinstance(source, onnx.ModelProto):
        model.CopyFrom(source)
    if model.ByteSize() >= PROTOBUF_LIMIT:
        raise RefusedError("with all tensors as outputs the model exceeds what protobuf can write")
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model


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
