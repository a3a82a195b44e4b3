"""LinearAttention against its specification, in double and token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxc.pipeline import evaluate_model
from tests.models import Array, refusal
from tests.ops.attention_reference import linear_attention
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import one_node

NEAR = 4e-6
RULES = ["linear", "gated", "delta", "gated_delta"]


def some(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    return (generator.standard_normal(shape) / 2).astype(dtype)


def tokens(times: int, q_heads: int = 4, kv_heads: int = 2) -> list[Array]:
    """Query, key, value of 2 batch rows: keys of 3 elements, values of 4."""
    return [
        some(2, times, q_heads * 3, seed=1),
        some(2, times, kv_heads * 3, seed=2),
        some(2, times, kv_heads * 4, seed=3),
    ]


def add(batch: NodeBatch, inputs: Sequence[Array | None], rule: str, **attributes: Any) -> None:
    attributes = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule, **attributes}
    hint = {"chunk_size"}
    known = {name: value for name, value in attributes.items() if name not in hint}
    query, key, value, *others = inputs
    past = others[0] if others else None
    assert query is not None
    assert key is not None
    assert value is not None
    y, state = linear_attention(query, key, value, *others, **known)
    assert value is not None
    kept = (value if past is None else past).dtype
    outputs = [y.astype(query.dtype), state.astype(kept)]
    batch.add_node("LinearAttention", inputs, outputs, **attributes)


STATE = some(2, 2, 3, 4, seed=4)


@pytest.mark.parametrize("rule", RULES)
def test_update_rules(rule: str) -> None:
    """Prefill and one token; with and without a state; decay a head or an element of the key."""
    batch = NodeBatch()
    for times in (1, 5):
        for decay in (-np.abs(some(2, times, 2, seed=5)), -np.abs(some(2, times, 6, seed=6))):
            for beta in (np.abs(some(2, times, 2, seed=7)), np.abs(some(2, times, 1, seed=8))):
                gates = [decay if "gated" in rule else None, beta if "delta" in rule else None]
                for past in (None, STATE):
                    add(batch, [*tokens(times), past, *gates], rule)
    batch.check_within(0, NEAR)


def test_heads_scale_and_the_hint() -> None:
    """A scale of 0 is 1 / sqrt(d_k); the size of a chunk changes nothing."""
    batch = NodeBatch()
    for q_heads, kv_heads in ((2, 2), (4, 2), (3, 1)):
        heads = {"q_num_heads": q_heads, "kv_num_heads": kv_heads}
        gates = [-np.abs(some(2, 4, kv_heads)), np.abs(some(2, 4, kv_heads, seed=1))]
        inputs = [*tokens(4, q_heads, kv_heads), None, *gates]
        add(batch, inputs, "gated_delta", **heads)
        add(batch, inputs[:3], "linear", scale=-0.75, chunk_size=2, **heads)
    batch.check_within(0, NEAR)


def test_the_linear_rule_by_hand() -> None:
    """One head of one element: the state is the running sum of key times value."""
    query, key, value = (
        np.array(numbers, np.float32).reshape(1, 3, 1)
        for numbers in ([1, 2, 3], [1, 1, 2], [5, 7, 1])
    )
    y = np.array([5, 24, 42], np.float32).reshape(1, 3, 1)
    state = np.array([14], np.float32).reshape(1, 1, 1, 1)
    attributes: dict[str, Any] = {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear"}
    one_node("LinearAttention", [query, key, value], y, state, **attributes).check()


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_types_are_computed_in_float_and_rounded_once(half: Any) -> None:
    """The state, too, which may be of another type than the tokens."""
    narrow = [x.astype(half) for x in tokens(5)]
    gates = [(-np.abs(some(2, 5, 2))).astype(half), np.abs(some(2, 5, 2, seed=1)).astype(half)]
    for past in (half, np.float32):
        results = []
        for tokens_type, state_type in ((half, past), (np.float32, np.float32)):
            batch = NodeBatch()
            q, k, v, decay, beta = (x.astype(tokens_type) for x in (*narrow, *gates))
            state = STATE.astype(past).astype(state_type)
            add(batch, [q, k, v, state, decay, beta], "gated_delta")
            results.append(list(evaluate_model(batch.model(), batch.given).values()))
        for found, wide in zip(*results, strict=True):
            assert found.tobytes() == wide.astype(found.dtype).tobytes()
        assert [found.dtype for found in results[0]] == [half, past]


def test_no_token_keeps_the_state() -> None:
    batch = NodeBatch()
    attributes: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"}
    y = np.zeros((2, 0, 16), np.float32)
    batch.add_node("LinearAttention", [*tokens(0), STATE], [y, STATE], **attributes)
    batch.add_node("LinearAttention", tokens(0), [y, np.zeros_like(STATE)], **attributes)
    batch.check()


Q, K, V = tokens(3)
GATE = some(2, 3, 2)
REFUSED: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    ("update_rule must be one of", [Q, K, V], {"update_rule": "none"}),
    ("requires decay", [Q, K, V, None, None, GATE], {"update_rule": "gated"}),
    ("requires beta", [Q, K, V], {"update_rule": "delta"}),
    ("forbids decay", [Q, K, V, None, GATE], {}),
    ("between 3 and 2", [Q[:, :2], K, V], {}),
    ("between 2 and 3", [Q, K, V[:, :2]], {}),
    ("between 4 and 3", [Q, K, V, STATE.reshape(2, 2, 4, 3)], {}),
    ("decay last dim (3)", [Q, K, V, None, some(2, 3, 3)], {"update_rule": "gated"}),
    ("decay last dim (1)", [Q, K, V, None, some(2, 3, 1)], {"update_rule": "gated"}),
    ("beta last dim (3)", [Q, K, V, None, None, some(2, 3, 3)], {"update_rule": "delta"}),
    ("between 1 and 2", [Q, K, V, None, None, GATE[:1]], {"update_rule": "delta"}),
    ("kv_num_heads", [Q, K, V], {"kv_num_heads": 0}),
    ("q_num_heads", [Q, K, V], {"q_num_heads": 3}),
]


@pytest.mark.parametrize(("text", "inputs", "attributes"), REFUSED)
def test_refused(text: str, inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    attributes = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear", **attributes}
    outputs = [np.zeros((2, 3, 16), np.float32), STATE]
    graph = one_node("LinearAttention", inputs, *outputs, **attributes).model()
    for output in graph.graph.output:
        output.type.tensor_type.ClearField("shape")
    (line,) = refusal(graph)
    assert text in line
