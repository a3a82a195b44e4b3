"""multiply_integers: what dequantised integers are multiplied to, against the definition in double.

An operator's floats are within a few roundings of that, and its integers the nearest ones, but for
quotients that are near the middle between two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxc.compiled import CompiledModel
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.passes.simplify import simplify
from onnxc.pipeline import compile_model
from onnxc.report.quantized import in_float
from tests.models import Array, declared, model, refusal, stored

ROUNDINGS: Final = 4
"""Cast, the scale, Mul and Add, each of 2^-24 of the sum of magnitudes."""
QUANTISING: Final = ROUNDINGS + 2
"""With the quotient, and what the sum of all these neglects."""


@dataclass(frozen=True)
class Case:
    """A product of dequantised integers.

    a, b     the integers: b is a constant unless `given`; and their scales and zero points
    axis     of the scales of b
    bias     float, or int32 with its scales
    after    what the product is called: the Add of a MatMul; then Relu
    step     the scale and the zero point of what it is quantised to, of the type of a
    """

    operator: str
    a: Array
    a_scale: float
    a_zero: int
    b: Array
    b_scale: Array
    b_zero: Array
    axis: int = 0
    bias: Array | None = None
    bias_scale: Array | None = None
    step: tuple[float, int] = (0.5, 3)
    given: bool = False
    relu: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    def exact(self) -> Array:
        """The definition, in double."""
        shape = [1] * self.b.ndim
        if self.b_scale.ndim or self.b_zero.ndim:
            shape[self.axis] = -1
        a = (self.a.astype(np.float64) - self.a_zero) * np.float64(np.float32(self.a_scale))
        b = self.b.astype(np.float64) - self.b_zero.astype(np.float64).reshape(shape)
        operands = [a, b * self.b_scale.astype(np.float64).reshape(shape)]
        if self.bias is not None:
            scale = 1 if self.bias_scale is None else self.bias_scale.astype(np.float64)
            operands.append(self.bias.astype(np.float64) * scale)
        return product(self.operator, operands, self.attributes)

    def magnitudes(self) -> Array:
        """The sum of the magnitudes of all that is added."""
        a = np.abs(self.a.astype(np.int64) - self.a_zero) + self.a_zero
        shape = [1] * self.b.ndim
        if self.b_zero.ndim:
            shape[self.axis] = -1
        zero = self.b_zero.astype(np.int64).reshape(shape)
        b = np.abs(self.b.astype(np.int64) - zero) + zero
        bias = None if self.bias is None else np.abs(self.bias)
        return replace(self, a=a, b=b, bias=bias).exact()


def product(operator: str, operands: Sequence[Array], attributes: dict[str, Any]) -> Array:
    """In double, by the reference; a third operand of MatMul is added."""
    names = ["a", "b", "c"][: len(operands)]
    own = names[:2] if operator == "MatMul" else names
    nodes = [helper.make_node(operator, own, ["m"], **attributes)]
    if own != names:
        nodes.append(helper.make_node("Add", ["m", "c"], ["y"]))
    values = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, array.shape)
        for name, array in zip(names, operands, strict=True)
    ]
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.DOUBLE, None)
    source = model(helper.make_graph(nodes, "double", values, [result]), 21)
    (found,) = ReferenceEvaluator(source).run(None, dict(zip(names, operands, strict=True)))
    return np.asarray(found)


class Network:
    """Several cases in one model; case n has outputs f<n>, float, and q<n>."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.given: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}
        for number, case in enumerate(cases):
            self.add(case, str(number))

    def dequantised(
        self, name: str, values: Array, scale: Array, zero: Array | None, axis: int
    ) -> str:
        inputs = [name, f"{name}_scale"]
        self.constants[f"{name}_scale"] = scale.astype(np.float32)
        if zero is not None:
            self.constants[f"{name}_zero"] = zero.astype(values.dtype)
            inputs.append(f"{name}_zero")
        node = helper.make_node("DequantizeLinear", inputs, [f"{name}_real"], f"{name}_dq")
        node.attribute.append(helper.make_attribute("axis", axis))
        self.nodes.append(node)
        return f"{name}_real"

    def add(self, case: Case, n: str) -> None:
        self.given[f"a{n}"] = case.a
        (self.given if case.given else self.constants)[f"b{n}"] = case.b
        a = self.dequantised(
            f"a{n}", case.a, np.array(case.a_scale, np.float32), np.array(case.a_zero), 1
        )
        b = self.dequantised(f"b{n}", case.b, case.b_scale, case.b_zero, case.axis)
        operands, bias = [a, b], ""
        if case.bias is not None:
            self.constants[f"c{n}"] = case.bias
            bias = f"c{n}"
            if case.bias_scale is not None:
                bias = self.dequantised(f"c{n}", case.bias, case.bias_scale, None, 0)
        if bias and case.operator != "MatMul":
            operands.append(bias)
        made = f"m{n}"
        self.nodes.append(
            helper.make_node(case.operator, operands, [made], f"p{n}", **case.attributes)
        )
        if bias and case.operator == "MatMul":
            made = f"s{n}"
            self.nodes.append(helper.make_node("Add", [f"m{n}", bias], [made], f"sum{n}"))
        self.nodes.append(helper.make_node("Relu" if case.relu else "Identity", [made], [f"f{n}"]))
        scale, zero = case.step
        self.constants |= {
            f"y_scale{n}": np.array(scale, np.float32),
            f"y_zero{n}": np.array(zero, case.a.dtype),
        }
        self.nodes.append(
            helper.make_node("QuantizeLinear", [f"f{n}", f"y_scale{n}", f"y_zero{n}"], [f"q{n}"])
        )
        shape = replace(case, a_scale=1.0).exact().shape
        self.outputs |= {
            f"f{n}": np.zeros(shape, np.float32),
            f"q{n}": np.zeros(shape, case.a.dtype),
        }

    def model(self, *outputs: str) -> ModelProto:
        """With the outputs of these kinds: f, q."""
        kept = [declared(k, v) for k, v in self.outputs.items() if k[0] in outputs]
        inputs = [declared(name, array) for name, array in self.given.items()]
        constants = [stored(name, array) for name, array in self.constants.items()]
        return model(helper.make_graph(self.nodes, "n", inputs, kept, constants), 21)


