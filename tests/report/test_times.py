"""Times of kernels, the limits of a machine, and the reasons why a kernel is not there.

Nothing here depends on how fast this machine is: the figures of a made-up one are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxc.kernel import Micro, Step
from onnxc.kernel_numbers import numbered
from onnxc.pipeline import Compiled, compile_model
from onnxc.report import limits, machine, profile, reasons, times
from onnxc.report.effort import Effort, effort
from onnxc.report.machine import Bandwidth, Machine
from onnxc.report.tiling import tiles_of
from onnxc.target import TARGETS
from onnxc.tuned.contraction import Contraction

FLOAT = TensorProto.FLOAT
MADE_UP = Machine(
    lanes=16,
    macs={"float32": 1e11, "float64": 5e10, "int8": 4e11},
    memory=[Bandwidth(1 << 14, 4e11, 2e11, 5e11), Bandwidth(1 << 20, 1e11, 5e10, 1e11)],
    functions={"exp": 4e9, "div": 5e9, "tanh": 2e9},
)


def network(
    nodes: list[onnx.NodeProto], shape: list[int], out: list[int], **constants: Any
) -> Compiled:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, out)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = helper.make_opsetid("", 17)
    proto = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    return compile_model(proto, name="net")


def dense(
    rows: int = 64, inner: int = 128, columns: int = 64, *, scale: float = 1.0, slow: int = 0
) -> Compiled:
    """The first `slow` weights have the scale; without a number all do."""
    weights = np.random.default_rng(0).standard_normal((inner, columns))
    weights.reshape(-1)[: slow or None] *= scale
    weights = weights.astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return network([node], [rows, inner], [rows, columns], w=weights)


def elementwise(operator: str, elements: int = 4096) -> Compiled:
    return network([helper.make_node(operator, ["x"], ["y"])], [elements], [elements])


def only_step(compiled: Compiled) -> Step:
    (step,) = compiled.program.steps
    return step


def case(compiled: Compiled, ns: float, **changes: Any) -> reasons.Case:
    step = only_step(compiled)
    asked = effort(step)
    limit = limits.limit(asked, MADE_UP, times.footprint(compiled))
    target = replace(compiled.program.target or TARGETS["generic"], **changes)
    return reasons.Case(step, asked, limit, ns, MADE_UP, target)


def test_a_model_is_timed_kernel_by_kernel(tool: Callable[[str], str]) -> None:
    tool("cc")
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=0),
        helper.make_node("CumSum", ["s", "axis"], ["y"]),
    ]
    compiled = network(nodes, [4, 5], [4, 5], axis=np.array(0, np.int32))
    found = profile.measure(compiled)
    assert "reason" not in found, found
    assert set(found) == {*("compiler", "flags", "processor", "runs", "total_ns", "kernels")}
    assert found["runs"] >= 1
    assert found["total_ns"] > 0
    assert found["flags"].startswith("-std=c99 -O3")
    assert [*found["kernels"]] == [*numbered(compiled.program).values()]
    assert all(kernel["visits"] == 1 for kernel in found["kernels"].values())
    assert all(kernel["ns"] >= 0 for kernel in found["kernels"].values())
    assert sum(kernel["ns"] for kernel in found["kernels"].values()) > 0


def test_long_kernels_are_timed_too(tool: Callable[[str], str]) -> None:
    """By another clock, that of the thread."""
    tool("cc")
    found = profile.measure(dense(rows=256, inner=512, columns=512))
    assert found["total_ns"] > 0
    assert found["kernels"][0]["ns"] > 0


@pytest.mark.parametrize("weights", ["inline", "incbin", "file"])
def test_constants_stand_wherever_the_model_has_them(
    weights: str, tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("cc")
    monkeypatch.setattr(profile, "LEAST_NS", 0.0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    proto_of = np.ones((16, 16), np.float32)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, [2, 16])],
        [helper.make_tensor_value_info("y", FLOAT, [2, 16])],
        [onnx.numpy_helper.from_array(proto_of, "w")],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    found = profile.measure(compile_model(model, weights=weights))
    assert found.get("reason") is None
    assert found["total_ns"] > 0


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert profile.measure(elementwise("Relu")) == {
        "reason": "no C compiler: 'no-such-compiler' was not found"
    }
    monkeypatch.setenv("CC", "'")
    assert "CC is not a command line" in profile.measure(elementwise("Relu"))["reason"]


def test_a_compiler_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    assert "'false' ended with status 1" in profile.measure(elementwise("Relu"))["reason"]


def test_strings_are_a_reason() -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    assert "strings" in profile.measure(compile_model(model))["reason"]


def test_inputs_that_make_a_run_fail_are_a_reason(tool: Callable[[str], str]) -> None:
    tool("cc")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["d", "x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", FLOAT, [1])],
        [onnx.numpy_helper.from_array(np.ones(3, np.float32), "d")],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    compiled = compile_model(model)
    outside = profile.measure(compiled, values={"x": np.array([7], np.int64)})
    assert outside["reason"] == "a run on these inputs returned ONNXC_INDEX_OUT_OF_RANGE"
    inside = profile.measure(compiled, values={"x": np.array([2], np.int64)})
    assert "reason" not in inside


def test_the_machine_is_measured(tool: Callable[[str], str]) -> None:
    """Its rates are rates: more than none, and each function that was asked for has one."""
    tool("cc")
    here = machine.machine(["exp", "no function"])
    assert here.macs.keys() == {"float32", "float64", "int8"}
    assert [found.bytes for found in here.memory] == [*machine.SIZES]
    assert here.functions.keys() == {"exp"}
    rates = [*here.macs.values(), *here.functions.values()]
    rates += [rate for m in here.memory for rate in (m.read, m.write, m.copy)]
    assert all(rate > 0 and math.isfinite(rate) for rate in rates)
    assert machine.machine(["exp"]) is here, "once a process"


@pytest.mark.parametrize("compiler", ["gcc", "clang", "tcc"])
def test_the_measuring_program_is_c99(
    compiler: str, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    source = tmp_path / "machine.c"
    source.write_text(machine.program(sorted(machine.MEASURED)), encoding="ascii")
    flags = ["-Wall"] if compiler == "tcc" else ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = [tool(compiler), "-std=c99", *flags, "-c", str(source)]
    profile.run_program([*command, "-o", str(tmp_path / "machine.o")])


def test_a_bandwidth_is_that_of_a_working_set_that_is_no_larger() -> None:
    """So that the limit is one, wherever between two of them a cache ends."""
    assert MADE_UP.bandwidth(1) is MADE_UP.memory[0]
    assert MADE_UP.bandwidth((1 << 20) - 1) is MADE_UP.memory[0]
    assert MADE_UP.bandwidth(1 << 20) is MADE_UP.memory[1]
    assert MADE_UP.bandwidth(1 << 30) is MADE_UP.memory[1]


def test_the_limit_is_the_largest_part() -> None:
    asked = Effort({"float32": 1000}, 500.0, {"exp": 100}, 1 << 14, 1 << 14, 1 << 20)
    found = limits.limit(asked, MADE_UP, 1 << 20)
    assert found.products == pytest.approx(10.0)
    assert found.operations == pytest.approx(5.0)
    assert found.functions == pytest.approx(25.0)
    own = MADE_UP.bandwidth(asked.bytes).copy
    assert found.memory == pytest.approx(1e9 * ((1 << 15) / own + (1 << 20) / 1e11))
    assert (found.ns, found.bound_by) == (found.memory, "memory")


def test_arithmetic_without_a_rate_has_that_of_another() -> None:
    def products(name: str) -> float:
        return limits.limit(Effort({name: 1000}, 0, {}, 0, 0, 0), MADE_UP, 0).products

    assert products("int8") == pytest.approx(2.5)
    assert products("float16") == products("int32") == pytest.approx(10.0)
    assert products("complex64") == pytest.approx(40.0)


def test_efforts_are_counted_from_the_kernels() -> None:
    asked = effort(only_step(elementwise("Exp", 100)))
    assert (asked.functions, asked.read, asked.written) == ({"exp": 100}, 400, 400)
    asked = effort(only_step(dense(8, 128, 64)))
    assert asked.products == {"float32": 8 * 128 * 64}
    assert (asked.read, asked.written, asked.constants) == (8 * 128 * 4, 8 * 64 * 4, 128 * 64 * 4)
    assert asked.operations == 0, "the sum of products is none"


def test_a_kernel_near_its_limit_needs_no_reason() -> None:
    found = case(dense(), 1.0)
    assert reasons.reason(replace(found, ns=found.limit.ns / 0.8)) == ""
    assert reasons.reason(replace(found, ns=found.limit.ns / 0.79)) != ""


def test_what_nothing_accounts_for_is_said_to_be_unexplained() -> None:
    found = case(dense(), 1.0)
    text = reasons.reason(replace(found, ns=100 * found.limit.ns))
    assert text == reasons.UNEXPLAINED


def test_what_is_partly_accounted_for_says_so() -> None:
    found = case(dense(rows=56, inner=8, columns=64), 1.0)
    text = reasons.reason(replace(found, ns=3 * found.limit.ns + 200))
    assert text.startswith(f"{reasons.PARTLY}: ")
    assert "sums of only 8 steps" in text


def test_a_kernel_beyond_its_limit_says_so() -> None:
    """Its limit is of what was measured apart from it."""
    found = case(dense(), 1.0)
    assert found.limit.bound_by == "products"
    assert reasons.reason(replace(found, ns=found.limit.ns / 1.004)) == ""
    assert reasons.reason(replace(found, ns=found.limit.ns / 1.2)) == (
        "faster than the limit: the rate of products was measured when the machine was slower"
    )
    near = case(elementwise("Relu", 256), 1.0)
    assert near.limit.bound_by == "memory"
    assert reasons.reason(replace(near, ns=near.limit.ns / 1.2)) == (
        "faster than the limit: its bytes are in a nearer cache than the limit assumes"
    )


def test_tiles_that_are_half_empty_are_a_reason_with_numbers() -> None:
    """17 columns take two vectors of 16."""
    compiled = dense(rows=56, inner=512, columns=17)
    step = only_step(compiled)
    assert isinstance(step, Micro)
    assert isinstance(step.parameters, Contraction)
    tiles = tiles_of(step, TARGETS["generic"].variants[0], 1.0)
    assert tiles is not None
    assert tiles.fill == pytest.approx(17 / 32)
    assert tiles.products == pytest.approx(56 * 512 * 17 / 16)
    found = case(compiled, 1.0)
    text = reasons.reason(replace(found, ns=2 * found.limit.products))
    assert text.startswith("lanes are 53 % full")


def test_products_of_bytes_have_tiles_too() -> None:
    """Sums of 30 products are 8 groups of four, the last one half empty."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [64, 30])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [64, 32])],
        [onnx.numpy_helper.from_array((np.arange(960) % 100).astype(np.int8).reshape(30, 32), "w")],
    )
    opset = helper.make_opsetid("", 17)
    compiled = compile_model(helper.make_model(graph, opset_imports=[opset], ir_version=9))
    (step,) = compiled.program.steps
    assert isinstance(step, Micro)
    tiles = tiles_of(step, TARGETS["generic"].variants[0], 1.0)
    assert tiles is not None
    assert tiles.step == 8
    assert tiles.products == pytest.approx(64 * 2 * 30 / 4)
    assert tiles.fill == pytest.approx(30 / 32)
    assert effort(step).products == {"int8": 64 * 30 * 32}


