"""Recurrent networks: RNN, GRU, LSTM. Each says what one time of one direction computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxc.expression import Expr, Index
from onnxc.kernel import Step
from onnxc.op import Declared, op
from onnxc.ops.assembly import joined, part
from onnxc.ops.checks import require_shape
from onnxc.ops.recurrence import (
    Layer,
    Network,
    bias_sums,
    check_hidden,
    clipped,
    functions_of,
    input_products,
    layer_of,
    outputs,
    run,
    times_state,
    workspace,
)
from onnxc.tensor import Tensor, compute, of_buffer


@op("RNN")
def rnn(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    *,
    activation_alpha: Sequence[float] | None,
    activation_beta: Sequence[float] | None,
    activations: Sequence[str] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    layout: int,
    declared: Declared,
) -> tuple[Tensor, ...]:
    """h = f(x·W + h·R + both biases)."""
    layer = layer_of(
        X,
        W,
        R,
        B,
        sequence_lens,
        [initial_h],
        gates=1,
        direction=direction,
        layout=layout,
        clip=clip,
    )
    check_hidden(layer, hidden_size)
    directions = len(layer.backward)
    functions = functions_of(activations, ["Tanh"], activation_alpha, activation_beta, directions)

    def cell(
        layer: Layer, d: int, x: Tensor, states: Sequence[Tensor]
    ) -> tuple[list[Step], list[Tensor]]:
        def element(b: Index, j: Index) -> Expr:
            total = x[[b, j]] + times_state(states[0], layer.r, d, 0, b, j)
            return functions[d][0](clipped(total, layer.clip))

        return [], [compute(states[0].shape, element)]

    hidden = layer.hidden
    products = [
        input_products(layer, d, bias_sums(layer, d, lambda row: [row, row + hidden]))
        for d in range(directions)
    ]
    return outputs(layout, *run(layer, cell, products, declared))


@op("GRU")
def gru(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    *,
    activation_alpha: Sequence[float] | None,
    activation_beta: Sequence[float] | None,
    activations: Sequence[str] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    layout: int,
    linear_before_reset: int,
    declared: Declared,
) -> tuple[Tensor, ...]:
    """z = f(..), r = f(..), n = g(..), h = (1 - z)·n + z·h; gates in the order z, r, h."""
    layer = layer_of(
        X,
        W,
        R,
        B,
        sequence_lens,
        [initial_h],
        gates=3,
        direction=direction,
        layout=layout,
        clip=clip,
    )
    check_hidden(layer, hidden_size)
    directions, hidden = len(layer.backward), layer.hidden
    functions = functions_of(
        activations, ["Sigmoid", "Tanh"], activation_alpha, activation_beta, directions
    )

    def cell(
        layer: Layer, d: int, x: Tensor, states: Sequence[Tensor]
    ) -> tuple[list[Step], list[Tensor]]:
        (h,) = states
        f, g = functions[d]
        gates = workspace((h.shape[0], 2 * hidden), h.dtype)

        def gate(b: Index, row: Index) -> Expr:
            total = x[[b, row]] + times_state(h, layer.r, d, 0, b, row)
            return f(clipped(total, layer.clip))

        steps: list[Step] = [part(gates, compute(gates.shape, gate), "the gates z and r")]
        zr = of_buffer(gates)

        def reset(b: Index, j: Index) -> Expr:
            return zr[[b, j + hidden]]

        if linear_before_reset:

            def recurrent(b: Index, j: Index) -> Expr:
                total = times_state(h, layer.r, d, 2 * hidden, b, j)
                if layer.bias is not None:
                    total = total + layer.bias[[Index(d), j + 5 * hidden]]
                return reset(b, j) * total
        else:
            kept = workspace(h.shape, h.dtype)
            product = compute(h.shape, lambda b, j: reset(b, j) * h[[b, j]])
            steps.append(part(kept, product, "the state that the gate r lets through"))
            left = of_buffer(kept)

            def recurrent(b: Index, j: Index) -> Expr:
                return times_state(left, layer.r, d, 2 * hidden, b, j)

        def element(b: Index, j: Index) -> Expr:
            new = g(clipped(x[[b, j + 2 * hidden]] + recurrent(b, j), layer.clip))
            z = zr[[b, j]]
            return (1 - z) * new + z * h[[b, j]]

        return steps, [compute(h.shape, element)]

    products = []
    for d in range(directions):
        if layer.bias is None or not linear_before_reset:
            biases = bias_sums(layer, d, lambda row: [row, row + 3 * hidden])
        else:
            biases = _reset_bias(layer.bias, d, hidden)
        products.append(input_products(layer, d, biases))
    network = Network("GRU", functions, linear_before_reset=bool(linear_before_reset))
    return outputs(layout, *run(layer, cell, products, declared, network))


def _reset_bias(bias: Tensor, direction: int, hidden: int) -> Callable[[Index], Expr]:
    """Of the third gate only W's bias: R's is inside of what the gate r scales."""
    d = Index(direction)
    sums = compute((2 * hidden,), lambda n: bias[[d, n]] + bias[[d, n + 3 * hidden]])
    third = compute((hidden,), lambda n: bias[[d, n + 2 * hidden]])
    biases = joined([sums, third], 0, ["the biases of z and r", "and the third's"])
    return lambda row: biases[[row]]


@op("LSTM")
def lstm(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    P: Tensor | None,
    *,
    activation_alpha: Sequence[float] | None,
    activation_beta: Sequence[float] | None,
    activations: Sequence[str] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    input_forget: int,
    layout: int,
    declared: Declared,
) -> tuple[Tensor, ...]:
    """Gates in the order i, o, f, c; peepholes P in the order i, o, f."""
    layer = layer_of(
        X,
        W,
        R,
        B,
        sequence_lens,
        [initial_h, initial_c],
        gates=4,
        direction=direction,
        layout=layout,
        clip=clip,
    )
    check_hidden(layer, hidden_size)
    directions, hidden = len(layer.backward), layer.hidden
    if P is not None:
        require_shape("P", P, (directions, 3 * hidden))
    usual = ["Sigmoid", "Tanh", "Tanh"]
    functions = functions_of(activations, usual, activation_alpha, activation_beta, directions)

    def cell(
        layer: Layer, d: int, x: Tensor, states: Sequence[Tensor]
    ) -> tuple[list[Step], list[Tensor]]:
        h, c = states
        f, g, last = functions[d]
        sums = workspace((h.shape[0], 4 * hidden), h.dtype)

        def total(b: Index, row: Index) -> Expr:
            return x[[b, row]] + times_state(h, layer.r, d, 0, b, row)

        steps: list[Step] = [part(sums, compute(sums.shape, total), "the gates' sums")]
        gates = of_buffer(sums)

        def gate(number: int, b: Index, j: Index, cell_state: Tensor) -> Expr:
            value = gates[[b, j + number * hidden]]
            if P is not None and number < 3:
                value = value + P[[Index(d), j + number * hidden]] * cell_state[[b, j]]
            return (g if number == 3 else f)(clipped(value, layer.clip))

        def cell_element(b: Index, j: Index) -> Expr:
            i = gate(0, b, j, c)
            forget = 1 - i if input_forget else gate(2, b, j, c)
            return forget * c[[b, j]] + i * gate(3, b, j, c)

        new_c = workspace(c.shape, c.dtype)
        steps.append(part(new_c, compute(c.shape, cell_element), "the cell state"))
        after = of_buffer(new_c)

        def element(b: Index, j: Index) -> Expr:
            return gate(1, b, j, after) * last(after[[b, j]])

        return steps, [compute(h.shape, element), after]

    products = [
        input_products(layer, d, bias_sums(layer, d, lambda row: [row, row + 4 * hidden]))
        for d in range(directions)
    ]
    network = Network("LSTM", functions, P, bool(input_forget))
    return outputs(layout, *run(layer, cell, products, declared, network))
