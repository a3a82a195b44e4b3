"""What recurrent networks share: directions, lengths, activations, the loop over the times.

The products with the inputs are computed for all times at once; a Repeat over the times then adds
those with the state. A row of the batch that has ended keeps its state and gives zeros.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import FLOAT, INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import Buffer, Checked, Expr, Index, along, apply, cast, fold, load, where
from onnxc.kernel import Loops, Program, Repeat, Step, define
from onnxc.op import Declared
from onnxc.ops.assembly import part
from onnxc.ops.checks import require_shape
from onnxc.ops.elementwise import UNARY
from onnxc.recurrence import Activation, Recurrence
from onnxc.status import Status
from onnxc.tensor import Tensor, compute, dynamic, full, of_buffer, zero

Function = Callable[[Expr], Expr]

# Of each activation: the expression, and the defaults of alpha and beta where it has them.
ACTIVATIONS: dict[str, tuple[Callable[..., Expr], tuple[float, ...]]] = {
    "affine": (lambda x, alpha, beta: x * alpha + beta, (1.0, 0.0)),
    "elu": (lambda x, alpha: UNARY["Elu"](x, alpha=alpha), (1.0,)),
    "hardsigmoid": (
        lambda x, alpha, beta: UNARY["HardSigmoid"](x, alpha=alpha, beta=beta),
        (0.2, 0.5),
    ),
    "leakyrelu": (lambda x, alpha: UNARY["LeakyRelu"](x, alpha=alpha), (0.01,)),
    "relu": (UNARY["Relu"], ()),
    "scaledtanh": (lambda x, alpha, beta: apply("tanh", x * beta) * alpha, (1.0, 1.0)),
    "sigmoid": (UNARY["Sigmoid"], ()),
    "softplus": (UNARY["Softplus"], ()),
    "softsign": (UNARY["Softsign"], ()),
    "tanh": (UNARY["Tanh"], ()),
    "thresholdedrelu": (lambda x, alpha: UNARY["ThresholdedRelu"](x, alpha=alpha), (1.0,)),
}


@dataclass(frozen=True)
class Layer:
    """What the three operators share, with the dimensions in the order of layout 0.

    x        [times, batch, inputs]
    lengths  [batch], int64, each in 0 .. times; None where every row is whole
    states   initial ones of each direction, [directions, batch, hidden]
    given    which of them the model gives; the others are zeros
    """

    x: Tensor
    w: Tensor
    r: Tensor
    bias: Tensor | None
    lengths: Tensor | None
    backward: tuple[bool, ...]
    states: tuple[Tensor, ...]
    given: tuple[bool, ...]
    clip: float | None

    @property
    def hidden(self) -> int:
        return self.r.shape[2]


# A cell adds, for one direction, the steps of one time: from the products with the input
# [batch, gates·hidden] at that time, and the states before it, to the states after it.
Cell = Callable[["Layer", int, Tensor, Sequence[Tensor]], tuple[list[Step], list[Tensor]]]


@dataclass(frozen=True)
class Network:
    """What an LSTM or GRU is beside its Layer, for a kernel that computes all its times.

    functions  of each direction
    peepholes  float[directions, 3 * hidden]
    """

    kind: str
    functions: Sequence[Sequence[Function]]
    peepholes: Tensor | None = None
    input_forget: bool = False
    linear_before_reset: bool = False


def layer_of(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    states: Sequence[Tensor | None],
    *,
    gates: int,
    direction: str,
    layout: int,
    clip: float | None,
) -> Layer:
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in backward:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"direction is '{direction}'", f"it is one of {list(backward)}"
        )
    if X.rank != 3 or R.rank != 3:
        raise RefusalError(
            Kind.OPERAND_RANK, f"X has {X.rank} dimensions and R {R.rank}", "they have 3 each"
        )
    x = X.transpose([1, 0, 2]) if layout else X
    times, batch, _ = x.shape
    _check_weights(W, R, B, len(backward[direction]), gates, X.shape[2])
    if sequence_lens is not None:
        require_shape("sequence_lens", sequence_lens, (batch,))
    wanted = (len(backward[direction]), batch, R.shape[2])
    for name, state in zip(("initial_h", "initial_c"), states, strict=False):
        if state is not None:
            require_shape(name, state, (batch, wanted[0], wanted[2]) if layout else wanted)
    given = [None if s is None else s.transpose([1, 0, 2]) if layout else s for s in states]
    lengths = None if sequence_lens is None else _checked_lengths(sequence_lens, times)
    return Layer(
        x.shared(),
        W if W.buffer else W.stored(),
        R if R.buffer else R.stored(),
        B,
        lengths,
        backward[direction],
        tuple(full(wanted, zero(x.dtype)) if s is None else s for s in given),
        tuple(s is not None for s in given),
        clip,
    )


def _check_weights(
    W: Tensor, R: Tensor, B: Tensor | None, directions: int, gates: int, inputs: int
) -> None:
    rows = gates * R.shape[2]
    require_shape("W", W, (directions, rows, inputs))
    require_shape("R", R, (directions, rows, R.shape[2]))
    if B is not None:
        require_shape("B", B, (directions, 2 * rows))


def _checked_lengths(lengths: Tensor, times: int) -> Tensor:
    def element(row: Index) -> Expr:
        value = cast(lengths[[row]], INT64)
        inside = (value >= 0) & (value <= times)
        safe = apply("max", apply("min", value, times), 0)
        return Checked(INT64, safe, inside, Status.VALUE_OUT_OF_RANGE)

    return compute(lengths.shape, element).stored("the lengths of the rows")


def activations(
    names: Sequence[str], alpha: Sequence[float] | None, beta: Sequence[float] | None
) -> list[Function]:
    """The functions, each with the values that are next in the lists if it takes any."""
    alphas, betas = iter(alpha or ()), iter(beta or ())
    found = []
    for name in names:
        known = ACTIVATIONS.get(name.lower())
        if known is None:
            raise RefusalError(
                Kind.RECURRENT_LAYER,
                f"activation '{name}' is not known",
                f"known: {', '.join(ACTIVATIONS)}",
            )
        function, defaults = known
        sources: list[Iterator[float]] = [alphas, betas]
        values = [next(s, d) for s, d in zip(sources, defaults, strict=False)]
        found.append(_with(function, values))
    return found


def _with(function: Callable[..., Expr], values: Sequence[float]) -> Function:
    return lambda x: function(x, *values)


def clipped(x: Expr, clip: float | None) -> Expr:
    return x if clip is None else apply("max", apply("min", x, clip), -clip)


def workspace(shape: tuple[int, ...], dtype: ElementType) -> Buffer:
    return Buffer("", shape, dtype, "workspace")


def times_state(state: Tensor, r: Tensor, direction: int, first: int, b: Index, j: Index) -> Expr:
    """Row first + j of the recurrence weights times the state of row b."""
    return fold(
        "sum",
        [r.shape[2]],
        lambda k: state[[b, k]] * r[[Index(direction), j + first, k]],
        "contraction",
    )


def input_products(layer: Layer, direction: int, biases: Callable[[Index], Expr] | None) -> Tensor:
    """[times, batch, gates·hidden]: the inputs times W, and the biases."""
    times, batch, inputs = layer.x.shape
    d = Index(direction)

    def element(t: Index, b: Index, row: Index) -> Expr:
        total = fold(
            "sum",
            [inputs],
            lambda i: layer.x[[t, b, i]] * layer.w[[d, row, i]],
            "contraction",
        )
        return total if biases is None else total + biases(row)

    shape = (times, batch, layer.w.shape[1])
    return compute(shape, element).stored("the inputs of all times, by W")


def run(
    layer: Layer,
    cell: Cell,
    products: Sequence[Tensor],
    declared: Declared,
    network: Network | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Y [times, directions, batch, hidden], and the last states of each direction."""
    times, batch, _ = layer.x.shape
    directions, hidden, dtype = len(layer.backward), layer.hidden, layer.x.dtype
    shape = (times, directions, batch, hidden)
    if times * batch * hidden == 0:
        return full(shape, zero(dtype)), list(layer.states)
    y = workspace(shape, dtype) if declared[0] is not None else None
    last = [workspace((directions, batch, hidden), dtype) for _ in layer.states]
    zeros = full(shape, zero(dtype))
    steps: list[Step] = [] if y is None else [part(y, zeros, "no row has begun")]
    wanted = [declared[n + 1 : n + 2] not in ((), (None,)) for n in range(len(last))]
    for direction in range(directions):
        known = None
        if network is not None:
            shown = tuple(b if show else None for b, show in zip(last, wanted, strict=True))
            known = _recurrence(layer, network, direction, products[direction], y, shown)
        steps += _direction(layer, cell, direction, products[direction], y, last, known)
    define(tuple(steps))
    return zeros if y is None else of_buffer(y), [of_buffer(buffer) for buffer in last]


