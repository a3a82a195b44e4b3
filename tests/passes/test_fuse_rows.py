"""Kernels that run row by row: the same bits as one after the other, in no more memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

from onnxc.check import InvalidProgramError, check_program
from onnxc.check_plan import check_plan
from onnxc.expression import (
    Axis,
    Buffer,
    Checked,
    Expr,
    Fold,
    Index,
    affine,
    along,
    apply,
    cast,
    compare,
    load,
)
from onnxc.kernel import Loops, Program, Rows
from onnxc.passes import plan_memory
from onnxc.passes.fuse_rows import fuse_rows
from onnxc.passes.in_place import overwritable
from onnxc.passes.merge_axes import merge_axes
from onnxc.pipeline import compile_model
from onnxc.status import Status
from onnxc.target import TARGETS
from tests.kernels.programs import (
    FLOAT,
    INT32,
    INT64,
    assert_same_bits,
    buffer,
    check_in_c,
    emitted,
    evaluated,
    peak,
    planned,
)
from tests.kernels.strategies import Case, row_cases, some_values
from tests.models import declared, model, stored

ROWS, LENGTH = 6, 80
Element = Callable[[Index, Index], Expr]


def wide(name: str, kind: str = "workspace") -> Buffer:
    return buffer(name, kind, FLOAT, ROWS, LENGTH)


def narrow(name: str, kind: str = "workspace") -> Buffer:
    return buffer(name, kind, FLOAT, ROWS)


def each(out: Buffer, value: Element, accumulate: str = "") -> Loops:
    """out[i][j] = value(i, j)."""
    axes = (Axis(ROWS), Axis(LENGTH))
    walks = tuple(map(along, axes))
    return Loops(out, walks, axes, value(*walks), accumulate=accumulate)


def total(out: Buffer, value: Element, hint: str = "") -> Loops:
    """out[i] = sum over j of value(i, j)."""
    row, place = Axis(ROWS), Axis(LENGTH)
    found = value(along(row), along(place))
    folded = Fold(found.dtype, "sum", (place,), found, hint)
    return Loops(out, (along(row),), (row,), folded)


def program(*steps: Loops, target: str = "aarch64") -> Program:
    filled = dict.fromkeys(step.out for step in steps)
    outputs = tuple(b for b in filled if b.kind == "output")
    used = dict.fromkeys(b for step in steps for b in step.reads() if b.kind == "input")
    return Program(tuple(used), outputs, steps, target=TARGETS[target])


def fused(given_program: Program) -> list[int]:
    """How many kernels each step of the program is."""
    found = fuse_rows(merge_axes(given_program))
    check_program(found)
    return [len(step.steps) if isinstance(step, Rows) else 1 for step in found.steps]


def same_in_c(given_program: Program) -> None:
    """One row at a time and several, in C, as the kernels one after the other in numpy."""
    inputs = {b: some_values(b.dtype, b.shape, n) for n, b in enumerate(given_program.inputs)}
    for target in ("cortex-m4", "aarch64"):
        check_in_c(replace(given_program, target=TARGETS[target]), inputs)


X, Y = wide("x", "input"), wide("y", "output")


def centred(second: Element | None = None) -> Program:
    """Each element less the mean of its row, or what else comes of the mean."""
    mean = narrow("mean")
    value = second or (lambda i, j: load(X, [i, j]) - load(mean, [i]))
    return program(total(mean, lambda i, j: load(X, [i, j]) / LENGTH), each(Y, value))


def through(read: Callable[[Buffer, Index, Index], Expr], kind: str = "workspace") -> Program:
    """What the second kernel reads of what the first stores."""
    between = wide("between", kind)
    first = each(between, lambda i, j: load(X, [i, j]) + 1)
    return program(first, each(Y, lambda i, j: read(between, i, j) * 2 + load(X, [i, j])))


def test_a_mean_and_what_reads_it() -> None:
    assert fused(centred()) == [2]
    assert planned(centred()).workspace_size == 0
    same_in_c(centred())


def test_what_only_they_use_is_a_few_rows() -> None:
    def flipped(between: Buffer, i: Index, j: Index) -> Expr:
        return load(between, [i, j * -1 + (LENGTH - 1)])

    found = through(flipped)
    assert fused(found) == [2]
    assert planned(found).workspace_size == 4 * LENGTH * 4
    small = replace(found, target=TARGETS["cortex-m4"])
    assert planned(small).workspace_size == LENGTH * 4
    same_in_c(found)
    outside = through(flipped, "output")
    assert planned(outside).workspace_size == 0
    same_in_c(outside)


def test_rows_that_are_no_multiple_of_those_at_a_time() -> None:
    rows = [step for step in planned(centred()).steps if isinstance(step, Rows)]
    assert [(step.axis.extent, step.count) for step in rows] == [(ROWS, 4)]
    assert "rows = i_first < 2 ? 4 : 6 - i_first" in emitted(centred()).body


NOT_BY_ROWS: dict[str, Callable[[Buffer, Index, Index], Expr]] = {
    "another row": lambda b, i, j: load(b, [i * -1 + (ROWS - 1), j]),
    "the first row for all": lambda b, _i, j: load(b, [Index(), j]),
    "a column": lambda b, i, _j: load(b, [Index(), i]),
    "places that data choose": lambda b, i, j: load(
        b, [affine(0, (), [(cast(compare("less", load(X, [i, j]), 1), INT64), 1)]), j]
    ),
}


@pytest.mark.parametrize("name", NOT_BY_ROWS)
def test_readers_of_other_rows_run_after_all(name: str) -> None:
    found = through(NOT_BY_ROWS[name])
    assert fused(found) == [1, 1]
    same_in_c(found)


def test_rows_that_overlap() -> None:
    """The last element of a row is the first of the next."""
    source = buffer("between", "workspace", FLOAT, ROWS * LENGTH)
    axes = (Axis(ROWS), Axis(LENGTH))
    i, j = map(along, axes)
    first = Loops(source, (i * LENGTH + j,), axes, load(X, [i, j]) + 1)
    last = each(Y, lambda i, j: load(source, [i * (LENGTH - 1) + j]) + load(X, [i, j]))
    assert fused(program(first, last)) == [1, 1]


def test_no_row_of_a_transposed_operand() -> None:
    """What lies by columns is better read by tiles."""
    across = buffer("t", "input", FLOAT, LENGTH, ROWS)
    between = wide("between")
    first = each(between, lambda i, j: load(across, [j, i]) + 1)
    last = each(Y, lambda i, j: load(between, [i, j]) * 2 + load(X, [i, j]))
    assert fused(program(first, last)) == [1, 1]


def test_a_step_in_between() -> None:
    """Of other rows: the kernels around it stay apart, in the order of the program."""
    mean, other = narrow("mean"), buffer("other", "output", FLOAT, LENGTH, 3)
    first, last = centred().steps
    assert isinstance(first, Loops)
    assert isinstance(last, Loops)
    axes = (Axis(LENGTH), Axis(3))
    between = Loops(other, tuple(map(along, axes)), axes, load(X, [Index(), along(axes[0])]) + 1)
    assert mean.name == first.out.name
    assert fused(program(first, between, last)) == [1, 1, 1]


def test_kernels_that_share_nothing_stay_apart() -> None:
    z, out = wide("z", "input"), wide("out", "output")
    steps = each(Y, lambda i, j: load(X, [i, j]) + 1), each(out, lambda i, j: load(z, [i, j]) + 1)
    assert fused(program(*steps)) == [1, 1]


@pytest.mark.parametrize(
    ("target", "length", "kernels"),
    [
        ("aarch64", 63, [1, 1]),
        ("aarch64", 64, [2]),
        ("cortex-m4", 15, [1, 1]),
        ("cortex-m4", 16, [2]),
    ],
)
def test_short_rows_stay_many_at_once(target: str, length: int, kernels: list[int]) -> None:
    few = buffer("x", "input", FLOAT, 100, length)
    rows, places = Axis(100), Axis(length)
    mean = buffer("mean", "workspace", FLOAT, 100)
    out = buffer("y", "output", FLOAT, 100, length)
    value = load(few, [along(rows), along(places)])
    first = Loops(mean, (along(rows),), (rows,), Fold(FLOAT, "sum", (places,), value))
    rows, places = Axis(100), Axis(length)
    walks = (along(rows), along(places))
    last = Loops(out, walks, (rows, places), load(few, walks) - load(mean, walks[:1]))
    assert fused(program(first, last, target=target)) == kernels


def test_sums_of_products_are_no_rows() -> None:
    """They are as long in the cache as out of it."""
    mean = narrow("mean")
    first = total(mean, lambda i, j: load(X, [i, j]) * 2, "contraction")
    last = each(Y, lambda i, j: load(X, [i, j]) - load(mean, [i]))
    assert fused(program(first, last)) == [1, 1]


def test_one_flat_loop_becomes_rows_where_others_have_them() -> None:
    """A sum of two tensors, and its mean: the sum is never stored."""
    z, both = wide("z", "input"), wide("both")
    mean = narrow("mean")
    found = program(
        each(both, lambda i, j: load(X, [i, j]) + load(z, [i, j])),
        total(mean, lambda i, j: load(both, [i, j]) / LENGTH),
        each(Y, lambda i, j: load(both, [i, j]) - load(mean, [i])),
    )
    assert fused(found) == [3]
    assert planned(found).workspace_size == 4 * LENGTH * 4
    same_in_c(found)


def in_workspace(*steps: Loops) -> Program:
    """The steps on a tensor that the workspace holds, and what the last fills at some place."""
    before = each(steps[0].reads()[0], lambda i, j: load(X, [i * -1 + (ROWS - 1), j]))
    last = steps[-1].out
    after = each(Y, lambda i, j: load(last, [i * -1 + (ROWS - 1), j]))
    return program(before, *steps, after)


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_a_row_takes_the_place_of_the_same_row(again: bool) -> None:
    """Unless a kernel after the one that stores it still reads the operand."""
    data, mean, result = wide("data"), narrow("mean"), wide("result")
    steps = [
        total(mean, lambda i, j: load(data, [i, j])),
        each(result, lambda i, j: load(data, [i, j]) - load(mean, [i])),
    ]
    if again:
        steps.append(each(result, lambda i, j: load(data, [i, j]), accumulate="mul"))
    found = in_workspace(*steps)
    rows = [step for step in planned(found).steps if isinstance(step, Rows)]
    assert [overwritable(step) for step in rows] == [[] if again else [data]]
    assert peak(found).planned == data.bytes * (2 if again else 1)
    assert peak(found).bound == peak(found).planned
    same_in_c(found)


def test_rows_take_no_more_memory_than_kernels() -> None:
    """Both results live through a step of both kernels: apart, one takes over the operand."""
    data, one, other = wide("data"), wide("one"), wide("other")
    found = in_workspace(
        each(one, lambda i, j: load(data, [i, j]) + 1),
        each(other, lambda i, j: load(one, [i, j]) * 2 + load(X, [i, j])),
    )
    extra = each(wide("z", "output"), lambda i, j: load(one, [i * -1 + (ROWS - 1), j]))
    found = replace(found, steps=(*found.steps, extra), outputs=(*found.outputs, extra.out))
    assert fused(found) == [1, 1, 1, 1, 1]


def reporting(code: Status, value: Expr) -> Expr:
    return Checked(value.dtype, value, compare("less", value, 1e3), code)


def test_the_status_of_one_kernel() -> None:
    mean = centred().steps[0].writes()[0]
    last = each(
        Y, lambda i, j: reporting(Status.VALUE_OUT_OF_RANGE, load(X, [i, j]) - load(mean, [i]))
    )
    found = program(total(mean, lambda i, j: load(X, [i, j]) / LENGTH), last)
    assert fused(found) == [2]
    x = np.zeros((ROWS, LENGTH), np.float32)
    check_in_c(found, {X: x})
    x[4, 7] = 2e3
    check_in_c(found, {X: x})
    assert evaluated(found, {X: x})[0] == Status.VALUE_OUT_OF_RANGE


def reporting_twice(first: Status, last: Status) -> Program:
    """The mean of each row, and each element less it: with a status of its own each."""
    mean = narrow("mean")
    return program(
        total(mean, lambda i, j: reporting(first, load(X, [i, j])) / LENGTH),
        each(Y, lambda i, j: reporting(last, load(X, [i, j]) - load(mean, [i]))),
    )


def test_the_status_of_two_kernels_is_that_of_the_first() -> None:
    assert fused(reporting_twice(Status.SHAPE_MISMATCH, Status.DIVISION_BY_ZERO)) == [1, 1]


def test_the_same_status_of_two_kernels_may_come_from_either() -> None:
    found = reporting_twice(Status.DIVISION_BY_ZERO, Status.DIVISION_BY_ZERO)
    assert fused(found) == [2]
    x = np.zeros((ROWS, LENGTH), np.float32)
    x[4, 7] = 2e3
    check_in_c(found, {X: x})
    assert evaluated(found, {X: x})[0] == Status.DIVISION_BY_ZERO


IMAGES, CHANNELS = 2, 3


def scaled_by_channel(scale: Buffer) -> Program:
    """Of two images of three channels: each element less the mean of its row, times a scale."""
    shape = (IMAGES, CHANNELS, LENGTH)
    x, y = (buffer(name, kind, FLOAT, *shape) for name, kind in (("x", "input"), ("y", "output")))
    mean = buffer("mean", "workspace", FLOAT, IMAGES, CHANNELS)
    image, channel, place, inner = Axis(IMAGES), Axis(CHANNELS), Axis(LENGTH), Axis(LENGTH)
    row = [along(image), along(channel)]
    added = Fold(FLOAT, "sum", (inner,), load(x, [*row, along(inner)]))
    centre = load(x, [*row, along(place)]) - load(mean, row)
    factor = load(scale, [along(channel)])
    sums = Loops(mean, tuple(row), (image, channel), added)
    last = Loops(y, (*row, along(place)), (image, channel, place), centre * factor)
    given_scale = () if scale.data is not None else (scale,)
    return Program((x, *given_scale), (y,), (sums, last), target=TARGETS["aarch64"])


def test_a_constant_of_each_channel_is_laid_out_for_each_image() -> None:
    values = np.arange(1, CHANNELS + 1, dtype=np.float32)
    found = scaled_by_channel(Buffer("scale", (CHANNELS,), FLOAT, "constant", values))
    assert fused(found) == [2]
    (rows,) = fuse_rows(merge_axes(found)).steps
    (constant,) = (b for b in rows.reads() if b.data is not None)
    assert constant.data is not None
    assert constant.data.tolist() == [[1, 2, 3], [1, 2, 3]]
    same_in_c(found)


def test_a_scale_of_run_time_keeps_its_loops() -> None:
    assert fused(scaled_by_channel(buffer("scale", "input", FLOAT, CHANNELS))) == [1, 1]


def test_variables_of_integers_keep_their_range() -> None:
    x, y = buffer("x", "input", INT32, ROWS, LENGTH), buffer("y", "output", INT32, ROWS, LENGTH)
    most = buffer("most", "workspace", INT32, ROWS)
    found = program(
        total(most, lambda i, j: load(x, [i, j])),
        each(y, lambda i, j: load(x, [i, j]) * load(most, [i])),
    )
    assert fused(found) == [2]
    same_in_c(found)


def test_the_checker_finds_what_needs_another_row() -> None:
    between = wide("between")
    row, place = Axis(ROWS), Axis(LENGTH)
    i, j = along(row), along(place)

    def made(index: Index) -> Program:
        steps = (
            Loops(between, (i * LENGTH + j,), (row, place), load(X, [i * LENGTH + j]) + 1),
            Loops(Y, (i * LENGTH + j,), (row, place), load(between, [index]) + 1),
        )
        inside = {between: buffer("", "workspace", FLOAT, 1, LENGTH)}
        return Program((X,), (Y,), (Rows(row, 1, steps, inside),))

    check_program(made(i * LENGTH + j))
    for index in (j, i * -LENGTH + j + (ROWS - 1) * LENGTH, i * (LENGTH - 1) + j):
        with pytest.raises(InvalidProgramError, match="is used by another row"):
            check_program(made(index))


def test_the_checker_finds_a_row_that_destroys_the_next() -> None:
    data, mean, result = wide("data"), narrow("mean"), wide("result")
    found = planned(
        in_workspace(
            total(mean, lambda i, j: load(data, [i, j])),
            each(result, lambda i, j: load(data, [i, j]) - load(mean, [i])),
        )
    )
    assert found.offsets[data] == found.offsets[result]
    moved = {**found.offsets, result: 4 * LENGTH}
    size = max(offset + b.bytes for b, offset in moved.items())
    with pytest.raises(InvalidProgramError, match="destroys 'data'"):
        check_plan(replace(found, offsets=moved, workspace_size=size))


@settings(max_examples=20, deadline=None)
@given(row_cases(), st.sampled_from(["cortex-m4", "aarch64"]))
def test_the_same_bits(case: Case, target: str) -> None:
    check_in_c(replace(case.program, target=TARGETS[target]), case.inputs)


@settings(max_examples=80, deadline=None)
@given(row_cases(), st.sampled_from(["cortex-m4", "aarch64"]))
def test_no_more_memory(case: Case, target: str) -> None:
    """In the order of the program, that is: another one may suit the kernels better."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_memory, "order_steps", lambda program, _known: program)
        apart = planned(case.program)
        together = planned(replace(case.program, target=TARGETS[target]))
    status, expected = evaluated(apart, case.inputs)
    found = evaluated(together, case.inputs)
    assert found[0] == status
    for key, array in expected.items():
        assert_same_bits(found[1][key], array)
    assert check_plan(together).bound <= check_plan(apart).bound


