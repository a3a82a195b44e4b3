"""lower: which values get a buffer, what the kernels are called after, and linear time."""

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxc.check import check_program
from onnxc.compiled import CompiledModel
from onnxc.expression import Apply, Expr, Load
from onnxc.kernel import Loops, Program
from onnxc.names import model_name
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.passes.lower import BUFFER_LIMIT, NODE_LIMIT, lower
from onnxc.passes.simplify import simplify
from onnxc.pipeline import compile_model
from onnxc.traversal import walk
from tests.models import any_bits, assert_same, declared, model
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import check_fused_and_plain
from tests.portable_models import LARGE_CONSTANTS, models

FLOAT, BOOL, INT4 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT4


def tensor(name: str, code: int = BOOL, *shape: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def node(operator: str, inputs: str, output: str) -> NodeProto:
    return helper.make_node(operator, inputs.split(), [output], name=f"n_{output}")


def lowered(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    *,
    plain: bool = False,
) -> Program:
    graph: ir.Model = load(model(helper.make_graph(nodes, "g", inputs, outputs)))
    infer(graph)
    simplify(graph)
    program = lower(graph, plain=plain)
    check_program(program)
    return program


def kernels(program: Program) -> list[Loops]:
    return [step for step in program.steps if isinstance(step, Loops)]


def chain(length: int) -> list[NodeProto]:
    """x0 == b == b ... and so on."""
    return [node("Equal", f"x{n} b", f"x{n + 1}") for n in range(length)]


def test_elementwise_nodes_fuse() -> None:
    inputs = [tensor("x0", BOOL, 4), tensor("b", BOOL, 4)]
    program = lowered(chain(5), inputs, [tensor("x5", BOOL, 4)])
    (kernel,) = kernels(program)
    assert [origin.name for origin in kernel.origins] == [f"n_x{n}" for n in range(1, 6)]
    assert {buffer.name for buffer in kernel.reads()} == {"x0", "b"}


def test_plain_realises_every_value() -> None:
    inputs = [tensor("x0", BOOL, 4), tensor("b", BOOL, 4)]
    program = lowered(chain(5), inputs, [tensor("x5", BOOL, 4)], plain=True)
    assert [step.out.name for step in kernels(program)] == [f"x{n}" for n in range(1, 6)]


def test_expressions_stay_small() -> None:
    inputs = [tensor("x0", BOOL, 4), tensor("b", BOOL, 4)]
    steps = kernels(lowered(chain(200), inputs, [tensor("x200", BOOL, 4)]))
    assert len(steps) > 1
    assert all(len(list(walk(step.value))) <= NODE_LIMIT + 3 for step in steps)
    assert sum(len(step.origins) for step in steps) == 200


def test_a_kernel_reads_few_buffers() -> None:
    nodes = [node("Equal", f"x{n} y{n}", f"x{n + 1}") for n in range(30)]
    inputs = [tensor("x0", BOOL, 4), *(tensor(f"y{n}", BOOL, 4) for n in range(30))]
    steps = kernels(lowered(nodes, inputs, [tensor("x30", BOOL, 4)]))
    assert all(len(step.reads()) <= BUFFER_LIMIT + 1 for step in steps)


def test_as_many_buffers_as_may_be_are_read_by_one_kernel() -> None:
    names = [f"b{n}" for n in range(BUFFER_LIMIT)]
    nodes = [node("Equal", f"y{n - 1} {names[n]}", f"y{n}") for n in range(2, BUFFER_LIMIT)]
    nodes = [node("Equal", "b0 b1", "y1"), *nodes, node("Not", f"y{BUFFER_LIMIT - 1}", "z")]
    inputs = [tensor(name, BOOL, 4) for name in names]
    (kernel,) = kernels(lowered(nodes, inputs, [tensor("z", BOOL, 4)]))
    assert len(kernel.reads()) == BUFFER_LIMIT
    more = [*nodes, node("Equal", "z b8", "u"), node("Not", "u", "v")]
    inputs.append(tensor("b8", BOOL, 4))
    steps = kernels(lowered(more, inputs, [tensor("v", BOOL, 4)]))
    assert [step.out.name for step in steps] == ["u", "v"]


def test_a_kernel_has_one_sum_of_products() -> None:
    nodes = [node("MatMul", "a b", "m"), node("MatMul", "c d", "n"), node("Add", "m n", "y")]
    inputs = [tensor(name, FLOAT, 3, 3) for name in "abcd"]
    steps = kernels(lowered(nodes, inputs, [tensor("y", FLOAT, 3, 3)]))
    assert [step.out.name for step in steps] == ["m", "y"]


def test_a_sum_of_sums_of_products_is_two_kernels() -> None:
    nodes = [node("MatMul", "a b", "m"), node("ReduceSum", "m", "y")]
    inputs = [tensor(name, FLOAT, 3, 3) for name in "ab"]
    steps = kernels(lowered(nodes, inputs, [tensor("y", FLOAT, 1, 1)]))
    assert [step.out.name for step in steps] == ["m", "y"]


def test_an_output_whose_size_the_data_decides_has_its_shape_beside_it() -> None:
    int64 = TensorProto.INT64
    y = helper.make_tensor_value_info("y", int64, [2, "N"])
    program = lowered([node("NonZero", "x", "y")], [tensor("x", FLOAT, 2, 3)], [y])
    ((made, shape),) = program.actual.items()
    assert (made.name, made.shape) == ("y", (2, 6))
    assert (shape.name, shape.shape, shape.kind) == ("y_shape", (2,), "output")
    assert {made, shape} <= {*program.writes()}


def test_a_large_value_of_several_readers_is_computed_once() -> None:
    nodes = [*chain(8), node("Equal", "x8 b", "y"), node("Equal", "x8 c", "z")]
    inputs = [tensor(name, BOOL, 4) for name in ("x0", "b", "c")]
    program = lowered(nodes, inputs, [tensor("y", BOOL, 4), tensor("z", BOOL, 4)])
    assert [step.out.name for step in kernels(program)] == ["x8", "y", "z"]


def test_an_output_is_a_buffer_that_others_read() -> None:
    program = lowered(
        [node("Equal", "x x2", "y"), node("Equal", "y b", "z")],
        [tensor("x", FLOAT, 4), tensor("x2", FLOAT, 4), tensor("b", BOOL, 4)],
        [tensor("y", BOOL, 4), tensor("z", BOOL, 4)],
    )
    first, second = kernels(program)
    assert first.out in second.reads()


def test_aliases_cost_nothing() -> None:
    """Identity has a kernel only where its result is an output; notes tell of the others."""
    program = lowered(
        [node("Identity", "x", "a"), node("Identity", "a", "b"), node("Equal", "b x", "y")],
        [tensor("x", FLOAT, 4)],
        [tensor("y", BOOL, 4)],
    )
    (kernel,) = kernels(program)
    assert [origin.name for origin in kernel.origins] == ["n_y"]
    assert [(origin.name, fact) for origin, fact in program.notes] == [
        ("n_a", "needs no code"),
        ("n_b", "needs no code"),
    ]


def test_what_becomes_of_the_other_nodes() -> None:
    program = lowered(
        [
            node("Size", "x", "n"),
            node("Identity", "x", "a"),
            node("Equal", "x x", "dead"),
            node("Size", "a", "m"),
        ],
        [tensor("x", FLOAT, 4)],
        [tensor("n", TensorProto.INT64), tensor("m", TensorProto.INT64)],
    )
    told = {origin.name: fact for origin, fact in program.notes}
    assert told["n_dead"] == "no output needs it"
    assert set(told) | {o.name for step in kernels(program) for o in step.origins} == {
        *("n_n", "n_a", "n_dead", "n_m"),
    }


def test_a_bool_from_outside_is_true_for_any_bit() -> None:
    program = lowered([node("Identity", "x", "y")], [tensor("x", BOOL, 4)], [tensor("y", BOOL, 4)])
    (kernel,) = kernels(program)
    assert not isinstance(kernel.value, Load)


def test_packed_outputs_are_stored_by_the_byte() -> None:
    """Whole bytes, and the last one, which is not full."""
    program = lowered([node("Identity", "x", "y")], [tensor("x", INT4, 7)], [tensor("y", INT4, 7)])
    whole, last = kernels(program)
    assert [axis.extent for axis in whole.axes] == [3]
    assert (last.axes, last.where[0].const, last.role) == ((), 3, "the last byte")
    (read,) = (found for found in walk(last.value) if isinstance(found, Load))
    assert read.indices[0].const == 6


def test_packed_outputs_that_are_computed_are_stored_by_elements_before() -> None:
    program = lowered(
        [node("Transpose", "x", "y")], [tensor("x", INT4, 3, 2)], [tensor("y", INT4, 2, 3)]
    )
    elements, bytes_ = kernels(program)
    made = elements.out
    assert (made.name, made.shape, made.dtype.name, made.kind) == ("", (2, 3), "int4", "workspace")
    assert bytes_.reads() == (made,)
    assert [origin.name for origin in elements.origins] == ["n_y"]
    assert bytes_.origins == ()


def test_tensors_without_elements_have_no_kernel() -> None:
    program = lowered(
        [node("Equal", "x x", "y")], [tensor("x", FLOAT, 0, 3)], [tensor("y", BOOL, 0, 3)]
    )
    assert program.steps == ()


# Linear time, counted in calls of Python functions, so that no clock is needed.


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    count = [0]

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        count[0] += event == "call"

    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(None)


def long_chain(length: int) -> ModelProto:
    inputs = [tensor("x0", BOOL, 4), tensor("b", BOOL, 4)]
    return model(helper.make_graph(chain(length), "g", inputs, [tensor(f"x{length}", BOOL, 4)]))


def thrice(length: int) -> ModelProto:
    """Calls of a local function of three nodes, each of which reads the function's input."""
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("own", 1)]
    body = [node("Equal", "x b", "one"), node("Equal", "one x", "two"), node("Equal", "two x", "y")]
    function = helper.make_function("own", "Thrice", ["x", "b"], ["y"], body, opsets[:1])
    calls = [
        helper.make_node("Thrice", [f"x{n}", "b"], [f"x{n + 1}"], domain="own", name=f"c{n}")
        for n in range(length // 3)
    ]
    inputs = [tensor("x0", BOOL, 4), tensor("b", BOOL, 4)]
    graph = helper.make_graph(calls, "g", inputs, [tensor(f"x{length // 3}", BOOL, 4)])
    return helper.make_model(graph, functions=[function], opset_imports=opsets)


def all_outputs(length: int) -> ModelProto:
    inputs = [tensor("x0", BOOL, 4), tensor("b", BOOL, 4)]
    outputs = [tensor(f"x{n}", BOOL, 4) for n in range(1, length + 1)]
    return model(helper.make_graph(chain(length), "g", inputs, outputs))


def aliases(length: int) -> ModelProto:
    nodes = [node("Identity", f"x{n}", f"x{n + 1}") for n in range(length)]
    graph = helper.make_graph(nodes, "g", [tensor("x0", BOOL, 4)], [tensor(f"x{length}", BOOL, 4)])
    return model(graph)


@pytest.mark.parametrize(
    ("make", "plain"),
    [*itertools.product([long_chain, thrice, aliases], [False, True]), (all_outputs, False)],
)
def test_twice_the_nodes_take_twice_the_work(
    make: Callable[[int], ModelProto], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONNXC_DEBUG")
    compile_model(make(12), plain=plain)
    calls = []
    for length in (2000, 4000):
        source = make(length)
        with counted_calls() as count:
            compile_model(source, plain=plain)
        calls.append(count[0])
    assert 1.8 * calls[0] < calls[1] < 2.1 * calls[0]


def test_twice_the_products_take_twice_the_work() -> None:
    """No kernel of the chain is looked at again for each that follows it."""
    calls = []
    for length in (40, 80):
        nodes = [node("MatMul", f"x{n} w", f"x{n + 1}") for n in range(length)]
        inputs = [tensor(name, FLOAT, 3, 3) for name in ("x0", "w")]
        outputs = [tensor(f"x{length}", FLOAT, 3, 3)]
        graph = load(model(helper.make_graph(nodes, "g", inputs, outputs)))
        infer(graph)
        simplify(graph)
        with counted_calls() as count:
            lower(graph, plain=False)
        calls.append(count[0])
    assert calls[1] < 2.1 * calls[0]


def uses(kernel: Loops) -> Counter[Expr]:
    """How many operands of the kernel's expression each value is."""
    return Counter(operand for part in walk(kernel.value) for operand in part.operands())


def test_three_nodes_read_one_value() -> None:
    """Else `thrice` is an ordinary chain. Of two calls: x, what the first call made, and b."""
    (kernel,) = kernels(compile_model(thrice(6)).program)
    assert sorted(n for n in uses(kernel).values() if n > 1) == [2, 3, 3]
    operations = [part for part in walk(kernel.value) if isinstance(part, Apply)]
    assert Counter(part.operation for part in operations) == {"equal": 6, "truth": 2}


@dataclass(frozen=True)
class Long:
    """A chain of so many nodes, and the kernels and bytes that may come of it."""

    make: Callable[[int], ModelProto]
    nodes: int
    kernels: range
    workspace: int
    plain: bool = False


LONG = {
    "Identity": Long(aliases, 20_000, range(1, 2), 0),
    "Equal": Long(long_chain, 20_000, range(20_000 // NODE_LIMIT, 20_000 // (NODE_LIMIT - 4)), 4),
    # A value of two calls has more than REPEAT_LIMIT nodes, and three readers.
    "three readers": Long(thrice, 20_001, range(3_334, 3_335), 4),
    "Identity, plain": Long(aliases, 5_000, range(5_000, 5_001), 4 + 4, plain=True),
    "Equal, plain": Long(long_chain, 5_000, range(5_000, 5_001), 4, plain=True),
    "three readers, plain": Long(thrice, 5_001, range(5_001, 5_002), 4 + 4, plain=True),
}


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
def test_thousands_of_nodes(long: Long) -> None:
    """Of which none is lost, in a workspace that does not grow with their number."""
    compiled = compile_model(long.make(long.nodes), plain=long.plain)
    steps = kernels(compiled.program)
    assert len(steps) in long.kernels
    assert compiled.workspace_size == long.workspace
    if long.make is not aliases:
        assert sum(len(step.origins) for step in steps) == long.nodes
    if long.make is thrice and not long.plain:
        read_thrice = [sum(n == 3 for n in uses(step).values()) for step in steps]
        assert read_thrice == [len(step.origins) // 3 for step in steps]


# The slow build, in which every value has a buffer, is the oracle of the fast one.

ORACLE = [(name, proto) for name, proto in models() if name != LARGE_CONSTANTS]


@pytest.mark.parametrize(("name", "proto"), ORACLE, ids=[name for name, _ in ORACLE])
def test_the_fused_c_gives_the_bits_of_the_plain_c(
    name: str, proto: ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXC_CFLAGS", "-O1")
    fused, plain = (
        CompiledModel(compile_model(proto, name=model_name(f"m_{name}"), plain=plain))
        for plain in (False, True)
    )
    inputs = {i.name: any_bits(i.dtype, *i.shape) for i in fused.inputs}
    found, wanted = fused.run(inputs), plain.run(inputs)
    strings = [key for key, array in wanted.items() if array.dtype == object]
    for key in strings:
        assert found.pop(key).tolist() == wanted.pop(key).tolist()
    assert_same(found, wanted)


def test_what_a_scatter_starts_from_is_not_what_it_makes_of_it() -> None:
    """The one buffer that holds the data is changed: another reader of the data has its own."""
    batch = NodeBatch()
    x, place, update = (np.array(v) for v in ([1.0, -2.0, 3.0], [2], [9.0]))
    x, update = x.astype(np.float32), update.astype(np.float32)
    given = {"x": x, "place": place, "update": update}
    batch.graph.input.extend(declared(name, array) for name, array in given.items())
    batch.graph.node.extend(
        [
            helper.make_node("Relu", ["x"], ["data"]),
            helper.make_node("ScatterElements", ["data", "place", "update"], ["changed"]),
            helper.make_node("Sub", ["changed", "data"], ["y"]),
        ]
    )
    batch.graph.output.append(declared("y", x))
    batch.given.update(given)
    batch.wanted["y"] = np.array([0, 0, 6], np.float32)
    check_fused_and_plain(batch)
