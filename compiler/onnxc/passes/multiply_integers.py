"""Products of dequantised integers become products of the integers, whose sums are scaled.

The sum of (x - a) * r times (w - b) * s is r * s times that of (x - a) * (w - b), which is exact
in 32 bits. So DequantizeLinear, Conv (or MatMul, or Gemm) become ConvInteger (or MatMulInteger),
Cast, Mul; and what is added to each channel is added before that where it counts in the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from onnxc.dtypes import FLOAT, INT32, ElementType
from onnxc.op import OPSET
from onnxc.passes.dequantised import Dequantised, dequantised
from onnxc.passes.naming import ValueNames
from onnxc.passes.notes import part_of
from onnxc.passes.provenance import inherit
from onnxc.passes.rewriting import label_of, take_over
from onnxc.values import element_type_of, static_shape, tensor_of, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

EIGHT_BITS: Final = (ir.DataType.INT8, ir.DataType.UINT8)
BECOMES: Final = {"Conv": "ConvInteger", "MatMul": "MatMulInteger", "Gemm": "MatMulInteger"}
LIMIT: Final = 2**31
"""Magnitudes of sums stay below."""


@dataclass(frozen=True)
class _Product:
    """A node that multiplies dequantised integers.

    lanes    (dimension of `right` with a scale for each, dimensions of the result that follow it)
    scale    float32, of the sums: one, or one a lane
    addend   float32, what is added to each lane: one, or one a lane; `steps` the same as int64
             numbers of `scale`, where it is exactly that
    more     another node, the Add that does so; and which of its inputs is the addend
    """

    node: ir.Node
    left: Dequantised
    right: Dequantised
    lanes: tuple[int, int]
    scale: Array
    addend: Array | None = None
    steps: Array | None = None
    more: tuple[ir.Node, int] | None = None

    def spread(self, values: Array) -> Array:
        """So that it broadcasts to the result."""
        return values.reshape((*values.shape, *(1,) * (self.lanes[1] * values.ndim)))


def multiply_integers(graph: ir.Graph) -> list[tuple[ir.Node, str]]:
    """Tells what became of the nodes gone.

    Only where sums cannot overflow, and scales are floats whose products are neither too large nor
    too small for one.
    """
    names, gone = ValueNames(graph), []
    for node in list(graph):
        product = _product_of(node)
        if product is None:
            continue
        sources = [value for value in node.inputs if value is not None]
        product = _with_next(product) if node.op_type == "MatMul" else product
        if product.more is not None:
            sources += [value for value in product.more[0].inputs if value is not None]
        _rewrite(graph, product, names)
        for source in dict.fromkeys(sources):
            maker = source.producer()
            unread = not source.uses() and not source.is_graph_output()
            if maker is not None and maker.op_type == "DequantizeLinear" and unread:
                graph.remove(maker, safe=True)
                gone.append((maker, part_of(node.op_type, label_of(node))))
    return gone


def _product_of(node: ir.Node) -> _Product | None:
    """None of a node that multiplies anything else, or whose sums could overflow."""
    if node.domain or node.op_type not in BECOMES:
        return None
    left, right = (dequantised(value, *EIGHT_BITS) for value in node.inputs[:2])
    if left is None or right is None or left.scale.ndim or left.zero.ndim:
        return None
    if () in (left.shape, right.shape) or 0 in (*left.shape, *right.shape):
        return None
    lanes = {
        "Conv": (0, len(right.shape) - 2),
        "Gemm": (0 if _number(node, "transB", 0) else 1, 0),
        "MatMul": (len(right.shape) - 1, 0),
    }[node.op_type]
    vector = node.op_type == "MatMul" and len(right.shape) == 1
    if (right.scale.ndim or right.zero.ndim) and (right.axis != lanes[0] or vector):
        return None
    alpha = _number(node, "alpha", 1.0)
    with np.errstate(all="ignore"):
        exact = left.scale.astype(np.float64) * right.scale * alpha
        scale = np.asarray(exact, np.float32)
    least = np.finfo(np.float32).tiny
    if not (np.isfinite(scale) & (np.abs(scale) >= least)).all():
        return None
    product = _Product(node, left, right, lanes, scale)
    if _largest_sum(product) >= LIMIT:
        return None
    return _with_own_addend(product)


def _largest_sum(product: _Product) -> int:
    """A bound of the magnitudes of sums."""
    right, most = product.right, product.left.largest
    known, lane = right.known, product.lanes[0]
    if known is None:
        length = right.shape[-2] if len(right.shape) > 1 else right.shape[0]
        if product.node.op_type == "Gemm":
            length = right.shape[1 - lane]
        return most * right.largest * length
    if product.node.op_type == "Conv":
        sums = np.abs(known).reshape(known.shape[0], -1).sum(1)
    elif product.node.op_type == "Gemm":
        sums = np.abs(known).sum(1 - lane)
    else:
        sums = np.abs(known).sum(-2 if known.ndim > 1 else 0)
    return most * int(sums.max(initial=0))


def _with_own_addend(product: _Product) -> _Product | None:
    """With the bias of a Conv, or C of a Gemm; None where that is not known or no lanes'."""
    node = product.node
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return product if value is None else _with(product, value, _number(node, "beta", 1.0))