def normalization(rows: int, length: int) -> ModelProto:
    """A residual, a normalisation and Softmax."""
    nodes = [
        helper.make_node("Add", ["x", "r"], ["sum"], name="residual"),
        helper.make_node("LayerNormalization", ["sum", "scale", "bias"], ["n"], name="norm"),
        helper.make_node("Softmax", ["n"], ["y"], name="softmax"),
    ]
    x = np.zeros((rows, length), np.float32)
    inputs = [declared("x", x), declared("r", x)]
    scale = np.linspace(0.5, 2, length, dtype=np.float32)
    given_arrays = [stored("scale", scale), stored("bias", scale - 1)]
    graph = helper.make_graph(nodes, "g", inputs, [declared("y", x)], given_arrays)
    return model(graph)


def test_a_network_of_rows() -> None:
    """One function, whose comment names all nodes, and whose parts say what they do."""
    compiled = compile_model(normalization(8, 64), name="m")
    (step,) = compiled.program.steps
    assert isinstance(step, Rows)
    for text in ("'residual'", "'norm'", "'softmax'", "/* mean */", "/* exponentials */"):
        assert text in compiled.body
    assert compiled.workspace_size == 4 * 64 * 4


def test_one_row_needs_nothing() -> None:
    compiled = compile_model(normalization(1, 64), name="m")
    assert not any(isinstance(step, Rows) for step in compiled.program.steps)


