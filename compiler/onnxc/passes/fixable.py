"""Which inputs of the graph, made constants, would make a value known at compile time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from onnxc.errors import Problem, WordedProblem
from onnxc.passes.fix import Fix
from onnxc.values import static_shape, values_of

MAX_ELEMENTS: Final = 16
"""Of an input that somebody would write on a command line."""
MAX_NODES: Final = 1000
_SHAPES: Final = ("Shape", "Size")
"""What they make depends on no data."""


@dataclass(frozen=True)
class FixProblem(WordedProblem):
    """A problem that goes away when inputs are fixed; of each its name and values to try."""

    candidates: tuple[tuple[str, tuple[Fix, ...]], ...] = ()


def with_inputs(problem: Problem, late: Iterable[ir.Value], lengths: Sequence[int]) -> Problem:
    """The problem with the inputs that decide the `late` values; as it is where those are others.

    lengths  a shape that an input may ask for, to be tried where it has as many elements
    """
    found = _deciding(late)
    if not found:
        return problem
    inputs, constants = found
    candidates = [
        (value.name or "", tuple(_candidates(value, constants, lengths))) for value in inputs
    ]
    fields = (problem.kind, problem.where, problem.fact, problem.remedy, problem.operands)
    return FixProblem(*fields, python=problem.remedy, candidates=tuple(candidates))


def _deciding(late: Iterable[ir.Value]) -> tuple[list[ir.Value], list[ir.TensorProtocol]] | None:
    """The inputs from which values are computed, and the small constants met on the way.

    None where one of the inputs is nothing for a command line.
    """
    operands = set(late)
    pending, seen = list(operands), set(operands)
    inputs: list[ir.Value] = []
    constants: list[ir.TensorProtocol] = []
    nodes = 0
    while pending:
        value = pending.pop()
        node = value.producer()
        if value.const_value is not None:
            constants += [value.const_value] if value.const_value.size == 1 else []
        elif value.is_graph_input():
            if not _is_small(value, numbers=value in operands):
                return None
            inputs.append(value)
        elif node is None or nodes > MAX_NODES:
            return None
        elif node.op_type not in _SHAPES:
            nodes += 1
            new = [v for v in node.inputs if v is not None and v not in seen]
            seen.update(new)
            pending += new
    return (inputs, constants) if inputs else None


def _is_small(value: ir.Value, *, numbers: bool) -> bool:
    """Whether somebody would fix it: of floats, which may be data, one or those that `numbers` is.

    numbers  it is an operand that is asked for itself, such as scales
    """
    shape = static_shape(value)
    dtype = value.dtype
    if shape is None or dtype is None or not 1 <= math.prod(shape) <= MAX_ELEMENTS:
        return False
    if dtype.is_floating_point():
        return numbers or math.prod(shape) == 1
    return dtype is ir.DataType.BOOL or dtype.is_integer()


def _candidates(
    value: ir.Value, constants: Sequence[ir.TensorProtocol], lengths: Sequence[int]
) -> Iterable[Fix]:
    """Values of the input's type, the likely ones first."""
    if value.dtype is ir.DataType.BOOL:
        yield from (False, True)
        return
    for constant in constants:
        if constant.dtype is value.dtype and constant.dtype is not None:
            yield values_of(constant).reshape(-1)[0].item()
    number = 1 if value.dtype is not None and value.dtype.is_integer() else 1.0
    yield number
    elements = math.prod(static_shape(value) or ())
    if elements > 1 and isinstance(number, int):
        if len(lengths) == elements:
            yield list(lengths)
        yield [-1, *[1] * (elements - 1)]
    yield 0 * number
