"""Attention against its specification, in double."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxc.compiled import CompiledModel
from onnxc.kernel import Loops, every_step
from onnxc.ops import attention_blocks
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import Array, refusal
from tests.ops.attention_reference import attention
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import one_node

INF = math.inf
NEAR = 4e-6
"""Of sums of a few products of numbers around 1, in float."""


def some(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    return generator.standard_normal(shape).astype(dtype)


def flags(*shape: int) -> Array:
    return np.random.default_rng(shape).random(shape) < 0.6


def heads_of(q_heads: int, kv_heads: int, queries: int, keys: int) -> list[Array]:
    """Q, K, V of 2 batch rows, heads of 3 elements, and 4 for the values."""
    return [
        some(2, q_heads, queries, 3, seed=1),
        some(2, kv_heads, keys, 3, seed=2),
        some(2, kv_heads, keys, 4, seed=3),
    ]


def packed(x: Array) -> Array:
    """[batch, heads, length, size] as [batch, length, heads·size]."""
    return np.concatenate([x[:, h] for h in range(x.shape[1])], axis=2)


def add(batch: NodeBatch, inputs: Sequence[Array | None], mode: int = 2, **attributes: Any) -> None:
    """A node that shows Y and one of the four stages: else the scores with the mask added."""
    q, k, v, *others = inputs
    assert q is not None
    assert k is not None
    assert v is not None
    wanted = attention(q, k, v, *others, **attributes)
    outputs = [wanted.y.astype(q.dtype), None, None, wanted.stages[mode].astype(q.dtype)]
    batch.add_node("Attention", inputs, outputs, qk_matmul_output_mode=mode, **attributes)


HEADS = heads_of(4, 2, 5, 6)


def test_heads() -> None:
    """As many, grouped (each key head serves neighbouring query heads), and one for all."""
    batch = NodeBatch()
    for q_heads, kv_heads in ((2, 2), (4, 2), (6, 2), (3, 1)):
        q, k, v = heads_of(q_heads, kv_heads, 5, 6)
        add(batch, [q, k, v])
        counts: dict[str, Any] = {"q_num_heads": q_heads, "kv_num_heads": kv_heads}
        add(batch, [packed(q), packed(k), packed(v)], **counts)
    batch.check_within(0, NEAR)


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_every_stage_in_every_version(opset: int) -> None:
    """The scores, capped, with the mask added, as weights; softcap comes first since 23, too."""
    batch = NodeBatch(opset)
    for mode in range(4):
        add(batch, [*HEADS, some(5, 6)], mode, softcap=1.5, is_causal=1)
    batch.check_within(0, NEAR)


def test_scale_and_softcap() -> None:
    """The cap comes before the mask: what is masked stays at -infinity."""
    batch = NodeBatch()
    for scale in (0.25, 1.0, 0.0, -0.5):
        add(batch, [*HEADS], scale=scale)
    for softcap in (0.5, 30.0):
        add(batch, [*HEADS], softcap=softcap)
        add(batch, [*HEADS, flags(5, 6)], softcap=softcap)
        add(batch, [*HEADS, some(5, 6) * 3], softcap=softcap)
    batch.check_within(0, NEAR)


MASKS = [
    *[(), (1,), (6,), (5, 6), (5, 1), (1, 6), (4, 5, 6), (4, 1, 1), (1, 5, 6)],
    *[(2, 4, 5, 6), (2, 1, 5, 6), (1, 4, 5, 6), (2, 1, 1, 6), (2, 4, 1, 1)],
    *[(4,), (5, 4), (2, 1, 5, 2), (1, 4, 1, 5)],  # shorter than the keys
]


def test_bool_masks_of_every_rank() -> None:
    batch = NodeBatch()
    for shape in MASKS:
        add(batch, [*HEADS, flags(*shape)])
    batch.check_within(0, NEAR)


def test_float_masks_of_every_rank() -> None:
    """A mask that is too short hides the keys that it does not reach."""
    batch = NodeBatch()
    for shape in MASKS:
        mask = some(*shape)
        add(batch, [*HEADS, mask])
        add(batch, [*HEADS, np.where(flags(*shape), mask, -np.inf).astype(np.float32)])
    batch.check_within(0, NEAR)


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of at most three queries, whatever the size, where nobody asks for the scores."""
    monkeypatch.setattr(attention_blocks, "ROWS", 3)
    monkeypatch.setattr(attention_blocks, "LEAST_SCORES", 1)
    monkeypatch.setattr(attention_blocks, "LEAST_SIZE", 1)


