"""How much a kernel does: multiply-accumulates, bytes that it moves, in which arithmetic.

A multiply-accumulate is a multiplication of two values, neither of which is a number in the code,
whose product goes into a sum over loops. That is how operators state their work: a kernel that
reaches the same sums with fewer multiplications (winograd) counts as much as any other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from onnxc.dtypes import ElementType
from onnxc.expression import (
    Apply,
    Axis,
    Buffer,
    Checked,
    Const,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    static,
)
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows, Step
from onnxc.traversal import axes_read, walk

MOVES: Final = "none"
"""The arithmetic of a kernel that only moves values."""
FLOATS: Final = ("float", "half", "bits", "complex")
"""Kinds of element types that are no integers."""
SELECTIONS: Final = frozenset({"where", "pack", "truth"})
"""Operations that compute nothing."""
Products = Counter[str]
"""Multiply-accumulates by arithmetic, such as "float32" or "int8"."""


def trips(step: Repeat) -> int | None:
    """How often its body runs; None where that is decided at run time."""
    if step.condition is not None or step.count is None or step.count.data is None:
        return None
    return max(0, int(step.count.data.reshape(-1)[0]))


def products(step: Step) -> Products:
    """Of one execution of a step; what is nested in control flow counts there."""
    match step:
        case Loops():
            return _products_of_loops(step)
        case Micro() | Rows():
            return sum((_products_inside(part) for part in step.steps), Products())
        case Routine():
            return _products_of_routine(step)
    return Products()


def _products_inside(step: Step) -> Products:
    """Of a step and of those nested in it; where nobody knows how often they run, once."""
    match step:
        case Branch():
            both = (_products_of_program(step.then), _products_of_program(step.otherwise))
            return max(both, key=lambda found: found.total())
        case Repeat():
            times = trips(step)
            inner = _products_of_program(step.body)
            return Products({k: n * (1 if times is None else times) for k, n in inner.items()})
    return products(step)


def _products_of_program(program: Program) -> Products:
    return sum((_products_inside(step) for step in program.steps), Products())


def _products_of_loops(loops: Loops) -> Products:
    found = Products()
    for node in walk(*loops.roots()):
        if isinstance(node, Fold) and node.operation == "sum":
            _count(found, _factors(node.value), points(node.value, node.axes))
    if loops.accumulate == "add":
        _count(found, _factors(loops.value), math.prod(static(a.extent) for a in loops.axes))
    return found


def points(node: Expr, around: Iterable[Axis] = ()) -> int:
    """How many values a node has: one for each point of the axes that it reads and those around.

    The axes of a Fold inside are its own: its value is one for all of their points.
    """
    folded = {axis for fold in walk(node) if isinstance(fold, Fold) for axis in fold.axes}
    return math.prod(static(axis.extent) for axis in (axes_read(node) - folded) | {*around})


def _count(found: Products, muls: Iterable[Apply], times: int) -> None:
    for mul in muls:
        found[_of_products(mul)] += times


def _factors(value: Expr) -> Iterator[Apply]:
    """The multiplications whose products are added: not those inside of others, or of functions."""
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        inner: tuple[Expr, ...] = ()
        match node:
            case Apply(_, "mul", args):
                if not any(isinstance(arg, Const) for arg in args):
                    yield node
                    continue
                inner = args
            case Apply(_, "add" | "sub" | "neg" | "cast", args):
                inner = args
            case Apply(_, "where", (_, *args)):
                inner = tuple(args)
            case Guard(_, _, value, otherwise):
                inner = (value, otherwise)
            case Checked(_, value, _, _):
                inner = (value,)
        stack += [operand for operand in inner if operand not in seen]
        seen.update(inner)


def _of_products(mul: Apply) -> str:
    """float32 and the like; of integers the width of the operands as they are stored."""
    if mul.dtype.kind in FLOATS:
        return mul.dtype.numpy
    loads = [node.buffer.dtype for node in _values(mul) if isinstance(node, Load)]
    bits = max((dtype.bits for dtype in loads if dtype.kind not in FLOATS), default=mul.dtype.bits)
    return f"int{min(bits, mul.dtype.bits)}"


def _products_of_routine(step: Routine) -> Products:
    """Of elimination, which subtracts multiples of rows; the others multiply nothing into sums."""
    if step.name != "determinant":
        return Products()
    parameters = dict(step.parameters)
    size = parameters["size"]
    each = (size - 1) * size * (2 * size - 1) // 6
    return Products({"float64": parameters["matrices"] * each}) if each else Products()


def arithmetic(step: Step) -> str:
    """Of its products; where it has none, of all that it computes. MOVES where that is nothing."""
    found = products(step)
    if found:
        return found.most_common(1)[0][0]
    computed = [*_computed(step)]
    if not computed:
        return MOVES
    floats = [dtype for dtype in computed if dtype.kind in FLOATS]
    return max(floats or computed, key=lambda dtype: dtype.bits).numpy


def rescaled(step: Step) -> tuple[int, str]:
    """(results, arithmetic): how many results one execution computes in floats of integer sums.

    As where each sum of bytes is scaled, added to and rounded. (0, "") of a step that has no such
    results, or whose own arithmetic is of floats.
    """
    if is_float(arithmetic(step)):
        return 0, ""
    parts = step.steps if isinstance(step, Micro | Rows) else (step,)
    results, floats = 0, set[ElementType]()
    for part in parts:
        if isinstance(part, Loops):
            found = {dtype for dtype in _computed(part) if dtype.kind in FLOATS}
            results += math.prod(static(axis.extent) for axis in part.axes) if found else 0
            floats |= found
    widest = max(floats, key=lambda dtype: dtype.bits, default=None)
    return results, "" if widest is None else widest.numpy


def is_float(name: str) -> bool:
    """Whether an arithmetic is one of floating point."""
    return name.startswith(("float", "bfloat", "complex"))


def _computed(step: Step) -> Iterator[ElementType]:
    match step:
        case Loops():
            for node in _values(step.value):
                if isinstance(node, Fold) or (
                    isinstance(node, Apply) and node.operation not in SELECTIONS
                ):
                    yield node.dtype
                    yield from (arg.dtype for arg in getattr(node, "args", ()))
            if step.accumulate:
                yield step.out.dtype
        case Micro() | Rows():
            for part in step.steps:
                yield from _computed(part)
        case Repeat():
            for part in step.body.steps:
                yield from _computed(part)
        case Routine() if step.name == "determinant":
            yield step.inputs[0].dtype
        case Routine() if step.name == "cumulate":
            yield step.outputs[0].dtype
        case Routine() if step.name != "border":
            # Sorts compare.
            yield from (buffer.dtype for buffer in step.inputs)


def _values(root: Expr) -> Iterator[Expr]:
    """The nodes of an expression but for those that only say where to read."""
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        yield node
        inner: tuple[Expr, ...] = ()
        match node:
            case Apply(_, _, args):
                inner = args
            case Fold(_, _, _, value, _):
                inner = (value,)
            case Guard(_, _, value, otherwise):
                inner = (value, otherwise)
            case Checked(_, value, _, _):
                inner = (value,)
        stack += [operand for operand in inner if operand not in seen]
        seen.update(inner)


def bytes_read(step: Step) -> dict[Buffer, int]:
    """Of each buffer that a step reads, the bytes that it needs: each once, however often.

    Of what is read through indices known now, that is the part that they reach, else all of it.
    """
    match step:
        case Loops():
            return {b: _bytes(b, _reached(b, [step])) for b in step.reads()}
        case Micro() | Rows():
            plain = [part for part in step.steps if isinstance(part, Loops)]
            nested = {b for part in step.steps if part not in plain for b in part.reads()}
            read = {b for part in plain for b in part.reads()} - nested
            return {
                b: _bytes(b, _reached(b, plain)) if b in read else b.bytes for b in step.reads()
            }
        case Branch(condition):
            return {condition: condition.bytes}
        case Repeat():
            limits = (b for b in (step.count, step.condition) if b is not None and b.data is None)
            return {b: b.bytes for b in (*limits, *(value for _, value in step.carried))}
    return {b: b.bytes for b in step.reads()}


def bytes_written(step: Step) -> dict[Buffer, int]:
    """Of each buffer that a step fills, as bytes_read; what it only works in is left out."""
    match step:
        case Loops():
            return {step.out: _bytes(step.out, _filled(step.out, [step]))}
        case Micro() | Rows():
            plain = [part for part in step.steps if isinstance(part, Loops)]
            outs = step.results if isinstance(step, Micro) else step.outputs
            ours = {part.out for part in plain if part.out in outs}
            return {b: _bytes(b, _filled(b, plain)) if b in ours else b.bytes for b in outs}
        case Branch():
            return {}
        case Repeat():
            counter = () if step.counter is None else (step.counter,)
            return {b: b.bytes for b in (*counter, *(state for state, _ in step.carried))}
        case Routine(name="border"):
            return {step.outputs[0]: _border_bytes(step)}
    return {b: b.bytes for b in step.outputs}


def _border_bytes(step: Routine) -> int:
    """Its runs are (first element, elements, how many such runs, from one to the next)."""
    parameters: dict[str, Any] = dict(step.parameters)
    each = sum(length * count for _, length, count, _ in parameters["runs"])
    return int(parameters["batches"] * each * step.outputs[0].dtype.size)


def _bytes(buffer: Buffer, elements: int) -> int:
    return buffer.bytes if elements >= buffer.elements else buffer.dtype.packed_bytes(elements)


def _reached(buffer: Buffer, kernels: Iterable[Loops]) -> int:
    """The elements of a buffer that some kernels read, at most."""
    found = [
        node
        for loops in kernels
        for node in walk(*loops.roots())
        if isinstance(node, Load) and node.buffer is buffer
    ]
    partial = any(loops.partial and loops.out is buffer for loops in kernels)
    return buffer.elements if partial else _spread(buffer, [load.flat for load in found])


def _filled(buffer: Buffer, kernels: Iterable[Loops]) -> int:
    """The elements, or bytes where they are packed, that some kernels store, at most."""
    places = [k.where for k in kernels if k.out is buffer]
    flat = [where[0] if len(where) == 1 else buffer.flat(where) for where in places]
    if buffer.packed:
        return buffer.elements
    return _spread(buffer, flat)


def _spread(buffer: Buffer, places: list[Index]) -> int:
    """How many elements indices reach at most: the product of their loops, inside their ends."""
    total, low, high = 0, buffer.elements, -1
    for place in places:
        axes = {axis for axis, _ in place.terms}
        for expr, _ in place.dynamic:
            axes |= axes_read(expr)
        total += math.prod(static(axis.extent) for axis in axes)
        first, last = place.span() or (0, buffer.elements - 1)
        low, high = min(low, max(first, 0)), max(high, min(last, buffer.elements - 1))
    return max(0, min(total, high - low + 1))


def total(found: Mapping[Buffer, int], *, constants: bool | None = None) -> int:
    """The bytes of some buffers: of all, of constants only, or of all others."""
    wanted = (True, False) if constants is None else (constants,)
    return sum(size for buffer, size in found.items() if (buffer.data is not None) in wanted)
