"""Identity: every bit of every type, at every level of optimisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxc
from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType, numpy_dtype
from onnxc.packing import unpack_elements
from tests.models import STRICT, STRINGS, Array, Batch, any_bits, model, stored, strings

SMALL = [dtype for dtype in ELEMENT_TYPES if 0 < dtype.bits <= 8 and dtype.kind != "bool"]
WORDS = {"float": np.uint32, "double": np.uint64, "float16": np.uint16, "bfloat16": np.uint16}


@pytest.fixture(params=["-O0", "-O3"])
def optimised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, request.param]))


def every_value(dtype: ElementType) -> Array:
    """Of a type of up to 16 bits, in the order of the bits."""
    if dtype.packed:
        low = np.arange(2**dtype.bits, dtype=np.uint8)
        shifts = np.arange(dtype.per_byte, dtype=np.uint8) * dtype.bits
        packed = np.bitwise_or.reduce(low.reshape(-1, dtype.per_byte) << shifts, 1)
        return unpack_elements(packed.astype(np.uint8), len(low), dtype)
    return np.arange(2**dtype.bits, dtype=f"u{dtype.size}").view(numpy_dtype(dtype))


def not_numbers(dtype: np.dtype[Any], unsigned: type[Any]) -> Array:
    """NaN, quiet and signalling, of every single bit of payload and of all; -0, denormals, inf."""
    info = ml_dtypes.finfo(dtype)
    mantissa, bits = info.nmant, info.bits
    infinity = (2**info.nexp - 1) << mantissa
    payloads = [0, *(1 << n for n in range(mantissa)), 2**mantissa - 1]
    words = [infinity + payload for payload in payloads] + [0, 1, 2**mantissa - 1, 2**mantissa]
    words += [word | 1 << (bits - 1) for word in words]
    return np.array(words, unsigned).view(dtype)


def add_both(batch: Batch, x: Array) -> None:
    """The array as an input, and as a constant."""
    batch.add("Identity", [x], x)
    batch.add("Identity", [x], x, constants=[0])


@pytest.mark.usefixtures("optimised")
def test_every_bit_of_floats() -> None:
    batch = Batch()
    for name, unsigned in WORDS.items():
        x = not_numbers(numpy_dtype(BY_NAME[name]), unsigned)
        add_both(batch, x)
        for value in (x[:1], x[1:2], x[-1:]):
            add_both(batch, value.reshape(()))
    batch.check()


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("name", "part"), [("complex64", "float"), ("complex128", "double")])
def test_every_bit_of_complex_numbers(name: str, part: str) -> None:
    parts = not_numbers(numpy_dtype(BY_NAME[part]), WORDS[part])
    pairs = np.stack(np.broadcast_arrays(parts[:, None], parts), axis=-1)
    x = np.ascontiguousarray(pairs).view(numpy_dtype(BY_NAME[name])).reshape(pairs.shape[:2])
    batch = Batch()
    add_both(batch, x[:30])
    add_both(batch, x[1, 1].reshape(()))
    batch.check()


@pytest.mark.usefixtures("optimised")
def test_every_value_of_small_types() -> None:
    """Of packed types in every place of a byte, and with a last byte that is not full."""
    batch = Batch()
    for dtype in SMALL:
        x = every_value(dtype)
        assert len({value.tobytes() for value in x}) == 2**dtype.bits
        places = np.stack([np.roll(x, place) for place in range(dtype.per_byte)])
        add_both(batch, places)
        for length in range(1, dtype.per_byte + 1):
            add_both(batch, x[-length:])
    batch.check()


@pytest.mark.usefixtures("strict_c")
@pytest.mark.parametrize("name", ["float16", "bfloat16", "int16", "uint16"])
def test_every_value_of_16_bits(name: str) -> None:
    batch = Batch()
    add_both(batch, every_value(BY_NAME[name]))
    batch.check()


@pytest.mark.usefixtures("strict_c")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_strings_keep_all_bytes(
    compiler: str, tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a string that is longer than C's longest literal."""
    monkeypatch.setenv("CC", tool(compiler))
    every_byte = bytes(range(256))
    batch = Batch()
    add_both(batch, strings(*STRINGS, every_byte, every_byte * 40))
    add_both(batch, strings(*STRINGS[:4]).reshape(2, 1, 2))
    for text in (*STRINGS, b'"', b"\\", b"??/", b"%s", b"1\n2\r", b"a" * 64, b"a" * 5000 + b"\0"):
        add_both(batch, strings(text).reshape(()))
    batch.check()


