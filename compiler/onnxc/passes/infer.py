"""infer: check every node against the schema of its own version, then types, shapes, constants.

One walk in topological order. Each node is checked, upgraded to the newest form, given the types
and shapes that ONNX's own inference finds, compared with what the model declares, and folded
where its result does not depend on run-time data. Every problem of the model is collected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import onnx
import onnx_ir as ir
from onnx import defs, shape_inference

from onnxc.dtypes import INT64_MAX
from onnxc.errors import ModelError, Problem, RefusalError
from onnxc.evaluate import constant_value
from onnxc.op import OPSET, Operator, call, load_operators, newest_schema, schema_at
from onnxc.passes.bind import open_dims_problem
from onnxc.passes.check_node import (
    arity_problems,
    attribute_problems,
    operator_problems,
    output_type_problems,
    type_problems,
)
from onnxc.passes.upgrade import upgrade
from onnxc.protobuf.tensors import MAX_RANK
from onnxc.protobuf.where import quoted
from onnxc.values import (
    element_type_of,
    placeholder,
    shape_text,
    static_shape,
    tensor_of,
    type_text,
)

FOLD_LIMIT: Final = 64 * 1024
"""How many bytes a folded result may exceed its inputs by."""


def infer(model: ir.Model) -> None:
    """Raises ModelError with every problem of the model."""
    problems: list[Problem] = []
    open_dims = open_dims_problem(model)
    walk = _Walk(complete=not open_dims)
    for value in model.graph.inputs:
        problems += walk.check_input(value)
    for number, node in enumerate(list(model.graph)):
        problems += walk.check_node(node, number)
    if problems or open_dims:
        raise ModelError([*problems, *open_dims])


def node_label(node: ir.Node, number: int, version: int) -> str:
    name = f"node {quoted(node.name)}" if node.name else f"node #{number}"
    domain = f"{node.domain}." if node.domain else ""
    return f"{name} ({domain}{node.op_type}-{version})"


class _Walk:
    """`unknown` holds the values that nothing is known of, because of a problem already told.

    Chains of thousands of nodes that look the same are common: by `_look`, `inferred` has what
    ONNX says of their outputs, `varying` tells those whose results depend on run-time data.
    """

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete
        self.unknown: set[ir.Value] = set()
        self.operators = load_operators()
        self.inferred: dict[object, list[onnx.TypeProto]] = {}
        self.varying: set[object] = set()

    def check_input(self, value: ir.Value) -> Iterator[Problem]:
        where = f"input {quoted(value.name or '')}"
        if not isinstance(value.type, ir.TensorType):
            yield Problem(where, f"{type_text(value.type)} is not supported", "only tensors are")
        else:
            yield from self._size_problems(value, where)
            return
        self.unknown.add(value)

    def _size_problems(self, value: ir.Value, where: str) -> Iterator[Problem]:
        shape = static_shape(value)
        try:
            dtype = element_type_of(value.dtype) if value.dtype is not None else None
        except RefusalError as refusal:
            yield Problem(where, refusal.fact)
            self.unknown.add(value)
            return
        if shape is None or dtype is None:
            self.unknown.add(value)
        elif len(shape) > MAX_RANK:
            yield Problem(where, f"the result has {len(shape)} dimensions, more than {MAX_RANK}")
            self.unknown.add(value)
        elif math.prod(filter(None, shape)) * dtype.size > INT64_MAX:
            yield Problem(where, f"shape {list(shape)} has more bytes than C can address")
            self.unknown.add(value)

    def check_node(self, node: ir.Node, number: int) -> Iterator[Problem]:
        domain, version = node.domain, node.version or OPSET
        schema = schema_at(domain, node.op_type, version)
        where = node_label(node, number, schema.since_version if schema else version)
        operator = self.operators.get((domain, node.op_type))
        found: list[Problem] = []
        found += operator_problems(domain, node.op_type, version, where)
        if schema is not None:
            found += arity_problems(node, schema, where)
            found += attribute_problems(node, schema, where)
            if not any(value in self.unknown for value in node.inputs):
                found += type_problems(node, schema, where)
        if found or operator is None or schema is None:
            self.unknown.update(node.outputs)
            yield from found
        elif any(value in self.unknown for value in node.inputs):
            self._trust_declared(node)
        else:
            yield from self._infer(node, schema, operator, where)

    def _trust_declared(self, node: ir.Node) -> None:
        """After a problem upstream, what is declared still lets the rest be checked."""
        self.unknown.update(v for v in node.outputs if v.type is None or static_shape(v) is None)

    def _infer(
        self, node: ir.Node, schema: defs.OpSchema, operator: Operator, where: str
    ) -> Iterator[Problem]:
        try:
            for extra in upgrade(node, schema):
                newest = newest_schema(extra.domain, extra.op_type)
                yield from self._infer(extra, newest, self.operators["", extra.op_type], where)
            kept = set(node.attributes) - operator.attributes
            if kept:
                names = ", ".join(sorted(kept))
                raise RefusalError(f"attribute {names} is not supported", "re-export without it")
            look = _look(node)
            if look not in self.inferred or look is None:
                self.inferred[look] = _inferred_outputs(node)
        except RefusalError as refusal:
            yield Problem(where, refusal.fact, refusal.remedy)
            self.unknown.update(node.outputs)
            return
        for value, proto in zip(node.outputs, self.inferred[look], strict=True):
            if value.name:
                yield from self._settle(value, proto, where)
        yield from output_type_problems(node, schema, where)
        if look not in self.varying and not any(v in self.unknown for v in node.outputs):
            try:
                if not _fold(node, operator) and look is not None:
                    self.varying.add(look)
            except RefusalError as refusal:
                yield Problem(where, refusal.fact, refusal.remedy)
                self.unknown.update(node.outputs)

    def _settle(self, value: ir.Value, inferred: onnx.TypeProto, where: str) -> Iterator[Problem]:
        """Gives the value what was inferred, filled up and checked by what is declared."""
        if inferred.WhichOneof("value"):
            told = ir.serde.deserialize_type_proto_for_type(inferred)
            shape = ir.serde.deserialize_type_proto_for_shape(inferred)
            if value.type is not None and told is not None and value.type != told:
                fact = f"output {quoted(value.name or '')} is {type_text(told)}"
                remedy = f"the model declares {type_text(value.type)}"
                yield Problem(where, fact, remedy)
            value.type = told
            if shape is not None:
                declared = value.shape
                if declared is not None and _contradicts(declared, shape):
                    fact = f"output {quoted(value.name or '')} has shape {shape}"
                    yield Problem(where, fact, f"the model declares {declared}")
                value.shape = shape if declared is None else _merged(shape, declared)
        if value.type is None or static_shape(value) is None:
            if self.complete:
                fact = f"the shape of output {quoted(value.name or '')} is unknown at compile time"
                yield Problem(where, fact, "declare it, or fix the dimensions with --dim")
            self.unknown.add(value)
            return
        yield from self._size_problems(value, where)


def _contradicts(declared: ir.Shape, inferred: ir.Shape) -> bool:
    if len(declared) != len(inferred):
        return True
    pairs = zip(declared, inferred, strict=True)
    return any(isinstance(d, int) and isinstance(i, int) and d != i for d, i in pairs)


def _merged(inferred: ir.Shape, declared: ir.Shape) -> ir.Shape:
    if len(declared) != len(inferred):
        return inferred
    pairs = zip(declared, inferred, strict=True)
    return ir.Shape([i if isinstance(i, int) else d for d, i in pairs])


def _look(node: ir.Node) -> object:
    """What decides how a node without attributes and constants is compiled; None for others."""
    values = [value for value in node.inputs if value is not None]
    if node.attributes or any(value.const_value is not None for value in values):
        return None
    seen = tuple(None if v is None else (v.dtype, static_shape(v)) for v in node.inputs)
    return node.domain, node.op_type, len(node.outputs), seen


def _inferred_outputs(node: ir.Node) -> list[onnx.TypeProto]:
    """What ONNX's inference for the newest schema says of each output; raises RefusalError.

    Names are by position: those of the model may be anything, and onnx tells values apart by them.
    """
    inputs = {f"i{n}": value for n, value in enumerate(node.inputs) if value is not None}
    types = {name: _type_proto(value) for name, value in inputs.items()}
    data = {
        name: ir.serde.serialize_tensor(value.const_value)
        for name, value in inputs.items()
        if value.const_value is not None and value.const_value.nbytes <= FOLD_LIMIT
    }
    proto = ir.serde.serialize_node(node)
    proto.input[:] = [f"i{n}" if f"i{n}" in inputs else "" for n in range(len(node.inputs))]
    proto.output[:] = [f"o{n}" if value.name else "" for n, value in enumerate(node.outputs)]
    version = node.version or OPSET
    opset = [onnx.helper.make_opsetid(node.domain, version if node.domain else OPSET)]
    schema = newest_schema(node.domain, node.op_type)
    try:
        found = shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=opset)
    except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        shown = (f"{quoted(v.name or '')} {shape_text(v)}" for v in inputs.values())
        fact = str(error).rpartition("Error]")[2].strip().rstrip(".")
        raise RefusalError(f"{fact} (inputs {', '.join(shown)})" if inputs else fact) from None
    return [found.get(f"o{n}", onnx.TypeProto()) for n in range(len(node.outputs))]


def _type_proto(value: ir.Value) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    assert value.type is not None
    ir.serde.serialize_type_into(proto, value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def _fold(node: ir.Node, operator: Operator) -> bool:
    """Gives the outputs their values where they are known at compile time and small enough.

    A constant under another name stays the one constant, and what has no inputs is as large as
    the model says. Returns whether there was any.
    """
    tensors = {value: placeholder(value) for value in node.inputs if value is not None}
    inputs = [None if value is None else tensors[value] for value in node.inputs]
    constants = [t for value, t in tensors.items() if value.const_value is not None]
    known = sum(t.elements * t.dtype.size for t in constants)
    for value, tensor in call(operator, node, inputs):
        same = [v for v, t in zip(node.inputs, inputs, strict=True) if t is tensor]
        if same and same[0] is not None:
            value.const_value = same[0].const_value
        elif not inputs or tensor.elements * tensor.dtype.size <= known + FOLD_LIMIT:
            array = constant_value(tensor)
            if array is not None:
                value.const_value = tensor_of(array, tensor.dtype, value.name or "")
    return any(value.const_value is not None for value in node.outputs)
