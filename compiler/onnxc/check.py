"""A checker of programs, for tests and for ONNXC_DEBUG=1; check_plan.py checks their memory plan.

It shares no code with the passes whose work it proves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnxc.check_rows import rows_faults
from onnxc.dtypes import BOOL, INT64, UINT8
from onnxc.expression import (
    Apply,
    At,
    Axis,
    Buffer,
    Checked,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    affine,
    static,
)
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows
from onnxc.operations import OPERATIONS
from onnxc.traversal import walk


class InvalidProgramError(AssertionError):
    """A pass broke a rule of the kernel IR; the message lists every place."""


def check_program(program: Program) -> None:
    """Raises InvalidProgramError unless every step is well formed and reads what is written."""
    interface = {*program.inputs, *program.written}
    faults = [*_interface_faults(program), *_Steps(interface).faults(program, Counter(), "")]
    if faults:
        raise InvalidProgramError("\n".join(faults))


def _interface_faults(program: Program) -> Iterator[str]:
    for kind, buffers in (("input", program.inputs), ("output", program.written)):
        for buffer in buffers:
            if buffer.kind != kind:
                yield f"{kind}s: {described(buffer)} is of kind {buffer.kind}"
    for buffer, shape in program.actual.items():
        if buffer not in program.outputs:
            yield f"{described(buffer)} has an actual shape but is no output"
        if (shape.dtype, shape.shape) != (INT64, (len(buffer.shape),)):
            yield f"the actual shape of {described(buffer)} is {shape.dtype}{list(shape.shape)}"


def described(buffer: Buffer) -> str:
    return f"'{buffer.name}'" if buffer.name else f"an unnamed {buffer.kind} buffer"


def stored(buffer: Buffer) -> int:
    """How many stores fill the buffer: its elements, or the bytes where it is packed."""
    return buffer.bytes if buffer.packed else buffer.elements


def filled(loops: Loops) -> int:
    """How many elements it stores, for certain; of a partial kernel nothing is."""
    return 0 if loops.partial else _points(loops.axes)


def _points(axes: Iterable[Axis]) -> int:
    points = 1
    for axis in axes:
        points *= axis.extent
    return points


class _Steps:
    """Walks the steps in order, with the number of stores that each buffer has had."""

    def __init__(self, interface: set[Buffer]) -> None:
        self.interface = interface

    def faults(self, program: Program, stores: Counter[Buffer], path: str) -> Iterator[str]:
        for number, step in enumerate(program.steps):
            where = f"{path}step {number}"
            match step:
                case Loops():
                    yield from self._loops(step, stores, where)
                case Micro():
                    yield from self.faults(Program(steps=step.steps), stores, f"{where}, ")
                case Rows():
                    yield from (f"{where}: {fault}" for fault in rows_faults(step))
                    yield from self.faults(Program(steps=step.steps), stores, f"{where}, ")
                case Routine():
                    yield from self._routine(step, stores, where)
                case Branch():
                    yield from self._branch(step, stores, where)
                case Repeat():
                    yield from self._repeat(step, stores, where)
        for buffer in program.written:
            if stores[buffer] < stored(buffer):
                yield f"{path}end: output {described(buffer)} is not written"

    def _loops(self, loops: Loops, stores: Counter[Buffer], where: str) -> Iterator[str]:
        yield from (f"{where}: {fault}" for fault in _loops_faults(loops))
        if _points(loops.axes):
            yield from self._unread(loops.reads(), stores, where)
        yield from self._written(loops.out, where)
        stores[loops.out] += filled(loops)

    def _routine(self, routine: Routine, stores: Counter[Buffer], where: str) -> Iterator[str]:
        yield from self._unread(routine.inputs, stores, where)
        for buffer in routine.writes():
            yield from self._written(buffer, where)
            stores[buffer] += stored(buffer)
            if buffer in routine.inputs or routine.writes().count(buffer) > 1:
                yield f"{where}: {described(buffer)} is used twice"
        if any(buffer.packed for buffer in (*routine.inputs, *routine.writes())):
            yield f"{where}: a routine takes no packed buffer"

    def _branch(self, branch: Branch, stores: Counter[Buffer], where: str) -> Iterator[str]:
        yield from _scalar_faults(branch.condition, "condition", where)
        yield from self._unread([branch.condition], stores, where)
        then, otherwise = Counter(stores), Counter(stores)
        yield from self.faults(branch.then, then, f"{where}, then, ")
        yield from self.faults(branch.otherwise, otherwise, f"{where}, else, ")
        stores.update({b: min(then[b], otherwise[b]) - stores[b] for b in then | otherwise})

    def _repeat(self, repeat: Repeat, stores: Counter[Buffer], where: str) -> Iterator[str]:
        states = [state for state, _ in repeat.carried]
        limits = [b for b in (repeat.count, repeat.condition) if b is not None]
        if repeat.condition is not None:
            yield from _scalar_faults(repeat.condition, "condition", where)
        for role, number in (("count", repeat.count), ("counter", repeat.counter)):
            if number is not None and (number.elements, number.dtype) != (1, INT64):
                yield f"{where}: the {role} is no int64 scalar"
        yield from self._unread([*limits, *states], stores, where)
        inside = Counter(stores)
        if repeat.counter is not None:
            yield from self._written(repeat.counter, where)
            inside[repeat.counter] += 1
        yield from self.faults(repeat.body, inside, f"{where}, body, ")
        yield from self._unread([value for _, value in repeat.carried], inside, where)
        for state, value in repeat.carried:
            yield from self._written(state, where)
            if (state.dtype, stored(state)) != (value.dtype, stored(value)):
                yield f"{where}: {described(value)} does not fit the state {described(state)}"
            if value in states:
                yield f"{where}: {described(value)} is both a state and what a state becomes"
        if len(set(states)) != len(states):
            yield f"{where}: a state is carried twice"

    def _unread(
        self, buffers: Iterable[Buffer], stores: Counter[Buffer], where: str
    ) -> Iterator[str]:
        for buffer in buffers:
            if buffer.kind == "input" and buffer not in self.interface:
                yield f"{where}: {described(buffer)} is no input of the program"
            given = buffer.kind == "input" or buffer.data is not None
            if not given and stores[buffer] < stored(buffer):
                yield f"{where}: reads {described(buffer)} before it is written"

    def _written(self, buffer: Buffer, where: str) -> Iterator[str]:
        if buffer.kind not in ("output", "workspace") or buffer.data is not None:
            yield f"{where}: writes {described(buffer)}, which is of kind {buffer.kind}"
        elif buffer.kind == "output" and buffer not in self.interface:
            yield f"{where}: {described(buffer)} is no output of the program"


def _scalar_faults(buffer: Buffer, role: str, where: str) -> Iterator[str]:
    if buffer.elements != 1 or buffer.dtype is not BOOL:
        yield f"{where}: the {role} is no bool scalar"


def _loops_faults(loops: Loops) -> Iterator[str]:
    yield from _store_faults(loops)
    if len(set(loops.axes)) != len(loops.axes):
        yield "an axis loops twice"
    scopes = [_Scope(root, loops.axes) for root in loops.roots()]
    seen: set[tuple[Expr, tuple[Axis, ...], bool]] = set()
    while scopes:
        scope = scopes.pop()
        for node in walk(scope.root, inner=False):
            yield from _node_faults(node, scope)
            if not isinstance(node, Fold | Guard) or (node, scope.axes, scope.guarded) in seen:
                continue
            seen.add((node, scope.axes, scope.guarded))
            axes = node.axes if isinstance(node, Fold) else ()
            if set(axes) & set(scope.axes) or len(set(axes)) != len(axes):
                yield "a Fold binds an axis that is bound already"
            bounds = node.bounds if isinstance(node, Guard) else ()
            inner = (*scope.bounds, *bounds)
            scopes.append(_Scope(node.value, (*scope.axes, *axes), inner))


@dataclass(frozen=True)
class _Scope:
    """Where an expression is computed: in which loops, and under which Guards' bounds."""

    root: Expr
    axes: tuple[Axis, ...]
    bounds: tuple[tuple[Index, int], ...] = ()

    @property
    def guarded(self) -> bool:
        return bool(self.bounds)


