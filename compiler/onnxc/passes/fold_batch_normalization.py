"""A BatchNormalization behind a convolution or Gemm with constant weights becomes part of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from onnxc.dtypes import FLOAT
from onnxc.passes.notes import part_of
from onnxc.values import element_type_of, tensor_of, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

EPSILON: Final = 1e-5
"""Of BatchNormalization where the attribute is left out."""


def fold_batch_normalization(graph: ir.Graph) -> list[tuple[ir.Node, str]]:
    """Scales weights and bias, in double and rounded once; tells what became of the nodes gone.

    Only of float, where nothing else reads what the convolution makes, and where all is finite.
    """
    folded = []
    for node in list(graph):
        operands = _operands(graph, node)
        if operands is None:
            continue
        maker, scaled = operands[0], _scaled(node, *operands)
        if scaled is None:
            continue
        _take_over(graph, node, maker, *scaled)
        name = maker.name or maker.outputs[0].name or ""
        folded.append((node, part_of(maker.op_type, name, weights=True)))
    return folded


def _operands(graph: ir.Graph, node: ir.Node) -> tuple[ir.Node, Array, Array | None] | None:
    """The node whose result is normalised, its weights and bias; None where it cannot be folded."""
    if node.op_type != "BatchNormalization" or node.domain or _number(node, "training_mode", 0):
        return None
    source = node.inputs[0]
    maker = source.producer() if source is not None else None
    if source is None or maker is None or maker.domain or maker.op_type not in ("Conv", "Gemm"):
        return None
    if len(source.uses()) != 1 or source.is_graph_output() or len(node.outputs) != 1:
        return None
    weights = _constant(maker.inputs[1])
    given = maker.inputs[2] if len(maker.inputs) > 2 else None
    bias = _constant(given)
    if weights is None or (given is not None and bias is None):
        return None
    return maker, weights, bias


def _scaled(
    node: ir.Node, maker: ir.Node, weights: Array, bias: Array | None
) -> tuple[Array, Array] | None:
    """The new weights and bias, as float; None where a factor is unknown or one is not finite."""
    found = [_constant(value) for value in node.inputs[1:5]]
    known = [array.astype(np.float64) for array in found if array is not None]
    if len(known) != 4:
        return None
    scale, shift, mean, variance = known
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + _number(node, "epsilon", EPSILON))
        given = np.asarray(0.0 if bias is None else bias, np.float64)
        before = given * _number(maker, "beta", 1.0)
        moved = np.asarray((before - mean) * factor + shift).astype(np.float32)
        if not (maker.op_type == "Gemm" and not _number(maker, "transB", 0)):
            factor = factor.reshape(-1, *(1 for _ in weights.shape[1:]))
        # numpy computes it in double piece by piece, without all of it in memory.
        new = np.multiply(weights, factor, out=np.empty_like(weights), casting="same_kind")
    if moved.ndim != 1 or not (np.isfinite(new).all() and np.isfinite(moved).all()):
        return None
    return new, moved


def _take_over(graph: ir.Graph, node: ir.Node, maker: ir.Node, weights: Array, bias: Array) -> None:
    """`maker` with other weights and bias makes what `node` made, which is removed."""
    old, shift, result = maker.inputs[1], node.inputs[2], node.outputs[0]
    maker.replace_input_with(1, _value(weights, old))
    if len(maker.inputs) < 3:
        maker.resize_inputs(3)
    maker.replace_input_with(2, _value(bias, maker.inputs[2] or shift))
    if maker.op_type == "Gemm":
        maker.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
    made = maker.outputs[0]
    name = result.name
    ir.convenience.replace_all_uses_with(result, made, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    made.name = name


def _constant(value: ir.Value | None) -> Array | None:
    """A float constant."""
    if value is None or value.const_value is None or value.dtype is None:
        return None
    if element_type_of(value.dtype) is not FLOAT:
        return None
    return values_of(value.const_value)


def _number(node: ir.Node, name: str, otherwise: float) -> float:
    attribute = node.attributes.get(name)
    return otherwise if attribute is None else float(attribute.value)


def _value(array: Array, named: ir.Value | None) -> ir.Value:
    """A new constant, called as the one that it stands for."""
    name = (named.name if named is not None else None) or ""
    value = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(array.shape))
    value.const_value = tensor_of(array, FLOAT, name)
    return value
