"""Cast and CastLike: every pair of number types, their attributes, versions and chains."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper

from onnxc import expression
from onnxc.compiled import CompiledModel
from onnxc.dtypes import BY_NAME, ElementType, numpy_dtype
from onnxc.expression import Index, apply, compare, literal, load
from onnxc.pipeline import compile_model
from tests.kernels.programs import buffer
from tests.models import Array, Batch, assert_same, declared, model, refusal, run
from tests.ops.run_time import assert_refused, one_node
from tests.runtime.exact_conversion import cast, decoded, wrapped
from tests.runtime.test_conversion import (
    TYPES,
    VARIANTS,
    Variant,
    array_of,
    codes_of,
    sample,
)

FLOAT, FLOAT16 = BY_NAME["float"], BY_NAME["float16"]
INTEGERS = ("signed", "unsigned")


def supported(source: ElementType, target: ElementType) -> bool:
    return not target.packed or source.kind in (*INTEGERS, "bool")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """numpy warns of what Cast defines."""
    with np.errstate(all="ignore"):
        yield


def attributes_of(variant: Variant) -> dict[str, Any]:
    found: dict[str, Any] = {"to": variant.target.code}
    if not variant.saturate:
        found["saturate"] = 0
    if variant.round_mode != "up":
        found["round_mode"] = variant.round_mode
    return found


def nearest(array: Array, values: list[Any], target: ElementType) -> Array:
    """In float or double: wide types by numpy, others exactly, for they have few digits."""
    of_numpy = numpy_dtype(target)
    if array.dtype.kind in "iuf":
        return array.astype(of_numpy)
    return np.array([float(value) for value in values]).astype(of_numpy)


def wanted_value(value: Any, source: ElementType, variant: Variant) -> Any:
    target = variant.target
    if source.kind in INTEGERS and target.kind in INTEGERS:
        return Fraction(wrapped(int(value), target.name, target.bits))
    return cast(value, target.name, target.bits, variant.saturate, variant.round_mode)


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_every_pair_of_types(source: ElementType) -> None:
    """By the letter, on hard values; C and numpy give the same bits."""
    codes = sample(source, 100)
    array, values = (
        array_of(codes, source),
        [decoded(int(c), source.name, source.bits) for c in codes],
    )
    graph, variants = GraphProto(name="casts"), [v for v in VARIANTS if supported(source, v.target)]
    graph.input.append(declared("x", array))
    for number, variant in enumerate(variants):
        output = np.zeros(array.shape, numpy_dtype(variant.target))
        graph.node.append(helper.make_node("Cast", ["x"], [f"y{number}"], **attributes_of(variant)))
        graph.output.append(declared(f"y{number}", output))
    found = run(model(graph), {"x": array})
    for result, variant in zip(found.values(), variants, strict=True):
        target = variant.target
        if target is source:
            assert result.tobytes() == array.tobytes()
        elif target.kind == "float":
            np.testing.assert_array_equal(result, nearest(array, values, target), str(variant))
        else:
            for value, code in zip(values, codes_of(result, target), strict=True):
                wanted = wanted_value(value, source, variant)
                got = decoded(int(code), target.name, target.bits)
                same = got == wanted or (got != got and wanted != wanted)
                assert same, f"{value} to {variant}: {got}, not {wanted}"


@pytest.mark.parametrize("target", [t for t in TYPES if t.kind in ("half", "float")], ids=str)
def test_zeros_keep_their_sign(target: ElementType) -> None:
    batch = Batch()
    for source in (t for t in TYPES if t.kind in ("half", "float")):
        zeros = np.array([0.0, -0.0]).astype(numpy_dtype(source))
        batch.add("Cast", [zeros], zeros.astype(numpy_dtype(target)), to=target.code)
    batch.check()


def test_the_limits_of_integers() -> None:
    """Beyond them floats saturate, NaN gives 0; integers lose their high bits."""
    batch = Batch()
    far = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.9, -2.9, 127.9, 128, -129])
    for dtype in (np.float16, np.float32, np.float64):
        given = far.astype(dtype)
        for target, low, high in (
            ("int8", -128, 127),
            ("uint8", 0, 255),
            ("int64", -(2**63), 2**63 - 1),
        ):
            inner = np.clip([2, -2, 127, 128, -129], low, high).tolist()
            wanted = np.array([0, high, low, high, low, *inner], target)
            batch.add("Cast", [given], wanted, to=BY_NAME[target].code)
    whole = np.array([-1, 128, 255, 256, -129, 2**31, 2**40 + 7], np.int64)
    for target in ("int8", "uint8", "int32", "uint64"):
        batch.add("Cast", [whole], whole.astype(target), to=BY_NAME[target].code)
    batch.check()


def test_cast_like_takes_the_type_and_nothing_else() -> None:
    """Of an input or a constant of any shape, even of no elements."""
    batch = Batch()
    x = np.array([0.3, -1.7, 300.0, 1e6], np.float32)
    for target in ("double", "float16", "bfloat16", "int8", "uint16", "bool", "float"):
        of_numpy = numpy_dtype(BY_NAME[target])
        limits = {"int8": (-128, 127), "uint16": (0, 65535)}.get(target, (-np.inf, np.inf))
        wanted = np.clip(x, *limits)
        like = np.zeros((2, 0), of_numpy)
        batch.add("CastLike", [x, like], wanted.astype(of_numpy))
        batch.add("CastLike", [x, np.ones(3, of_numpy)], wanted.astype(of_numpy), constants=[1])
        batch.add("CastLike", [x, np.ones((), of_numpy)], wanted.astype(of_numpy), constants=[0])
    eight = np.array([1e6, 1.0], np.float32)
    like = np.zeros(1, ml_dtypes.float8_e5m2)
    infinite, largest = (np.array([v, 1.0]).astype(like.dtype) for v in (np.inf, 57344.0))
    batch.add("CastLike", [eight, like], infinite, saturate=0)
    batch.add("CastLike", [eight, like], largest)
    batch.check()


def test_bool_inputs_are_true_for_any_bit() -> None:
    x = np.array([0, 1, 2, 128, 255], np.uint8).view(np.bool_)
    batch = Batch()
    for target in (t for t in TYPES if t.name not in ("bool", "float8e8m0")):
        wanted = np.array([0, 1, 1, 1, 1]).astype(numpy_dtype(target))
        batch.add("Cast", [x], wanted, to=target.code)
    batch.check()
    batch = Batch()
    batch.add("Cast", [x], np.array([False, True, True, True, True]), to=TensorProto.BOOL)
    batch.check()


def chain_model(x: Array, *targets: str) -> ModelProto:
    """One cast after the other, of v0 to v1 and so on."""
    nodes = [
        helper.make_node("Cast", [f"v{n}"], [f"v{n + 1}"], to=BY_NAME[target].code)
        for n, target in enumerate(targets)
    ]
    result = np.zeros(x.shape, numpy_dtype(BY_NAME[targets[-1]]))
    last = f"v{len(targets)}"
    graph = helper.make_graph(nodes, "chain", [declared("v0", x)], [declared(last, result)])
    return model(graph)


def chain(x: Array, *targets: str, plain: bool = False) -> Array:
    """The result of one cast after the other."""
    return run(chain_model(x, *targets), {"v0": x}, plain=plain)[f"v{len(targets)}"]


@pytest.mark.parametrize("plain", [False, True])
def test_there_and_back_through_fewer_bits_really_rounds(plain: bool) -> None:
    x = np.array([0.1, 65520.0, 1e-9, -3.14159, 1 + 2.0**-12], np.float32)
    for name in ("float16", "bfloat16"):
        wanted = x.astype(numpy_dtype(BY_NAME[name])).astype(np.float32)
        assert chain(x, name, "float", plain=plain).tobytes() == wanted.tobytes()
    wide = x.astype(np.float64) + 1e-12
    wanted = wide.astype(np.float32).astype(np.float64)
    assert chain(wide, "float", "double", plain=plain).tobytes() == wanted.tobytes()
    numbers = np.array([1, 300, -129, 2**31 - 1], np.int32)
    wanted = numbers.astype(np.int8).astype(np.int32)
    assert chain(numbers, "int8", "int32", plain=plain).tobytes() == wanted.tobytes()
    assert chain(numbers, "bool", "int32", plain=plain).tolist() == [1, 1, 1, 1]
    fractions = np.array([2.5, -2.5, np.nan, 1e10], np.float32)
    wanted = np.array([2, -2, 0, 2**31 - 1]).astype(np.float32)
    assert chain(fractions, "int32", "float", plain=plain).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("middle", ["float", "double"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_there_and_back_through_more_bits_keeps_them(name: str, middle: str) -> None:
    """All of them, signalling NaN too; stored in between, a NaN stays one."""
    x = np.arange(2**16, dtype=np.uint16).view(numpy_dtype(BY_NAME[name]))
    assert chain(x, middle, name).tobytes() == x.tobytes()
    source = chain_model(x, middle, name)
    stored = CompiledModel(compile_model(source, plain=True)).run({"v0": x})["v2"]
    number = ~np.isnan(x)
    assert stored[number].tobytes() == x[number].tobytes()
    assert np.isnan(stored[~number]).all()


def test_one_half_type_through_the_other() -> None:
    x = np.array([1.001, 300.5, 1e-7, 60000.0], np.float16)
    wanted = x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32).astype(np.float16)
    assert chain(x, "bfloat16", "float16").tobytes() == wanted.tobytes()


def test_a_half_that_was_picked_needs_no_rounding() -> None:
    """Of numbers that the type holds, the greater is one of it; a sum is rounded."""
    a, b = (load(buffer(name, "input", FLOAT16, 4), [Index()]) for name in "ab")
    wide = [expression.cast(x, FLOAT) for x in (a, b)]
    for picked in (
        apply("max", *wide),
        apply("min", apply("neg", wide[0]), literal(FLOAT, 0.5)),
        apply("where", compare("less", *wide), *wide),
    ):
        assert expression.cast(expression.cast(picked, FLOAT16), FLOAT) is picked
    for rounded in (wide[0] + wide[1], apply("max", wide[0], literal(FLOAT, 0.1))):
        assert expression.cast(expression.cast(rounded, FLOAT16), FLOAT) is not rounded
    other = expression.cast(apply("max", *wide), BY_NAME["bfloat16"])
    assert expression.cast(other, FLOAT) is not apply("max", *wide)


@pytest.mark.parametrize("plain", [False, True])
def test_casts_fuse_with_their_neighbours(plain: bool) -> None:
    """int8 -> float, times and plus, -> float16: one kernel, each step rounded."""
    x = np.array([1, -7, 100], np.int8)
    factor, shift = np.array(0.1, np.float32), np.array([1000.0, 0.5, -2.0], np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=FLOAT.code),
        helper.make_node("Mul", ["wide", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["moved"]),
        helper.make_node("Cast", ["moved"], ["y"], to=FLOAT16.code),
    ]
    wanted = (x.astype(np.float32) * factor + shift).astype(np.float16)
    inputs: dict[str, Array] = {"x": x, "factor": factor, "shift": shift}
    infos = [declared(name, array) for name, array in inputs.items()]
    source = model(helper.make_graph(nodes, "fused", infos, [declared("y", wanted)]))
    assert_same(run(source, inputs, plain=plain), {"y": wanted})
    assert len(compile_model(source, plain=plain).program.steps) == (4 if plain else 1)


def test_shapes_of_every_rank() -> None:
    batch = Batch()
    for shape in ((), (0,), (2, 0, 3), (1, 1), (2, 3, 4)):
        x = np.arange(np.prod(shape, dtype=int), dtype=np.int16).reshape(shape) - 3
        batch.add("Cast", [x], x.astype(np.float64), to=TensorProto.DOUBLE)
    batch.check()


@pytest.mark.parametrize("opset", [1, 5])
def test_the_first_version_names_the_type(opset: int) -> None:
    batch = Batch(opset)
    x = np.array([1.5, -2.5, 300.0], np.float32)
    batch.add("Cast", [x], x.astype(np.float16), to="FLOAT16")
    batch.add("Cast", [x], x.astype(np.int64), to="INT64")
    batch.add("Cast", [x], np.array([True, True, True]), to="BOOL")
    batch.check()
    wrong = Batch(opset)
    wrong.add("Cast", [x], x, to="float")
    (line,) = refusal(wrong.model())
    assert "to is 'float', which is no element type" in line


@pytest.mark.parametrize("opset", [6, 9, 13, 19, 21, 23, 24, 25, 28])
def test_later_versions(opset: int) -> None:
    batch = Batch(opset)
    x = np.array([1.5, -2.5, 1e6], np.float32)
    for target in (np.float16, np.int32, np.float64):
        code = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        batch.add("Cast", [x], x.astype(target), to=code)
    if opset >= 13:
        batch.add("Cast", [x], x.astype(ml_dtypes.bfloat16), to=TensorProto.BFLOAT16)
    if opset >= 19:
        eight = ml_dtypes.float8_e5m2
        for saturate, last in ((0, np.inf), (1, 57344.0)):
            wanted = np.array([1.5, -2.5, last]).astype(eight)
            batch.add("Cast", [x], wanted, to=TensorProto.FLOAT8E5M2, saturate=saturate)
    if opset >= 24:
        for mode, power in (("up", 2.0), ("down", 1.0), ("nearest", 2.0)):
            wanted = np.array([power]).astype(ml_dtypes.float8_e8m0fnu)
            batch.add("Cast", [x[:1]], wanted, to=TensorProto.FLOAT8E8M0, round_mode=mode)
    batch.check()


X = np.array([1.5, -2.0], np.float32)
REFUSED = [
    ("a cast of float to string", "STRING", {}, X),
    ("complex64", "COMPLEX64", {}, X),
    ("a cast of float to int4 is not supported yet", "INT4", {}, X),
    ("a cast of float to uint2 is not supported yet", "UINT2", {}, X),
    ("a cast of float to float4e2m1 is not supported yet", "FLOAT4E2M1", {}, X),
    ("a cast of float16 to uint4 is not supported yet", "UINT4", {}, X.astype(np.float16)),
    ("round_mode is 'sideways'; give one of", "FLOAT8E8M0", {"round_mode": "sideways"}, X),
]


@pytest.mark.parametrize(("text", "target", "attributes", "x"), REFUSED)
def test_refused(text: str, target: str, attributes: dict[str, Any], x: Array) -> None:
    code = TensorProto.DataType.Value(target)
    batch = one_node("Cast", [x], x, to=code, **attributes)
    batch.graph.output[0].type.tensor_type.elem_type = code
    assert_refused(text, batch)


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "Invalid tensor data type 0"), (99, "a valid type"), (-1, "a valid type")],
)
def test_a_type_that_there_is_not(code: int, text: str) -> None:
    batch = one_node("Cast", [X], X, to=code)
    batch.graph.output[0].ClearField("type")
    assert_refused(text, batch)


def test_strings_are_not_cast() -> None:
    batch = one_node("Cast", [np.array([b"1", b"2"], object)], X, to=FLOAT.code)
    assert_refused("a cast of string to float is not supported", batch)
