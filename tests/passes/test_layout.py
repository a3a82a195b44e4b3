"""layout: channels last between convolutions, padding stored, copies where a layout stays."""

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper

import onnxc
from onnxc.expression import Axis, Buffer, Guard, Index, Load, along, load
from onnxc.kernel import Loops, Program, Routine
from onnxc.passes.layout import layout
from onnxc.pipeline import compile_model, evaluate_model
from onnxc.target import TARGETS
from onnxc.traversal import axes_read, walk
from tests.kernels.programs import FLOAT, INT64, over
from tests.kernels.programs import buffer as buffer_of
from tests.models import Array, float_network


def conv(x: str, w: str, y: str, **attributes: Any) -> NodeProto:
    return helper.make_node("Conv", [x, w], [y], name=y, **attributes)


def network(
    nodes: list[NodeProto], x: tuple[int, ...], y: tuple[int, ...], **weights: Array
) -> ModelProto:
    return float_network(nodes, {"x": x}, y, weights)


def laid_out(source: ModelProto) -> Program:
    """The program as the pass leaves it."""
    found: list[Program] = []

    def observe(name: str, thing: object) -> None:
        if name == "layout" and isinstance(thing, Program):
            found.append(thing)

    compile_model(source, observe=observe)
    return found[0]


def weights(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape)


TWO = network(
    [
        conv("x", "v", "m", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["m"], ["r"]),
        conv("r", "w", "y", pads=[1, 0, 2, 0]),
    ],
    (1, 3, 8, 9),
    (1, 6, 9, 7),
    v=weights(5, 3, 3, 3),
    w=weights(6, 5, 3, 3),
)


def test_the_input_is_copied_and_the_rest_made_in_place() -> None:
    program = laid_out(TWO)
    roles = [step.role for step in program.steps if isinstance(step, Loops | Routine)]
    assert roles == [
        "zeros around",
        "padded",
        "zeros around",
        "",
        "channels last",
        "channels second",
    ]


def alone(channels: int, filters: int, kernel: int, **attributes: Any) -> Program:
    """A convolution of 20 x 20 pixels that reads the model's input and makes its output."""
    group = attributes.get("group", 1)
    size = (20 + 2 * attributes.get("pads", [0])[0] - kernel) // attributes.get("strides", [1])[0]
    w = weights(filters, channels // group, kernel, kernel)
    shapes = (1, channels, 20, 20), (1, filters, size + 1, size + 1)
    return laid_out(network([conv("x", "w", "y", **attributes)], *shapes, w=w))


def roles_of(program: Program) -> list[str]:
    return [step.role for step in program.steps if isinstance(step, Loops | Routine)]


def test_what_stays_with_channels_second() -> None:
    """Between the model's own tensors: rows of pixels as they lie, padded where need be."""
    assert roles_of(alone(5, 5, 3, group=5)) == [""]
    assert roles_of(alone(5, 5, 3, group=5, pads=[1] * 4)) == ["zeros around", "padded", ""]
    assert roles_of(alone(8, 4, 1)) == [""]


def test_what_is_read_with_channels_second() -> None:
    """Large windows that move on by two: each channel of them is of use again."""
    assert roles_of(alone(16, 4, 3, strides=[2, 2])) == ["channels last", "channels second"]
    assert roles_of(alone(8, 4, 3, strides=[2, 2])) == [
        "channels last",
        *["channels last"],
        "channels second",
    ]


FILTERS = weights(4, 3, 3, 3)


def test_few_channels_are_read_row_by_row() -> None:
    """Where they are, or from a copy of whole rows that stores what is beside them."""
    assert roles_of(alone(3, 4, 3)) == ["channels last", "channels second"]
    program = alone(3, 4, 3, pads=[1] * 4)
    assert roles_of(program) == ["zeros around", "padded", "channels last", "channels second"]
    border, copy, *_ = program.steps
    assert copy.writes()[0].shape == (1, 22, 3, 22)
    assert isinstance(border, Routine)
    assert dict(border.parameters)["runs"] == ((0, 66, 2, 1386),)
    beside = network([conv("x", "w", "y", pads=[0, 1] * 2)], (1, 3, 8, 8), (1, 4, 6, 8), w=FILTERS)
    assert roles_of(laid_out(beside)) == ["padded", "channels last", "channels second"]
    assert alone(8, 4, 3, pads=[1] * 4).steps[1].writes()[0].shape == (1, 22, 22, 8)
    assert alone(2, 4, 3, group=2, pads=[1] * 4).steps[1].writes()[0].shape == (1, 22, 22, 2)


def test_one_copy_of_rows_serves_all_who_read_them() -> None:
    """The first has no padding, and would read them where they are."""
    nodes = [
        conv("x", "v", "m"),
        conv("x", "w", "n", pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["m", "n"], ["y"], axis=1),
    ]
    constants = {"v": weights(5, 3, 1, 1), "w": weights(4, 3, 3, 3)}
    source = network(nodes, (1, 3, 8, 9), (1, 9, 8, 9), **constants)
    program = laid_out(source)
    assert roles_of(program).count("padded") == 1
    (copied,) = {b for step in program.steps for b in step.writes() if b.name == "x"}
    assert copied.shape == (1, 10, 3, 11)
    read = [node for step in program.steps if isinstance(step, Loops) for node in walk(step.value)]
    convolved = [n.buffer for n in read if isinstance(n, Load) and n.buffer.name == "x"]
    assert convolved.count(copied) == 2
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 9)).astype(np.float32)
    wanted = evaluate_model(source, {"x": x})["y"]
    np.testing.assert_allclose(onnxc.compile(source).run({"x": x})["y"], wanted, 1e-5, 1e-5)


