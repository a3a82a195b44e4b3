"""Examples of operators: one node and its inputs each. Results are computed, never stored.

Each file is a family of operators. It maps them to an example or a list of them: {name, since,
until, inputs, attributes, outputs, constants}, of which only `inputs` is required. An example
counts from version `since` of its operator on up to version `until`, for the versions that allow
its types and its form; an input that was an attribute then becomes that attribute. `outputs` are by
default the required ones, under the schema's names. `constants` names inputs that the model holds
as initializers, besides those that the operator needs so.

A tensor is a nested list, of int64, float32, bool or strings, or {DTYPE: list}, with "shape" beside
it where the list does not say it. An input of null is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx.defs import OpSchema

from onnxc import op
from onnxc.arrays import object_array, text, text_bytes
from onnxc.dtypes import BY_CODE

Array: TypeAlias = np.ndarray[Any, Any]

_SINGLE = (OpSchema.AttrType.INT, OpSchema.AttrType.FLOAT)
_TYPES = {bool: "bool", int: "int64", str: "object"}


@dataclass(frozen=True)
class Example:
    """A node with its inputs; an input that is None is left out, an attribute may be an array."""

    name: str
    operator: str
    inputs: Mapping[str, Array | None]
    attributes: Mapping[str, Any]
    outputs: tuple[str, ...]
    constants: frozenset[str]
    since: int = 1
    until: int = op.OPSET

    @property
    def given(self) -> dict[str, Array]:
        """The inputs that are not left out."""
        return {name: array for name, array in self.inputs.items() if array is not None}


@cache
def _entries() -> Mapping[str, tuple[str, list[dict[str, Any]]]]:
    """(family, examples) of every operator."""
    found: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for file in resources.files(__name__).iterdir():
        if file.name.endswith(".json"):
            for operator, entry in json.loads(file.read_text(encoding="utf-8")).items():
                assert operator not in found, operator
                entries = entry if isinstance(entry, list) else [entry]
                found[operator] = file.name.removesuffix(".json"), entries
    return found


def families() -> dict[str, str]:
    """The family of every operator that has an example."""
    return {operator: family for operator, (family, _) in _entries().items()}


def stored(operator: str) -> list[Example]:
    """The operator's examples, as its newest version takes them; none where there are none."""
    _, entries = _entries().get(operator, ("", []))
    return [_example(operator, entry) for entry in entries]


def _example(operator: str, entry: Mapping[str, Any]) -> Example:
    assert entry.keys() <= {*Example.__dataclass_fields__}, operator
    inputs = {name: _input(value) for name, value in entry["inputs"].items()}
    known = op.load_operators().get(("", operator))
    needed = known.constant_inputs if known is not None else {}
    names = {name for n, name in enumerate(inputs) if n in needed and inputs[name] is not None}
    schema = op.newest_schema("", operator)
    required = tuple(formal.name for formal in schema.outputs[: max(schema.min_output, 1)])
    return Example(
        name=entry.get("name", operator.lower()),
        operator=operator,
        inputs=inputs,
        attributes={
            name: _input(value) if isinstance(value, Mapping) else value
            for name, value in entry.get("attributes", {}).items()
        },
        outputs=tuple(entry.get("outputs", required)),
        constants=frozenset({*names, *entry.get("constants", ())}),
        since=entry.get("since", 1),
        until=entry.get("until", op.OPSET),
    )


