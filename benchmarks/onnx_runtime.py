"""onnxruntime on fixed buffers: one thread, all optimisations, IO binding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import harness
from onnxc import arrays
from onnxc.dtypes import BY_CODE, BY_NAME, ElementType, numpy_dtype
from onnxc.packing import pack_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray


def session(model: bytes | Path) -> ort.InferenceSession:
    """Raises UnavailableError where onnxruntime refuses the model or has no kernel for it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    source = model if isinstance(model, bytes) else str(model)
    try:
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common class
        raise harness.UnavailableError(_first_line(error)) from None


def candidate(model: bytes | Path, inputs: harness.Arrays) -> harness.Candidate:
    """onnxruntime on these very arrays; outputs in buffers that stay. Raises UnavailableError."""
    made = session(model)
    names = [told.name for told in made.get_outputs()]
    binding = made.io_binding()
    try:
        kept = [_bind_input(binding, told, inputs[told.name]) for told in made.get_inputs()]
        buffers = _bind_outputs(made, binding)
    except Exception as error:
        raise harness.UnavailableError(_first_line(error)) from None

    def outputs() -> dict[str, NDArray[Any]]:
        """Those without a buffer, which are strings, as onnxruntime gives them."""
        values = dict(zip(names, binding.get_outputs(), strict=True))
        return {name: buffers[name] if name in buffers else values[name].numpy() for name in names}

    run = harness.looped(lambda: made.run_with_iobinding(binding))
    return harness.Candidate(run, outputs, kept)


def _bind_input(
    binding: ort.IOBinding, told: ort.NodeArg, array: NDArray[Any]
) -> NDArray[Any] | ort.OrtValue:
    """What has to live as long as the binding. Raises UnavailableError for what is no tensor."""
    kind = told.type.removeprefix("tensor(").removesuffix(")")
    if kind not in BY_NAME:
        raise harness.UnavailableError(f"an input of type {told.type}")
    element = BY_NAME[kind]
    if element.kind == "string":
        strings = _strings(array)
        binding.bind_ortvalue_input(told.name, strings)
        return strings
    data = np.ascontiguousarray(array)
    if element.packed:
        data = pack_elements(data.reshape(-1), element)
    binding.bind_input(told.name, "cpu", 0, element.code, list(array.shape), data.ctypes.data)
    return data


def _bind_outputs(made: ort.InferenceSession, binding: ort.IOBinding) -> dict[str, NDArray[Any]]:
    """Buffers for all outputs but strings, whose sizes a first run tells."""
    for told in made.get_outputs():
        binding.bind_output(told.name)
    made.run_with_iobinding(binding)
    first = dict(zip([o.name for o in made.get_outputs()], binding.get_outputs(), strict=True))
    binding.clear_binding_outputs()
    buffers = {}
    for name, value in first.items():
        element, shape = BY_CODE[value.element_type()], value.shape()
        if element.kind == "string":
            binding.bind_output(name)
            continue
        buffers[name] = _buffer(element, shape)
        binding.bind_output(name, "cpu", 0, element.code, shape, buffers[name].ctypes.data)
    made.run_with_iobinding(binding)
    return buffers


def _buffer(element: ElementType, shape: list[int]) -> NDArray[Any]:
    if element.packed:
        return harness.aligned((element.packed_bytes(int(np.prod(shape))),), np.dtype(np.uint8))
    return harness.aligned(shape, numpy_dtype(element))


def _strings(array: NDArray[Any]) -> ort.OrtValue:
    """Strings in onnxruntime's own memory, where only a model's constant gets them as they are."""
    name, shape = "y", list(array.shape)
    values = map(arrays.text_bytes, array.reshape(-1).tolist())
    constant = TensorProto(name="x", data_type=TensorProto.STRING, dims=shape, string_data=values)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], [name])],
        "strings",
        [],
        [helper.make_tensor_value_info(name, TensorProto.STRING, shape)],
        [constant],
    )
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
    made = session(model.SerializeToString())
    binding = made.io_binding()
    binding.bind_output(name)
    made.run_with_iobinding(binding)
    return binding.get_outputs()[0]


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