def _store_faults(loops: Loops) -> Iterator[str]:
    out, value = loops.out, loops.value
    if not out.packed:
        if value.dtype is not out.dtype:
            yield f"stores {value.dtype} into {out.dtype}"
        yield from _place_faults(out, loops.where, _Scope(value, loops.axes), out.elements)
        return
    if loops.partial:
        yield "stores part of a packed buffer"
    packs = isinstance(value, Apply) and value.operation == "pack" and value.dtype is UINT8
    if not packs or [arg.dtype for arg in value.operands()] != [out.dtype] * out.dtype.per_byte:
        yield f"stores no packed {out.dtype}"
    if len(loops.where) != 1:
        yield "a packed buffer is stored by one index, that of the byte"
    else:
        yield from _index_faults(loops.where[0], _Scope(value, loops.axes), out.bytes)


def _node_faults(node: Expr, scope: _Scope) -> Iterator[str]:
    match node:
        case At(_, index):
            yield from _index_faults(index, scope, None)
        case Load(dtype, buffer, indices):
            if dtype is not buffer.dtype:
                yield f"loads {dtype} from {described(buffer)} of {buffer.dtype}"
            yield from _place_faults(buffer, indices, scope, buffer.elements)
        case Apply():
            yield from _operation_faults(node)
        case Guard(dtype, bounds, value, otherwise):
            if value.dtype is not dtype or otherwise.dtype is not dtype:
                yield f"a Guard of {value.dtype}, else {otherwise.dtype}"
            for index, _ in bounds:
                yield from _index_faults(index, scope, None)
        case Fold(dtype, operation, _, value):
            known = operation in ("sum", "prod", "max", "min") and dtype is value.dtype
            if not known or dtype.kind not in ("float", "signed", "unsigned") or dtype.packed:
                yield f"a Fold of {value.dtype} by {operation} to {dtype}"
        case Checked(dtype, value, condition, _):
            if condition.dtype is not BOOL or dtype is not value.dtype:
                yield f"Checked of {value.dtype} by {condition.dtype}"


