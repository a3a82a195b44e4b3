"""The kernel IR: loop nests whose body is one expression, control flow, and programs of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from onnxc.expression import Axis, Buffer, Expr, Index, Load
from onnxc.recurrence import Recurrence
from onnxc.target import Target
from onnxc.traversal import map_indices, walk

ALIGNMENT: Final = 64
"""Of every buffer in the workspace, in bytes: one cache line, the widest vector."""


@dataclass(frozen=True)
class Origin:
    """The ONNX node that something came from: "Equal-19", its name, "x float[2] -> y bool[2]".

    A node without a name goes by that of its first output.

    number  that of passes/provenance.py: where it, or what it took the place of, was in the model
    """

    operator: str
    name: str
    signature: str
    number: int = -1

    def __str__(self) -> str:
        return f"{self.operator} '{self.name}': {self.signature}"


@dataclass(frozen=True, eq=False)
class Loops:
    """For each point of `axes`, in order: out[where] = value.

    A packed buffer is read by elements but stored by bytes: then `where` is the one index of the
    byte and `value` the operation "pack" of as many elements as share it.

    role        which part of its origins' work this is, where a pass or an operator split it
    accumulate  an operation: then out[where] = operation(out[where], value)
    """

    out: Buffer
    where: tuple[Index, ...]
    axes: tuple[Axis, ...]
    value: Expr
    origins: tuple[Origin, ...] = ()
    role: str = ""
    accumulate: str = ""

    @property
    def partial(self) -> bool:
        """Whether elements that it does not store keep what they have: it reads them, in a way."""
        return bool(self.accumulate) or any(index.dynamic for index in self.where)

    def roots(self) -> tuple[Expr, ...]:
        """Every expression of the kernel: the value, and those that say where it goes."""
        return (self.value, *(expr for index in self.where for expr, _ in index.dynamic))

    def reads(self) -> tuple[Buffer, ...]:
        found = [node.buffer for node in walk(*self.roots()) if isinstance(node, Load)]
        return tuple(dict.fromkeys([*found, self.out] if self.partial else found))

    def writes(self) -> tuple[Buffer, ...]:
        return (self.out,)


@dataclass(frozen=True, eq=False)
class Routine:
    """What is no loop nest of expressions, such as a sort: a function of whole buffers.

    name     of a template below kernels/ and of a function of routines.py
    scratch  buffers that it works in
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    parameters: tuple[tuple[str, Any], ...] = ()
    scratch: tuple[Buffer, ...] = ()
    origins: tuple[Origin, ...] = ()
    role: str = ""

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(self.inputs))

    def writes(self) -> tuple[Buffer, ...]:
        return (*self.outputs, *self.scratch)


@dataclass(frozen=True, eq=False)
class Branch:
    """Runs `then` where the one element of `condition` is true, else `otherwise`."""

    condition: Buffer
    then: Program
    otherwise: Program
    origins: tuple[Origin, ...] = ()

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((self.condition, *self.then.reads(), *self.otherwise.reads())))

    def writes(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((*self.then.writes(), *self.otherwise.writes())))


@dataclass(frozen=True, eq=False)
class Repeat:
    """Runs `body` `count[0]` times while `condition[0]` is true (None: without such a limit).

    `counter` receives the number of the iteration. After each, every (state, next) pair of
    `carried` is copied from next to state; `condition` may be one of the states.

    recurrence  what it is in a recurrent network, so that a kernel may stand for it
    """

    count: Buffer | None
    condition: Buffer | None
    counter: Buffer | None
    body: Program
    carried: tuple[tuple[Buffer, Buffer], ...]
    origins: tuple[Origin, ...] = ()
    recurrence: Recurrence | None = None

    def reads(self) -> tuple[Buffer, ...]:
        limits = tuple(b for b in (self.count, self.condition) if b is not None)
        return tuple(dict.fromkeys((*limits, *self.body.reads(), *(n for _, n in self.carried))))

    def writes(self) -> tuple[Buffer, ...]:
        counter = () if self.counter is None else (self.counter,)
        return tuple(dict.fromkeys((*counter, *self.body.writes(), *(s for s, _ in self.carried))))


