"""Size: a constant of type int64 that depends on the shape alone."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxc
from onnxc.dtypes import BY_NAME, INT64
from onnxc.errors import RefusalError
from onnxc.evaluate import constant_value
from onnxc.expression import Buffer
from onnxc.op import load_operators
from onnxc.pipeline import compile_model
from onnxc.tensor import Tensor, of_buffer
from tests.models import Batch, any_bits, model, run

pytestmark = pytest.mark.usefixtures("strict_c")

SHAPES: list[tuple[int, ...]] = [
    *((), (1,), (7,), (0,), (2, 3), (3, 0, 2), (0, 0), (1, 1, 1), (2,) * 10),
    *((2, 3, 4, 5, 6, 7, 8, 9), (1, 5, 1, 4)),
]


def size_of(code: int, *shape: int) -> onnxc.CompiledModel:
    graph = helper.make_graph(
        [helper.make_node("Size", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", code, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [])],
    )
    return onnxc.compile(model(graph))


@pytest.mark.parametrize("name", ["float", "string", "int4", "uint2", "complex128", "bool"])
def test_the_size_of_any_shape(name: str) -> None:
    batch = Batch()
    for shape in SHAPES:
        x = any_bits(BY_NAME[name], *shape)
        batch.add("Size", [x], np.array(x.size))
        batch.add("Size", [x], np.array(x.size), constants=[0])
    assert all(size.dtype == np.int64 for size in batch.wanted.values())
    batch.check()


@pytest.mark.parametrize("code", [TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT4])
def test_no_data_is_read(code: int) -> None:
    """So that the input's pointer may be NULL, though it has elements."""
    built = size_of(code, 3, 5).build()
    y = built.ffi.new("int64_t[1]", [-1])
    assert built.lib.model_run(built.ffi.NULL, y, built.ffi.NULL) == 0
    assert y[0] == 15


def test_sizes_that_no_memory_has() -> None:
    """Beyond int32, and the most bytes that C can address."""
    for shape in ((2**31,), (2**20, 2**20), (2**62, 1), (2**63 - 1,)):
        built = size_of(TensorProto.UINT8, *shape).build()
        y = built.ffi.new("int64_t[1]")
        assert built.lib.model_run(built.ffi.NULL, y, built.ffi.NULL) == 0
        assert y[0] == np.prod([int(n) for n in shape], dtype=object)


def test_a_size_that_overflows_int64_is_refused() -> None:
    """No input can have so many elements, but what an operator makes of it one day could."""
    size = load_operators()["", "Size"].function
    huge = of_buffer(Buffer("x", (2**32, 2**31), BY_NAME["int4"], "input"))
    with pytest.raises(RefusalError, match=r"the input has 9223372036854775808 elements"):
        size(huge)
    largest = size(of_buffer(Buffer("x", (2**63 - 1,), INT64, "input")))
    assert isinstance(largest, Tensor)
    value = constant_value(largest)
    assert value is not None
    assert (value.item(), largest.dtype, largest.shape) == (2**63 - 1, INT64, ())


def test_it_is_known_at_compile_time() -> None:
    """What depends on a size is computed there, too, and the program has no loop for it."""
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["x"], ["same"]),
            helper.make_node("Size", ["same"], ["n"]),
            helper.make_node("Equal", ["n", "six"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [])],
        [helper.make_tensor("six", TensorProto.INT64, [1], [6])],
    )
    graph.output[0].type.tensor_type.shape.dim.add(dim_value=1)
    sized = model(graph)
    assert run(sized, {"x": np.zeros((2, 3), np.float32)})["y"].tolist() == [True]
    notes = [fact for _, fact in compile_model(sized).program.notes]
    assert "computed at compile time" in notes


@pytest.mark.parametrize(("shape", "count"), [(["N", 3], 12), (["N", "N"], 16), (["N"], 4)])
def test_dimensions_that_are_fixed_when_compiling(shape: list[str | int], count: int) -> None:
    graph = helper.make_graph(
        [helper.make_node("Size", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [])],
    )
    compiled = onnxc.compile(model(graph), dims={"N": 4})
    static = tuple(4 if extent == "N" else int(extent) for extent in shape)
    assert compiled.inputs[0].shape == static
    assert compiled.run({"x": np.zeros(static, np.int8)})["y"] == count