def test_loops_run_in_the_order_in_which_the_result_lies() -> None:
    loops = [step for step in laid_out(TWO).steps if isinstance(step, Loops)]
    for step in loops:
        place = step.out.flat(step.where)
        strides = [place.stride(axis) for axis in step.axes if axis.extent > 1]
        assert strides == sorted(strides, reverse=True)
    assert len(loops) == 4


def test_padding_is_part_of_the_shape() -> None:
    shapes = {buffer.name: buffer.shape for buffer in laid_out(TWO).writes()}
    assert shapes["x"] == (1, 10, 3, 11)
    assert shapes["r"] == (1, 11, 9, 5)
    assert shapes["y"] == (1, 6, 9, 7)


def test_no_guard_is_left() -> None:
    """But in the copy that stores it."""
    loops = [s for s in laid_out(TWO).steps if isinstance(s, Loops) and s.role != "padded"]
    assert not [node for step in loops for node in walk(step.value) if isinstance(node, Guard)]


def test_border_is_zeroed_before_its_buffer_is_filled() -> None:
    program = laid_out(TWO)
    first: dict[object, object] = {}
    for step in program.steps:
        for buffer in step.writes():
            first.setdefault(buffer, step)
    padded = [b for b in first if getattr(b, "name", "") in ("x", "r")]
    assert len(padded) == 2
    assert all(isinstance(first[buffer], Routine) for buffer in padded)


def test_one_channel_without_padding_needs_no_copy() -> None:
    source = network([conv("x", "w", "y")], (1, 1, 6, 6), (1, 1, 4, 4), w=weights(1, 1, 3, 3))
    assert len(laid_out(source).steps) == 1


def test_a_pool_between_convolutions_has_channels_last_too() -> None:
    pool = helper.make_node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2], strides=[2, 2])
    nodes = [conv("x", "v", "m"), pool, conv("p", "w", "y")]
    source = network(
        nodes, (1, 2, 9, 9), (1, 4, 3, 3), v=weights(7, 2, 2, 2), w=weights(4, 7, 2, 2)
    )
    shapes = {buffer.name: buffer.shape for buffer in laid_out(source).writes()}
    assert (shapes["m"], shapes["p"]) == ((1, 8, 8, 7), (1, 4, 4, 7))