def integers(generator: np.random.Generator, dtype: type, shape: Sequence[int]) -> Array:
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, shape, dtype, endpoint=True)


def random_case(seed: int) -> Case:
    """Of any operator, types, zero points, groups, strides, pads, scales and addends."""
    rng = np.random.default_rng(seed)
    operator = ("Conv", "Conv", "Conv", "Gemm", "MatMul")[seed % 5]
    kinds = [np.int8, np.uint8]
    a_type, b_type = (kinds[n] for n in rng.integers(2, size=2))
    attributes: dict[str, Any] = {}
    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    if operator == "Conv":
        group = (1, 2, 8)[seed // 5 % 3]
        lanes, axis, channels = (
            group * int(rng.choice([1, 2, 5])),
            0,
            group * int(rng.integers(1, 4)),
        )
        kernel = [int(n) for n in rng.integers(1, 4, 2)]
        attributes = {
            **{"group": group, "strides": [int(n) for n in rng.integers(1, 3, 2)]},
            **{"dilations": [int(n) for n in rng.integers(1, 3, 2)]},
            **{"pads": [int(n) for n in rng.integers(0, 3, 4)]},
        }
        a_shape, b_shape = (2, channels, 7, 8), (lanes, channels // group, *kernel)
    else:
        rows, length, lanes = (int(n) for n in rng.integers(1, 40, 3))
        a_shape, b_shape, axis = (rows, length), (length, lanes), 1
        if operator == "Gemm":
            turned = [int(n) for n in rng.integers(2, size=2)]
            a_shape = a_shape[::-1] if turned[0] else a_shape
            b_shape = b_shape[::-1] if turned[1] else b_shape
            axis = 1 - turned[1]
            attributes = {"transA": turned[0], "transB": turned[1], "alpha": 0.7, "beta": 1.3}
    each = bool(rng.integers(2))
    size = (lanes,) if each else ()
    a_scale = np.float32(rng.uniform(0.01, 0.1))
    b_scale = rng.uniform(0.001, 0.05, size).astype(np.float32)
    zeros = integers(rng, b_type, size) if rng.integers(2) else np.zeros(size, b_type)
    bias, bias_scale = None, None
    kind = seed % 3
    if kind == 1:
        bias = rng.standard_normal(lanes).astype(np.float32)
    elif kind == 2:
        bias = rng.integers(-5000, 5000, lanes, np.int32)
        bias_scale = np.asarray(a_scale.astype(np.float64) * b_scale, np.float32)
    return Case(
        operator,
        integers(rng, a_type, a_shape),
        float(a_scale),
        int(integers(rng, a_type, ())),
        integers(rng, b_type, b_shape),
        b_scale,
        zeros,
        axis,
        bias,
        bias_scale,
        step=(float(np.float32(rng.uniform(0.02, 0.4))), int(integers(rng, a_type, ()))),
        given=operator == "MatMul" and not each and bool(seed % 2),
        relu=bool(rng.integers(2)),
        attributes=attributes,
    )


CASES: Final = [random_case(seed) for seed in range(30)]


@cache
def outputs(kind: str, target: str) -> dict[str, Array]:
    network = Network(CASES)
    plain = target == "plain"
    source = network.model(kind)
    compiled = compile_model(source, plain=plain, target="generic" if plain else target)
    assert not in_float(compiled.program)
    return CompiledModel(compiled).run(network.given)


@pytest.mark.parametrize("target", ["plain", "generic", "cortex-m4"])
def test_floats_are_within_a_few_roundings_of_the_definition(target: str) -> None:
    found = outputs("f", target)
    for n, case in enumerate(CASES):
        wanted = case.exact()
        wanted = np.maximum(wanted, 0) if case.relu else wanted
        error = np.abs(found[f"f{n}"] - wanted)
        assert (error <= ROUNDINGS * 2.0**-24 * case.magnitudes()).all(), (n, case.operator)


@pytest.mark.parametrize("target", ["plain", "generic", "cortex-m4"])
def test_integers_are_the_nearest_but_near_the_middle(target: str) -> None:
    found = outputs("q", target)
    for n, case in enumerate(CASES):
        real = np.maximum(case.exact(), 0) if case.relu else case.exact()
        scale, zero = case.step
        info = np.iinfo(case.a.dtype)
        nearest, below, above = (
            np.clip(np.rint(real / scale + error) + zero, info.min, info.max)
            for sign in (0, -1, 1)
            for error in (sign * QUANTISING * 2.0**-24 * case.magnitudes() / scale,)
        )
        actual = found[f"q{n}"].astype(np.float64)
        assert ((actual == nearest) | ((below <= actual) & (actual <= above))).all(), n
        assert (actual == nearest).mean() > 0.98, n


def simplified(case: Case, **changes: Any) -> ir.Model:
    network = Network([replace(case, **changes)])
    found = load(network.model("q"))
    infer(found)
    simplify(found)
    return found


def operators(found: ir.Model) -> list[str]:
    return [node.op_type for node in found.graph]


def conv(**changes: Any) -> Case:
    """Two filters of 3 x 3, whose scales differ."""
    rng = np.random.default_rng(3)
    a, b = integers(rng, np.int8, (1, 2, 5, 5)), integers(rng, np.int8, (2, 2, 3, 3))
    scales, zeros = np.array([0.5, 0.25], np.float32), np.zeros(2, np.int8)
    return replace(Case("Conv", a, 0.125, -3, b, scales, zeros), **changes)


def matmul(**changes: Any) -> Case:
    rng = np.random.default_rng(4)
    a, b = integers(rng, np.uint8, (3, 6)), integers(rng, np.int8, (6, 2))
    scales, zeros = np.array([0.5, 0.25], np.float32), np.zeros(2, np.int8)
    return replace(Case("MatMul", a, 0.125, 7, b, scales, zeros, axis=1), **changes)


STEPS: Final = np.array([0.0625, 0.03125], np.float32)
"""Those of the sums of conv and matmul."""
BIAS: Final = np.array([3, -9], np.int32)


@pytest.mark.parametrize("case", [conv(), matmul()], ids=["Conv", "MatMul"])
def test_an_addend_in_the_steps_of_the_sums_is_added_to_them(case: Case) -> None:
    found = simplified(case, bias=BIAS, bias_scale=STEPS)
    name = {"Conv": "ConvInteger", "MatMul": "MatMulInteger"}[case.operator]
    assert operators(found) == [name, "Add", "Cast", "Mul", "Identity", "QuantizeLinear"]


@pytest.mark.parametrize("case", [conv(), matmul()], ids=["Conv", "MatMul"])
@pytest.mark.parametrize(
    "bias",
    [
        {"bias": BIAS, "bias_scale": np.nextafter(STEPS, np.float32(1))},
        {"bias": BIAS.astype(np.float32)},
        {"bias": np.array([0, 2**31 - 1], np.int32), "bias_scale": STEPS},
    ],
    ids=["other steps", "floats", "too large"],
)
def test_any_other_addend_is_added_to_floats(case: Case, bias: dict[str, Array]) -> None:
    assert operators(simplified(case, **bias))[1:4] == ["Cast", "Mul", "Add"]


def test_nodes_keep_their_names_and_the_notes_name_those_that_are_gone() -> None:
    found = simplified(conv(bias=BIAS, bias_scale=STEPS))
    assert [node.name for node in found.graph][:4] == ["p0", "p0/Add", "p0/Cast", "p0/Mul"]
    assert [value.name for node in found.graph for value in node.outputs] == [
        *("p0/ConvInteger", "p0/Add", "p0/Cast", "m0", "f0", "q0")
    ]
    gone: list[tuple[ir.Node, str]] = found.graph.meta["gone"]
    assert {(node.name, fact) for node, fact in gone} == {
        (f"{name}0_dq", "part of ConvInteger 'p0'") for name in "abc"
    }


def test_zero_points_of_zero_are_left_out() -> None:
    node = next(iter(simplified(conv(a_zero=0)).graph))
    assert len(node.inputs) == 2
    node = next(iter(simplified(conv()).graph))
    assert [value and value.name for value in node.inputs[2:]] == ["a0_zero"]


def test_gemm_is_turned_and_scaled() -> None:
    case = matmul(operator="Gemm", attributes={"transB": 1, "alpha": 0.5}, axis=0)
    found = simplified(replace(case, b=np.ascontiguousarray(case.b.T)))
    assert operators(found)[:4] == ["Transpose", "MatMulInteger", "Cast", "Mul"]
    scale = list(found.graph)[3].inputs[1]
    assert scale is not None
    assert scale.const_value is not None
    np.testing.assert_array_equal(scale.const_value.numpy(), STEPS / 2)


def test_others_read_what_is_dequantised() -> None:
    network = Network([conv()])
    network.nodes.append(helper.make_node("Neg", ["a0_real"], ["f1"]))
    network.outputs["f1"] = np.zeros((1, 2, 5, 5), np.float32)
    found = load(network.model("f"))
    infer(found)
    simplify(found)
    assert sorted(operators(found)) == [
        *("Cast", "ConvInteger", "DequantizeLinear", "Identity", "Mul", "Neg")
    ]


LONG: Final = {"a": np.zeros((1, 2**17), np.uint8), "b": np.full((2**17, 2), -128, np.int8)}

LEFT: Final = {
    "sums that could overflow": matmul(**LONG, a_zero=0),
    "scales of what is summed over": matmul(
        b_scale=np.ones(6, np.float32), b_zero=np.array(0, np.int8), axis=0
    ),
    "zero points of what is summed over": matmul(
        b_scale=np.array(1, np.float32), b_zero=np.ones(6, np.int8), axis=0
    ),
    "16 bits": conv(a=np.zeros((1, 2, 5, 5), np.int16)),
    "a scale of infinity": conv(a_scale=np.inf),
    "a scale of 0": conv(a_scale=0.0),
    "a scale that is too small": conv(a_scale=1e-38),
    "an addend of each row": matmul(operator="Gemm", bias=np.ones((3, 1), np.float32)),
}


@pytest.mark.parametrize("case", LEFT.values(), ids=LEFT)
def test_others_stay_in_float(case: Case) -> None:
    assert case.operator in operators(simplified(case))


def test_a_scale_at_run_time_stays() -> None:
    network = Network([conv()])
    network.given["a0_scale"] = network.constants.pop("a0_scale")
    found = load(network.model("q"))
    infer(found)
    simplify(found)
    assert "Conv" in operators(found)


def test_scales_that_fit_nothing_are_refused() -> None:
    network = Network([conv()])
    network.constants["b0_scale"] = np.ones(3, np.float32)
    assert "x_scale has shape [3]" in "".join(refusal(network.model("q")))


def test_weights_stay_bytes_and_so_does_what_is_stored() -> None:
    """Two convolutions of 16 channels on 16 x 16 pixels: no value of a float in between."""
    rng = np.random.default_rng(5)
    constants = {
        "s": np.array(0.25, np.float32),
        **{f"w{n}": integers(rng, np.int8, (16, 16, 3, 3)) for n in range(2)},
    }
    nodes = []
    for n in range(2):
        nodes += [
            helper.make_node("DequantizeLinear", [f"x{n}", "s"], [f"a{n}"]),
            helper.make_node("DequantizeLinear", [f"w{n}", "s"], [f"b{n}"]),
            helper.make_node("Conv", [f"a{n}", f"b{n}"], [f"c{n}"], pads=[1] * 4),
            helper.make_node("Relu", [f"c{n}"], [f"r{n}"]),
            helper.make_node("QuantizeLinear", [f"r{n}", "s"], [f"x{n + 1}"]),
        ]
    x = declared("x0", np.zeros((1, 16, 16, 16), np.uint8))
    y = declared("x2", np.zeros((1, 16, 16, 16), np.uint8))
    graph = helper.make_graph(
        nodes, "two", [x], [y], [numpy_helper.from_array(v, k) for k, v in constants.items()]
    )
    compiled = compile_model(model(graph, 21))
    padded = 18 * 18 * 16
    assert compiled.workspace_size <= 3 * padded
    assert compiled.constants_size < 1.1 * 2 * 16 * 16 * 9 + 1024