def test_the_plain_build_stays_plain() -> None:
    compiled = compile_model(normalization(8, 64), name="m", plain=True)
    assert all(isinstance(step, Loops) for step in compiled.program.steps)


def contracted(found: Program) -> bool:
    """Whether its products may be fused into sums."""
    return "fp-contract=fast" in emitted(replace(found, target=TARGETS["generic"])).body


def test_products_of_one_kernel_in_sums_of_the_next_stay_apart() -> None:
    """Of equal ones the difference would not be 0."""
    many = 2048 // LENGTH

    def made(scaled: bool) -> Program:
        x = buffer("x", "input", FLOAT, many, LENGTH)
        between = buffer("between", "workspace", FLOAT, many, LENGTH)
        y = buffer("y", "output", FLOAT, many, LENGTH)
        steps = []
        for out in (between, y):
            axes = (Axis(many), Axis(LENGTH))
            walks = tuple(map(along, axes))
            flipped = (walks[0], walks[1] * -1 + (LENGTH - 1))
            if out is between:
                value: Expr = apply("exp", load(x, walks))
                value = value * load(x, flipped) if scaled else value + load(x, flipped)
            else:
                value = load(between, walks) - load(between, flipped)
            steps.append(Loops(out, walks, axes, value))
        return Program((x,), (y,), tuple(steps), target=TARGETS["generic"])

    assert fused(made(True)) == fused(made(False)) == [2]
    assert contracted(made(False))
    assert not contracted(made(True))
