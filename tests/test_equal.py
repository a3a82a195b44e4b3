"""Equal: by value, and in version 1 with `broadcast` and `axis`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxc import evaluate
from onnxc.compiled import CompiledModel
from onnxc.dtypes import BOOL, BY_NAME, ElementType, numpy_dtype
from onnxc.emit.interface import Banner
from onnxc.emit.module import emit
from onnxc.expression import Buffer, along, compare, load
from onnxc.kernel import Loops, Program
from onnxc.passes.merge_axes import merge_axes
from onnxc.passes.plan_memory import plan_memory
from onnxc.pipeline import Compiled, Interface, compile_model
from onnxc.tensor import axes_of
from tests.models import STRINGS, Array, Batch, model, refusal, run, strings

pytestmark = pytest.mark.usefixtures("strict_c")

BITS_16 = np.arange(2**16, dtype=np.uint16)


def numbers(*shape: int) -> Array:
    """0, 1, 2, 0, 1, 2 ..."""
    return (np.arange(np.prod(shape)) % 3).astype(np.int32).reshape(shape)


# Version 1

# Shape of A, shape of B, attributes, and the shape that B then has beside A.
LEGACY: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, ...]]] = [
    # The shapes of the documentation of Add-1.
    ((2, 3, 4, 5), (), {"broadcast": 1}, ()),
    ((2, 3, 4, 5), (1, 1), {"broadcast": 1}, (1, 1)),
    ((2, 3, 4, 5), (5,), {"broadcast": 1}, (5,)),
    ((2, 3, 4, 5), (4, 5), {"broadcast": 1}, (4, 5)),
    ((2, 3, 4, 5), (3, 4), {"broadcast": 1, "axis": 1}, (3, 4, 1)),
    ((2, 3, 4, 5), (2,), {"broadcast": 1, "axis": 0}, (2, 1, 1, 1)),
    # Equal shapes, with and without broadcasting.
    ((2, 3), (2, 3), {}, (2, 3)),
    ((2, 3), (2, 3), {"broadcast": 0}, (2, 3)),
    ((2, 3), (2, 3), {"broadcast": 1}, (2, 3)),
    ((2, 3), (2, 3), {"broadcast": 1, "axis": 0}, (2, 3)),
    ((), (), {}, ()),
    ((), (), {"broadcast": 1}, ()),
    # A suffix by its axis, counted from either end.
    ((2, 3, 4), (3, 4), {"broadcast": 1, "axis": 1}, (3, 4)),
    ((2, 3, 4), (3, 4), {"broadcast": 1, "axis": -2}, (3, 4)),
    ((2, 3, 4), (4,), {"broadcast": 1, "axis": -1}, (4,)),
    ((2, 3, 4), (2, 3), {"broadcast": 1, "axis": -3}, (2, 3, 1)),
    # Only the axis tells which of two equal dimensions is meant.
    ((3, 3), (3,), {"broadcast": 1}, (3,)),
    ((3, 3), (3,), {"broadcast": 1, "axis": 1}, (3,)),
    ((3, 3), (3,), {"broadcast": 1, "axis": 0}, (3, 1)),
    # A single element fits anywhere, whatever the axis.
    ((2, 3), (1,), {"broadcast": 1}, (1,)),
    ((2, 3), (1,), {"broadcast": 1, "axis": 0}, (1,)),
    ((2, 3), (), {"broadcast": 1, "axis": 1}, ()),
    # Dimensions of 1 and of 0 in both.
    ((2, 1, 4), (1, 4), {"broadcast": 1}, (1, 4)),
    ((2, 1, 4), (2, 1), {"broadcast": 1, "axis": 0}, (2, 1, 1)),
    ((2, 0, 4), (0, 4), {"broadcast": 1}, (0, 4)),
    ((0, 3), (0,), {"broadcast": 1, "axis": 0}, (0, 1)),
]


@pytest.mark.parametrize("opset", [1, 6])
def test_legacy_broadcasting(opset: int) -> None:
    batch = Batch(opset)
    for a, b, attributes, beside in LEGACY:
        left, right = numbers(*a), numbers(*b)
        batch.add("Equal", [left, right], left == right.reshape(beside), **attributes)
    batch.check()


def test_legacy_broadcasting_of_constants() -> None:
    """B, or both, known at compile time."""
    batch = Batch(6)
    for constants in ((1,), (0, 1)):
        for a, b, attributes, beside in LEGACY:
            left, right = numbers(*a), numbers(*b)
            wanted = left == right.reshape(beside)
            batch.add("Equal", [left, right], wanted, constants=constants, **attributes)
    batch.check_evaluated()


@pytest.mark.parametrize(
    ("a", "b", "attributes", "fact"),
    [
        ([2, 3], [3], {}, "shapes [2, 3] and [3] differ and broadcast is 0"),
        ([2, 3], [], {"broadcast": 0}, "shapes [2, 3] and [] differ and broadcast is 0"),
        ([2, 3], [3, 2], {"axis": 0}, "shapes [2, 3] and [3, 2] differ and broadcast is 0"),
        ([2, 3], [2], {"broadcast": 1}, "the shape [2] of B is no run of A's [2, 3] from axis 1"),
        ([2, 3], [3], {"broadcast": 1, "axis": 0}, "[3] of B is no run of A's [2, 3] from axis 0"),
        ([2, 3], [3], {"broadcast": 1, "axis": 2}, "[3] of B is no run of A's [2, 3] from axis 2"),
        ([2, 3], [2], {"broadcast": 1, "axis": -3}, "[2] of B is no run of A's [2, 3] from axis"),
        ([2, 3], [2, 1], {"broadcast": 1}, "[2, 1] of B is no run of A's [2, 3] from axis 0"),
        ([3], [2, 3], {"broadcast": 1}, "[2, 3] of B is no run of A's [3] from axis"),
        ([1], [3], {"broadcast": 1}, "[3] of B is no run of A's [1] from axis 0"),
        ([], [1, 1], {"broadcast": 1}, "[1, 1] of B is no run of A's [] from axis"),
    ],
)
def test_legacy_shapes_that_do_not_fit(
    a: list[int], b: list[int], attributes: dict[str, int], fact: str
) -> None:
    """Before opset 7, only B broadcasts, and nothing without `broadcast`."""
    graph = equal_of(BY_NAME["int32"], a, b, **attributes)
    (line,) = refusal(model(graph, 6))
    assert line.startswith("node 'n' (Equal-1): ")
    assert fact in line


def equal_of(dtype: ElementType, a: list[int], b: list[int], **attributes: Any) -> Any:
    return helper.make_graph(
        [helper.make_node("Equal", ["a", "b"], ["y"], name="n", **attributes)],
        "g",
        [
            helper.make_tensor_value_info("a", dtype.code, a),
            helper.make_tensor_value_info("b", dtype.code, b),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )


@pytest.mark.parametrize("name", ["axis", "broadcast"])
@pytest.mark.parametrize("opset", [7, 11, 13, 19])
def test_later_versions_have_no_attribute(name: str, opset: int) -> None:
    lines = refusal(model(equal_of(BY_NAME["bool"], [2], [2], **{name: 1}), opset))
    assert lines == [
        f"node 'n' (Equal-{opset}): attribute '{name}' does not exist at this version; "
        "the schema has none"
    ]


@pytest.mark.parametrize("shapes", [([2, 3], [4]), ([2], [3]), ([5, 1, 3], [4, 2])])
def test_shapes_that_do_not_broadcast(shapes: tuple[list[int], list[int]]) -> None:
    """Both are named."""
    a, b = ("".join(f"[{extent}]" for extent in shape) for shape in shapes)
    assert refusal(model(equal_of(BY_NAME["float"], *shapes))) == [
        f"node 'n' (Equal-19): Incompatible dimensions (inputs 'a' float{a}, 'b' float{b})"
    ]


# Floating point

# Every pair of these is compared; of each pair the table says when they are equal.
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0**-24, 65504.0]


@pytest.mark.parametrize("name", ["float", "double", "float16", "bfloat16"])
def test_special_values(name: str) -> None:
    """A NaN equals nothing, itself neither; -0 equals +0; all else equals itself."""
    x = np.array(SPECIAL).astype(numpy_dtype(BY_NAME[name]))
    nan, zero = SPECIAL.index(np.nan), (0, 1)
    wanted = np.eye(len(x), dtype=bool)
    wanted[nan, nan] = False
    wanted[np.ix_(zero, zero)] = True
    batch = Batch()
    batch.add("Equal", [x[:, None], x], wanted)
    batch.add("Equal", [x[:, None], x], wanted, constants=[0])
    batch.add("Equal", [x[:, None], x], wanted, constants=[0, 1])
    for value, row in zip(x, wanted, strict=True):
        batch.add("Equal", [value.reshape(()), x], row, constants=[0])
    batch.check()


def nan_of_any_bits(dtype: type[Any], unsigned: type[Any]) -> Array:
    """Quiet and signalling, of either sign, with the lowest and highest payload."""
    info = ml_dtypes.finfo(dtype)
    mantissa = 2**info.nmant
    exponent = (2**info.nexp - 1) * mantissa
    sign = exponent + mantissa
    payloads = [1, mantissa // 2 - 1, mantissa // 2, mantissa // 2 + 1, mantissa - 1]
    bits = [s + exponent + payload for s in (0, sign) for payload in payloads]
    return np.array(bits, unsigned).view(dtype)


@pytest.mark.parametrize(("dtype", "unsigned"), [(np.float32, np.uint32), (np.float64, np.uint64)])
def test_no_nan_equals_any_nan(dtype: type[Any], unsigned: type[Any]) -> None:
    nan = nan_of_any_bits(dtype, unsigned)
    assert np.isnan(nan).all()
    none = np.zeros((10, 10), bool)
    batch = Batch()
    batch.add("Equal", [nan[:, None], nan], none)
    batch.add("Equal", [nan[:, None], nan], none, constants=[1])
    batch.check()


def bits_equal(a: Array, b: Array, infinity: int) -> Array:
    """What equality of two 16-bit floats means for their bits; infinity tells the format."""
    nan = ((a & 0x7FFF) > infinity) | ((b & 0x7FFF) > infinity)
    zeros = ((a | b) & 0x7FFF) == 0
    return np.asarray((a == b) & ~nan | zeros)


@pytest.mark.parametrize(
    ("dtype", "infinity"), [(np.float16, 0x7C00), (ml_dtypes.bfloat16, 0x7F80)]
)
def test_every_16_bit_float(dtype: type[Any], infinity: int) -> None:
    """All 65,536 with themselves, their negatives, their neighbours, and special partners."""
    partners = [0, 0x8000, 1, 0x3C00, 0x3F80, infinity, 0x8000 | infinity, infinity + 1, 0xFFFF]
    others = [BITS_16, BITS_16 ^ 0x8000, BITS_16 + np.uint16(1), BITS_16 ^ 0x0100]
    others += [np.full(1, partner, np.uint16) for partner in partners]
    batch = Batch()
    for other in others:
        wanted = bits_equal(BITS_16, other, infinity)
        batch.add("Equal", [BITS_16.view(dtype), other.view(dtype)], wanted)
    batch.check()


# Complex numbers: no version of Equal allows them, so this is the kernel IR's comparison.


def comparison(dtype: ElementType, rows: int, columns: int) -> Compiled:
    """y[i][j] = a[i] == b[j]"""
    a = Buffer("a", (rows,), dtype, "input")
    b = Buffer("b", (columns,), dtype, "input")
    y = Buffer("y", (rows, columns), BOOL, "output")
    axes = axes_of(y.shape)
    i, j = map(along, axes)
    loops = Loops(y, (i, j), axes, compare("equal", load(a, [i]), load(b, [j])))
    program = plan_memory(merge_axes(Program((a, b), (y,), (loops,))))
    module = emit(program, Banner("complex_equal", "0", "test", "0BSD", "none"))
    ports = [
        Interface(port.buffer.name, port.c_name, port.buffer.dtype, port.buffer.shape)
        for port in module.ports
    ]
    return Compiled(module, program, tuple(ports[:2]), tuple(ports[2:]))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers_by_both_parts(name: str) -> None:
    parts = [0.0, -0.0, 1.5, np.inf, np.nan]
    x = np.array([complex(re, im) for re in parts for im in parts])
    x = x.astype(numpy_dtype(BY_NAME[name]))
    real, imaginary = np.equal.outer(x.real, x.real), np.equal.outer(x.imag, x.imag)
    wanted = real & imaginary
    assert 0 < wanted.sum() < wanted.size
    compiled = comparison(BY_NAME[name], len(x), len(x))
    found = CompiledModel(compiled).run({"a": x, "b": x})["y"]
    np.testing.assert_array_equal(found, wanted)
    program = compiled.program
    (evaluated,) = evaluate.run(program, dict.fromkeys(program.inputs, x)).values()
    np.testing.assert_array_equal(evaluated, wanted)


# Integers, bool, strings


@pytest.mark.parametrize("name", ["int64", "uint64", "int32", "uint32", "int16", "uint8"])
def test_integers_are_compared_as_integers(name: str) -> None:
    """Also those above 2^24 and 2^53, whose neighbours are one as float and double."""
    limits = np.iinfo(numpy_dtype(BY_NAME[name]))
    near = [2**24, 2**31, 2**53, 2**62, 2**63]
    values = {0, 1, limits.min, limits.min + 1, limits.max - 1, limits.max}
    values |= {n + d for n in near for d in (-1, 0, 1)} | {-n + d for n in near for d in (-1, 0, 1)}
    x = np.array(sorted(v for v in values if limits.min <= v <= limits.max), limits.dtype)
    wanted = np.eye(len(x), dtype=bool)
    batch = Batch()
    batch.add("Equal", [x[:, None], x], wanted)
    batch.add("Equal", [x[:, None], x], wanted, constants=[1])
    for value, row in zip(x, wanted, strict=True):
        batch.add("Equal", [x, value.reshape(())], row, constants=[1])
    batch.check()


def test_strings_by_all_bytes() -> None:
    """UTF-8 or not, empty, NUL inside and last; a beginning is not the whole."""
    x = strings(*STRINGS, "e\u0301".encode(), "\u00e9".encode(), b"a" * 1000)
    wanted = np.eye(len(x), dtype=bool)
    batch = Batch()
    batch.add("Equal", [x.reshape(-1, 1), x], wanted)
    batch.add("Equal", [x.reshape(-1, 1), x], wanted, constants=[0])
    batch.add("Equal", [x.reshape(-1, 1), x], wanted, constants=[0, 1])
    batch.add("Equal", [x, x.copy()], np.ones(len(x), bool))
    for number, row in enumerate(wanted):
        batch.add("Equal", [x[number : number + 1].reshape(()), x], row, constants=[0])
    batch.check()


BYTES = np.frombuffer(bytes([0, 1, 2, 128, 255]), np.bool_)
TRUTH = np.array([False, True, True, True, True])


def test_any_byte_but_zero_is_true() -> None:
    """Two bool bytes are equal where both are zero or neither is; the result is 0 or 1."""
    batch = Batch()
    wanted = TRUTH[:, None] == TRUTH
    batch.add("Equal", [BYTES.reshape(-1, 1), BYTES], wanted)
    batch.add("Equal", [BYTES, BYTES[::-1].copy()], TRUTH[::-1] == TRUTH)
    batch.check()


@pytest.mark.parametrize("constants", [(0,), (1,), (0, 1)])
def test_any_byte_but_zero_is_true_in_constants(constants: tuple[int, ...]) -> None:
    batch = Batch()
    wanted = TRUTH[:, None] == TRUTH
    batch.add("Equal", [TRUTH[:, None], TRUTH], wanted, constants=constants)
    for value, row in zip(TRUTH, wanted, strict=True):
        batch.add("Equal", [value.reshape(()), TRUTH], row, constants=constants)
    for tensor in batch.graph.initializer:
        tensor.raw_data = tensor.raw_data.replace(b"\1", b"\2")
    batch.check()


def test_a_chain_of_comparisons_of_odd_bytes() -> None:
    """Equal of the results of Equal, and of a bool that comes from outside."""
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["x"], ["same"]),
            helper.make_node("Equal", ["same", "x"], ["all"]),
            helper.make_node("Equal", ["all", "same"], ["y"]),
        ],
        "g",
        [tensor("x", TensorProto.BOOL, [5])],
        [tensor(name, TensorProto.BOOL, [5]) for name in ("same", "y")],
    )
    outputs = run(model(graph), {"x": BYTES})
    assert {name: value.tobytes() for name, value in outputs.items()} == {
        "same": TRUTH.tobytes(),
        "y": TRUTH.tobytes(),
    }


@pytest.mark.parametrize("name", ["float", "double", "float16", "bfloat16"])
def test_the_same_tensor_on_both_sides(name: str) -> None:
    """Even then a NaN is not equal, so that the answer is not known at compile time."""
    dtype = BY_NAME[name]
    graph = helper.make_graph(
        [helper.make_node("Equal", ["x", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", dtype.code, [3])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [3])],
    )
    x = np.array([1, np.nan, -0.0]).astype(numpy_dtype(dtype))
    assert run(model(graph), {"x": x})["y"].tolist() == [True, False, True]


@pytest.mark.parametrize("rank", [32, 33, 64])
def test_ranks_that_numpy_broadcasts_no_more(rank: int) -> None:
    left, right = numbers(4, *[1] * (rank - 2), 3), numbers(*[1] * (rank - 2), 5, 1)
    wanted = np.equal(left.reshape(4, 1, 3), right.reshape(1, 5, 1)).reshape(
        4, *[1] * (rank - 3), 5, 3
    )
    batch = Batch()
    batch.add("Equal", [left, right], wanted)
    batch.add("Equal", [left, right], wanted, constants=[0])
    batch.add("Equal", [left, right], wanted, constants=[0, 1])
    batch.check()


@pytest.mark.parametrize("elements", [100_000, 2**40])
def test_what_is_known_of_an_input_is_no_large_constant(elements: int) -> None:
    """x equals x, for integers; the C says so in a loop, not in a table as long as x."""
    info = helper.make_tensor_value_info("x", TensorProto.INT32, [elements])
    out = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("Equal", ["x", "x"], ["y"])], "g", [info], [out])
    assert compile_model(model(graph)).constants_size == 0


def test_constants_of_no_elements_but_many_rows() -> None:
    """None is a number of rows that anything loops over, or allocates."""
    wide = TensorProto(name="w", data_type=TensorProto.INT32, dims=[0, 2**40])
    out = helper.make_empty_tensor_value_info("y")
    nodes = [helper.make_node("Equal", ["w", "w"], ["y"], name="n")]
    graph = helper.make_graph(nodes, "g", [], [out], [wide])
    (interface,) = compile_model(model(graph)).outputs
    assert interface.shape == (0, 2**40)
    graph.initializer.append(TensorProto(name="v", data_type=6, dims=[2**40, 0, 1]))
    nodes[0].input[:] = ["w", "v"]
    graph.node[0].CopyFrom(nodes[0])
    (line,) = refusal(model(graph))
    assert line.startswith("node 'n' (Equal-19): shape [1099511627776, 0, 1099511627776] has more")
