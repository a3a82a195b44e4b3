"""MatMul, Gemm and Einsum against numpy, on whole numbers: every sum is exact."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.dtypes import BY_NAME
from onnxc.errors import RefusalError
from onnxc.ops.contraction import einsum, gemm, matmul
from onnxc.pipeline import compile_model
from onnxc.tensor import constant
from tests.models import Array, Batch, refusal, run
from tests.ops.node_batch import NodeBatch

TYPES = ["float32", "float64", "float16", "uint32", "uint64", "int32", "int64"]
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (3, 4)),
    ((1, 1), (1, 1)),
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((5,), (2, 5, 3)),
    ((2, 4, 5), (5,)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 2)),
    ((3, 4), (2, 1, 4, 2)),
    ((1, 3, 4), (2, 4, 1)),
    ((2, 40), (40, 3)),
    # Sums of nothing, and nothing at all.
    ((2, 0), (0, 3)),
    ((0, 4), (4, 3)),
    ((0, 2, 3), (3, 2)),
]


def whole(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Whole numbers of 1 to 4, and their negatives where the type has a sign; no zeros, of which
    numpy's products have other signs."""
    generator = np.random.default_rng([seed, *shape])
    signs = [1] if np.dtype(dtype).kind == "u" else [-1, 1]
    values = generator.integers(1, 5, shape) * generator.choice(signs, shape)
    return np.asarray(values.astype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_matmul_is_numpys(dtype: str) -> None:
    batch = Batch()
    for left, right in SHAPES:
        a, b = whole(*left, dtype=dtype), whole(*right, dtype=dtype, seed=1)
        batch.add("MatMul", [a, b], np.asarray(np.matmul(a, b), dtype), constants=[1])
        batch.add("MatMul", [a, b], np.asarray(np.matmul(a, b), dtype))
    batch.check()


def test_matmul_of_bfloat16() -> None:
    a = whole(3, 5).astype(ml_dtypes.bfloat16)
    b = whole(5, 2).astype(ml_dtypes.bfloat16)
    batch = Batch()
    exact = a.astype(np.float32) @ b.astype(np.float32)
    batch.add("MatMul", [a, b], exact.astype(ml_dtypes.bfloat16))
    batch.check()


def test_half_is_summed_in_float() -> None:
    """2048 + 1 + 1 in float16 steps would stay 2048."""
    a = np.array([[2048, 1, 1]], np.float16)
    b = np.ones((3, 1), np.float16)
    batch = Batch()
    batch.add("MatMul", [a, b], np.array([[2050]], np.float16))
    batch.add("Einsum", [a, b], np.array([[2050]], np.float16), equation="ij,jk")
    batch.add("Gemm", [a, b], np.array([[2050]], np.float16), alpha=1.0)
    batch.check()


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers_wrap(dtype: str) -> None:
    top = np.iinfo(dtype).max
    a = np.array([[top, 2], [top, top]], dtype)
    batch = Batch()
    with np.errstate(over="ignore"):
        batch.add("MatMul", [a, a], a @ a)
        batch.add("Gemm", [a, a, a], (a @ a) * 3 + a * 2, alpha=3.0, beta=2.0)
        wanted = np.zeros_like(a) - (a @ a) * 2 + a * np.asarray(2**40).astype(dtype)
        batch.add("Gemm", [a, a, a], wanted, alpha=-2.0, beta=2.0**40)
    batch.check()


def test_infinity_and_nan() -> None:
    a = np.array([[np.inf, 1], [np.nan, 1], [0, 1]], np.float32)
    b = np.array([[1, 0], [1, 1]], np.float32)
    with np.errstate(invalid="ignore"):
        wanted = np.array([[np.inf, np.nan], [np.nan, np.nan], [1, 1]], np.float32)
    batch = NodeBatch()
    batch.add_node("MatMul", [a, b], [wanted])
    batch.check_within(0)


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gemm(transposed: tuple[int, int]) -> None:
    left, right = transposed
    batch = Batch()
    for dtype in TYPES:
        a, b = whole(2, 3, dtype=dtype), whole(3, 4, dtype=dtype)
        attributes: dict[str, Any] = {"transA": left, "transB": right}
        inputs = [a.T.copy() if left else a, b.T.copy() if right else b]
        batch.add("Gemm", inputs, np.asarray(a @ b, dtype), **attributes)
        for shape in [(2, 4), (1, 4), (2, 1), (4,), (1,), ()]:
            c = whole(*shape, dtype=dtype)
            wanted = np.asarray(2 * (a @ b) + 3 * c, dtype)
            batch.add("Gemm", [*inputs, c], wanted, alpha=2.0, beta=3.0, **attributes)
    batch.check()


def test_gemm_of_fractions() -> None:
    a, b, c = whole(2, 3), whole(3, 2), whole(2, 2)
    batch = Batch()
    batch.add("Gemm", [a, b, c], 0.5 * (a @ b) - np.float32(0.25) * c, alpha=0.5, beta=-0.25)
    batch.add("Gemm", [a, b, c], a @ b, beta=0.0)
    batch.add("Gemm", [a[:, :0], b[:0], c], c)
    batch.check()


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    (" i j , j k -> k i ", [(2, 3), (3, 4)]),
    ("ij->ji", [(2, 3)]),
    ("ba", [(2, 3)]),
    ("bA", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij->i", [(2, 3)]),
    ("->", [()]),
    (",->", [(), ()]),
    (",ij->ji", [(), (2, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iji->j", [(3, 2, 3)]),
    ("iii->i", [(2, 2, 2)]),
    ("...ii->...i", [(2, 4, 3, 3)]),
    ("i,i->i", [(4,), (4,)]),
    ("i,i", [(4,), (4,)]),
    ("i,j->ij", [(2,), (3,)]),
    ("ij,kl->", [(2, 3), (4, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 2, 3), (1, 5, 3, 4)]),
    ("...ij,...jk", [(2, 2, 3), (2, 3, 4)]),
    ("i...,...i->...", [(3, 2), (2, 3)]),
    ("a...b->b...a", [(2, 5, 6, 3)]),
    ("...,...", [(2, 3), (1, 3)]),
    ("...->...", [()]),
    ("bn,anm,bm->ba", [(2, 3), (4, 3, 5), (2, 5)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ("ij,jk,kl,lm->mi", [(2, 3), (3, 4), (4, 2), (2, 3)]),
    ("a,b,c->cab", [(2,), (3,), (4,)]),
    ("ij,ij,ij->", [(2, 3), (2, 3), (2, 3)]),
    ("...i,...i,i->...", [(2, 3), (2, 3), (3,)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("ij,jk->ik", [(0, 3), (3, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 0), (0, 2)]),
]


def test_einsum_is_numpys() -> None:
    batch = Batch()
    for equation, shapes in EQUATIONS:
        arrays = [whole(*shape, seed=n) for n, shape in enumerate(shapes)]
        wanted = np.asarray(np.einsum(equation, *arrays), np.float32)
        batch.add("Einsum", arrays, wanted, equation=equation)
    batch.check()


@pytest.mark.parametrize("dtype", [*TYPES, "uint8", "uint16", "int8", "int16"])
def test_einsum_of_every_type(dtype: str) -> None:
    """Integers wrap in their own type."""
    a, b, c = (whole(4, 4, dtype=dtype, seed=n) for n in range(3))
    product = a.astype(object) @ b.astype(object) @ c.astype(object)
    if np.dtype(dtype).kind in "iu":
        product = product & (2 ** np.iinfo(dtype).bits - 1)
        wanted = product.astype(np.uint64).astype(f"u{dtype.lstrip('u')}").astype(dtype)
    else:
        wanted = product.astype(dtype)
    batch = Batch()
    batch.add("Einsum", [a, b, c], wanted, equation="ij,jk,kl->il")
    batch.check()


def test_a_dimension_of_one_broadcasts_in_einsum() -> None:
    a, b = whole(2, 1), whole(3, 4)
    batch = Batch()
    batch.add("Einsum", [a, b], (a * b.sum(0)).astype(np.float32), equation="ij,jk->ik")
    batch.check()


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Of one to three operands over four letters, each of one extent."""
    extents = dict(zip("abcd", draw(st.tuples(*[st.integers(1, 3)] * 4)), strict=True))
    terms = draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=3))
    used = sorted({letter for term in terms for letter in term})
    output = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    equation = ",".join(terms) + "->" + "".join(output)
    return equation, [tuple(extents[letter] for letter in term) for term in terms]


@settings(max_examples=60)
@given(equations())
def test_any_equation(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    arrays = [whole(*shape, seed=n) for n, shape in enumerate(shapes)]
    batch = Batch()
    wanted = np.asarray(np.einsum(equation, *arrays), np.float32)
    batch.add("Einsum", arrays, wanted, equation=equation)
    batch.check_evaluated()


def test_a_costly_operand_is_stored() -> None:
    """What each row of the product would repeat is computed once."""
    a, b = whole(4, 5), np.zeros((5, 3), np.float32)
    batch = NodeBatch()
    batch.add("Exp", [b], np.exp(b))
    batch.graph.output.pop()
    batch.add_node("MatMul", [a, None], [a])
    batch.graph.node[1].input[1] = "y0"
    batch.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    source = compile_model(batch.model()).body
    assert source.count("onnxc_exp_float(") == 1
    assert source.index("onnxc_exp_float(") < source.index("float sum0")
    found = run(batch.model(), batch.given)["y1_0"]
    np.testing.assert_allclose(found, a @ np.exp(b), rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "fact"),
    [
        ("ij,jk", "has 2 terms for 1 operands"),
        ("i->i", "the term 'i' of 'i->i' has 1 letters for 2 dimensions"),
        ("ijk->i", "has 3 letters for 2 dimensions"),
        ("ij->ik", "has one that no operand has"),
        ("ij->ii", "repeats a letter"),
        ("i1->i", "is no equation of letters"),
        ("...ij...->i", "is no equation of letters"),
    ],
)
def test_equations_that_are_refused(equation: str, fact: str) -> None:
    """Most of them by ONNX's inference already."""
    with pytest.raises(RefusalError, match=fact):
        einsum(constant(whole(2, 3), BY_NAME["float"]), equation=equation)


def test_operands_that_disagree_are_refused() -> None:
    square, wide = (constant(whole(2, n), BY_NAME["float"]) for n in (2, 3))
    with pytest.raises(RefusalError, match="a dimension is 2 in one operand, 3 in another"):
        einsum(square, wide, equation="ij,ij->i")
    with pytest.raises(RefusalError, match="the inner dimensions are 2 and 3"):
        matmul(square, wide.transpose((1, 0)))
    with pytest.raises(RefusalError, match=r"C of shape \[6\] does not broadcast to \[2, 2\]"):
        gemm(square, square, wide.reshape((6,)), alpha=1, beta=1, transA=0, transB=0)


def test_an_integer_gemm_takes_whole_factors() -> None:
    a = whole(2, 2, dtype="int32")
    batch = Batch()
    batch.add("Gemm", [a, a], a, alpha=0.5)
    assert "alpha is 0.5, and the elements are integers" in refusal(batch.model())[0]