def _direction(
    layer: Layer,
    cell: Cell,
    direction: int,
    products: Tensor,
    y: Buffer | None,
    last: Sequence[Buffer],
    recurrence: Recurrence | None,
) -> Iterator[Step]:
    times, batch, _ = layer.x.shape
    dtype, d = layer.x.dtype, Index(direction)
    states = [workspace((batch, layer.hidden), dtype) for _ in layer.states]
    known = recurrence and replace(recurrence, states=tuple(states))
    counter = Buffer("", (), INT64, "workspace")
    for state, initial in zip(states, layer.states, strict=True):
        one = compute(state.shape, lambda b, j, t=initial: t[[d, b, j]])
        yield part(state, one, "the initial state")
    time = load(counter, ())
    before = [of_buffer(state) for state in states]

    def now(b: Index) -> Index:
        """The time that row b is at; past its end it visits the rest, in order."""
        if layer.lengths is None:
            place = dynamic(time)
            return place * -1 + (times - 1) if layer.backward[direction] else place
        if not layer.backward[direction]:
            return dynamic(time)
        left = layer.lengths[[b]] - time
        return dynamic(where(left > 0, left - 1, time))

    at_time = compute((batch, products.shape[2]), lambda b, row: products[[now(b), b, row]])
    body, after = cell(layer, direction, at_time, before)
    carried = []
    for old, new, state in zip(before, after, states, strict=True):
        kept = _kept(layer, time, old, new)
        following = kept.buffer
        if following is None:
            following = workspace(state.shape, dtype)
            body.append(part(following, kept, "the state"))
        carried.append((state, following))
    shown = of_buffer(carried[0][1])
    zeros = full(shown.shape, zero(dtype))
    out = _kept(layer, time, zeros, shown)
    row, unit = out.axes
    b, j = (along(axis) if axis.extent != 1 else Index() for axis in (row, unit))
    if y is not None:
        body.append(Loops(y, (now(b), d, b, j), out.axes, out.value, (), "what this time gives"))
    number = Buffer("", (), INT64, "constant", np.asarray(times, np.int64))
    program, pairs = Program(steps=tuple(body)), tuple(carried)
    yield Repeat(number, None, counter, program, pairs, recurrence=known)
    for state, buffer in zip(states, last, strict=True):
        value = of_buffer(state)
        where_ = (d, *(along(a) if a.extent != 1 else Index() for a in value.axes))
        yield Loops(buffer, where_, value.axes, value.value, (), "the last state")