def test_short_sums_are_a_reason_with_numbers() -> None:
    found = case(dense(rows=56, inner=8, columns=64), 1.0)
    text = reasons.reason(replace(found, ns=1.5 * found.limit.ns + 200))
    assert "sums of only 8 steps" in text


@pytest.mark.parametrize(("scale", "told"), [(1e-40, "8,192 of 8,192"), (1e-30, "")])
def test_weights_below_the_least_normal_number_are_a_reason(scale: float, told: str) -> None:
    """Each product of a vector with one such costs as much as hundreds of others."""
    found = case(dense(scale=scale), 1.0)
    text = reasons.reason(replace(found, ns=100 * found.limit.ns))
    assert ("weights are subnormal: a product with one is slow" in text) == bool(told)
    assert told in text


def test_a_subnormal_weight_costs_what_its_vector_does() -> None:
    def cost(slow: int) -> float:
        found = case(dense(scale=1e-40, slow=slow), 1.0)
        causes = (cause for rule in reasons.RULES for cause in rule(found))
        return next(cause.ns or 0 for cause in causes if "subnormal" in cause.text)

    assert cost(0) == pytest.approx(cost(1) * 8192 / 16)


def test_short_runs_are_a_reason() -> None:
    found = case(elementwise("Relu", 256), 60.0)
    assert "runs only 60 ns" in reasons.reason(found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"portable": True}, "with portable bits"),
        ({"small": True}, "for little code"),
        ({"name": "cortex-m4", "variants": TARGETS["cortex-m4"].variants}, "made for cortex-m4"),
    ],
)
def test_what_was_asked_for_is_a_reason(changes: dict[str, Any], words: str) -> None:
    found = case(dense(), 1.0, **changes)
    assert words in reasons.reason(replace(found, ns=50 * found.limit.ns))