def blocked(batch: NodeBatch, inputs: Sequence[Array | None], **attributes: Any) -> None:
    """A node of seven queries that shows Y alone, packed too."""
    q, k, v, *others = inputs
    assert q is not None
    assert k is not None
    assert v is not None
    y = attention(q, k, v, *others, **attributes).y.astype(np.float32)
    batch.add_node("Attention", inputs, [y], **attributes)
    if len(others) < 2:
        counts = {"q_num_heads": q.shape[1], "kv_num_heads": k.shape[1]}
        wide = [packed(x) for x in (q, k, v)]
        batch.add_node("Attention", [*wide, *others], [packed(y)], **counts, **attributes)


@pytest.mark.usefixtures("in_blocks")
def test_blocks_of_queries_give_the_same() -> None:
    """The last of which begins earlier; every mask and window is that of the whole."""
    batch = NodeBatch()
    for q_heads, kv_heads in ((2, 2), (4, 2), (3, 1)):
        blocked(batch, heads_of(q_heads, kv_heads, 7, 6))
    seven = heads_of(4, 2, 7, 6)
    for attributes in ({"is_causal": 1}, {"left_window_size": 2}, {"softcap": 1.5, "scale": -0.5}):
        blocked(batch, [*seven, flags(2, 4, 7, 6)], **attributes)
        blocked(batch, [*seven, some(4, 7, 5)], **attributes)
    past = [some(2, 2, 4, 3, seed=5), some(2, 2, 4, 4, seed=6)]
    blocked(batch, [*seven, None, *past], is_causal=1)
    blocked(batch, [*seven, None, None, None, np.array([5, 2], np.int64)], is_causal=1)
    program = compile_model(batch.model()).program
    assert any("a block" in step.role for step in every_step(program) if isinstance(step, Loops))
    batch.check_within(0, NEAR)


LARGE = [np.zeros((1, 1, 7, 2)), np.zeros((1, 1, 5, 2)), np.full((1, 1, 5, 2), 3e38)]


def test_values_that_only_their_sum_would_overflow() -> None:
    batch = NodeBatch()
    blocked(batch, [x.astype(np.float32) for x in LARGE])
    batch.check_within(4)


@pytest.mark.usefixtures("in_blocks")
def test_values_that_only_their_sum_would_overflow_in_blocks() -> None:
    batch = NodeBatch()
    blocked(batch, [x.astype(np.float32) for x in LARGE])
    batch.check_within(4)


@pytest.mark.usefixtures("in_blocks")
def test_a_masked_row_of_a_block_gives_zeros() -> None:
    """Though a value is infinite, which makes a NaN of every other row: 0 times infinity."""
    q, k, v = heads_of(1, 1, 7, 6)
    mask = np.tile(np.arange(6) > 0, (7, 1))
    mask[4] = False
    v[:, :, 0] = np.inf
    wanted = np.full((2, 1, 7, 4), np.nan, np.float32)
    wanted[:, :, 4] = 0
    batch = NodeBatch()
    batch.add_node("Attention", [q, k, v, mask], [wanted])
    batch.check_within(0)


def test_the_past_comes_first() -> None:
    """The queries see it all: its length is the offset of causal masks and windows."""
    q, k, v = heads_of(4, 2, 3, 3)
    batch = NodeBatch()
    for length in (0, 1, 4):
        past = [some(2, 2, length, 3, seed=5), some(2, 2, length, 4, seed=6)]
        for attributes in ({}, {"is_causal": 1}, {"left_window_size": 1}, {"right_window_size": 1}):
            add(batch, [q, k, v, None, *past], **attributes)
            add(batch, [q, k, v, flags(3, 3 + length), *past], **attributes)
    batch.check_within(0, NEAR)