@dataclass(frozen=True, eq=False)
class Micro:
    """A tuned kernel: it computes what `twin` does, to a bound of the error.

    before      steps that the twin follows, as of what it reads that is stored nowhere as a whole
    name        of a template below kernels/
    inputs      what it reads: constants are packed for it
    parameters  what the template needs, of the module of tuned/ that made it
    epilogue    what becomes of each sum before it is stored, and that sum in it
    addends     what the epilogue loads
    starts      where in each argument the kernel begins, in elements: inputs, addends, scratch,
                results
    outputs     what it fills, of what its steps fill; by default what its twin does
    in_place    whether its result may lie wherever that of its twin may
    """

    name: str
    twin: Loops
    inputs: tuple[Buffer, ...]
    parameters: Any
    epilogue: Expr
    total: Expr
    addends: tuple[Load, ...] = ()
    scratch: tuple[Buffer, ...] = ()
    starts: tuple[int, ...] = ()
    before: tuple[Step, ...] = ()
    outputs: tuple[Buffer, ...] = ()
    in_place: bool = False

    @property
    def results(self) -> tuple[Buffer, ...]:
        return self.outputs or (self.twin.out,)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What computes the same in plain loops."""
        return (*self.before, self.twin)

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(dict.fromkeys(origin for step in self.steps for origin in step.origins))

    @property
    def role(self) -> str:
        return self.twin.role

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((*self.inputs, *(load.buffer for load in self.addends))))

    def writes(self) -> tuple[Buffer, ...]:
        return (*self.results, *self.scratch)


@dataclass(frozen=True, eq=False)
class Rows:
    """Kernels that share their outermost loop: all of them run for some rows, then for the next.

    axis    the first of every kernel's axes
    count   how many rows each computes before the next kernel does
    steps   merged kernels that compute the same one after the other, each for all rows
    inside  what only they use, each with the buffer of `count` rows that holds it
    """

    axis: Axis
    count: int
    steps: tuple[Loops, ...]
    inside: Mapping[Buffer, Buffer]

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(dict.fromkeys(origin for step in self.steps for origin in step.origins))

    @property
    def role(self) -> str:
        return ""

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """What it leaves, in the order in which it begins to store it."""
        return tuple(dict.fromkeys(step.out for step in self.steps if step.out not in self.inside))

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """Rows that need memory; those of one element are variables."""
        return tuple(rows for rows in self.inside.values() if rows.elements > self.count)

    def reads(self) -> tuple[Buffer, ...]:
        """What it needs from before: what it has not filled itself by then."""
        found: dict[Buffer, None] = {}
        stores: Counter[Buffer] = Counter()
        for step in self.steps:
            for buffer in step.reads():
                size = buffer.bytes if buffer.packed else buffer.elements
                if buffer not in self.inside and stores[buffer] < size:
                    found[buffer] = None
            if not step.partial:
                stores[step.out] += math.prod(axis.extent for axis in step.axes)
        return tuple(found)

    def writes(self) -> tuple[Buffer, ...]:
        return (*self.outputs, *self.scratch)


Step: TypeAlias = Loops | Micro | Routine | Branch | Repeat | Rows


@dataclass(frozen=True)
class Placed:
    """How the elements of a value lie in a buffer of another shape, by dimensions of the value.

    shape   of the value
    order   its dimensions from the outermost to the innermost, as the buffer has them
    begin   how much padding the buffer has before each of them
    whole   the shape of the value, where dimensions of it that are neighbours are one in `shape`
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    begin: tuple[int, ...]
    whole: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in order, and what they work on.

    notes      what became of ONNX nodes that have no kernel of their own
    actual     of each output whose size the data decides, the buffer that its shape is written to:
               int64, one element a dimension; the output's own shape is the maximum, its leading
               elements are the result
    offsets    bytes from the start of the workspace, set by plan_memory
    target     whom the tuned kernels are for; without one there are none
    placed     the buffers that hold a value in another layout, set by layout
    held       the name and shape of the value that a buffer without a name holds in the end
    views      ONNX nodes whose results are the memory of an operand, under another name or shape
    known      ONNX nodes whose results are known at compile time
    """

    inputs: tuple[Buffer, ...] = ()
    outputs: tuple[Buffer, ...] = ()
    steps: tuple[Step, ...] = ()
    notes: tuple[tuple[Origin, str], ...] = ()
    actual: Mapping[Buffer, Buffer] = field(default_factory=dict)
    offsets: Mapping[Buffer, int] = field(default_factory=dict)
    workspace_size: int = 0
    target: Target | None = None
    placed: Mapping[Buffer, Placed] = field(default_factory=dict)
    held: Mapping[Buffer, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    views: frozenset[Origin] = frozenset()
    known: frozenset[Origin] = frozenset()

    @property
    def written(self) -> tuple[Buffer, ...]:
        """What the caller gets: the outputs, each followed by its actual shape where it has one."""
        pairs = ((buffer, self.actual.get(buffer)) for buffer in self.outputs)
        return tuple(buffer for pair in pairs for buffer in pair if buffer is not None)

    @property
    def alignment(self) -> int:
        """Bytes, of the workspace: little models need not waste a cache line."""
        return ALIGNMENT if self.workspace_size > ALIGNMENT else 16

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(b for step in self.steps for b in step.reads()))

    def writes(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(b for step in self.steps for b in step.writes()))


def map_loops(program: Program, change: Callable[[Loops], Iterable[Step]]) -> Program:
    """The program with every Loops, in nested programs too, replaced by what `change` returns."""

    def step(old: Step) -> Iterable[Step]:
        match old:
            case Loops():
                return change(old)
            case Branch():
                then, otherwise = (map_loops(p, change) for p in (old.then, old.otherwise))
                return [replace(old, then=then, otherwise=otherwise)]
            case Repeat():
                return [replace(old, body=map_loops(old.body, change))]
            case Routine() | Micro() | Rows():
                return [old]

    return replace(program, steps=tuple(new for old in program.steps for new in step(old)))


def every_step(program: Program) -> Iterator[Step]:
    """The steps in the order of the text, each before those of its nested programs."""
    for step in program.steps:
        yield step
        match step:
            case Branch(_, then, otherwise):
                yield from every_step(then)
                yield from every_step(otherwise)
            case Repeat():
                yield from every_step(step.body)


def define(steps: tuple[Step, ...]) -> None:
    """Says of every workspace buffer that the steps write that they fill it, where first needed."""
    for step in steps:
        for buffer in step.writes():
            object.__setattr__(buffer, "made_by", steps)


def pending(*steps: Step, done: Container[Step] = ()) -> Iterator[Step]:
    """The steps that fill the buffers which `steps` read and nothing else fills, in order.

    Each once; what was defined together stays together, after what it reads. Those that are
    `done` are left out, with what they need.
    """
    visited: set[Step] = set()
    stack = [(group, False) for group in _makers(steps)]
    while stack:
        group, ready = stack.pop()
        if ready:
            yield from group
        elif group[0] not in visited and group[0] not in done:
            visited.add(group[0])
            stack.append((group, True))
            stack.extend((other, False) for other in _makers(group))


def _makers(steps: tuple[Step, ...]) -> list[tuple[Step, ...]]:
    """What fills the buffers that some steps read, the last first."""
    buffers = dict.fromkeys(buffer for step in steps for buffer in step.reads() if buffer.made_by)
    return [buffer.made_by for buffer in reversed(buffers)]


def with_origins(step: Step, origins: tuple[Origin, ...]) -> Step:
    """The step, and those of its programs, as the work of some nodes; unless they say whose."""
    if not step.origins and not isinstance(step, Micro | Rows):
        step = replace(step, origins=origins)
    match step:
        case Branch():
            then, otherwise = (_with_origins(p, origins) for p in (step.then, step.otherwise))
            return replace(step, then=then, otherwise=otherwise)
        case Repeat():
            return replace(step, body=_with_origins(step.body, origins))
    return step


def _with_origins(program: Program, origins: tuple[Origin, ...]) -> Program:
    return replace(program, steps=tuple(with_origins(step, origins) for step in program.steps))


def relocate(step: Step, places: Mapping[Buffer, Buffer]) -> Step:
    """The step with other buffers in place of those in `places`, of equally many elements."""

    def place(buffer: Buffer) -> Buffer:
        return places.get(buffer, buffer)

    def places_of(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(place(buffer) for buffer in buffers)

    if isinstance(step, Repeat) and step.recurrence is not None:
        step = replace(step, recurrence=step.recurrence.moved(places))
    if not any(buffer in places for buffer in (*step.reads(), *step.writes())):
        return step
    match step:
        case Loops():
            index = tuple(_relocated_index(index, places) for index in step.where)
            if place(step.out).shape != step.out.shape and len(index) > 1:
                index = (step.out.flat(index),)
            value = _relocated_loads(step.value, places)
            return replace(step, out=place(step.out), where=index, value=value)
        case Micro() | Rows():
            raise AssertionError("lower moves buffers before kernels are chosen")
        case Routine():
            return replace(
                step,
                inputs=places_of(step.inputs),
                outputs=places_of(step.outputs),
                scratch=places_of(step.scratch),
            )
        case Branch():
            return replace(
                step,
                condition=place(step.condition),
                then=_relocated_program(step.then, places),
                otherwise=_relocated_program(step.otherwise, places),
            )
        case Repeat():
            carried = tuple((place(state), place(value)) for state, value in step.carried)
            return replace(
                step,
                count=None if step.count is None else place(step.count),
                condition=None if step.condition is None else place(step.condition),
                counter=None if step.counter is None else place(step.counter),
                body=_relocated_program(step.body, places),
                carried=carried,
            )


def _relocated_program(program: Program, places: Mapping[Buffer, Buffer]) -> Program:
    return replace(program, steps=tuple(relocate(step, places) for step in program.steps))


def _relocated_index(index: Index, places: Mapping[Buffer, Buffer]) -> Index:
    dynamic = tuple((_relocated_loads(expr, places), stride) for expr, stride in index.dynamic)
    return Index(index.const, index.terms, dynamic)


def _relocated_loads(root: Expr, places: Mapping[Buffer, Buffer]) -> Expr:
    return map_indices(root, lambda index: index, buffers=places)
