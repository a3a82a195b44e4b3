"""Models made of numpy arrays: every node with the values that it takes and those that it gives.

Strings are arrays of bytes objects. `run` computes a model twice, by its C and by its kernel IR in
numpy, and insists that both give the same bits.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from onnxc.arrays import object_array, text_bytes
from onnxc.compiled import CompiledModel
from onnxc.dtypes import BY_CODE, ElementType, numpy_dtype
from onnxc.errors import ModelError
from onnxc.op import OPSET
from onnxc.packing import unpack_elements
from onnxc.pipeline import compile_model, evaluate_model

Array: TypeAlias = NDArray[Any]

STRICT: Final = shlex.split("""
    -std=c99 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion
    -Wundef -Wmissing-prototypes -Wstrict-prototypes -Wcast-align -Wcast-qual -Wfloat-equal -Wvla
    -Werror
""")

# Empty, equal but for the end, of several bytes a character, with NUL inside and last, no UTF-8.
STRINGS: Final = (b"", b"a", b"ab", "é日🙂".encode(), b"a\0b", b"a\0", b"\0", b"\xff\x80\xc3")


def strings(*values: bytes) -> Array:
    return object_array(values, (len(values),))


def element_type(array: Array) -> ElementType:
    return BY_CODE[helper.np_dtype_to_tensor_dtype(array.dtype)]


def any_bits(dtype: ElementType, *shape: int) -> Array:
    """Values of every kind that the type has: random bits; a bool is 0 or 1."""
    generator = np.random.default_rng([dtype.code, *shape])
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.kind == "string":
        values = [STRINGS[n] for n in generator.integers(len(STRINGS), size=count)]
        return object_array(values, shape)
    data = np.frombuffer(generator.bytes(dtype.packed_bytes(count)), np.uint8)
    if dtype.packed:
        return unpack_elements(data, count, dtype).reshape(shape)
    if dtype.kind == "bool":
        return np.asarray(data & 1, np.bool_).reshape(shape)
    return data.view(numpy_dtype(dtype)).reshape(shape)


def declared(name: str, array: Array) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type(array).code, array.shape)


def stored(name: str, array: Array) -> TensorProto:
    if element_type(array).kind == "string":
        return TensorProto(
            name=name,
            data_type=TensorProto.STRING,
            dims=array.shape,
            string_data=[text_bytes(value) for value in array.reshape(-1)],
        )
    return numpy_helper.from_array(array, name)


def model(graph: GraphProto, opset: int = OPSET, *, domain: str = "", ir: int = 0) -> ModelProto:
    """`ir` 0 is the newest version of the file format."""
    imports = [helper.make_opsetid(domain, opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir or onnx.IR_VERSION)


def float_network(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int]],
    result: Sequence[int],
    constants: Mapping[str, Array],
) -> ModelProto:
    """From float inputs of some shapes to the float output y of shape `result`."""

    def value(name: str, shape: Sequence[int]) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "network",
        [value(name, shape) for name, shape in inputs.items()],
        [value("y", result)],
        [stored(name, array.astype(np.float32)) for name, array in constants.items()],
    )
    return model(graph, 21)


@dataclass
class Batch:
    """One model of many nodes, because a run of the C compiler costs more than a node."""

    opset: int = OPSET
    ir: int = 0
    graph: GraphProto = field(default_factory=lambda: GraphProto(name="batch"))
    given: dict[str, Array] = field(default_factory=dict)
    wanted: dict[str, Array] = field(default_factory=dict)

    def add(
        self,
        operator: str,
        inputs: Sequence[Array],
        output: Array,
        *,
        constants: Collection[int] = (),
        **attributes: Any,
    ) -> None:
        """A node that must make `output`; the inputs at the positions `constants` are constants."""
        number = len(self.graph.node)
        names = [f"x{number}_{position}" for position in range(len(inputs))]
        for position, (name, array) in enumerate(zip(names, inputs, strict=True)):
            if position in constants:
                self.graph.initializer.append(stored(name, array))
            else:
                self.graph.input.append(declared(name, array))
                self.given[name] = array
        self.graph.node.append(helper.make_node(operator, names, [f"y{number}"], **attributes))
        self.graph.output.append(declared(f"y{number}", output))
        self.wanted[f"y{number}"] = output

    def model(self) -> ModelProto:
        return model(self.graph, self.opset, ir=self.ir)

    def check(self) -> None:
        assert_same(run(self.model(), self.given), self.wanted)

    def check_evaluated(self) -> None:
        """The same without a C compiler."""
        assert_same(evaluate_model(self.model(), self.given), self.wanted)


def run(
    source: ModelProto, given: Mapping[str, Array] | None = None, *, plain: bool = False
) -> dict[str, Array]:
    """The outputs; with `plain` every value is in a buffer of its own and nothing is fused."""
    compiled = CompiledModel(compile_model(source, plain=plain))
    outputs = {key: _as_bytes(array) for key, array in compiled.run(given or {}).items()}
    assert_same(evaluate_model(source, given or {}), outputs)
    return outputs


def _as_bytes(array: Array) -> Array:
    if array.dtype != np.dtype(object):
        return array
    return object_array([text_bytes(value) for value in array.reshape(-1)], array.shape)


def assert_same(actual: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Equal in names, their order, types, shapes and every bit."""
    assert list(actual) == list(wanted)
    for name, expected in wanted.items():
        found = actual[name]
        assert (name, found.dtype, found.shape) == (name, expected.dtype, expected.shape)
        if expected.dtype == np.dtype(object):
            pairs = zip(found.reshape(-1), expected.reshape(-1), strict=True)
            assert all(type(f) is bytes and f == e for f, e in pairs), (name, found, expected)
        elif found.tobytes() != expected.tobytes():
            np.testing.assert_array_equal(found, expected, err_msg=name)
            pytest.fail(f"{name}: equal values of different bits")


def refusal(source: ModelProto) -> list[str]:
    """The lines that refuse a model."""
    with pytest.raises(ModelError) as caught:
        compile_model(source)
    return str(caught.value).splitlines()
