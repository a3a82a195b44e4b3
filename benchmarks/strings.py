"""Equal of strings, whose memory neither side takes from numpy without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import harness
import onnxc
from onnxc import arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


def runtime_call(
    proto: onnx.ModelProto, numbers: list[NDArray[np.int64]], out: NDArray[np.bool_]
) -> Callable[[], object]:
    """onnxruntime's Equal of the numbers as strings, which it makes itself: each one its own."""
    session = ort.InferenceSession(proto.SerializeToString(), harness.one_thread())
    binding = session.io_binding()
    for told, array in zip(proto.graph.input, numbers, strict=True):
        binding.bind_ortvalue_input(told.name, _as_strings(array))
    binding.bind_output("y", "cpu", 0, np.bool_, out.shape, out.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def _as_strings(numbers: NDArray[np.int64]) -> ort.OrtValue:
    shape = numbers.shape
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING)],
        "cast",
        [helper.make_tensor_value_info("x", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info("y", TensorProto.STRING, shape)],
    )
    opsets = [helper.make_opsetid("", 21)]
    proto = helper.make_model(graph, ir_version=10, opset_imports=opsets)
    session = ort.InferenceSession(proto.SerializeToString(), harness.one_thread())
    binding = session.io_binding()
    binding.bind_cpu_input("x", numbers)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


def c_call(
    proto: onnx.ModelProto,
    numbers: list[NDArray[np.int64]],
    out: NDArray[np.bool_],
    flags: str = "",
) -> Callable[[], object]:
    """onnxc's, on the same strings."""
    model = onnxc.compile(proto)
    with harness.c_flags(flags):
        library = model.build()
    memories = [
        arrays.to_memory(told, array.astype(str).astype(object))
        for told, array in zip(model.inputs, numbers, strict=True)
    ]
    ffi, function = library.ffi, library.lib.model_run
    addresses = [*(memory.address for memory in memories), out.ctypes.data, 0]
    types: list[Any] = ffi.typeof(function).args
    pointers = [ffi.cast(t, address) for t, address in zip(types, addresses, strict=True)]
    kept = (library, memories, out)
    return lambda: (function(*pointers), kept)