def _operation_faults(node: Apply) -> Iterator[str]:
    """Unknown, of the wrong kinds, or of operands that must be of one type but are not."""
    operation = OPERATIONS.get(node.operation)
    if operation is None:
        yield f"no operation {node.operation}"
        return
    mixed = {"where": 1, "power": 1}  # the first operand may be of another type
    args = node.args[mixed.get(node.operation, 0) :]
    if len({arg.dtype for arg in args}) != 1:
        yield f"{node.operation} of different types"
    if any(arg.dtype.kind not in operation.kinds for arg in args):
        yield f"{node.operation} of {args[0].dtype}"
    wanted = {"bool": BOOL, "same": args[-1].dtype}.get(operation.result or "", node.dtype)
    if node.dtype is not wanted:
        yield f"{node.operation} to {node.dtype}"


def _place_faults(
    buffer: Buffer, indices: tuple[Index, ...], scope: _Scope, elements: int
) -> Iterator[str]:
    """One index a dimension, each within it, or one flat index within the buffer."""
    if len(indices) == len(buffer.shape):
        for index, extent in zip(indices, buffer.shape, strict=True):
            yield from _index_faults(index, scope, extent)
    elif len(indices) == 1:
        yield from _index_faults(indices[0], scope, elements)
    else:
        yield f"{len(indices)} indices for {described(buffer)} of rank {len(buffer.shape)}"


def _index_faults(index: Index, scope: _Scope, extent: int | None) -> Iterator[str]:
    """Out of range, unless a Guard keeps it in; where it guards a flat index is not told."""
    if any(axis not in scope.axes for axis, _ in index.terms):
        yield "an index uses an axis that nothing loops over"
    if index != affine(index.const, index.terms, index.dynamic):
        yield "an index is not in normal form"
    if any(expr.dtype.kind not in ("signed", "unsigned", "bool") for expr, _ in index.dynamic):
        yield "an index that is no integer"
    span = index.span()
    if extent is None or span is None or not _points(scope.axes):
        return
    guarded = (index, extent) in scope.bounds or (scope.guarded and len(index.terms) != 1)
    if guarded:
        return
    if scope.guarded and (span := _guarded_span(index, scope)) is None:
        return
    if span[0] < 0 or span[1] >= extent:
        yield f"an index of {span[0]} to {span[1]} into {extent} elements"


def _guarded_span(index: Index, scope: _Scope) -> tuple[int, int] | None:
    """The span of an index of one axis where the Guards hold; None where they never do."""
    ((axis, stride),) = index.terms
    least, most = 0, static(axis.extent) - 1
    for bound, extent in scope.bounds:
        if len(bound.terms) == 1 and bound.terms[0][0] is axis and not bound.dynamic:
            step, before, after = static(bound.terms[0][1]), bound.const, extent - 1 - bound.const
            if step < 0:
                step, before, after = -step, after, before
            least, most = max(least, -(before // step)), min(most, after // step)
    ends = sorted(index.const + static(stride) * n for n in (least, most))
    return (ends[0], ends[1]) if least <= most else None
