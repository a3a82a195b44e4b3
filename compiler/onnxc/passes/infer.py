"""infer: check every node against the schema of its own version, then types, shapes, constants.

One walk in topological order. Each node is checked, upgraded to the newest form, given the types
and shapes that ONNX's own inference finds, compared with what the model declares, and folded
where its result does not depend on run-time data. An If whose condition is known becomes the
branch taken, an operator without a function of its own the body that its schema has; their nodes
are walked next. Every problem of the model is collected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import onnx_ir as ir
from onnx import defs

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT64_MAX
from onnxc.errors import ModelError, Problem, RefusalError
from onnxc.evaluate import constant_value
from onnxc.op import OPSET, Operator, call, load_operators, newest_schema, schema_at
from onnxc.passes.bind import open_dims_problem
from onnxc.passes.branch import inline_branch, known_branch, reachable
from onnxc.passes.check_node import (
    arity_problems,
    attribute_problems,
    branch_problem,
    late_problem,
    operands,
    operator_problems,
    output_type_problems,
    type_problems,
    unknown_shape_problem,
    unsupported_problem,
)
from onnxc.passes.data_sizes import MAXIMUM, maximum_shape, value_of_known, varying_outputs
from onnxc.passes.expand_function import expand
from onnxc.passes.fold_cost import POINT_LIMIT, points
from onnxc.passes.implied_shape import counted_shape, implied_shape
from onnxc.passes.inference import Told, inferred_outputs
from onnxc.passes.naming import ValueNames
from onnxc.passes.provenance import inherit
from onnxc.passes.upgrade import default_of, upgrade
from onnxc.protobuf.tensors import MAX_RANK
from onnxc.protobuf.where import quoted, shown
from onnxc.tensor import Sized
from onnxc.values import (
    element_type_of,
    placeholder,
    static_shape,
    tensor_of,
    type_text,
)

FOLD_LIMIT: Final = 64 * 1024
"""How many bytes a folded result may exceed its inputs by."""
SMALL: Final = 64
"""Bytes of a constant that is known by its value."""


def infer(model: ir.Model) -> None:
    """Raises ModelError with every problem of the model.

    What only a branch that is not taken would have needed is no problem.
    """
    graph = model.graph
    open_dims = open_dims_problem(model)
    branches = any(node.op_type == "If" for node in graph)
    walk = _Walk(graph, complete=not open_dims, needed=reachable(graph) if branches else set())
    problems = [problem for value in graph.inputs for problem in walk.check_input(value)]
    found: list[tuple[ir.Node, Problem]] = []
    for number, node in enumerate(list(graph)):
        walk.queue.append((node, _label(node, number), None))
        while walk.queue:
            found += walk.visit_next(number)
    lost = walk.needed - reachable(graph) if found and branches else set()
    problems += [problem for node, problem in found if node not in lost]
    if problems or open_dims:
        raise ModelError([*problems, *open_dims])
    here = [node for node in lost if node.graph is graph]
    graph.remove([n for n in here if not walk.unknown.isdisjoint(n.outputs)], safe=True)


def _label(node: ir.Node, number: int) -> str:
    version = node.version or OPSET
    schema = schema_at(node.domain, node.op_type, version)
    return node_label(node, number, schema.since_version if schema else version)


def node_label(node: ir.Node, number: int, version: int) -> str:
    name = f"node {quoted(node.name)}" if node.name else f"node #{number}"
    domain = f"{node.domain}." if node.domain else ""
    return f"{name} ({shown(domain + node.op_type)}-{version})"


class _Walk:
    """`unknown` holds the values that nothing is known of, because of a problem already told.

    `queue` has the nodes to come before the next of the graph, each with what it is called in
    messages and, where it is of the newest form already, its schema; `needed` those that outputs
    need, kept where there is an If. Chains of thousands of nodes that look the same are common: by
    `_look`, `inferred` has what ONNX says of their outputs, `varying` tells those whose results
    depend on run-time data.
    """

    def __init__(self, graph: ir.Graph, *, complete: bool, needed: set[ir.Node]) -> None:
        self.complete = complete
        self.needed = needed
        self.unknown: set[ir.Value] = set()
        self.operators = load_operators()
        self.names = ValueNames(graph)
        self.queue: deque[tuple[ir.Node, str, defs.OpSchema | None]] = deque()
        self.inferred: dict[object, list[Told]] = {}
        self.varying: set[object] = set()

    def check_input(self, value: ir.Value) -> Iterator[Problem]:
        where = f"input {quoted(value.name or '')}"
        if not isinstance(value.type, ir.TensorType):
            yield Problem(
                Kind.NOT_A_TENSOR,
                where,
                f"{type_text(value.type)} is not supported",
                "only tensors are",
            )
        else:
            yield from self._size_problems(value, where)
            return
        self.unknown.add(value)

    def _size_problems(self, value: ir.Value, where: str) -> Iterator[Problem]:
        shape = static_shape(value)
        try:
            dtype = element_type_of(value.dtype) if value.dtype is not None else None
        except RefusalError as refusal:
            yield refusal.at(where)
            self.unknown.add(value)
            return
        if shape is None or dtype is None:
            self.unknown.add(value)
        elif any(extent < 0 for extent in shape):
            yield Problem(
                Kind.NEGATIVE_DIMENSION, where, f"the result has a negative shape, {list(shape)}"
            )
            self.unknown.add(value)
        elif len(shape) > MAX_RANK:
            yield Problem(
                Kind.RANK_TOO_LARGE,
                where,
                f"the result has {len(shape)} dimensions, more than {MAX_RANK}",
            )
            self.unknown.add(value)
        elif math.prod(filter(None, shape)) * dtype.size > INT64_MAX:
            yield Problem(
                Kind.TENSOR_TOO_LARGE,
                where,
                f"shape {list(shape)} has more bytes than C can address",
            )
            self.unknown.add(value)

    def visit_next(self, number: int) -> Iterator[tuple[ir.Node, Problem]]:
        """The problems of the first node of the queue, each with the node that has it."""
        node, where, newest = self.queue.popleft()
        if newest is not None:
            yield from ((node, problem) for problem in self._infer(node, newest, where))
            return
        branch = known_branch(node)
        if branch is None and node.op_type == "If" and not self.unknown.isdisjoint(node.inputs):
            self._trust_declared(node)  # once its condition is known it may be a branch
            return
        if branch is None:
            yield from ((node, problem) for problem in self._check(node, where))
            return
        inner = inline_branch(node, branch, self.names)
        self._inherit(node, inner)
        self.queue.extendleft((n, _label(n, number), None) for n in reversed(inner))

    def _check(self, node: ir.Node, where: str) -> Iterator[Problem]:
        domain, version = node.domain, node.version or OPSET
        schema = schema_at(domain, node.op_type, version)
        found = list(operator_problems(domain, node.op_type, version, where))
        if node.op_type == "If" and [p.kind for p in found] == [Kind.OPERATOR_NOT_SUPPORTED]:
            found = [branch_problem(node, where)]
        if schema is not None:
            found += arity_problems(node, schema, where)
            found += attribute_problems(node, schema, where)
            if not any(value in self.unknown for value in node.inputs):
                found += type_problems(node, schema, where)
                found += _size_readers(node, where)
        if found or schema is None:
            self.unknown.update(node.outputs)
            yield from found
        elif any(value in self.unknown for value in node.inputs):
            self._trust_declared(node)
        else:
            yield from self._upgrade(node, schema, where)

    def _trust_declared(self, node: ir.Node) -> None:
        """After a problem upstream, what is declared still lets the rest be checked."""
        self.unknown.update(v for v in node.outputs if v.type is None or static_shape(v) is None)

    def _upgrade(self, node: ir.Node, schema: defs.OpSchema, where: str) -> Iterator[Problem]:
        name = node.op_type
        try:
            nodes = upgrade(node, schema)
        except RefusalError as refusal:
            yield _refused(node, refusal, where)
            self.unknown.update(node.outputs)
            return
        if nodes == [node]:
            same = node.op_type == name
            own = schema if same else newest_schema(node.domain, node.op_type)
            yield from self._infer(node, own, where)
            return
        self._place(node, nodes)
        ready = [(new, where, newest_schema(new.domain, new.op_type)) for new in nodes]
        self.queue.extendleft(reversed(ready))

    def _place(self, node: ir.Node, nodes: Sequence[ir.Node]) -> None:
        """Puts the others of `nodes` around `node`; those after it have its outputs."""
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        position = nodes.index(node)
        for value in (value for new in nodes[:position] for value in new.outputs):
            self.names.settle(value)
        for new in nodes[position + 1 :]:
            source = new.inputs[0]
            assert source is not None
            self.names.settle(source)
        graph.insert_before(node, nodes[:position])
        graph.insert_after(node, nodes[position + 1 :])
        self._inherit(node, nodes)

    def _inherit(self, node: ir.Node, nodes: Sequence[ir.Node]) -> None:
        """What replaces a node is needed where that was, and comes from where that did."""
        inherit(node, nodes)
        if node in self.needed:
            self.needed.update(nodes)

    def _infer(self, node: ir.Node, schema: defs.OpSchema, where: str) -> Iterator[Problem]:
        """`node` is of the newest form; `schema` says which types its outputs may have."""
        if not self.unknown.isdisjoint(node.inputs):
            self._trust_declared(node)
            return
        operator = self.operators.get((node.domain, node.op_type))
        if operator is None:
            body = expand(node, self.names)
            if body is None:
                yield unsupported_problem(node, where)
                self.unknown.update(node.outputs)
            else:
                self._inherit(node, body)
                self.queue.extendleft((inner, where, None) for inner in reversed(body))
            return
        try:
            _check_attributes(node, operator)
            look = _look(node)
            if look not in self.inferred or look is None:
                self.inferred[look] = inferred_outputs(node)
            largest = maximum_shape(node) or []
        except RefusalError as refusal:
            yield _refused(node, refusal, where)
            self.unknown.update(node.outputs)
            return
        for position, told in enumerate(self.inferred[look]):
            if node.outputs[position].name:
                most = largest[position] if position < len(largest) else None
                try:
                    yield from self._settle(node, position, told, most, where)
                except RefusalError as refusal:
                    yield _refused(node, refusal, where)
                    self.unknown.add(node.outputs[position])
        for position in varying_outputs(node):
            if position < len(node.outputs):
                node.outputs[position].meta[MAXIMUM] = True
        yield from output_type_problems(node, schema, where)
        given = (look, *map(static_shape, node.outputs)) if operator.declared else look
        if given not in self.varying and not any(v in self.unknown for v in node.outputs):
            try:
                if not _fold(node, operator) and look is not None:
                    self.varying.add(given)
            except RefusalError as refusal:
                yield _refused(node, refusal, where)
                self.unknown.update(node.outputs)

    def _settle(
        self,
        node: ir.Node,
        position: int,
        told: Told,
        largest: tuple[int, ...] | None,
        where: str,
    ) -> Iterator[Problem]:
        """Gives the value what was inferred, filled up and checked by what is declared.

        Raises RefusalError where the two together make no shape.
        """
        value = node.outputs[position]
        if told.type is not None:
            if value.type is not None and value.type != told.type:
                fact = f"output {quoted(value.name or '')} is {type_text(told.type)}"
                remedy = f"the model declares {type_text(value.type)}"
                yield Problem(Kind.DECLARED_TYPE, where, fact, remedy)
            value.type = told.type
            if told.extents is not None:
                declared, shape = value.shape, ir.Shape(told.extents)
                if declared is not None and _contradicts(declared, shape):
                    fact = f"output {quoted(value.name or '')} has shape {shape}"
                    yield Problem(
                        Kind.DECLARED_SHAPE, where, fact, f"the model declares {declared}"
                    )
                value.shape = shape if declared is None else _merged(shape, declared)
        if largest is not None:
            _limit(value, largest)
        if static_shape(value) is None and self.complete:
            value.shape = implied_shape(value)
            if value.shape is not None:
                value.shape = counted_shape(node, value.shape)
        if value.type is None or static_shape(value) is None:
            if self.complete:
                yield unknown_shape_problem(node, value, where)
            self.unknown.add(value)
            return
        yield from self._size_problems(value, where)


def _refused(node: ir.Node, refusal: RefusalError, where: str) -> Problem:
    """The problem that stops a node, with its operands, or what to fix, where that is the point."""
    problem = refusal.at(where, operands(node, refusal.kind))
    late = refusal.kind in (Kind.CONSTANT_REQUIRED, Kind.SHAPE_UNKNOWN)
    return late_problem(node, problem) if late else problem


def _size_readers(node: ir.Node, where: str) -> Iterator[Problem]:
    """Values whose size only the data decides are results of the model, nothing else."""
    for value in node.inputs:
        if value is not None and value.meta.get(MAXIMUM):
            fact = f"the size of input {quoted(value.name or '')} depends on run-time data"
            remedy = "onnxc gives such values as outputs of the model only"
            yield Problem(Kind.SIZE_FROM_DATA, where, fact, remedy)


def _check_attributes(node: ir.Node, operator: Operator) -> None:
    """Raises RefusalError for what the function does not take, unless it says the default."""
    kept = [
        name
        for name in sorted(set(node.attributes) - operator.attributes)
        if default_of(node, name) != node.attributes[name].value
    ]
    if kept:
        fact = f"attribute {', '.join(kept)} is not supported"
        raise RefusalError(Kind.PART_NOT_SUPPORTED, fact, "re-export without it")


def _limit(value: ir.Value, largest: tuple[int, ...]) -> None:
    """Of a size that the data decides, the model may declare the maximum."""
    declared = value.shape if value.shape is not None else ir.Shape(largest)
    if len(declared) == len(largest):
        pairs = zip(declared, largest, strict=True)
        value.shape = ir.Shape([d if isinstance(d, int) else n for d, n in pairs])


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


_PLAIN: Final = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
    }
)


def _look(node: ir.Node) -> object:
    """What decides how a node is compiled; None where it has tensors or graphs as attributes."""
    attributes = node.attributes.values()
    if any(a.type not in _PLAIN for a in attributes):
        return None
    given = tuple((a.name, a.value) for a in attributes)
    asked = tuple(bool(v.name) for v in node.outputs)
    return node.domain, node.op_type, given, asked, tuple(map(_seen, node.inputs))


def _seen(value: ir.Value | None) -> object:
    """Of an input; small constants are told apart by what they hold, others by which they are."""
    if value is None:
        return None
    constant = value.const_value
    if constant is None:
        return value.dtype, static_shape(value)
    if constant.nbytes > SMALL or constant.dtype is ir.DataType.STRING:
        return constant
    return value.dtype, static_shape(value), constant.tobytes()


def _fold(node: ir.Node, operator: Operator) -> bool:
    """Gives the outputs their values where they are known at compile time and small enough.

    A constant under another name stays the one constant, and what has no inputs is as large as
    the model says. Returns whether there was any.
    """
    if varying_outputs(node) and _fold_varying(node):
        return True
    folds = node.domain != "" or node.op_type != "DequantizeLinear"
    tensors = {value: placeholder(value) for value in node.inputs if value is not None}
    inputs = [None if value is None else tensors[value] for value in node.inputs]
    constants = [t for value, t in tensors.items() if value.const_value is not None]
    known = sum(t.elements * t.dtype.size for t in constants)
    for value, tensor in call(operator, node, inputs):
        if isinstance(tensor, Sized) or varying_outputs(node):
            continue
        if tensor.elements == 0 and len(constants) < len(tensors):
            continue  # of run-time operands there may be something to report
        if tensor.shape != static_shape(value):
            fact = f"output {quoted(value.name or '')} has shape {value.shape}"
            raise RefusalError(
                Kind.INTERNAL_ERROR,
                f"{fact} but is computed as {list(tensor.shape)}",
                "report this bug",
            )
        if not folds:
            continue
        same = [v for v, t in zip(node.inputs, inputs, strict=True) if t is tensor]
        if same and same[0] is not None:
            value.const_value = same[0].const_value
        elif not inputs or tensor.elements * tensor.dtype.size <= known + FOLD_LIMIT:
            cost = points(tensor)
            array = None if cost is None or cost > POINT_LIMIT else constant_value(tensor)
            if array is not None:
                value.const_value = tensor_of(array, tensor.dtype, value.name or "")
    return any(value.const_value is not None for value in node.outputs)


def _fold_varying(node: ir.Node) -> bool:
    """What the data decides is a constant where the data is: its size is then known, too."""
    value, array = node.outputs[0], value_of_known(node)
    if array is None or value.dtype is None:
        return False
    dtype = element_type_of(value.dtype)
    value.shape = ir.Shape(array.shape)
    del value.meta[MAXIMUM]
    value.const_value = tensor_of(array, dtype, value.name or "")
    return True