def test_the_present_is_the_past_and_the_new() -> None:
    """Packed or not, in the shape [batch, heads, length, size]; without a past the input."""
    q, k, v = heads_of(4, 2, 3, 3)
    past = [some(2, 2, 5, 3, seed=5), some(2, 2, 5, 4, seed=6)]
    batch = NodeBatch()
    joined = [np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True)]
    y = attention(q, k, v, None, *past).y.astype(np.float32)
    counts: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
    batch.add_node("Attention", [q, k, v, None, *past], [y, *joined])
    wide = [packed(x) for x in (q, k, v)]
    batch.add_node("Attention", [*wide, None, *past], [packed(y), *joined], **counts)
    batch.add_node("Attention", [q, k, v], [attention(q, k, v).y.astype(np.float32), k, v])
    batch.check_within(0, NEAR)
    for found in computed(batch):
        for name, array in batch.wanted.items():
            if not name.endswith("_0"):
                assert found[name].tobytes() == array.tobytes()


def computed(batch: NodeBatch) -> list[dict[str, Array]]:
    """By the C, and by the kernel IR in numpy."""
    source = batch.model()
    in_c = CompiledModel(compile_model(source)).run(batch.given)
    return [in_c, evaluate_model(source, batch.given)]


def test_nonpad_kv_seqlen() -> None:
    """Of each batch row; where it is less than the queries, the first of them see nothing."""
    batch = NodeBatch()
    for lengths in ([6, 5], [3, 0], [5, 4], [1, 6]):
        given = np.array(lengths, np.int64)
        for attributes in (
            {},
            {"is_causal": 1},
            {"left_window_size": 2},
            {"left_window_size": 1, "right_window_size": 1},
        ):
            add(batch, [*HEADS, None, None, None, given], **attributes)
        add(batch, [*HEADS, flags(2, 1, 5, 6), None, None, given])
        add(batch, [*HEADS, some(5, 6), None, None, given], is_causal=1)
    batch.check_within(0, NEAR)


def test_windows() -> None:
    """Each bound alone, both, beside is_causal, and so wide that a sum would overflow."""
    batch = NodeBatch()
    widest = 2**63 - 1
    for left, right in ((-1, 0), (0, -1), (2, 1), (0, 0), (1, 20), (widest, widest), (20, 0)):
        for is_causal in (0, 1):
            window = {"left_window_size": left, "right_window_size": right}
            add(batch, [*HEADS], is_causal=is_causal, **window)
    batch.check_within(0, NEAR)


def test_the_window_of_the_specification() -> None:
    """left 2, right 1: the picture of the operator's text, as which scores are not -infinity."""
    q, k = np.ones((1, 1, 4, 1), np.float32), np.ones((1, 1, 6, 1), np.float32)
    wanted = [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]]
    scores = np.where(np.array(wanted) == 1, 1, -np.inf).astype(np.float32).reshape(1, 1, 4, 6)
    attributes: dict[str, Any] = {
        "left_window_size": 2,
        "right_window_size": 1,
        "qk_matmul_output_mode": 2,
    }
    y = np.ones((1, 1, 4, 1), np.float32)
    one_node("Attention", [q, k, k], y, None, None, scores, **attributes).check_within(1)


def test_a_row_that_sees_no_key_gives_zeros() -> None:
    """Exactly, though values are infinite or NaN-free; the other rows are not touched."""
    q, k, v = heads_of(2, 2, 2, 3)
    first = np.array([[False] * 3, [False, True, False]])
    second = np.array([[-np.inf] * 3, [-np.inf, 0, -np.inf]], np.float32)
    y = np.stack([np.zeros_like(v[:, :, 1]), v[:, :, 1]], axis=2)
    weights = np.broadcast_to(np.array([[0, 0, 0], [0, 1, 0]], np.float32), (2, 2, 2, 3))
    batch = NodeBatch()
    for mask in (first, second):
        outputs = [y, None, None, weights]
        batch.add_node("Attention", [q, k, v, mask], outputs, qk_matmul_output_mode=3)
    none = np.zeros(2, np.int64)
    batch.add_node("Attention", [q, k, v, None, None, None, none], [np.zeros_like(y)])
    batch.check()


def test_scores_that_overflow_no_exponential() -> None:
    q = np.array([1e4, -1e4], np.float32).reshape(1, 1, 2, 1)
    k = np.array([1e4, 0, -1e4], np.float32).reshape(1, 1, 3, 1)
    v = np.array([1, 2, 3], np.float32).reshape(1, 1, 3, 1)
    y = np.array([1, 3], np.float32).reshape(1, 1, 2, 1)
    one_node("Attention", [q, k, v], y).check()