def _with_next(product: _Product) -> _Product:
    """With what an Add adds to the result, if nothing else reads that."""
    result = product.node.outputs[0]
    uses = list(result.uses())
    if len(uses) != 1 or result.is_graph_output():
        return product
    reader, position = uses[0].node, uses[0].idx
    if reader.op_type != "Add" or reader.domain or reader.graph is not product.node.graph:
        return product
    value = reader.inputs[1 - position]
    if value is None or static_shape(reader.outputs[0]) != static_shape(result):
        return product
    found = _with(product, value, 1.0)
    return product if found is None else replace(found, more=(reader, 1 - position))


def _with(product: _Product, value: ir.Value, factor: float) -> _Product | None:
    """With an addend that is known; in steps of the scale where it is that exactly."""
    found = dequantised(value, ir.DataType.INT32, *EIGHT_BITS)
    floats = _constant(value) if found is None else found.floats
    if floats is None or not _is_of_lanes(floats.shape, product):
        return None
    with np.errstate(all="ignore"):
        scaled = floats * np.float32(factor)
    product = replace(product, addend=scaled.reshape(-1) if floats.size > 1 else scaled.reshape(()))
    steps = found.known if found is not None else None
    if found is None or steps is None or factor != 1 or np.any(found.scale != product.scale):
        return product
    most = _largest_sum(product) + int(np.abs(steps).max(initial=0))
    return replace(product, steps=steps.reshape(-1)) if most < LIMIT else product


def _is_of_lanes(shape: tuple[int, ...], product: _Product) -> bool:
    """Whether it is of one number, or of one a lane of a product with lanes."""
    *outer, last = (*shape, 1)[: max(len(shape), 1)]
    right = product.right.shape
    several = len(right) > 1 and last == right[product.lanes[0]]
    return all(extent == 1 for extent in outer) and (last == 1 or several)


def _constant(value: ir.Value) -> Array | None:
    if value.const_value is None or value.dtype is None:
        return None
    return values_of(value.const_value) if element_type_of(value.dtype) is FLOAT else None


