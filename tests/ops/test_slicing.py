"""Slice, Pad and CenterCropPad: every bound, any type, and operands that come at run time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.dtypes import BY_NAME, ElementType
from onnxc.pipeline import compile_model
from tests.models import Array, any_bits
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import allowed_types, assert_status, check_fused_and_plain, one_node

pytestmark = pytest.mark.usefixtures("strict_c")

FLOAT = BY_NAME["float"]
LEAST, GREATEST = -(2**63), 2**63 - 1
BOUNDS = [LEAST, LEAST + 1, -100, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 100, GREATEST]


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def numbers(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


# Slice

SLICES: list[tuple[tuple[int, ...], list[int], list[int], list[int] | None, list[int] | None]] = [
    ((4, 5), [1, 0], [3, 4], None, None),
    ((4, 5), [1], [1000], None, None),
    ((4, 5), [0, 1], [-1, 1000], [1, 0], None),
    ((4, 5), [-1], [LEAST], [1], [-1]),
    ((4, 5), [GREATEST], [LEAST], [0], [-2]),
    ((4, 5), [1], [-1], [-1], [2]),
    # -1 is the last element, so that nothing lies between.
    ((4, 5), [3], [-1], [0], [-1]),
    ((4, 5), [2], [1], [0], None),
    ((4, 5), [0], [4], [0], [GREATEST]),
    ((4, 5), [3], [LEAST], [0], [LEAST]),
    ((0, 5), [0, 1], [1, 3], None, None),
    ((3,), [-5], [2], None, None),
    # Where Python takes nothing.
    ((3,), [-5], [LEAST], [0], [-1]),
]


def taken(extent: int, start: int, end: int, step: int) -> list[int]:
    """Which elements, by the text of the specification."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    if step > 0:
        start, end = min(max(start, 0), extent), min(max(end, 0), extent)
    else:
        start, end = min(max(start, 0), extent - 1), min(max(end, -1), extent - 1)
    return [*range(start, end, step)]


def sliced(
    x: Array, starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None
) -> Array:
    for n, axis in enumerate(axes or range(len(starts))):
        places = taken(x.shape[axis], starts[n], ends[n], steps[n] if steps else 1)
        x = np.take(x, places, axis)
    return x


@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("constants", [[1, 2, 3, 4], [], [3], [3, 4], [1, 2, 4], [1]], ids=str)
def test_slice(constants: list[int], kind: Any) -> None:
    """With each mix of operands that are known when the model is compiled and that are not."""
    batch = NodeBatch()
    for shape, starts, ends, axes, steps in SLICES:
        x = numbers(*shape)
        wanted = sliced(x, starts, ends, axes, steps)
        operands = (starts, ends, axes, steps)
        limits = np.iinfo(kind)
        arrays = [
            None if o is None else np.clip(o, limits.min, limits.max).astype(kind) for o in operands
        ]
        known = [n for n in constants if arrays[n - 1] is not None]
        batch.add_node("Slice", [x, *arrays], [wanted], constants=known)
    batch.check()


@given(
    extent=st.integers(1, 5),
    start=st.sampled_from(BOUNDS),
    end=st.sampled_from(BOUNDS),
    step=st.sampled_from([-GREATEST, -3, -2, -1, 1, 2, 3, GREATEST]),
    known=st.booleans(),
)
@settings(max_examples=200)
def test_slice_between_any_bounds(
    extent: int, start: int, end: int, step: int, known: bool
) -> None:
    x = numbers(extent, 2)
    wanted = x[taken(extent, start, end, step)]
    inputs = [x, ints(start), ints(end), ints(0), ints(step)]
    batch = one_node("Slice", inputs, wanted, constants=[1, 2, 3, 4] if known else [])
    batch.check_evaluated()


@pytest.mark.parametrize("dtype", allowed_types("Slice"), ids=str)
def test_slice_of_any_type(dtype: ElementType) -> None:
    batch, x = NodeBatch(), any_bits(dtype, 4, 5)
    inputs = [x, ints(3, 1), ints(LEAST, 4), None, ints(-2, 1)]
    batch.add_node("Slice", inputs, [x[::-2, 1:4].copy()], constants=[1, 2, 4])
    batch.add_node("Slice", inputs, [x[::-2, 1:4].copy()])
    check_fused_and_plain(batch)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 2, 1), (0, 4, 1), (0, 3, 0), (2, -1, -1), (3, 0, 1), (0, 9, 3), (LEAST, LEAST, -1)],
)
def test_slice_of_another_length_than_declared(start: int, end: int, step: int) -> None:
    inputs = [numbers(5), ints(start), ints(end), ints(0), ints(step)]
    assert_status("SHAPE_MISMATCH", one_node("Slice", inputs, numbers(3)))
    if step == 1:
        assert_status("SHAPE_MISMATCH", one_node("Slice", inputs[:3], numbers(3)))