def test_empty_dimensions() -> None:
    """No row, query or value element: an empty result; no key or key element: zeros or means."""
    batch = NodeBatch()
    for shapes in (
        [(0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 4)],
        [(1, 2, 0, 4), (1, 2, 5, 4), (1, 2, 5, 4)],
        [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 0)],
        [(1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4)],
    ):
        q, k, v = (some(*shape) for shape in shapes)
        y = np.zeros((*shapes[0][:3], shapes[2][3]), np.float32)
        scores = np.zeros((*shapes[0][:3], shapes[1][2]), np.float32)
        if scores.size:
            batch.add_node("Attention", [q, k, v], [y])
        else:
            batch.add_node("Attention", [q, k, v], [y, k, v, scores])
            batch.add_node("Attention", [q, k, v, flags(1, 1)], [y], is_causal=1)
    q, k, v = some(1, 2, 3, 0), some(1, 2, 4, 0), np.full((1, 2, 4, 2), 5, np.float32)
    batch.add_node("Attention", [q, k, v], [np.full((1, 2, 3, 2), 5, np.float32)])
    batch.check()


EPS = {1: 2.0**-23, 10: 2.0**-10, 16: 2.0**-7}
"""Of the types that softmax_precision names."""

HALVES = [np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("half", HALVES)
def test_half_types_are_computed_in_float_and_rounded_once(half: Any) -> None:
    """The same bits as of the operator on floats, rounded."""
    narrow = [x.astype(half) for x in HEADS]
    mask, past = some(5, 7, dtype=half), [some(2, 2, 1, n, dtype=half) for n in (3, 4)]
    for precision in (None, 1, 10, 16, 11):
        kept: dict[str, Any] = {} if precision is None else {"softmax_precision": precision}
        results = []
        for dtype in (half, np.float32):
            batch = NodeBatch()
            inputs = [x.astype(dtype) for x in (*narrow, mask, *past)]
            for mode in range(4):
                outputs = [np.zeros((2, 4, 5, n), dtype) for n in (4, 7)]
                attributes: dict[str, Any] = {
                    "is_causal": 1,
                    "softcap": 2.0,
                    "qk_matmul_output_mode": mode,
                }
                wanted = [outputs[0], None, None, outputs[1]]
                batch.add_node("Attention", inputs, wanted, **attributes, **kept)
            results.append(evaluate_model(batch.model(), batch.given))
        for name, array in results[0].items():
            assert array.dtype == half
            assert array.tobytes() == results[1][name].astype(half).tobytes(), (name, precision)


def test_half_types_in_c() -> None:
    """Within one unit of the last place of the exact result."""
    batch = NodeBatch()
    for half in HALVES:
        narrow = [x.astype(half) for x in HEADS]
        for inputs in ([*narrow], [*narrow, some(5, 6, dtype=half)], [*narrow, flags(5, 6)]):
            add(batch, inputs, is_causal=1)
    batch.check_within(1, NEAR)


def test_the_present_keeps_the_bits_of_half_types() -> None:
    """All of them, NaN too: they are moved, not computed."""
    bits = np.arange(2**16, dtype=np.uint16).reshape(1, 1, -1, 1)
    for half in HALVES:
        past, new = bits.view(half), some(1, 1, 1, 1, dtype=half)
        present = np.concatenate([past, new], 2)
        batch = NodeBatch()
        y = np.full((1, 1, 1, 1), np.nan, half)
        batch.add_node("Attention", [new] * 3 + [None, past, past], [y, present, present])
        for found in computed(batch):
            assert found["y0_1"].tobytes() == found["y0_2"].tobytes() == present.tobytes()


def test_the_values_may_be_of_another_type() -> None:
    q, k, v = HEADS
    batch = NodeBatch()
    for left, right in (
        (np.float32, np.float64),
        (np.float64, np.float32),
        (np.float16, np.float32),
    ):
        inputs = [q.astype(left), k.astype(left), v.astype(right)]
        wanted = attention(*inputs)
        outputs = [wanted.y.astype(left), inputs[1], inputs[2]]
        batch.add_node("Attention", inputs, outputs)
    batch.check_within(1, NEAR)


def test_softmax_precision_in_double() -> None:
    """More than float: the weights are the exact ones, rounded once."""
    batch = NodeBatch()
    wide = [x.astype(np.float64) for x in HEADS]
    choices: list[dict[str, Any]] = [{}, {"softmax_precision": 11}]
    for attributes in choices:
        wanted = attention(*wide)
        outputs = [wanted.y, None, None, wanted.stages[3]]
        batch.add_node("Attention", wide, outputs, qk_matmul_output_mode=3, **attributes)
    batch.check_within(0, 1e-14)


@pytest.mark.parametrize(
    ("precision", "dtype"), [(1, np.float32), (10, np.float16), (16, ml_dtypes.bfloat16)]
)
def test_softmax_precision_rounds_what_goes_in_and_comes_out(precision: int, dtype: Any) -> None:
    """Of doubles: scores as numbers of the type, computed in float at least."""
    wide = [x.astype(np.float64) for x in HEADS]
    scores = attention(*wide).stages[0].astype(dtype).astype(np.float64)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (powers / powers.sum(-1, keepdims=True)).astype(dtype)
    shown = weights.astype(np.float64)
    y = np.stack([shown[:, h] @ wide[2][:, h // 2] for h in range(4)], axis=1)
    attributes: dict[str, Any] = {"qk_matmul_output_mode": 3, "softmax_precision": precision}
    batch = one_node("Attention", wide, y, None, None, shown, **attributes)
    _, found = evaluate_model(batch.model(), batch.given).values()
    assert found.astype(dtype).astype(np.float64).tobytes() == found.tobytes()
    batch.check_within(0, 8 * float(EPS[precision]))


Q, K, V = heads_of(2, 2, 3, 4)
PAST = [some(2, 2, 5, 3), some(2, 2, 5, 4)]
Y = np.zeros((2, 2, 3, 4), np.float32)
REFUSED: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    ("past_key and past_value must be provided together", [Q, K, V, None, PAST[0]], {}),
    ("cannot be combined with past", [Q, K, V, None, *PAST, np.array([1, 2])], {}),
    (
        "Q of shape [2, 3, 6] does not have 4 heads",
        [packed(x) for x in (Q, K, V)],
        {"q_num_heads": 4, "kv_num_heads": 2},
    ),
    ("must be positive", [packed(x) for x in (Q, K, V)], {"q_num_heads": 2, "kv_num_heads": 0}),
    ("do not share", [some(2, 3, 3, 3), K, V], {}),
    ("K has shape [2, 2, 4, 5], not [2, 2, 4, 3]", [Q, some(2, 2, 4, 5), V], {}),
    ("K has shape [1, 2, 4, 3], not [2, 2, 4, 3]", [Q, K[:1], V[:1]], {}),
    ("V has shape [1, 2, 4, 4], not [2, 2, 4, 4]", [Q, K, V[:1]], {}),
    ("K has shape [2, 2, 4, 3], not [2, 2, 2, 3]", [Q, K, V[:, :, :2]], {}),
    ("past_key has shape [2, 1, 5, 3]", [Q, K, V, None, PAST[0][:, :1], PAST[1]], {}),
    ("past_value has shape [2, 2, 2, 4]", [Q, K, V, None, PAST[0], PAST[1][:, :, :2]], {}),
    ("nonpad_kv_seqlen has shape [1], not [2]", [Q, K, V, None, None, None, np.array([4])], {}),
    ("does not broadcast", [Q, K, V, flags(2, 4)], {}),
    ("does not broadcast", [Q, K, V, flags(3, 5)], {}),
    ("does not broadcast", [Q, K, V, flags(1, 2, 2, 3, 4)], {}),
    ("attn_mask is int32", [Q, K, V, np.zeros((3, 4), np.int32)], {}),
    ("qk_matmul_output_mode is 4", [Q, K, V], {"qk_matmul_output_mode": 4}),
    ("softmax_precision is 7", [Q, K, V], {"softmax_precision": 7}),
    ("softmax_precision is 99", [Q, K, V], {"softmax_precision": 99}),
]


@pytest.mark.parametrize(("text", "inputs", "attributes"), REFUSED)
def test_refused(text: str, inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    graph = one_node("Attention", inputs, np.zeros(1, np.float32), **attributes).model()
    del graph.graph.output[0].type.tensor_type.shape.dim[:]
    graph.graph.output[0].type.tensor_type.ClearField("shape")
    (line,) = refusal(graph)
    assert text in line
