"""How much rounding alone may change what a model computes, on given inputs.

A reference runs the model again with its weights, its inputs and the results of its nodes changed
by about the last bit, those of one node by a common factor. What this does to an output is what
another order of summation, or another library function, may do: little in most networks, much where
large numbers cancel, whole steps where a value is quantised or compared. Nothing of it depends on
the C that is checked, so that a fault of the C cannot excuse itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDS: Final = 4
"""How often the reference runs."""
FACTOR: Final = 4.0
"""How many times the largest change seen in a tensor an error may be."""
WEIGHTS_FROM: Final = 16
"""Elements from which on a constant is weights; fewer may be a size, an exponent or a bound."""
SIZES: Final = ("Shape", "Size")
"""Operators whose result depends on no value."""
LAST_BITS: Final = {"float64": 2.0**-51, "float32": 2.0**-22, "float16": 2.0**-10}
"""The largest relative change, by numpy's name of the type: two units in the last place."""


def changed_model(
    source: Path | onnx.ModelProto, seed: int, types: Mapping[str, int]
) -> onnx.ModelProto:
    """A copy with the last bits of weights and results changed; the same for the same seed.

    types  of the results of nodes, as TensorProto.DataType, by name
    """
    model = onnx.load(source) if isinstance(source, Path) else onnx.ModelProto()
    if isinstance(source, onnx.ModelProto):
        model.CopyFrom(source)
    generator = np.random.default_rng(seed)
    for tensor in _tensors(model.graph):
        array = numpy_helper.to_array(tensor) if tensor.data_type in _FLOATS else np.empty(0)
        if array.size >= WEIGHTS_FROM:
            tensor.CopyFrom(numpy_helper.from_array(_changed(array, generator), tensor.name))
    _change_results(model.graph, generator, types)
    return model


def _change_results(
    graph: onnx.GraphProto, generator: np.random.Generator, types: Mapping[str, int]
) -> None:
    """Multiplies each float result of a node that depends on the values of inputs."""
    data = {value.name for value in graph.input} - {value.name for value in graph.initializer}
    nodes = [*graph.node]
    del graph.node[:]
    for node in nodes:
        graph.node.append(node)
        copy = graph.node[-1]
        if node.op_type in SIZES or data.isdisjoint(node.input):
            continue
        data.update(name for name in node.output if name)
        for n, name in enumerate(node.output):
            if types.get(name) in _FLOATS:
                factor, exact = f"{name}/changed/factor", f"{name}/changed/exact"
                dtype = onnx.helper.tensor_dtype_to_np_dtype(types[name])
                one = _changed(np.ones((), dtype), generator)
                graph.initializer.append(numpy_helper.from_array(one, factor))
                copy.output[n] = exact
                graph.node.append(onnx.helper.make_node("Mul", [exact, factor], [name]))


def changed_inputs(values: Mapping[str, NDArray[Any]], seed: int) -> dict[str, NDArray[Any]]:
    """The same with the last bits of all floats changed."""
    generator = np.random.default_rng(seed)
    return {
        name: _changed(array, generator) if array.dtype.name in LAST_BITS else array
        for name, array in values.items()
    }


_FLOATS: Final = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)


def _changed(array: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    size = LAST_BITS[array.dtype.name]
    with np.errstate(all="ignore"):
        factors = 1 + size * generator.uniform(-1, 1, array.shape)
        return np.asarray(array.astype(np.float64) * factors).astype(array.dtype)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The constants of a graph and of those inside its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)
