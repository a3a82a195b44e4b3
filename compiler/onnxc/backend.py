"""onnxc as an ONNX backend, for code and test suites written against onnx.backend.base.

    onnxc.backend.prepare(model).run([x, y])

Supports the device "CPU". Outputs come in the model's order, as a named tuple. Open dimensions of a
model take their sizes from the arrays that it is run with.
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
from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, UsageError
from onnxc.passes.bind import OpenDim, bind_dims, open_dims
from onnxc.passes.load import load


class OnnxcRep(BackendRep):
    """A prepared model."""

    def __init__(self, model: CompiledModel) -> None:
        self._model = model
        self._outputs = namedtupledict("Outputs", [output.name for output in model.outputs])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`inputs`: arrays in the model's order, or by name; a single array for one input."""
        names = [interface.name for interface in self._model.inputs]
        return self._outputs(*self._model.run(_by_name(names, inputs)).values())


class OpenRep(BackendRep):
    """A prepared model with open dimensions, compiled for each set of sizes that it is run with."""

    def __init__(
        self, model: onnx.ModelProto, dims: Mapping[str, int] | None, name: str | None
    ) -> None:
        """
        dims  sizes of some of the open dimensions
        name  the C prefix
        """
        loaded = load(model)
        bind_dims(loaded, dims or {})
        self._model, self._dims, self._name = model, dict(dims or {}), name
        self._inputs = [value.name or "" for value in loaded.graph.inputs]
        self._open = open_dims(loaded)
        self._prepared: dict[tuple[int, ...], OnnxcRep] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As OnnxcRep.run; also raises ModelError where the model cannot have these sizes."""
        values = _by_name(self._inputs, inputs)
        sizes: dict[str, int] = {}
        for dim in self._open:
            sizes.setdefault(dim.key, _size(dim, values))
        key = tuple(sizes.values())
        if key not in self._prepared:
            dims = self._dims | sizes
            self._prepared[key] = OnnxcRep(compile(self._model, dims=dims, name=self._name))
        return self._prepared[key].run(values)


class OnnxcBackend(Backend):
    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether onnxc can compile the model for the device, as far as sizes do not decide it."""
        if not cls.supports_device(device):
            return False
        try:
            cls.prepare(model, device, **kwargs)
        except ModelError:
            return False
        return True

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> OnnxcRep | OpenRep:
        """Compiles the model; of `kwargs`, `dims` and `name` are those of onnxc.compile.

        Where dimensions stay open, the first run compiles. Raises ModelError, and UsageError for
        another device than CPU.
        """
        if not cls.supports_device(device):
            raise UsageError(Kind.ARGUMENT, f"device '{device}' is not supported; use 'CPU'")
        dims, name = kwargs.get("dims"), kwargs.get("name")
        try:
            return OnnxcRep(compile(model, dims=dims, name=name))
        except ModelError as error:
            if not all(problem.kind is Kind.OPEN_DIMENSIONS for problem in error.problems):
                raise
        return OpenRep(model, dims, name)

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


def _size(dim: OpenDim, inputs: Mapping[str, Any]) -> int:
    """Raises UsageError where the input is missing or has no such axis."""
    if dim.input not in inputs:
        raise UsageError(Kind.INPUT_ARRAYS, f"input '{dim.input}': missing")
    shape = np.shape(inputs[dim.input])
    if dim.axis >= len(shape):
        raise UsageError(
            Kind.INPUT_ARRAYS, f"{dim.place} needs a size; the array has rank {len(shape)}"
        )
    return int(shape[dim.axis])


def _by_name(names: Sequence[str], inputs: Any) -> Mapping[str, Any]:
    if isinstance(inputs, Mapping):
        return inputs
    values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(values) != len(names):
        raise UsageError(
            Kind.INPUT_ARRAYS,
            f"{len(values)} inputs given; the model has {len(names)}: {', '.join(names)}",
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