def _recurrence(
    layer: Layer,
    network: Network,
    direction: int,
    products: Tensor,
    y: Buffer | None,
    last: tuple[Buffer | None, ...],
) -> Recurrence | None:
    """What a kernel needs to know, without the buffers of the states; None where it needs more.

    That is where rows have lengths, or where what it wants packed is no constant.
    """
    constants = [layer.r, layer.bias, network.peepholes]
    packed = [None if tensor is None else tensor.buffer for tensor in constants]
    given = [buffer for tensor, buffer in zip(constants, packed, strict=True) if tensor is not None]
    known = all(buffer is not None and buffer.data is not None for buffer in given)
    r, bias, peepholes = packed
    if layer.lengths or layer.x.dtype is not FLOAT or not known or r is None:
        return None
    assert products.buffer is not None
    x = load(workspace((), FLOAT), ())
    return Recurrence(
        network.kind,
        direction,
        layer.backward[direction],
        products.buffer,
        r,
        bias,
        peepholes,
        (),
        layer.given,
        y,
        last,
        tuple(Activation(function(x), x) for function in network.functions[direction]),
        layer.clip,
        network.input_forget,
        network.linear_before_reset,
    )


def _kept(layer: Layer, time: Expr, old: Tensor, new: Tensor) -> Tensor:
    """The new state of the rows that have not ended, else the old one."""
    lengths = layer.lengths
    if lengths is None:
        return new
    return compute(new.shape, lambda b, j: where(time < lengths[[b]], new[[b, j]], old[[b, j]]))


def outputs(layout: int, y: Tensor, last: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if not layout:
        return (y, *last)
    return (y.transpose([2, 0, 1, 3]), *(state.transpose([1, 0, 2]) for state in last))


def bias_sums(
    layer: Layer, direction: int, halves: Callable[[Index], Sequence[Index]]
) -> Callable[[Index], Expr] | None:
    """The sum of the biases at some rows of B, for each row of the gates."""
    bias, d = layer.bias, Index(direction)
    if bias is None:
        return None
    return lambda row: reduce(operator.add, [bias[[d, place]] for place in halves(row)])


def functions_of(
    names: Sequence[str] | None,
    usual: list[str],
    alpha: Sequence[float] | None,
    beta: Sequence[float] | None,
    directions: int,
) -> list[list[Function]]:
    """Those of each direction."""
    every = list(names or usual * directions)
    if usual == ["Tanh"] and every == ["Tanh", "Tanh"]:  # the schema's default, for both directions
        every = every[:directions]
    if len(every) != len(usual) * directions:
        fact = f"has {len(every)} activations for {directions} directions"
        raise RefusalError(Kind.RECURRENT_LAYER, fact, f"give {len(usual)} for each")
    found = iter(activations(every, alpha, beta))
    return [list(islice(found, len(usual))) for _ in range(directions)]


def check_hidden(layer: Layer, hidden_size: int | None) -> None:
    if hidden_size is not None and hidden_size != layer.hidden:
        fact = f"hidden_size is {hidden_size} but R is for {layer.hidden}"
        raise RefusalError(Kind.RECURRENT_LAYER, fact, "they must agree")
