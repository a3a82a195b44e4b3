"""RotaryEmbedding against its specification in double."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxc.pipeline import evaluate_model
from tests.models import Array, refusal
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import assert_status, one_node

NEAR = 1e-6


def some(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    return generator.standard_normal(shape).astype(dtype)


def rotated(
    x: Array,
    cos: Array,
    sin: Array,
    positions: Array | None = None,
    *,
    interleaved: int = 0,
    rotary_embedding_dim: int = 0,
    num_heads: int = 0,
) -> Array:
    """Pair after pair as complex numbers times that of the angle."""
    wide = x.astype(np.float64)
    if x.ndim == 3:
        wide = wide.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)
    length = rotary_embedding_dim or wide.shape[3]
    out = wide.copy()
    for b, h, s, p in np.ndindex(*wide.shape[:3], length // 2):
        place = (b, s) if positions is None else (positions[b, s],)
        angle = complex(cos[(*place, p)], sin[(*place, p)])
        one, other = (2 * p, 2 * p + 1) if interleaved else (p, p + length // 2)
        turned = complex(wide[b, h, s, one], wide[b, h, s, other]) * angle
        out[b, h, s, one], out[b, h, s, other] = turned.real, turned.imag
    return out.swapaxes(1, 2).reshape(x.shape) if x.ndim == 3 else out


def add(batch: NodeBatch, inputs: Sequence[Array | None], **attributes: Any) -> None:
    x, cos, sin, *positions = inputs
    assert x is not None
    assert cos is not None
    assert sin is not None
    wanted = rotated(x, cos, sin, *positions, **attributes).astype(x.dtype)
    batch.add_node("RotaryEmbedding", inputs, [wanted], **attributes)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dimensions", [0, 4, 6])
def test_rotations(interleaved: int, dimensions: int) -> None:
    """Of heads of 6: all or some; packed or not; with positions or a cache for each token."""
    batch = NodeBatch()
    half = (dimensions or 6) // 2
    attributes: dict[str, Any] = {"interleaved": interleaved, "rotary_embedding_dim": dimensions}
    positions = np.array([[0, 3, 7, -1, 3], [4, 4, 1, 0, -8]], np.int64)
    for inputs in (
        [some(8, half, seed=1), some(8, half, seed=2), positions],
        [some(2, 5, half, seed=1), some(2, 5, half, seed=2)],
    ):
        add(batch, [some(2, 3, 5, 6), *inputs], **attributes)
        add(batch, [some(2, 5, 18), *inputs], num_heads=3, **attributes)
    batch.check_within(0, NEAR)


def test_what_is_not_rotated_keeps_its_bits() -> None:
    x = np.array([3, 4, np.nan, -0.0, 7], np.float32).reshape(1, 1, 1, 5)
    cos, sin = np.zeros((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32)
    wanted = np.array([-4, 3, np.nan, -0.0, 7], np.float32).reshape(1, 1, 1, 5)
    one_node("RotaryEmbedding", [x, cos, sin], wanted, rotary_embedding_dim=2).check()


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_types_are_computed_in_float_and_rounded_once(half: Any) -> None:
    """The bits of the float result, rounded; each product rounded would differ."""
    inputs = [x.astype(half) for x in (some(2, 3, 50, 8), some(2, 50, 4), some(2, 50, 4, seed=1))]
    batch, wide = NodeBatch(), NodeBatch()
    add(batch, [*inputs])
    add(wide, [x.astype(np.float32) for x in inputs])
    (found,) = evaluate_model(batch.model(), batch.given).values()
    (exact,) = evaluate_model(wide.model(), wide.given).values()
    assert found.tobytes() == exact.astype(half).tobytes()
    batch.check_within(1, NEAR)


def test_a_position_outside_of_the_cache_is_reported() -> None:
    for position in (8, -9, 2**62):
        inputs = [some(1, 1, 1, 2), some(8, 1), some(8, 1), np.array([[position]], np.int64)]
        batch = one_node("RotaryEmbedding", inputs, np.zeros((1, 1, 1, 2), np.float32))
        assert_status("INDEX_OUT_OF_RANGE", batch)


def test_empty_dimensions() -> None:
    batch = NodeBatch()
    for shape in ((0, 1, 2, 4), (1, 0, 2, 4), (1, 1, 0, 4)):
        x, cache = some(*shape), some(shape[0], shape[2], 2)
        batch.add_node("RotaryEmbedding", [x, cache, cache], [x])
    batch.check()


X, CACHE = some(2, 3, 5, 6), some(2, 5, 3)
REFUSED: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    ("5 of the 5 elements", [some(2, 3, 5, 5), CACHE, CACHE], {}),
    ("3 of the 6 elements", [X, CACHE, CACHE], {"rotary_embedding_dim": 3}),
    ("8 of the 6 elements", [X, CACHE, CACHE], {"rotary_embedding_dim": 8}),
    ("-2 of the 6 elements", [X, CACHE, CACHE], {"rotary_embedding_dim": -2}),
    (
        "cos_cache has shape [2, 5, 3], not [2, 5, 2]",
        [X, CACHE, CACHE],
        {"rotary_embedding_dim": 4},
    ),
    ("sin_cache has shape [2, 4, 3], not [2, 5, 3]", [X, CACHE, CACHE[:, :4]], {}),
    ("num_heads attribute must be provided", [some(2, 5, 18), CACHE, CACHE], {}),
    ("does not have 4 heads", [some(2, 5, 18), CACHE, CACHE], {"num_heads": 4}),
    ("position_ids has shape [2, 4]", [X, *[some(9, 3)] * 2, np.zeros((2, 4), np.int64)], {}),
    (
        "cos_cache has shape [2, 5, 3], not [2, 3]",
        [X, CACHE, CACHE, np.zeros((2, 5), np.int64)],
        {},
    ),
]


@pytest.mark.parametrize(("text", "inputs", "attributes"), REFUSED)
def test_refused(text: str, inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    assert inputs[0] is not None
    graph = one_node("RotaryEmbedding", inputs, inputs[0], **attributes).model()
    graph.graph.output[0].type.tensor_type.ClearField("shape")
    (line,) = refusal(graph)
    assert text in line
