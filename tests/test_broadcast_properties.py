"""Shapes against numpy: broadcasting in every direction, sizes, ranks from 0 to 10."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType
from onnxc.pipeline import compile_model
from tests.models import Array, Batch, any_bits, model, refusal

EQUAL_TYPES = [
    *map(BY_NAME.__getitem__, ("bool", "string", "float", "double", "float16", "bfloat16")),
    *(BY_NAME[f"{sign}int{bits}"] for sign in ("", "u") for bits in (8, 16, 32, 64)),
]
FEW = [BY_NAME[name] for name in ("bool", "int8", "float", "string")]

Shapes = tuple[tuple[int, ...], tuple[int, ...]]


@st.composite
def broadcast_shapes(draw: st.DrawFn) -> Shapes:
    """Two shapes that broadcast: of each dimension either operand, both or neither has a 1."""
    rank = draw(st.integers(0, 10))
    elements, result = 2000, []
    for _ in range(rank):
        extent = draw(st.integers(0, 5) if rank < 6 else st.sampled_from([1, 1, 2, 3]))
        extent = extent if extent <= elements else 1
        elements //= max(extent, 1)
        result.append(extent)
    kinds = draw(st.lists(st.sampled_from(["both", "a", "b", "one"]), min_size=rank, max_size=rank))
    a = tuple(e if kind in ("both", "a") else 1 for e, kind in zip(result, kinds, strict=True))
    b = tuple(e if kind in ("both", "b") else 1 for e, kind in zip(result, kinds, strict=True))
    return without_leading_ones(draw, a), without_leading_ones(draw, b)


def without_leading_ones(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A lower rank means the same where what is left out are ones."""
    ones = next((n for n, extent in enumerate(shape) if extent != 1), len(shape))
    return shape[draw(st.integers(0, ones)) :]


def two_values(dtype: ElementType, *shape: int) -> Array:
    """Only two different values, so that about half of all pairs are equal."""
    values = any_bits(dtype, 20)
    picked = np.random.default_rng([1, *shape]).integers(2, size=shape)
    # One-dimensional, since numpy drops the trailing NULs of a single bytes object.
    return values[picked.reshape(-1) * 7].reshape(shape)


def add_equal(batch: Batch, dtype: ElementType, shapes: Shapes, constants: tuple[int, ...]) -> None:
    a, b = (two_values(dtype, *shape) for shape in shapes)
    with np.errstate(invalid="ignore"):
        wanted = np.asarray(a == b, np.bool_).reshape(np.broadcast_shapes(*shapes))
    batch.add("Equal", [a, b], wanted, constants=constants)


CONSTANTS = st.sampled_from([(), (), (0,), (1,), (0, 1)])


@given(st.sampled_from(EQUAL_TYPES), broadcast_shapes(), CONSTANTS)
@settings(max_examples=150)
def test_equal_broadcasts_as_numpy_does(
    dtype: ElementType, shapes: Shapes, constants: tuple[int, ...]
) -> None:
    batch = Batch()
    add_equal(batch, dtype, shapes, constants)
    batch.check_evaluated()


@pytest.mark.usefixtures("strict_c")
@given(
    st.lists(
        st.tuples(st.sampled_from(EQUAL_TYPES), broadcast_shapes(), CONSTANTS),
        min_size=30,
        max_size=30,
    )
)
@settings(max_examples=5, phases=(Phase.generate,))  # to shrink would take minutes
def test_the_c_broadcasts_as_numpy_does(
    cases: list[tuple[ElementType, Shapes, tuple[int, ...]]],
) -> None:
    batch = Batch()
    for dtype, shapes, constants in cases:
        add_equal(batch, dtype, shapes, constants)
    batch.check()


# Rows and columns around the widths at which the loops change: short rows are repeated into long
# ones, and copies and tails have their own code.
EDGES = [1, 2, 3, 8, 17, 33, 63, 64, 65]


@pytest.mark.usefixtures("strict_c")
@pytest.mark.parametrize("dtype", FEW, ids=str)
def test_rows_columns_and_scalars(dtype: ElementType) -> None:
    batch = Batch()
    for width in EDGES:
        for rows in (1, 5, 259):
            for other in ((width,), (rows, 1), (1, 1), ()):
                add_equal(batch, dtype, ((rows, width), other), ())
                add_equal(batch, dtype, (other, (rows, width)), ())
    batch.check_evaluated()
    few = Batch()
    for width in (1, 3, 17, 64):
        for other in ((width,), (259, 1), ()):
            add_equal(few, dtype, ((259, width), other), ())
            add_equal(few, dtype, (other, (259, width)), ())
            add_equal(few, dtype, ((2, 131, width), (2, 1, width)), ())
    few.check()


@pytest.mark.usefixtures("strict_c")
def test_both_operands_broadcast_over_every_pair_of_dimensions() -> None:
    """Of rank 4: each dimension is in A, in B, in both or in neither."""
    batch = Batch()
    extents = (2, 3, 4, 5)
    for case in range(0, 4**4, 5):
        kinds = [case // 4**n % 4 for n in range(4)]
        a = tuple(e if kind & 1 else 1 for e, kind in zip(extents, kinds, strict=True))
        b = tuple(e if kind & 2 else 1 for e, kind in zip(extents, kinds, strict=True))
        add_equal(batch, BY_NAME["int16"], (a, b), ())
    batch.check()


@pytest.mark.parametrize("plain", [False, True])
def test_strides_are_literal_and_0_where_an_operand_broadcasts(plain: bool) -> None:
    """The loops of [3,1,5] and [4,1]: numbers, no shapes and no run-time strides."""
    batch = Batch()
    add_equal(batch, BY_NAME["float"], ((3, 1, 5), (4, 1)), ())
    body = compile_model(batch.model(), plain=plain).body
    assert "i * 20 + j * 5 + k" in body
    assert "i * 5 + j * 0 + k" in body
    assert "i * 0 + j + k * 0" in body


@given(st.sampled_from(ELEMENT_TYPES), st.lists(st.integers(0, 6), max_size=10))
@settings(max_examples=60)
def test_size_is_numpys(dtype: ElementType, shape: list[int]) -> None:
    while np.prod(shape) > 3000:
        shape = shape[1:]
    x = any_bits(dtype, *shape)
    batch = Batch()
    batch.add("Size", [x], np.array(x.size))
    batch.check_evaluated()


@given(st.sampled_from(ELEMENT_TYPES), st.lists(st.integers(0, 4), max_size=5).map(tuple))
@settings(max_examples=60)
def test_identity_is_numpys(dtype: ElementType, shape: tuple[int, ...]) -> None:
    x = any_bits(dtype, *shape)
    batch = Batch()
    batch.add("Identity", [x], x)
    batch.add("Identity", [x], x, constants=[0])
    batch.check_evaluated()


@given(
    st.lists(st.integers(0, 4), max_size=4),
    st.lists(st.integers(0, 4), max_size=4),
)
@settings(max_examples=150)
def test_shapes_fit_exactly_where_numpy_says_so(a: list[int], b: list[int]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Equal", ["a", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.INT8, s) for n, s in (("a", a), ("b", b))],
        [helper.make_empty_tensor_value_info("y")],
    )
    try:
        shape = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        (line,) = refusal(model(graph))
        for name, extents in (("a", a), ("b", b)):
            assert f"'{name}' int8{''.join(f'[{extent}]' for extent in extents)}" in line
    else:
        assert compile_model(model(graph)).outputs[0].shape == shape