@pytest.mark.parametrize("axes", [(0, 0), (0, -2), (0, 2), (-3, 1)])
def test_slice_along_axes_that_are_none(axes: tuple[int, int]) -> None:
    inputs = [numbers(3, 3), ints(0, 0), ints(3, 3), ints(*axes)]
    assert_status("INDEX_OUT_OF_RANGE", one_node("Slice", inputs, numbers(3, 3)))


@pytest.mark.parametrize("axes", [(0, 0), (0, -2)])
def test_slice_along_one_axis_twice_is_refused(axes: tuple[int, int]) -> None:
    inputs = [numbers(3, 3), ints(0, 0), ints(2, 2), ints(*axes)]
    batch = one_node("Slice", inputs, numbers(2, 3), constants=[1, 2, 3])
    with pytest.raises(Exception, match=r"Slice-13"):
        compile_model(batch.model())


def test_operands_of_other_lengths_are_refused() -> None:
    one, two, x = ints(1), ints(0, 0), numbers(3, 3)
    for inputs in ([x, two, one], [x, one, two], [x, one, one, one, two], [x, one, one, two]):
        with pytest.raises(Exception, match=r"Slice-13"):
            compile_model(one_node("Slice", inputs, numbers(2, 3)).model())
    for pads, axes in ((ints(1, 1, 1), one), (ints(1, 1), two)):
        with pytest.raises(Exception, match=r"Pad-25"):
            compile_model(one_node("Pad", [x, pads, None, axes], numbers(5, 3)).model())


def test_a_slice_is_a_view() -> None:
    """It is copied into the output by one kernel and has no buffer."""
    batch = one_node(
        "Slice", [numbers(4, 5), ints(1), ints(3)], numbers(4, 5)[1:3], constants=[1, 2]
    )
    assert compile_model(batch.model()).workspace_size == 0


# Pad

PADS: list[tuple[str, tuple[int, ...], list[int]]] = [
    ("constant", (2, 3), [0, 2, 1, 0]),
    ("constant", (2, 3), [-1, 1, 3, -2]),
    ("constant", (2, 3), [0, 0, 0, 0]),
    ("constant", (0, 3), [2, 0, 0, 0]),
    ("edge", (2, 3), [1, 2, 0, 4]),
    ("edge", (4, 5), [-2, 1, 3, -1]),
    ("reflect", (3, 4), [2, 3, 1, 2]),
    ("reflect", (3, 2), [9, 4, 5, 7]),
    ("reflect", (1, 3), [2, 0, 2, 0]),
    ("reflect", (4, 4), [-1, 4, 2, -2]),
    ("wrap", (3, 4), [1, 2, 2, 1]),
    ("wrap", (2, 3), [5, 7, 4, 8]),
    ("wrap", (4, 3), [-1, 0, 4, -1]),
    ("wrap", (0, 3), [0, 1, 0, 1]),
]


def padded(x: Array, pads: list[int], mode: str, value: Any = 0) -> Array:
    """What is negative crops first; the rest is numpy's."""
    before, after = pads[: x.ndim], pads[x.ndim :]
    crop = tuple(
        slice(max(0, -b), n - max(0, -a)) for b, a, n in zip(before, after, x.shape, strict=True)
    )
    width = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    how = {"constant_values": value} if mode == "constant" else {}
    pad: Any = np.pad
    return np.asarray(pad(x[crop], width, mode, **how))


@pytest.mark.parametrize("constants", [[1, 3], [], [3], [1]], ids=str)
def test_pad(constants: list[int]) -> None:
    batch = NodeBatch()
    for mode, shape, pads in PADS:
        x = numbers(*shape)
        wanted = padded(x, pads, mode)
        known = [n for n in constants if n == 1]
        batch.add_node("Pad", [x, ints(*pads)], [wanted], constants=known, mode=mode)
        swapped = ints(pads[1], pads[0], pads[3], pads[2])
        axes = np.asarray([-1, 0], np.int32)
        inputs = [x, swapped, None, axes]
        batch.add_node("Pad", inputs, [wanted], constants=constants, mode=mode)
    batch.check()


