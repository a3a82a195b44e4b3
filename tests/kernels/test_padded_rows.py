"""Copies of rows with padding beside them, for every register file."""

from __future__ import annotations

import numpy as np
import pytest

from onnxc.dtypes import BY_NAME, numpy_dtype
from onnxc.expression import Axis, Buffer, Guard, Load, along, literal, load
from onnxc.kernel import Loops, Micro, Program
from onnxc.passes.choose import chosen
from onnxc.target import TARGETS
from onnxc.tuned.padded_rows import PADDED, PaddedRows
from tests.kernels.programs import built
from tests.kernels.variants import BUILDS, Build, require

GENERIC = TARGETS["generic"]


def copy(
    shape: tuple[int, int, int], before: int, after: int, name: str = "float", fill: int = 0
) -> Loops:
    """Of [channels][rows][columns] into [rows][channels][columns and what is beside them]."""
    dtype = BY_NAME[name]
    channels, rows, columns = shape
    x = Buffer("x", shape, dtype, "input")
    y = Buffer("y", (rows, channels, before + columns + after), dtype, "output")
    axes = tuple(map(Axis, y.shape))
    row, channel, place = map(along, axes)
    value = load(x, (channel, row, place + -before))
    padded = Guard(dtype, ((place + -before, columns),), value, literal(dtype, fill))
    return Loops(y, (row, channel, place), axes, padded, (), PADDED)


@pytest.mark.parametrize("build", [*BUILDS, Build(1, "tcc", (), "sse2")], ids=str)
@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 2), (3, 1)])
@pytest.mark.parametrize(("name", "fill"), [("float", 0), ("uint8", 200), ("int8", -3)])
def test_rows_and_what_is_beside_them(
    name: str, fill: int, before: int, after: int, build: Build
) -> None:
    require(build)
    loops = copy((3, 20, 17), before, after, name, fill)
    (step,) = chosen(loops, GENERIC)
    assert isinstance(step, Micro)
    assert step.name == "padded_rows"
    (x,) = step.inputs
    made = Program((x,), (loops.out,), (step,), target=GENERIC)
    given = np.random.default_rng(0).integers(0, 100, x.shape).astype(numpy_dtype(x.dtype))
    _, results = built(made, build.compiler, build.flags).run({x: given})
    wanted = np.pad(
        given.transpose(1, 0, 2), ((0, 0), (0, 0), (before, after)), constant_values=fill
    )
    np.testing.assert_array_equal(results[loops.out], wanted)


def test_a_row_of_one_channel_has_one_loop_around() -> None:
    (step,) = chosen(copy((1, 64, 17), 1, 1), GENERIC)
    assert isinstance(step, Micro)
    assert step.parameters == PaddedRows(((64, 17, 19),), 17, 1, 1, 0, "float")


def kind_of(loops: Loops, target: str = "generic") -> str:
    (step,) = chosen(loops, TARGETS[target])
    return step.name if isinstance(step, Micro) else "loops"


def test_what_stays_plain_loops() -> None:
    """Padding that memset cannot store; no vectors; copies of the model's own; small ones."""
    assert kind_of(copy((3, 20, 17), 1, 1)) == "padded_rows"
    assert kind_of(copy((3, 20, 17), 1, 1, fill=1)) == "loops"
    assert kind_of(copy((3, 20, 17), 1, 1), "cortex-m4") == "loops"
    assert kind_of(copy((3, 4, 17), 1, 1)) == "loops"
    whole = copy((3, 20, 17), 1, 1)
    assert isinstance(whole.value, Guard)
    assert isinstance(whole.value.value, Load)
    for other in (Loops(whole.out, whole.where, whole.axes, whole.value), bounded_twice(whole)):
        assert kind_of(other) == "loops"


def bounded_twice(loops: Loops) -> Loops:
    """With padding above the rows, too."""
    value = loops.value
    assert isinstance(value, Guard)
    bounds = (*value.bounds, (along(loops.axes[0]), 3))
    guarded = Guard(value.dtype, bounds, value.value, value.otherwise)
    return Loops(loops.out, loops.where, loops.axes, guarded, (), PADDED)