def _input(value: Any) -> Array | None:
    """A tensor as a file has it."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return np.array(value, _TYPES.get(type(_first(value)), "float32"))
    shape = value.get("shape")
    ((dtype, values),) = ((key, values) for key, values in value.items() if key != "shape")
    found = np.array(values, _numpy_type(dtype))
    return found if shape is None else found.reshape(shape)


def _first(value: Any) -> Any:
    return _first(value[0]) if isinstance(value, list) else value


def _numpy_type(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def array(tensor: Mapping[str, Any]) -> Array:
    """A tensor of a page, {name, dtype, shape, values}, as numpy holds it."""
    return np.array(tensor["values"], _numpy_type(tensor["dtype"])).reshape(tensor["shape"])


def tensor(name: str, array: Array) -> dict[str, Any]:
    """The inverse of `array`."""
    return {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "values": _plain(array).tolist(),
    }


def at(example: Example, schema: OpSchema) -> Example | None:
    """The example in the form of this version; None where the version does not allow it."""
    if not example.since <= schema.since_version <= example.until:
        return None
    formed = _with_attributes(example, schema)
    return formed if _fits(formed, schema) else None


def _with_attributes(example: Example, schema: OpSchema) -> Example:
    """With the inputs that are attributes of this version as such."""
    attributes, inputs = dict(example.attributes), dict(example.inputs)
    known = {name.lower(): name for name in schema.attributes}
    newest = op.newest_schema(schema.domain, schema.name).inputs
    for (name, array), formal in zip(example.inputs.items(), newest, strict=False):
        attribute = known.get(formal.name.lower())
        if attribute is not None and formal.name not in {old.name for old in schema.inputs}:
            del inputs[name]
            if array is not None:
                single = schema.attributes[attribute].type in _SINGLE and array.size == 1
                attributes[attribute] = array.item() if single else array.tolist()
    if len(inputs) == len(example.inputs):
        return example
    constants = example.constants & inputs.keys()
    return replace(example, inputs=inputs, attributes=attributes, constants=constants)


def _fits(example: Example, schema: OpSchema) -> bool:
    needed = {name for name, formal in schema.attributes.items() if formal.required}
    return (
        schema.min_input <= len(example.inputs) <= schema.max_input
        and len(example.outputs) <= schema.max_output
        and needed <= example.attributes.keys()
        and all(_has(schema, *attribute) for attribute in example.attributes.items())
        and all(
            array is None
            or _type(array) in schema.inputs[min(position, len(schema.inputs) - 1)].types
            for position, array in enumerate(example.inputs.values())
        )
    )


def _has(schema: OpSchema, name: str, value: Any) -> bool:
    """Whether the version has an attribute of the name that takes the value's type."""
    formal = schema.attributes.get(name)
    if formal is None:
        return False
    kind: str = onnx.AttributeProto.AttributeType.Name(_proto(name, value).type)
    return kind == str(formal.type).rpartition(".")[2]


def model(example: Example, schema: OpSchema) -> onnx.ModelProto:
    """The example, formed by `at`, as a model of the schema's opset, its output types inferred."""
    node = onnx.helper.make_node(
        schema.name,
        [name if array is not None else "" for name, array in example.inputs.items()],
        example.outputs,
        domain=schema.domain,
    )
    node.attribute.extend(_proto(*attribute) for attribute in example.attributes.items())
    declared = [
        onnx.helper.make_tensor_value_info(name, _code(array), array.shape)
        for name, array in example.given.items()
        if name not in example.constants
    ]
    held = [
        onnx.numpy_helper.from_array(array, name)
        for name, array in example.given.items()
        if name in example.constants
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in example.outputs]
    graph = onnx.helper.make_graph([node], example.name, declared, outputs, held)
    opset = onnx.helper.make_opsetid(schema.domain, schema.since_version)
    untyped = onnx.helper.make_model(graph, opset_imports=[opset])
    typed = onnx.shape_inference.infer_shapes(untyped)
    del typed.graph.value_info[:]
    return typed


def _proto(name: str, value: Any) -> onnx.AttributeProto:
    tensor = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
    return onnx.helper.make_attribute(name, tensor)


def _code(array: Array) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


def _type(array: Array) -> str:
    return f"tensor({BY_CODE[_code(array)].name})"


def _plain(array: Array) -> Array:
    """The values as JSON can hold them: numpy's own numbers for the types of ml_dtypes, and str."""
    if array.dtype == object:
        return object_array([text(text_bytes(s)) for s in array.reshape(-1)], array.shape)
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float64)
