"""Constant: every form of its value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper

from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType, numpy_dtype
from tests.models import STRINGS, Array, Batch, any_bits, model, refusal, run, stored, strings

pytestmark = pytest.mark.usefixtures("strict_c")

OPSETS = {
    "value": (1, 9, 11, 12, 13, 19, 21, 23, 24, 25, 28),
    "sparse_value": (11, 12, 13, 28),
    "value_float": (12, 13, 28),
}

FORMS: list[tuple[str, Any, Array]] = [
    ("value_float", 0.1, np.array(0.1, np.float32)),
    ("value_float", -0.0, np.array(-0.0, np.float32)),
    ("value_float", float("nan"), np.array(np.nan, np.float32)),
    ("value_float", float("-inf"), np.array(-np.inf, np.float32)),
    ("value_floats", [1e-45, 3.4028235e38, 0.0], np.array([1e-45, 3.4028235e38, 0], np.float32)),
    ("value_floats", [5.0], np.array([5], np.float32)),
    ("value_int", 2**63 - 1, np.array(2**63 - 1)),
    ("value_int", -(2**63), np.array(-(2**63))),
    ("value_ints", [-(2**63), 0, 2**53 + 1], np.array([-(2**63), 0, 2**53 + 1])),
    ("value_ints", [7], np.array([7])),
    ("value_string", b"", strings(b"").reshape(())),
    ("value_string", "é\0日".encode(), strings("é\0日".encode()).reshape(())),
    (
        "value_strings",
        [b"a", b"", b"a\0", "🙂".encode()],
        strings(b"a", b"", b"a\0", "🙂".encode()),
    ),
    ("value_strings", [b"one"], strings(b"one")),
]


def test_forms_that_are_no_tensor() -> None:
    """A float is float32, an int int64, one value has no dimension and a list has one."""
    batch = Batch()
    for name, value, wanted in FORMS:
        batch.add("Constant", [], wanted, **{name: value})
    batch.check()


@pytest.mark.parametrize("opset", OPSETS["value_float"])
def test_forms_by_opset(opset: int) -> None:
    batch = Batch(opset)
    for name, value, wanted in FORMS[:8]:
        batch.add("Constant", [], wanted, **{name: value})
    batch.check_evaluated()


@pytest.mark.parametrize(("kind", "name"), [("ints", "INTS"), ("floats", "FLOATS")])
def test_an_empty_list_is_a_tensor_of_no_elements(kind: str, name: str) -> None:
    dtype = np.dtype(np.int64 if kind == "ints" else np.float32)
    batch = Batch()
    batch.add("Constant", [], np.zeros(0, dtype))
    attribute = batch.graph.node[0].attribute.add(name=f"value_{kind}")
    attribute.type = getattr(attribute, name)
    batch.check()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0, 2), (3, 1, 5), (40, 500)])
def test_tensors(shape: tuple[int, ...]) -> None:
    """As the result of the model, and under an operator; large ones too."""
    batch = Batch()
    for dtype in ELEMENT_TYPES:
        x = any_bits(dtype, *shape)
        batch.add("Constant", [], x, value=stored("", x))
        batch.add("Identity", [x], x, constants=[0])
    batch.check()


def typed(dtype: ElementType, array: Array) -> TensorProto:
    """The tensor in the field of its type, where ONNX keeps values one by one."""
    tensor = TensorProto(data_type=dtype.code, dims=array.shape)
    raw = np.frombuffer(stored("", array).raw_data, np.uint8)
    match dtype.name:
        case "float":
            tensor.float_data.extend(array.tolist())
        case "complex64":
            tensor.float_data.extend(array.view(np.float32).tolist())
        case "double":
            tensor.double_data.extend(array.tolist())
        case "complex128":
            tensor.double_data.extend(array.view(np.float64).tolist())
        case "int64":
            tensor.int64_data.extend(array.tolist())
        case "uint32" | "uint64":
            tensor.uint64_data.extend(array.tolist())
        case "int8" | "int16" | "int32" | "bool":
            tensor.int32_data.extend(array.astype(np.int32).tolist())
        case _:
            tensor.int32_data.extend(raw.view(f"u{dtype.size}").tolist())
    return tensor


@pytest.mark.parametrize("value", [0x01, 0x7F, 0xFF])
def test_copies_of_bytes_that_end_in_zeros(value: int) -> None:
    """gcc 12 with AVX-512 turns 24 equal bytes and 8 zeros into 32 equal bytes where it sees them.

    So the function that copies a constant must not know which.
    """
    batch = Batch()
    for equal, zeros in ((24, 8), (40, 24), (16, 16), (56, 8), (8, 24), (31, 1)):
        data = bytes([value]) * equal + bytes(zeros)
        for dtype in (np.uint8, np.int64):
            array = np.frombuffer(data * 2, dtype)
            batch.add("Constant", [], array, value=stored("", array))
    batch.check()


def test_values_one_by_one() -> None:
    """The other way in which a file holds a tensor: in the field of the type, not as bytes."""
    batch = Batch()
    for dtype in ELEMENT_TYPES:
        if dtype.kind == "string":
            continue
        quiet = dtype.kind in ("float", "complex")
        x = np.arange(7).astype(numpy_dtype(dtype)) if quiet else any_bits(dtype, 7)
        batch.add("Constant", [], x, value=typed(dtype, x))
    batch.check()


def sparse(values: Array, indices: list[Any], dims: list[int]) -> SparseTensorProto:
    return SparseTensorProto(
        values=stored("s", values), indices=stored("", np.array(indices, np.int64)), dims=dims
    )


SPARSE: list[tuple[list[Any], list[int], list[int]]] = [
    ([1, 5], [2, 3], [0, 1, 0, 0, 0, 2]),
    ([[0, 1], [1, 2]], [2, 3], [0, 1, 0, 0, 0, 2]),
    ([[2], [3]], [4], [0, 0, 1, 2]),
    ([0, 1], [2], [1, 2]),
]


@pytest.mark.parametrize("opset", OPSETS["sparse_value"])
def test_sparse_values(opset: int) -> None:
    """What is not stored is 0; an index is flat, or has a number for each dimension."""
    batch = Batch(opset)
    for indices, dims, flat in SPARSE:
        for dtype in (np.float32, np.int64, np.uint8, np.complex64, np.bool_, np.float16):
            value = sparse(np.array([1, 2], dtype), indices, dims)
            wanted = np.array(flat, dtype).reshape(dims)
            batch.add("Constant", [], wanted, sparse_value=value)
    batch.check_evaluated()


def test_a_sparse_value_keeps_every_bit() -> None:
    x = np.array([0x80000000, 0x7FC12345], np.uint32).view(np.float32)
    batch = Batch()
    wanted = np.zeros(4, np.float32)
    wanted[[1, 3]] = x
    batch.add("Constant", [], wanted, sparse_value=sparse(x, [1, 3], [4]))
    text = strings(b"", b"a\0", b"")
    batch.add("Constant", [], text, sparse_value=sparse(strings(b"a\0"), [1], [3]))
    none = np.zeros((2, 2), np.float32)
    batch.add("Constant", [], none, sparse_value=sparse(x[:0], [], [2, 2]))
    batch.check()


def test_constants_of_constants_are_computed_at_compile_time() -> None:
    """Equal of two constants; no code is left but the copy of the result."""
    a, b = any_bits(BY_NAME["int8"], 3, 1), any_bits(BY_NAME["int8"], 4)
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["a"], value=stored("", a)),
            helper.make_node("Constant", [], ["b"], value=stored("", b)),
            helper.make_node("Equal", ["a", "b"], ["y"]),
        ],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [3, 4])],
    )
    assert run(model(graph))["y"].tolist() == (a == b).tolist()


# Refused


@pytest.mark.parametrize("values", [{}, {"value_int": 1, "value_float": 1.0}], ids=["0", "2"])
def test_exactly_one_value_is_given(values: dict[str, Any]) -> None:
    node = helper.make_node("Constant", [], ["y"], name="n", **values)
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    (line,) = refusal(model(graph))
    assert line.startswith("node 'n' (Constant-25): ")


@pytest.mark.parametrize(
    ("name", "value", "opset"),
    [
        ("value_float", 1.0, 11),
        ("value_ints", [1], 9),
        ("value_strings", [b"a"], 1),
    ],
)
def test_forms_that_came_later(name: str, value: Any, opset: int) -> None:
    node = helper.make_node("Constant", [], ["y"], name="n", **{name: value})
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    lines = refusal(model(graph, opset))
    version = max(version for version in (1, 9, 11) if version <= opset)
    fact = f"node 'n' (Constant-{version}): attribute '{name}' does not exist at this version; "
    assert any(line.startswith(fact) for line in lines)


def test_every_text_of_the_strings_is_kept() -> None:
    batch = Batch()
    x = strings(*STRINGS)
    batch.add("Constant", [], x, value=stored("", x))
    batch.check()
