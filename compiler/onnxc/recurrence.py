"""What a Repeat computes that runs over the times of an LSTM or GRU, for a kernel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onnxc.expression import Buffer, Expr


@dataclass(frozen=True)
class Activation:
    """A function of one float: `value` is that of `x`."""

    value: Expr
    x: Expr


@dataclass(frozen=True)
class Recurrence:
    """One direction, all of whose rows are whole. Gates and their order are ONNX's.

    kind       "LSTM" or "GRU"
    direction  its number, in what both directions share
    backward   whether it begins with the last time
    products   float[times, batch, gates * hidden]: the inputs by W, and the biases
    weights    R, float[directions, gates * hidden, hidden]
    bias       B, float[directions, 2 * gates * hidden], of which the third gate of a GRU with
               linear_before_reset still needs R's part; else None
    peepholes  P of an LSTM, float[directions, 3 * hidden], or None
    states     float[batch, hidden]: what carries h and, of an LSTM, the cell's state
    given      of each state whether it begins with values; else with zeros
    y          float[times, directions, batch, hidden], or None where nobody wants it
    last       float[directions, batch, hidden] of each state, or None where nobody wants it
    functions  f, g and, of an LSTM, h
    clip       the sums of the gates are clipped to -clip .. clip
    """

    kind: str
    direction: int
    backward: bool
    products: Buffer
    weights: Buffer
    bias: Buffer | None
    peepholes: Buffer | None
    states: tuple[Buffer, ...]
    given: tuple[bool, ...]
    y: Buffer | None
    last: tuple[Buffer | None, ...]
    functions: tuple[Activation, ...]
    clip: float | None
    input_forget: bool
    linear_before_reset: bool

    def moved(self, places: Mapping[Buffer, Buffer]) -> Recurrence:
        """With other buffers in place of those in `places`."""

        def place(buffer: Buffer | None) -> Buffer | None:
            return None if buffer is None else places.get(buffer, buffer)

        return replace(
            self,
            products=places.get(self.products, self.products),
            weights=places.get(self.weights, self.weights),
            bias=place(self.bias),
            peepholes=place(self.peepholes),
            states=tuple(places.get(state, state) for state in self.states),
            y=place(self.y),
            last=tuple(map(place, self.last)),
        )