def _rewrite(graph: ir.Graph, product: _Product, names: ValueNames) -> None:
    node = product.node
    label, last = label_of(node), product.more[0] if product.more else node
    node.name, last.name = label, label_of(last)

    def constant(values: Array, dtype: ElementType, name: str) -> ir.Value:
        array = np.asarray(product.spread(values), dtype.numpy)
        value = ir.Value(
            name=f"{label}/{name}",
            type=ir.TensorType(ir.DataType(dtype.code)),
            shape=ir.Shape(array.shape),
            const_value=tensor_of(array, dtype, f"{label}/{name}"),
        )
        return value

    _to_integers(graph, product, names)
    after: list[tuple[str, list[ir.Value], ElementType]] = []
    scale = constant(product.scale, FLOAT, "scale")
    scaling = [("Cast", [], FLOAT), ("Mul", [scale], FLOAT)]
    if product.more is not None and product.steps is not None:
        last.replace_input_with(product.more[1], constant(product.steps, INT32, "addend"))
        _become_integers(node, names)
        after = scaling
    elif product.more is not None and product.addend is not None:
        last.replace_input_with(product.more[1], constant(product.addend, FLOAT, "addend"))
        last, after = node, scaling
    elif product.steps is not None:
        after = [("Add", [constant(product.steps, INT32, "addend")], INT32), *scaling]
    elif product.addend is not None:
        after = [*scaling, ("Add", [constant(product.addend, FLOAT, "addend")], FLOAT)]
    else:
        after = scaling
    _continue(graph, last, after, names)


def _to_integers(graph: ir.Graph, product: _Product, names: ValueNames) -> None:
    """The node itself on the integers."""
    node, sides = product.node, (product.left, product.right)
    values: list[ir.Value | None] = [side.integers for side in sides]
    if node.op_type == "Gemm":
        for n, name in enumerate(("transA", "transB")):
            if _number(node, name, 0):
                values[n] = _transposed(graph, node, sides[n], "AB"[n], names)
        node.attributes.clear()
    points = [side.maker.inputs[2] if side.zero.any() else None for side in sides]
    node.op_type, node.version = BECOMES[node.op_type], OPSET
    given = [*values, *points] if any(point is not None for point in points) else values
    given = given[:-1] if given[-1] is None else given
    node.resize_inputs(len(given))
    for place, value in enumerate(given):
        node.replace_input_with(place, value)


def _transposed(
    graph: ir.Graph, node: ir.Node, side: Dequantised, name: str, names: ValueNames
) -> ir.Value:
    label = f"{label_of(node)}/{name}/Transpose"
    perm = ir.AttrInt64s("perm", [1, 0])
    new = ir.Node("", "Transpose", [side.integers], [perm], name=label, version=OPSET)
    made = new.outputs[0]
    made.name, made.type = label, side.integers.type
    made.shape = ir.Shape(side.shape[::-1])
    names.settle(made)
    graph.insert_before(node, new)
    inherit(node, [new])
    return made


def _continue(
    graph: ir.Graph,
    node: ir.Node,
    links: Sequence[tuple[str, list[ir.Value], ElementType]],
    names: ValueNames,
) -> None:
    """Lets new nodes, one after another, make from what `node` gives, int32, what it made."""
    label, result = label_of(node), node.outputs[0]
    current, new = result, []
    for operator, inputs, dtype in links:
        to = [ir.AttrInt64("to", FLOAT.code)] if operator == "Cast" else []
        name = f"{label}/{operator}"
        made = ir.Node("", operator, [current, *inputs], to, name=name, version=OPSET)
        current = made.outputs[0]
        current.name, current.shape = name, result.shape
        current.type = ir.TensorType(ir.DataType(dtype.code))
        new.append(made)
    first = new[0]
    take_over(result, current)
    first.replace_input_with(0, result)
    for made in new[:-1]:
        names.settle(made.outputs[0])
    _become_integers(node, names)
    graph.insert_after(node, new)
    inherit(node, new)


def _become_integers(node: ir.Node, names: ValueNames) -> None:
    """Says so of the result, which is no value of the model."""
    value = node.outputs[0]
    value.name = f"{label_of(node)}/{node.op_type}"
    value.type = ir.TensorType(ir.DataType(INT32.code))
    names.settle(value)


def _number(node: ir.Node, name: str, otherwise: float) -> float:
    attribute = node.attributes.get(name)
    return otherwise if attribute is None else float(attribute.value)
