"""expand_function: an operator without a function of its own becomes its schema's body.

The body is that of the newest schema, for the node's attributes and types; its nodes are of the
opset that the body was written for.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import onnx
import onnx_ir as ir
from onnx import defs

from onnxc.errors import Problem
from onnxc.op import OPSET, load_operators, newest_schema, operator_names
from onnxc.passes.naming import ValueNames
from onnxc.passes.rewriting import label_of, take_over
from onnxc.passes.upgrade import replacement
from onnxc.protobuf.functions import Key, Library, walk_nodes
from onnxc.protobuf.inline import inline_functions
from onnxc.protobuf.where import Place

_DOMAIN: Final = "onnxc.body"
_SAMPLE_RANK: Final = 3
_SAMPLE_VALUES: Final[dict[str, Any]] = {"INT": 1, "FLOAT": 1.0, "INTS": [1], "STRING": ""}


def expand(node: ir.Node, names: ValueNames) -> list[ir.Node] | None:
    """Puts the body of the node, which is of the newest form, in its place.

    Returns the new nodes in order, or None where there is no body of supported operators.
    """
    body = _body(node)
    if body is None or not all(map(_supported, _operators(body))):
        return None
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    inner = _instance(node, body)
    sources = {f"i{n}": value for n, value in enumerate(node.inputs) if value is not None}
    for value in inner.inputs:
        value.replace_all_uses_with(sources[value.name or ""], replace_graph_outputs=True)
    results = {value.name: value for value in inner.outputs}
    inner.outputs.clear()
    nodes = list(inner)
    inner.remove(nodes)
    for position, outer in enumerate(node.outputs):
        if outer.name:
            take_over(outer, results[f"o{position}"])
    settled = set(results.values())
    for value in (value for new in nodes for value in new.outputs):
        if value not in settled:
            names.settle(value)
    graph.insert_before(node, nodes)
    graph.remove(node, safe=True)
    return nodes


def expandable() -> frozenset[tuple[str, str]]:
    """(domain, name) of the operators that are supported through their body only.

    A body may depend on types and attributes: it is looked at for float inputs and few attributes.
    """
    return _expandable(frozenset(load_operators()))


@cache
def _expandable(registered: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    bodies = {}
    for domain, name in operator_names():
        if (domain, name) not in registered and domain == "":
            operators = _sample_operators(name)
            if operators is not None:
                bodies[domain, name] = operators
    known = set(registered)
    while more := {key for key, used in bodies.items() if key not in known and used <= known}:
        known |= more
    return frozenset(known - registered)


def _with_body(domain: str, name: str) -> Any:
    """The newest schema; onnx's type stubs know nothing of the bodies."""
    return newest_schema(domain, name)


def _supported(key: tuple[str, str]) -> bool:
    return key in load_operators() or key in expandable()


def _operators(body: onnx.FunctionProto) -> frozenset[tuple[str, str]]:
    """What the body is made of; an If is there to be decided at compile time."""
    found = {(n.domain, n.op_type) for n, _ in walk_nodes(body.node)} - {("", "If")}
    return frozenset(found)


def _sample_operators(name: str) -> frozenset[tuple[str, str]] | None:
    """The operators of a body, by name alone."""
    schema = _with_body("", name)
    if schema.deprecated or replacement("", name) != name:
        return None
    if schema.has_function:
        return _operators(_plain_body(name))
    if not schema.has_context_dependent_function:
        return None
    proto = onnx.NodeProto(op_type=name)
    for formal in schema.attributes.values():
        kind = str(formal.type).rpartition(".")[2]
        if formal.required and kind not in _SAMPLE_VALUES:
            return None
        if formal.required:
            value = _SAMPLE_VALUES[kind]
            proto.attribute.append(onnx.helper.make_attribute(formal.name, value))
    count = max(schema.min_input, 1)
    proto.input[:] = [f"i{n}" for n in range(count)]
    proto.output[:] = [f"o{n}" for n in range(max(schema.min_output, 1))]
    types = [_sample_type(formal) for formal in schema.inputs[:count]]
    body = _context_body(name, proto.SerializeToString(), tuple(types))
    return None if body is None else _operators(body)


def _sample_type(formal: defs.OpSchema.FormalParameter) -> bytes:
    integers = "tensor(float)" not in formal.types
    kind = onnx.TensorProto.INT64 if integers else onnx.TensorProto.FLOAT
    shape = [1] if integers else [1] * _SAMPLE_RANK
    data: bytes = onnx.helper.make_tensor_type_proto(kind, shape).SerializeToString()
    return data


def _body(node: ir.Node) -> onnx.FunctionProto | None:
    schema = _with_body(node.domain, node.op_type)
    if schema.has_function:
        return _plain_body(node.op_type)
    if not schema.has_context_dependent_function:
        return None
    types = []
    for value in node.inputs:
        proto = onnx.TypeProto()
        if value is not None and value.type is not None:
            ir.serde.serialize_type_into(proto, value.type)
            if value.shape is not None:
                ir.serde.serialize_shape_into(proto, value.shape)
        types.append(proto.SerializeToString())
    return _context_body(node.op_type, _anonymous(node).SerializeToString(), tuple(types))


def _anonymous(node: ir.Node) -> onnx.NodeProto:
    """The node with names by position, so that nodes that look the same are the same."""
    proto = ir.serde.serialize_node(node)
    proto.ClearField("name")
    proto.ClearField("doc_string")
    proto.ClearField("metadata_props")
    proto.input[:] = ["" if v is None else f"i{n}" for n, v in enumerate(node.inputs)]
    proto.output[:] = [f"o{n}" if v.name else "" for n, v in enumerate(node.outputs)]
    return proto


@cache
def _plain_body(name: str) -> onnx.FunctionProto:
    schema = _with_body("", name)
    version = max(schema.function_opset_versions)
    body = onnx.FunctionProto()
    body.ParseFromString(schema.get_function_with_opset_version(version))
    return body


@lru_cache(maxsize=256)
def _context_body(name: str, node: bytes, types: tuple[bytes, ...]) -> onnx.FunctionProto | None:
    schema = _with_body("", name)
    version = max(schema.context_dependent_function_opset_versions)
    try:
        data = schema.get_context_dependent_function_with_opset_version(version, node, list(types))
    except (RuntimeError, ValueError):
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body if body.node else None


def _instance(node: ir.Node, body: onnx.FunctionProto) -> ir.Graph:
    """The nodes for this node in a graph of inputs i0, i1 ... and outputs o0, o1 ..."""
    call = _anonymous(node)
    call.domain, call.name = _DOMAIN, label_of(node)
    function = onnx.FunctionProto()
    function.CopyFrom(body)
    function.domain, function.name = _DOMAIN, node.op_type
    graph = onnx.GraphProto(name="body", node=[call])
    for name in filter(None, call.input):
        graph.input.append(onnx.helper.make_empty_tensor_value_info(name))
    for name in filter(None, call.output):
        graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph, functions=[function])
    version = max((i.version for i in body.opset_import if i.domain == ""), default=OPSET)
    problems: list[Problem] = []
    library = Library(model, problems)
    assert not problems
    places = {
        None: Place("", {_DOMAIN: 1, "": OPSET}),
        Key(_DOMAIN, node.op_type, ""): Place("", {"": min(version, OPSET)}),
    }
    versions = inline_functions(model, library, places)
    model.opset_import.add(domain="", version=OPSET)
    found = ir.from_proto(model).graph
    for new, opset in zip(found.all_nodes(), versions, strict=True):
        new.version = opset
    return found
