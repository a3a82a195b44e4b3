"""An LSTM or GRU over all times of one direction, after the products with the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Buffer
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Step
from onnxc.recurrence import Activation, Recurrence
from onnxc.target import Target
from onnxc.tuned.product import in_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

BLOCK: Final = 16
"""Hidden units whose weights lie together."""
PANEL: Final = 64
"""Those of the third gate of a GRU that needs the gate r before."""
LEAST_WORK: Final = 64
"""Multiplications at one time below which the plain loops stay."""
ROLE: Final = "all times"


@dataclass(frozen=True)
class Recurrent:
    """What kernels/recurrent.c.j2 writes, which says what its fields are."""

    kind: str
    times: int
    batch: int
    hidden: int
    x_step: int
    y_step: int
    outputs: tuple[str, ...]
    initial: tuple[str, ...]
    functions: tuple[Activation, ...]
    clip: float | None
    input_forget: bool
    peepholes: bool
    linear_before_reset: bool
    reset_bias: bool
    in_order: bool


def with_recurrent_kernels(program: Program, target: Target) -> Program:
    """With kernels in the place of recurrences, in nested programs too, and of the steps around.

    Those are what begins the states with zeros, fills the output before the first row of it is
    there, and keeps the last states.
    """
    steps = (_inside(step, target) for step in _replaced(program.steps, target))
    return replace(program, steps=tuple(steps))


def _inside(step: Step, target: Target) -> Step:
    match step:
        case Branch():
            then, otherwise = (
                with_recurrent_kernels(part, target) for part in (step.then, step.otherwise)
            )
            return replace(step, then=then, otherwise=otherwise)
        case Repeat():
            return replace(step, body=with_recurrent_kernels(step.body, target))
    return step


def _replaced(steps: Sequence[Step], target: Target) -> list[Step]:
    found = [*steps]
    for step in steps:
        if isinstance(step, Repeat) and step.recurrence and _fits(step.recurrence, target):
            around = _around(step, step.recurrence, found)
            kernel = _kernel(step.recurrence, around, target)
            place = found.index(step)
            found[place] = kernel
            found = [other for other in found if other not in around]
    return found


def _fits(known: Recurrence, target: Target) -> bool:
    hidden = known.weights.shape[2]
    work = known.weights.shape[1] * hidden * known.products.shape[1]
    everywhere = target.variants[-1].lanes > 1 or target.portable
    return everywhere and work >= LEAST_WORK and all(in_vectors(f.value) for f in known.functions)


def _around(repeat: Repeat, known: Recurrence, steps: Sequence[Step]) -> list[Step]:
    """The Repeat, and the loops besides it that a kernel does too."""
    begun = [s for s, given in zip(known.states, known.given, strict=True) if not given]
    filled = {*begun, known.y}
    around: list[Step] = []
    for step in steps:
        ours = step is repeat
        if isinstance(step, Loops):
            ours = step.out in filled or any(state in step.reads() for state in known.states)
        if ours:
            around.append(step)
    return around


def _kernel(known: Recurrence, around: Sequence[Step], target: Target) -> Micro:
    *before, twin = around
    assert isinstance(twin, Loops), "a recurrence keeps its last states"
    times, batch, _ = known.products.shape
    hidden = known.weights.shape[2]
    x_size, y_size = batch * known.products.shape[2], batch * hidden
    y_pitch = known.weights.shape[0] * y_size
    sign, first = (-1, times - 1) if known.backward else (1, 0)
    constants = _constants(known)
    given = [name for name, there in zip(("h", "c"), known.given, strict=False) if there]
    last = {f"y_{name}": b for name, b in zip(("h", "c"), known.last, strict=False) if b}
    shown = {"y": known.y, **last} if known.y else last
    start = known.direction * y_size
    inputs = (
        known.products,
        *constants.values(),
        *(s for s, there in zip(known.states, known.given, strict=True) if there),
    )
    return Micro(
        "recurrent",
        replace(twin, role=ROLE),
        inputs,
        Recurrent(
            known.kind,
            times,
            batch,
            hidden,
            sign * x_size,
            sign * y_pitch,
            tuple(shown),
            tuple(f"initial_{name}" for name in given),
            known.functions,
            known.clip,
            known.input_forget,
            "peepholes" in constants,
            known.linear_before_reset,
            "reset_bias" in constants,
            target.portable,
        ),
        twin.value,
        twin.value,
        scratch=(_scratch(known, batch, hidden),),
        starts=(
            first * x_size,
            *(0 for _ in inputs),
            *(start + (first * y_pitch if name == "y" else 0) for name in shown),
        ),
        before=tuple(before),
        outputs=tuple(shown.values()),
    )


def _scratch(known: Recurrence, batch: int, hidden: int) -> Buffer:
    """Both of the states h that take turns, and what else a time leaves for the next or itself."""
    states = 3 if known.kind == "LSTM" else 2 if known.linear_before_reset else 4
    return Buffer("", (states * batch * _rounded(hidden, BLOCK),), FLOAT, "workspace")


def _constants(known: Recurrence) -> dict[str, Buffer]:
    """What the kernel reads packed, in the order of its parameters."""
    d = known.direction
    weights = _direction(known.weights, d)
    gates = weights.shape[0] // weights.shape[1]
    found = {"weights": _weights(known, weights, gates)}
    if known.kind == "GRU" and known.linear_before_reset and known.bias is not None:
        found["reset_bias"] = _units(_direction(known.bias, d).reshape(-1, weights.shape[1])[-1:])
    if known.peepholes is not None:
        found["peepholes"] = _units(_direction(known.peepholes, d).reshape(3, -1))
    names = {"weights": known.weights, "reset_bias": known.bias, "peepholes": known.peepholes}
    return {
        key: Buffer(getattr(names[key], "name", ""), values.shape, FLOAT, "constant", values)
        for key, values in found.items()
    }


def _direction(buffer: Buffer, direction: int) -> Floats:
    assert buffer.data is not None
    values: Any = np.asarray(buffer.data, np.float32).reshape(buffer.shape)
    return np.asarray(values[direction])


def _weights(known: Recurrence, weights: Floats, gates: int) -> Floats:
    """R [gates * hidden, hidden] as the kernel walks it, flat."""
    if known.kind == "LSTM" or known.linear_before_reset:
        return _interleaved(weights, gates)
    hidden = weights.shape[1]
    third = _units(weights[2 * hidden :].T)
    panels = [third[:, n : n + PANEL].ravel() for n in range(0, third.shape[1], PANEL)]
    return np.concatenate([_interleaved(weights[: 2 * hidden], 2), *panels])


def _interleaved(weights: Floats, gates: int) -> Floats:
    """[gates * hidden, hidden] as [units / BLOCK][hidden][gates][BLOCK], flat."""
    hidden = weights.shape[1]
    columns = _units(weights.reshape(gates, hidden, hidden).transpose(0, 2, 1))
    blocks = columns.reshape(gates, hidden, -1, BLOCK).transpose(2, 1, 0, 3)
    return np.ascontiguousarray(blocks).ravel()


def _units(values: Floats) -> Floats:
    """[..., hidden] with zeros up to a multiple of BLOCK."""
    hidden = values.shape[-1]
    sides = [(0, 0)] * (values.ndim - 1) + [(0, _rounded(hidden, BLOCK) - hidden)]
    return np.ascontiguousarray(np.pad(values, sides))


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