def test_what_is_between_pools_has_channels_last_too() -> None:
    """No convolution reads or makes it."""
    pools = [
        helper.make_node("MaxPool", [one], [other], kernel_shape=[2, 2])
        for one, other in (("m", "p"), ("p", "q"))
    ]
    nodes = [conv("x", "v", "m"), *pools, conv("q", "w", "y")]
    source = network(
        nodes, (1, 2, 9, 9), (1, 4, 5, 5), v=weights(7, 2, 2, 2), w=weights(4, 7, 2, 2)
    )
    shapes = {buffer.name: buffer.shape for buffer in laid_out(source).writes()}
    assert [shapes[name] for name in "mpq"] == [(1, 8, 8, 7), (1, 7, 7, 7), (1, 6, 6, 7)]


def test_a_flattened_result_keeps_its_layout() -> None:
    nodes = [
        conv("x", "v", "m"),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["y"]),
    ]
    source = network(nodes, (1, 2, 6, 6), (1, 3), v=weights(5, 2, 3, 3), w=weights(80, 3))
    written = [buffer.shape for buffer in laid_out(source).writes()]
    assert (1, 4, 4, 5) in written
    model = compile_model(source)
    assert model.outputs[0].shape == (1, 3)


def test_without_a_target_nothing_changes() -> None:
    program = compile_model(TWO, plain=True).program
    assert layout(program) is program


FEW_ROWS = network(
    [conv("x", "v", "m"), conv("m", "w", "y", pads=[6, 2, 6, 2], dilations=[3, 1], group=16)],
    (1, 4, 2, 40),
    (1, 16, 2, 40),
    v=weights(16, 4, 1, 1),
    w=np.ones((16, 1, 5, 5)) * np.inf,
)
"""Padding makes a buffer seven times as large; of infinite weights no tap is needless."""


def test_padding_around_few_rows_is_stored_where_time_counts() -> None:
    shapes = {buffer.name: buffer.shape for buffer in laid_out(FEW_ROWS).writes()}
    assert shapes["m"] == (1, 14, 44, 16)
    (last,) = (s for s in compile_model(FEW_ROWS).program.steps if s.writes()[0].name == "y")
    assert not [n for n in walk(*getattr(last, "roots", tuple)()) if isinstance(n, Guard)]


def test_padding_around_few_rows_stays_a_condition_where_memory_counts() -> None:
    for options in ({"optimize": "size"}, {"portable_bits": True}):
        buffers = compile_model(FEW_ROWS, **options).program.writes()
        assert (1, 2, 40, 16) in [buffer.shape for buffer in buffers]


def test_taps_that_meet_padding_alone_are_left_out_unless_infinite() -> None:
    x, w = np.ones((1, 1, 1, 3), np.float32), np.full((1, 1, 3, 1), 2.0)
    for above, wanted in ((5.0, 2.0), (np.inf, np.nan)):
        w[0, 0, 0, 0] = above
        source = network([conv("x", "w", "y", pads=[1, 0, 1, 0])], x.shape, x.shape, w=w)
        np.testing.assert_array_equal(
            onnxc.compile(source).run({"x": x})["y"], np.full(x.shape, wanted)
        )


def test_what_one_window_covers_has_channels_last_too() -> None:
    nodes = [conv("x", "v", "m"), conv("m", "w", "y")]
    shapes = (1, 3, 6, 6), (1, 4, 1, 1)
    source = network(nodes, *shapes, v=weights(8, 3, 3, 3), w=weights(4, 8, 4, 4))
    assert (1, 4, 4, 8) in [buffer.shape for buffer in laid_out(source).writes()]


def test_an_input_that_one_window_covers_is_read_as_it_lies() -> None:
    source = network([conv("x", "w", "y")], (1, 8, 4, 4), (1, 4, 1, 1), w=weights(4, 8, 4, 4))
    assert roles_of(laid_out(source)) == [""]


def test_padding_of_a_dimension_of_one_stays_a_condition() -> None:
    x = np.array([[[[2.0, 3.0]]]], np.float32)
    node = conv("x", "w", "y", pads=[0, 0, 1, 1])
    source = network([node], (1, 1, 1, 2), (1, 1, 1, 3), w=np.array([[[[1.0], [5.0]]]]))
    assert onnxc.compile(source).run({"x": x})["y"].tolist() == [[[[2.0, 3.0, 0.0]]]]


