"""Elements that get another place: every form of each operator, any type, operands at run time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from onnxc.dtypes import BY_NAME, ElementType, numpy_dtype
from onnxc.pipeline import compile_model
from tests.models import Array, any_bits
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import (
    allowed_types,
    assert_refused,
    assert_status,
    check_fused_and_plain,
    one_node,
)

pytestmark = pytest.mark.usefixtures("strict_c")

FLOAT = BY_NAME["float"]
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def numbers(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


# Any type: the bits stay


@pytest.mark.parametrize("dtype", allowed_types("Reshape"), ids=str)
def test_views_of_any_type(dtype: ElementType) -> None:
    batch, x = NodeBatch(), any_bits(dtype, 2, 1, 5)
    batch.add_node("Reshape", [x, ints(5, -1)], [x.reshape(5, 2)], constants=[1])
    batch.add_node("Flatten", [x], [x.reshape(2, 5)])
    batch.add_node("Squeeze", [x, ints(1)], [x.reshape(2, 5)], constants=[1])
    batch.add_node("Unsqueeze", [x, ints(0)], [x.reshape(1, 2, 1, 5)], constants=[1])
    batch.add_node("Transpose", [x], [x.transpose(2, 1, 0)])
    check_fused_and_plain(batch)


@pytest.mark.parametrize("dtype", allowed_types("Concat"), ids=str)
def test_copies_of_any_type(dtype: ElementType) -> None:
    batch, x = NodeBatch(), any_bits(dtype, 2, 3)
    other, column = x[::-1].copy(), x[:, :1].copy()
    condition = np.asarray([[True], [False]])
    batch.add_node("Concat", [x, column], [np.concatenate([x, column], 1)], axis=1)
    parts = [x[:, :2].copy(), x[:, 2:].copy()]
    batch.add_node("Split", [x], parts, axis=1, num_outputs=2)
    batch.add_node("Tile", [x, ints(2, 2)], [np.tile(x, (2, 2))], constants=[1])
    wide = np.broadcast_to(column, (3, 2, 4)).copy()
    batch.add_node("Expand", [column, ints(3, 1, 4)], [wide], constants=[1])
    batch.add_node("Where", [condition, x, other], [np.where(condition, x, other)])
    reversed_ = np.stack([x[0, [1, 0, 2]], x[1, [2, 1, 0]]])
    lengths = ints(2, 3)
    batch.add_node("ReverseSequence", [x, lengths], [reversed_], batch_axis=0, time_axis=1)
    check_fused_and_plain(batch)


# Reshape

RESHAPES: list[tuple[tuple[int, ...], list[int], int, tuple[int, ...]]] = [
    ((2, 3, 4), [6, 4], 0, (6, 4)),
    ((2, 3, 4), [-1], 0, (24,)),
    ((2, 3, 4), [0, 0, -1, 2], 0, (2, 3, 2, 2)),
    ((2, 3, 4), [0, -1], 0, (2, 12)),
    ((1, 1), [], 0, ()),
    ((), [1, 1], 0, (1, 1)),
    ((0, 3), [3, 0], 1, (3, 0)),
    ((2, 0), [0, 0], 0, (2, 0)),
    ((0, 4), [0, 7], 0, (0, 7)),
    ((0, 4), [-1, 2, 2], 0, (0, 2, 2)),
]


@pytest.mark.parametrize("known", [True, False])
def test_reshape(known: bool) -> None:
    """With a shape that is known when the model is compiled, and with one that is not."""
    batch = NodeBatch()
    for before, shape, allowzero, after in RESHAPES:
        x = numbers(*before)
        constants = [1] if known else []
        inputs = [x, ints(*shape)]
        batch.add_node(
            "Reshape", inputs, [x.reshape(after)], constants=constants, allowzero=allowzero
        )
    batch.check()


@pytest.mark.parametrize("shape", [(3, 8), (-1, -1), (4, 7), (0, 6), (-2, 6), (2**62, -4)])
def test_reshape_to_another_shape_than_declared(shape: tuple[int, ...]) -> None:
    batch = one_node("Reshape", [X, ints(*shape)], X.reshape(4, 6))
    assert_status("SHAPE_MISMATCH", batch)


def test_reshape_that_does_not_fit_is_refused() -> None:
    for shape in ([5, -1], [4, 7], [-1, -1], [0, 0, 0, 0], [-3, -8]):
        batch = one_node("Reshape", [X, ints(*shape)], X, constants=[1])
        with pytest.raises(Exception, match=r"Reshape-25"):
            compile_model(batch.model())
    assert_refused("as many dimensions", one_node("Reshape", [X, ints(5, 5)], numbers(5, 5)))


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2, 3])
def test_flatten(axis: int) -> None:
    rows = math.prod(X.shape[:axis]) if axis else 1
    one_node("Flatten", [X], X.reshape(rows, -1), axis=axis).check()


def test_flatten_of_little() -> None:
    batch = NodeBatch()
    batch.add_node("Flatten", [np.asarray(3, np.float32)], [numbers(1, 1) + 3], axis=0)
    batch.add_node("Flatten", [numbers(0, 5)], [numbers(0, 5)])
    batch.check()


# Squeeze and Unsqueeze


@pytest.mark.parametrize("known", [True, False])
def test_squeeze(known: bool) -> None:
    batch, constants = NodeBatch(), [1] if known else []
    cases: list[tuple[tuple[int, ...], list[int], tuple[int, ...]]] = [
        ((1, 3, 1, 1), [0], (3, 1, 1)),
        ((1, 3, 1, 1), [-1, 0], (3, 1)),
        ((1, 3, 1, 1), [2, 3, 0], (3,)),
        ((1, 1), [0, 1], ()),
        ((2, 3), [], (2, 3)),
    ]
    for before, axes, after in cases:
        x = numbers(*before)
        batch.add_node("Squeeze", [x, ints(*axes)], [x.reshape(after)], constants=constants)
    x = numbers(1, 0, 1, 4)
    batch.add_node("Squeeze", [x], [x.reshape(0, 4)])
    batch.check()


@pytest.mark.parametrize("axes", [(1,), (0, 2), (0, 5), (3, -1), (2**40,)])
def test_squeeze_of_other_axes_than_declared(axes: tuple[int, ...]) -> None:
    """(1, 3, 1, 1) as if it were (3, 1, 1)."""
    x = numbers(1, 3, 1, 1)
    assert_status("SHAPE_MISMATCH", one_node("Squeeze", [x, ints(*axes)], x.reshape(3, 1, 1)))


def test_squeeze_of_a_longer_axis_is_refused() -> None:
    x = numbers(1, 3)
    with pytest.raises(Exception, match=r"Squeeze-25"):
        compile_model(one_node("Squeeze", [x, ints(1)], x[0], constants=[1]).model())


def test_unsqueeze_at_run_time() -> None:
    batch, x = NodeBatch(), numbers(3, 1)
    for axes, shape in (
        ([0], (1, 3, 1)),
        ([-1], (3, 1, 1)),
        ([1, 0], (1, 1, 3, 1)),
        ([0, 3, -1], (1, 3, 1, 1, 1)),
        ([], (3, 1)),
    ):
        batch.add_node("Unsqueeze", [x, ints(*axes)], [x.reshape(shape)])
    batch.check()


@pytest.mark.parametrize("axes", [(0, 0), (1, 2), (0, 7), (-4, 0)])
def test_unsqueeze_at_other_axes_than_declared(axes: tuple[int, ...]) -> None:
    x = numbers(3, 4)
    batch = one_node("Unsqueeze", [x, ints(*axes)], x.reshape(1, 1, 3, 4))
    assert_status("SHAPE_MISMATCH", batch)


# Transpose and Expand


@given(data=st.data(), shape=st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple))
@settings(max_examples=50)
def test_transpose(data: st.DataObject, shape: tuple[int, ...]) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    x = any_bits(FLOAT, *shape)
    one_node("Transpose", [x], x.transpose(perm).copy(), perm=perm).check_evaluated()


def test_transpose_chains_into_one_kernel() -> None:
    """Views of views: a transposed slice of a transposition is read in place."""
    batch = NodeBatch()
    batch.add_node("Transpose", [X], [X.transpose(2, 0, 1).copy()], perm=[2, 0, 1])
    assert compile_model(batch.model()).workspace_size == 0
    batch.check()


EXPANSIONS: list[tuple[tuple[int, ...], list[int], tuple[int, ...]]] = [
    ((3, 1), [2, 1, 6], (2, 3, 6)),
    ((3, 1), [3, 4], (3, 4)),
    ((3, 4), [1], (3, 4)),
    ((3, 4), [], (3, 4)),
    ((), [2, 2], (2, 2)),
    ((1, 3), [0, 1], (0, 3)),
    ((1,), [1, 1], (1, 1)),
]


@pytest.mark.parametrize("known", [True, False])
def test_expand(known: bool) -> None:
    batch = NodeBatch()
    for before, shape, after in EXPANSIONS:
        x = numbers(*before)
        wide = np.broadcast_to(x, after).copy()
        batch.add_node("Expand", [x, ints(*shape)], [wide], constants=[1] if known else [])
    batch.check()


@pytest.mark.parametrize("shape", [(5,), (1,), (0,), (-1,)])
def test_expand_to_another_shape_than_declared(shape: tuple[int, ...]) -> None:
    x = numbers(3, 1)
    batch = one_node("Expand", [x, ints(*shape)], np.broadcast_to(x, (3, 4)).copy())
    assert_status("SHAPE_MISMATCH", batch)


# Concat and Split


def test_concat() -> None:
    batch = NodeBatch()
    for axis in range(-3, 3):
        other = np.take(X, [1, 0, 1], axis)
        wanted = np.concatenate([X, other, X], axis)
        batch.add_node("Concat", [X, other, X], [wanted], axis=axis)
    empty = numbers(2, 0, 4)
    batch.add_node("Concat", [empty, X, empty], [X], axis=1)
    batch.add_node("Concat", [empty, empty], [empty], axis=1)
    batch.add_node("Concat", [X], [X], axis=0)
    check_fused_and_plain(batch)


def test_pieces_are_written_where_they_belong() -> None:
    """The buffer of the result is the output itself."""
    batch = one_node("Concat", [X, X], np.concatenate([X, X], 2), axis=2)
    assert compile_model(batch.model()).workspace_size == 0


def test_split_forms() -> None:
    batch, x = NodeBatch(), numbers(2, 7)
    batch.add_node("Split", [x], list(np.split(x, [4], 1)), axis=1, num_outputs=2)
    batch.add_node("Split", [x], list(np.split(x, [4], 1)), axis=-1, num_outputs=2)
    sizes = ints(1, 0, 6)
    parts = list(np.split(x, [1, 1], 1))
    batch.add_node("Split", [x, sizes], parts, constants=[1], axis=1)
    batch.add_node("Split", [x, sizes], parts, axis=1)
    batch.add_node("Split", [x, sizes], [None, None, parts[2]], constants=[1], axis=1)
    batch.add_node("Split", [x, sizes], [parts[0], None, parts[2]], axis=1)
    # The chunks have 2 of 6 elements each, so that nothing is left for the last.
    row = numbers(6)
    quarters = [row[:2], row[2:4], row[4:], row[6:]]
    batch.add_node("Split", [row], [q.copy() for q in quarters], num_outputs=4)
    batch.check()


@pytest.mark.parametrize("sizes", [(4, 3), (2, 4), (3, 5), (-3, 10)])
def test_split_into_other_sizes_than_declared(sizes: tuple[int, ...]) -> None:
    x = numbers(7)
    assert_status("SHAPE_MISMATCH", one_node("Split", [x, ints(*sizes)], x[:3], x[3:]))


def test_split_wants_one_of_two() -> None:
    x = numbers(4)
    for inputs, attributes in (([x], {}), ([x, ints(2, 2)], {"num_outputs": 2})):
        batch = one_node("Split", inputs, x[:2], x[2:], constants=[1], **attributes)
        with pytest.raises(Exception, match=r"Split-18"):
            compile_model(batch.model())


def test_split_into_more_chunks_than_there_are_elements_for() -> None:
    """Only the last may be smaller."""
    x = numbers(3)
    batch = one_node("Split", [x], *(x[n : n + 1] for n in range(5)), num_outputs=5)
    with pytest.raises(Exception, match=r"\[1, 1, 1, 1, -1\] are no 5 parts of 3 elements"):
        compile_model(batch.model())


# Tile, ReverseSequence, Where


@pytest.mark.parametrize("known", [True, False])
def test_tile(known: bool) -> None:
    batch = NodeBatch()
    for shape, repeats in (
        ((2, 3), (2, 2)),
        ((2, 3), (1, 1)),
        ((1, 3), (4, 1)),
        ((2, 3), (0, 2)),
        ((), ()),
        ((2, 1, 3), (1, 5, 2)),
        ((0, 2), (3, 2)),
        ((0,), (2,)),
    ):
        x = numbers(*shape)
        for others in ([], [0]):
            constants = [1, *others] if known else others
            batch.add_node("Tile", [x, ints(*repeats)], [np.tile(x, repeats)], constants=constants)
    batch.check()


@pytest.mark.parametrize("repeats", [(3, 2), (2, 1), (-2, 2), (2 + 2**62, 2)])
def test_tile_to_another_shape_than_declared(repeats: tuple[int, ...]) -> None:
    x = numbers(4, 3)
    assert_status("SHAPE_MISMATCH", one_node("Tile", [x, ints(*repeats)], np.tile(x, (2, 2))))


def test_reverse_sequence() -> None:
    """The two examples of the specification, and a length of 0."""
    batch = NodeBatch()
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    columns = np.asarray([[3, 6, 9, 12], [2, 5, 8, 13], [1, 4, 10, 14], [0, 7, 11, 15]], np.float32)
    batch.add_node("ReverseSequence", [x.T.copy(), ints(4, 3, 2, 1)], [columns])
    rows = np.asarray([[0, 1, 2, 3], [5, 4, 6, 7], [10, 9, 8, 11], [15, 14, 13, 12]], np.float32)
    batch.add_node("ReverseSequence", [x, ints(1, 2, 3, 4)], [rows], batch_axis=0, time_axis=1)
    batch.add_node("ReverseSequence", [x, ints(0, 1, 0, 1)], [x])
    deep = np.stack([X[0], X[1][::-1]])
    batch.add_node("ReverseSequence", [X, ints(1, 3)], [deep], batch_axis=0, time_axis=1)
    batch.check()


@pytest.mark.parametrize("length", [-1, 5, -(2**63)])
def test_no_sequence_is_so_long(length: int) -> None:
    x = numbers(4, 2)
    assert_status("VALUE_OUT_OF_RANGE", one_node("ReverseSequence", [x, ints(4, length)], x))


def test_where_broadcasts_all_three() -> None:
    batch = NodeBatch()
    condition = np.asarray([[[True], [False]]])
    left, right = numbers(3, 1, 1), -numbers(4)
    batch.add_node("Where", [condition, left, right], [np.where(condition, left, right)])
    yes = np.asarray(True)
    batch.add_node("Where", [yes, left, right], [np.broadcast_to(left, (3, 1, 4)).copy()])
    batch.add_node(
        "Where", [yes, left, right], [np.broadcast_to(left, (3, 1, 4)).copy()], constants=[0]
    )
    batch.check()


# BitCast

SIZES: dict[int, list[ElementType]] = {}
for _type in allowed_types("BitCast", "T1"):
    SIZES.setdefault(_type.bits, []).append(_type)


def patterns(array: Array, dtype: ElementType) -> Array:
    """The bits of each element, as unsigned integers; of complex128 as they are."""
    if dtype.bits < 8:
        return array.astype(np.int32).astype(np.uint8) & ((1 << dtype.bits) - 1)
    return array.view(f"u{dtype.bits // 8}")


@pytest.mark.parametrize("bits", [n for n in SIZES if n <= 64])
def test_bit_cast(bits: int) -> None:
    """Between all types of one size, and of a scalar."""
    batch = NodeBatch()
    for source in SIZES[bits]:
        x = any_bits(source, 3, 4)
        raw = x.view(np.uint8) if source.name == "float4e2m1" else patterns(x, source)
        for target in SIZES[bits]:
            dtype = numpy_dtype(target)
            if target.kind == "bool":
                wanted = raw != 0
            elif target.name in ("int4", "int2"):
                signed = raw.astype(np.int32)
                wanted = np.where(signed >= 1 << bits - 1, signed - (1 << bits), signed)
                wanted = wanted.astype(dtype)
            elif bits < 8 and target.kind == "unsigned":
                wanted = raw.astype(dtype)
            else:
                wanted = raw.view(dtype)
            batch.add_node("BitCast", [x], [wanted], to=target.code)
    one = np.asarray(1.0, np.float32)
    batch.add_node("BitCast", [one], [np.asarray(0x3F800000, np.int32)], to=TensorProto.INT32)
    batch.check()


def test_bit_cast_of_16_bytes() -> None:
    x = any_bits(BY_NAME["complex128"], 3)
    one_node("BitCast", [x], x, to=TensorProto.COMPLEX128).check()


def test_bit_cast_keeps_the_size() -> None:
    x = np.zeros(2, ml_dtypes.bfloat16)
    with pytest.raises(Exception, match=r"BitCast-26"):
        compile_model(
            one_node("BitCast", [x], np.zeros(2, np.float32), to=TensorProto.FLOAT).model()
        )