def test_pad_of_some_axes_with_a_value() -> None:
    batch, x, value = NodeBatch(), numbers(2, 3, 4), np.asarray(7, np.float32)
    wanted = padded(x, [0, 1, 0, 0, 2, 0], "constant", 7)
    inputs = [x, ints(1, 2), value, ints(1)]
    batch.add_node("Pad", inputs, [wanted], constants=[1, 3])
    batch.add_node("Pad", inputs, [wanted], constants=[1, 2, 3])
    batch.add_node("Pad", inputs, [wanted], constants=[3])
    batch.add_node("Pad", inputs, [wanted])
    scalar = np.asarray(3, np.float32)
    batch.add_node("Pad", [scalar, ints()], [scalar], constants=[1])
    batch.check()


@given(
    extent=st.integers(1, 5),
    before=st.integers(-4, 12),
    after=st.integers(-4, 12),
    mode=st.sampled_from(["constant", "edge", "reflect", "wrap"]),
    known=st.booleans(),
)
@settings(max_examples=150)
def test_pad_as_numpy_does(extent: int, before: int, after: int, mode: str, known: bool) -> None:
    if extent + min(before, 0) + min(after, 0) < 1:
        return
    x = numbers(extent)
    batch = one_node(
        "Pad",
        [x, ints(before, after)],
        padded(x, [before, after], mode),
        constants=[1] if known else [],
        mode=mode,
    )
    batch.check_evaluated()


@pytest.mark.parametrize("dtype", allowed_types("Pad"), ids=str)
def test_pad_of_any_type(dtype: ElementType) -> None:
    """Zero, false and the empty string pad by default."""
    batch, x = NodeBatch(), any_bits(dtype, 3)
    zero = np.asarray([b""], object) if dtype.kind == "string" else np.zeros(1, x.dtype)
    value = any_bits(dtype, 4)[3:]
    batch.add_node("Pad", [x, ints(1, 2)], [np.concatenate([zero, x, zero, zero])], constants=[1])
    wanted = np.concatenate([value, x, value])
    batch.add_node("Pad", [x, ints(1, 1), value.reshape(())], [wanted], constants=[1])
    wanted = np.concatenate([x[:1], x, x[2:]])
    batch.add_node("Pad", [x, ints(1, 1)], [wanted], constants=[1], mode="edge")
    check_fused_and_plain(batch)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(1, 2), (2, 2), (LEAST, GREATEST), (-9, 10), (GREATEST, 3)])
def test_pad_to_another_shape_than_declared(mode: str, pads: tuple[int, int]) -> None:
    batch = one_node("Pad", [numbers(3), ints(*pads)], numbers(5), mode=mode)
    assert_status("SHAPE_MISMATCH", batch)
    batch = one_node("Pad", [numbers(0), ints(*pads)], numbers(5), mode=mode)
    assert_status("SHAPE_MISMATCH", batch)


def test_there_is_nothing_to_repeat() -> None:
    """All is cropped, so that no element is left to pad with."""
    batch = one_node("Pad", [numbers(2), ints(-2, 3)], numbers(3), constants=[1], mode="edge")
    with pytest.raises(Exception, match=r"Pad-25"):
        compile_model(batch.model())
    batch = one_node("Pad", [numbers(2), ints(-2, 3)], numbers(3), mode="edge")
    assert_status("SHAPE_MISMATCH", batch)


# CenterCropPad


@pytest.mark.parametrize("known", [True, False])
def test_center_crop_pad(known: bool) -> None:
    """Of an odd number the greater part is at the end."""
    batch, x, constants = NodeBatch(), numbers(5, 4), [1] if known else []
    wanted = np.zeros((2, 7), np.float32)
    wanted[:, 1:5] = x[1:3]
    batch.add_node("CenterCropPad", [x, ints(2, 7)], [wanted], constants=constants)
    shape = np.asarray([7, 2], np.int32)
    inputs = [x, shape]
    batch.add_node("CenterCropPad", inputs, [wanted], constants=constants, axes=[-1, 0])
    batch.add_node("CenterCropPad", [x, ints(5)], [x[:, :4]], constants=constants, axes=[0])
    batch.add_node("CenterCropPad", [x, ints(1)], [x[:, 1:2].copy()], constants=constants, axes=[1])
    words = np.asarray([b"a", b"b", b"c"], object)
    wanted = np.asarray([b"", b"a", b"b", b"c", b"", b""][:5], object)
    batch.add_node("CenterCropPad", [words, ints(5)], [wanted], constants=constants)
    check_fused_and_plain(batch)


def test_center_crop_pad_to_another_shape_than_declared() -> None:
    batch = one_node("CenterCropPad", [numbers(5), ints(4)], numbers(3))
    assert_status("SHAPE_MISMATCH", batch)