@pytest.mark.usefixtures("strict_c")
def test_shapes() -> None:
    """Rank 0 to 10, no elements, one, a million."""
    batch = Batch()
    for shape in [(), (1,), (1, 1), (0,), (3, 0, 2), (2, 3), (2,) * 10, (1000, 1000)]:
        for dtype in map(BY_NAME.__getitem__, ("float", "int4", "string", "bool", "complex64")):
            if shape != (1000, 1000) or dtype.name in ("float", "int4"):
                batch.add("Identity", [any_bits(dtype, *shape)], any_bits(dtype, *shape))
    batch.check()


def test_pointers_to_no_elements_may_be_null() -> None:
    shape = [3, 0]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Equal", ["x", "x"], ["z"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("z", TensorProto.BOOL, shape),
        ],
    )
    built = onnxc.compile(model(graph)).build()
    assert built.lib.model_run(*[built.ffi.NULL] * 4) == 0
    assert built.lib.model_run_static(*[built.ffi.NULL] * 3) == 0


# Bool: any byte other than 0 is true; what comes out is always 0 or 1.

ODD_BYTES = bytes([0, 1, 2, 4, 127, 128, 255])
TRUTH = bytes([0, 1, 1, 1, 1, 1, 1])


@pytest.mark.usefixtures("optimised")
def test_bool_inputs_of_any_byte() -> None:
    x = np.frombuffer(ODD_BYTES, np.bool_)
    batch = Batch()
    batch.add("Identity", [x], np.frombuffer(TRUTH, np.bool_))
    for n in range(len(x)):
        batch.add("Identity", [x[n].reshape(())], np.frombuffer(TRUTH, np.bool_)[n].reshape(()))
    long = np.frombuffer(ODD_BYTES * 50, np.bool_).reshape(50, 7)
    batch.add("Identity", [long], np.frombuffer(TRUTH * 50, np.bool_).reshape(50, 7))
    batch.check()


@pytest.mark.usefixtures("optimised")
def test_a_bool_input_that_is_an_output() -> None:
    graph = helper.make_graph(
        [],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BOOL, [7])],
        [helper.make_tensor_value_info("x", TensorProto.BOOL, [7])],
    )
    compiled = onnxc.compile(model(graph))
    (output,) = compiled.run({"x": np.frombuffer(ODD_BYTES, np.bool_)}).values()
    assert output.tobytes() == TRUTH


@pytest.mark.usefixtures("strict_c")
@pytest.mark.parametrize("where", ["initializer", "Constant", "output"])
@pytest.mark.parametrize("count", [1, 7, 3 * 7000])
def test_bool_constants_of_any_byte(where: str, count: int) -> None:
    """As a literal, as a table, and large."""
    data = TensorProto(name="w", data_type=TensorProto.BOOL, dims=[count])
    data.raw_data = (ODD_BYTES[::-1] * count)[:count]
    wanted = (TRUTH[::-1] * count)[:count]
    output = "w" if where == "output" else "y"
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])] if where != "output" else [],
        "g",
        [],
        [helper.make_tensor_value_info(output, TensorProto.BOOL, [count])],
        [] if where == "Constant" else [data],
    )
    if where == "Constant":
        graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=data))
    assert onnxc.compile(model(graph)).run({})[output].tobytes() == wanted


def test_padding_bits_do_not_matter_and_are_zero() -> None:
    """Of the last byte of a packed tensor."""
    x, y = np.array([0xFF, 0xFF], np.uint8), np.empty(2, np.uint8)
    constant = np.array([-1, -1, -1], ml_dtypes.int4)
    w = np.empty(2, np.uint8)
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["x"], ["y"]),
            helper.make_node("Identity", ["c"], ["w"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT4, [3])],
        [
            helper.make_tensor_value_info("y", TensorProto.UINT4, [3]),
            helper.make_tensor_value_info("w", TensorProto.INT4, [3]),
        ],
        [stored("c", constant)],
    )
    graph.initializer[0].raw_data = b"\xff\xff"
    onnxc.compile(model(graph)).bind({"x": x}, {"y": y, "w": w})()
    assert (y.tobytes(), w.tobytes()) == (b"\xff\x0f", b"\xff\x0f")
