"""onnxc as an ONNX backend, for code and test suites written against onnx.backend.base.

    onnxc.backend.prepare(model).run([x, y])

Supports the device "CPU". Outputs come in the model's order, as a named tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.helper import (
    make_graph,
    make_model,
    make_opsetid,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
)

from onnxc.compiled import CompiledModel, compile
from onnxc.errors import ModelError, UsageError
from onnxc.pipeline import compile_model


class OnnxcRep(BackendRep):
    """A prepared model."""

    def __init__(self, model: CompiledModel) -> None:
        self._model = model
        self._outputs = namedtupledict("Outputs", [output.name for output in model.outputs])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`inputs`: arrays in the model's order, or by name; a single array for one input."""
        return self._outputs(*self._model.run(_by_name(self._model, inputs)).values())


class OnnxcBackend(Backend):
    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether onnxc can compile the model for the device."""
        if not cls.supports_device(device):
            return False
        try:
            compile_model(model)
        except ModelError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> OnnxcRep:
        """Compiles the model; of `kwargs`, `dims` and `name` are those of onnxc.compile.

        Raises ModelError, and UsageError for another device than CPU.
        """
        if not cls.supports_device(device):
            raise UsageError(f"device '{device}' is not supported; use 'CPU'")
        return OnnxcRep(compile(model, dims=kwargs.get("dims"), name=kwargs.get("name")))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node of the opset `opset_version` (default: the newest that onnx knows)."""
        if not isinstance(inputs, Mapping):
            inputs = dict(zip(node.input, inputs, strict=True))
        values = {name: np.asarray(value) for name, value in inputs.items() if name}
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = _model_of_node(node, values, outputs_info, version)
        return cls.run_model(model, values, device, **kwargs)


def _by_name(model: CompiledModel, inputs: Any) -> Mapping[str, Any]:
    if isinstance(inputs, Mapping):
        return inputs
    values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    names = [interface.name for interface in model.inputs]
    if len(values) != len(names):
        raise UsageError(
            f"{len(values)} inputs given; the model has {len(names)}: {', '.join(names)}"
        )
    return dict(zip(names, values, strict=True))


def _model_of_node(
    node: onnx.NodeProto,
    inputs: Mapping[str, Any],
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None,
    version: int,
) -> onnx.ModelProto:
    """A model of one node; types of its outputs from `outputs_info`, else inferred."""
    infos = [_info(name, value.dtype, value.shape) for name, value in inputs.items()]
    outputs = [name for name in node.output if name]
    if outputs_info is None:
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
    else:
        described = zip(outputs, outputs_info, strict=True)
        results = [_info(name, dtype, shape) for name, (dtype, shape) in described]
    graph = make_graph([node], node.op_type, infos, results)
    opsets = [make_opsetid("", version)]
    if node.domain not in ("", "ai.onnx"):
        opsets.append(make_opsetid(node.domain, 1))
    return onnx.shape_inference.infer_shapes(make_model(graph, opset_imports=opsets))


def _info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    code = onnx.TensorProto.STRING if dtype.kind in "OUS" else np_dtype_to_tensor_dtype(dtype)
    return make_tensor_value_info(name, code, shape)


is_compatible = OnnxcBackend.is_compatible
prepare = OnnxcBackend.prepare
run_model = OnnxcBackend.run_model
run_node = OnnxcBackend.run_node
supports_device = OnnxcBackend.supports_device