def test_padding_around_the_outermost_dimension_is_stored_too() -> None:
    """Where the batch is not the first dimension of what is read, the rows are in memory."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2, 3])]
    nodes += [conv("t", "w", "y", pads=[1, 1, 1, 1])]
    source = network(nodes, (2, 1, 4, 3), (1, 1, 4, 3), w=np.ones((1, 2, 3, 3)))
    (border,) = (step for step in laid_out(source).steps if isinstance(step, Routine))
    parameters: dict[str, Any] = dict(border.parameters)
    filled = sum(length * count for _, length, count, _ in parameters["runs"])
    assert [buffer.shape for buffer in border.outputs] == [(6, 2, 1, 5)]
    assert parameters["batches"] * filled == (6 - 4) * 2 * 5  # beside the rows the copy stores it
    x = np.arange(24, dtype=np.float32).reshape(2, 1, 4, 3)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.sum((0, 1)), 1), (3, 3))
    wanted = windows.sum((2, 3))[None, None]
    np.testing.assert_array_equal(onnxc.compile(source).run({"x": x})["y"], wanted)


def test_a_kernel_without_loops_stays_as_it_is() -> None:
    """What a product of matrices scales its addend by is computed once, apart."""
    nodes = [
        conv("x", "w", "c"),
        helper.make_node("Flatten", ["c"], ["f"], axis=2),
        helper.make_node("Gemm", ["f", "v", "s"], ["y"], beta=2.0),
    ]
    inputs: dict[str, tuple[int, ...]] = {"x": (1, 2, 2, 2), "s": ()}
    constants = {"w": np.ones((3, 2, 1, 1)), "v": np.ones((4, 5))}
    source = float_network(nodes, inputs, (3, 5), constants)
    assert () in [buffer.shape for buffer in laid_out(source).writes()]
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    values = {"x": x, "s": np.array(0.5, np.float32)}
    assert onnxc.compile(source).run(values)["y"].tolist() == [[29.0] * 5] * 3


ALL, TWICE, THRICE, FOUR = Axis(24), Axis(2), Axis(3), Axis(4)
CUBE = buffer_of("cube", "workspace", FLOAT, 2, 3, 4)


def indices_after(place: Index, source: Buffer = CUBE) -> tuple[Index, ...]:
    """Of a load by one flat index, in a program without convolutions."""
    walked = [axis for expr, _ in place.dynamic for axis in axes_read(expr)]
    axes = (*walked, *(axis for axis, _ in place.terms))
    out = buffer_of("y", "output", FLOAT, *(axis.extent for axis in axes))
    step = over(out, load(source, [place]) + 1.0, *axes)
    program = Program((), (out,), (step,), target=TARGETS["generic"])
    (after,) = layout(program).steps
    assert isinstance(after, Loops)
    loads = (node for node in walk(after.value) if isinstance(node, Load))
    (found,) = (node for node in loads if node.buffer is source)
    return found.indices


def test_a_flat_index_becomes_one_a_dimension() -> None:
    i, j, k = along(TWICE), along(THRICE), along(FOUR)
    assert indices_after(i * 12 + j * 4 + k) == (i, j, k)
    assert indices_after(i * 12 + k) == (i, Index(), k)
    assert indices_after(i * 12 + 11) == (i, Index(2), Index(3))
    assert indices_after(i * 8 + k) == (Index(), i * 2, k)
    assert indices_after(i * 4 + k + 16) == (Index(1), i + 1, k)
    assert indices_after(i * 2 + 1) == (Index(), Index(), i * 2 + 1)


def test_a_flat_index_of_several_dimensions_at_once_stays() -> None:
    i, j, k = along(TWICE), along(THRICE), along(FOUR)
    for place in (along(ALL), j * 8 + k, i * 4 + 8, k + 1, i * -12 + 12, j * 6 + i):
        assert indices_after(place) == (place,)
    numbers = buffer_of("n", "workspace", INT64, 2)
    at_run_time = Index(0, ((FOUR, 1),), ((load(numbers, [along(TWICE)]), 12),))
    assert indices_after(at_run_time) == (at_run_time,)


def test_flat_indices_of_a_models_own_stay() -> None:
    given = buffer_of("x", "input", FLOAT, 2, 3, 4)
    place = along(TWICE) * 12 + along(FOUR)
    assert indices_after(place, given) == (place,)