def test_facts_get_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel of a run has one; what no run reached, and control flow, has none."""
    compiled = dense()
    measured = {"compiler": "cc", "runs": 3, "total_ns": 900.0}
    kernels = {0: {"ns": 800.0, "visits": 1.0}, 1: {"ns": 0.0, "visits": 0.0}}
    monkeypatch.setattr(profile, "measure", lambda *_, **__: measured | {"kernels": dict(kernels)})
    monkeypatch.setattr(times, "machine", lambda _: MADE_UP)
    found: dict[str, Any] = {"times": None, "kernels": [{"number": 0}, {"number": 1}]}
    times.attach(found, compiled)
    assert found["times"] == measured | {"machine": MADE_UP.facts()}
    time = found["kernels"][0]["time"]
    assert (time["ns"], time["share"]) == (800.0, 1.0)
    assert time["of_limit"] == pytest.approx(time["limit_ns"] / 800.0)
    assert time["bound_by"] in ("products", "memory", "functions", "operations")
    assert found["kernels"][1]["time"] is None


def test_facts_get_the_reason_where_there_are_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "measure", lambda *_, **__: {"reason": "no compiler"})
    found: dict[str, Any] = {"times": None, "kernels": [{"number": 0}]}
    times.attach(found, dense())
    assert found == {"times": {"reason": "no compiler"}, "kernels": [{"number": 0, "time": None}]}
