"""Examples of operators: one node and its inputs each. Results are computed, never stored.

`<Operator>.json` is a list of {name, since, until, node: {operator, inputs, outputs, attributes},
inputs, constants}. An example counts from version `since` of its operator on (1 where left out), up
to version `until`, for the versions that allow its element types. `constants` names the inputs that
the model holds as initializers; an attribute {dtype, shape, values} is a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx

from onnxc.arrays import object_array, text, text_bytes
from onnxc.dtypes import BY_CODE

Array: TypeAlias = np.ndarray[Any, Any]


def stored(operator: str) -> list[dict[str, Any]]:
    """The examples in the operator's file; none where it has no file."""
    file = resources.files(__name__) / f"{operator}.json"
    if not file.is_file():
        return []
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def array(tensor: Mapping[str, Any]) -> Array:
    """A tensor of a file, {name, dtype, shape, values}, as numpy holds it."""
    dtype = np.dtype(getattr(ml_dtypes, tensor["dtype"], tensor["dtype"]))
    return np.array(tensor["values"], dtype=dtype).reshape(tensor["shape"])


def tensor(name: str, array: Array) -> dict[str, Any]:
    """The inverse of `array`."""
    return {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "values": _plain(array).tolist(),
    }


def inputs(example: Mapping[str, Any]) -> dict[str, Array]:
    return {tensor["name"]: array(tensor) for tensor in example["inputs"]}


def fits(example: Mapping[str, Any], schema: onnx.defs.OpSchema) -> bool:
    """Whether this version of the operator is defined for the example."""
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    version = schema.since_version
    return example.get("since", 1) <= version <= example.get("until", version) and all(
        _type(array) in allowed.get(formal.type_str, {formal.type_str})
        for formal, array in zip(schema.inputs, inputs(example).values(), strict=False)
    )


def model(example: Mapping[str, Any], schema: onnx.defs.OpSchema) -> onnx.ModelProto:
    """The example as a model of the schema's opset, its output types inferred."""
    node = onnx.helper.make_node(
        schema.name,
        example["node"]["inputs"],
        example["node"]["outputs"],
        domain=schema.domain,
        **{name: _attribute(v) for name, v in example["node"].get("attributes", {}).items()},
    )
    constants = example.get("constants", ())
    declared = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs(example).items()
        if name not in constants
    ]
    held = [onnx.numpy_helper.from_array(inputs(example)[name], name) for name in constants]
    outputs = [onnx.ValueInfoProto(name=name) for name in example["node"]["outputs"]]
    graph = onnx.helper.make_graph([node], example["name"], declared, outputs, held)
    opset = onnx.helper.make_opsetid(schema.domain, schema.since_version)
    untyped = onnx.helper.make_model(graph, opset_imports=[opset])
    typed = onnx.shape_inference.infer_shapes(untyped, strict_mode=True)
    del typed.graph.value_info[:]
    return typed


def _attribute(value: Any) -> Any:
    return onnx.numpy_helper.from_array(array(value)) if isinstance(value, Mapping) else value


def _type(array: Array) -> str:
    return f"tensor({BY_CODE[onnx.helper.np_dtype_to_tensor_dtype(array.dtype)].name})"


def _plain(array: Array) -> Array:
    """The values as JSON can hold them: numpy's own numbers for the types of ml_dtypes, and str."""
    if array.dtype == object:
        return object_array([text(text_bytes(s)) for s in array.reshape(-1)], array.shape)
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float64)
