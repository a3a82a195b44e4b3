"""hold_floats: what kernels compute with as floats is a float in memory too, not one of 16 bits.

Operators compute with floats and round their results to the type of 16 bits that the model says.
The values stay those, to the last bit; only how they are held between kernels changes:

* a constant that is read as floats alone is a constant of floats. It takes twice the bytes, but no
  run converts it, it is packed for its kernel at compile time, and no copy takes workspace;
* a value that a sum of products makes, or that is stored as floats for one, is held as floats that
  are rounded where they are stored: nothing is converted between two such kernels.

Not where little code and data are wanted, nor on processors without vectors, whose flash is small:
there a type of 16 bits stays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from onnxc.conversion import convert
from onnxc.dtypes import FLOAT, ElementType, numpy_dtype
from onnxc.expression import (
    Apply,
    Buffer,
    Const,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    along,
    apply,
    guard,
    holds,
    literal,
    where,
)
from onnxc.kernel import (
    Branch,
    Loops,
    Program,
    Repeat,
    Step,
    every_step,
    map_loops,
)
from onnxc.operations import HALVES
from onnxc.passes.fold_cost import POINT_LIMIT
from onnxc.traversal import map_indices, substitute, walk
from onnxc.tuned.scalar import is_scalar

HALF: Final = "half"
"""The kind of the types of 16 bits."""


def hold_floats(program: Program) -> Program:
    """The program with such constants and values as floats, where the target has vectors."""
    target = program.target
    if target is None or target.small or is_scalar(target):
        return program
    if not any(isinstance(step, Loops) and _has_halves(step) for step in every_step(program)):
        return program
    uses = _Uses(program)
    held = {buffer: _of_floats(buffer) for buffer in uses.held()}
    return _without_copies(_Change(uses, held).of(program), frozenset(held.values()))


class _Uses:
    """What the kernels of a program do with buffers of 16-bit floats.

    read      by loops, in their order
    bare      those of them that are read in another way than as floats from a known place
    fixed     what something else than loops reads or writes, or only in part
    products  those that hold what sums of products make
    copied    those of which a kernel stores floats
    writers   how many loops store to each buffer, of any type
    """

    def __init__(self, program: Program) -> None:
        self.read: dict[Buffer, None] = {}
        self.bare: set[Buffer] = set()
        self.fixed: set[Buffer] = {*program.inputs, *program.written}
        self.products: dict[Buffer, None] = {}
        self.copied: dict[Buffer, None] = {}
        self.writers: Counter[Buffer] = Counter()
        for step in every_step(program):
            if isinstance(step, Loops):
                self._loops(step)
            else:
                self.fixed.update(_own(step))

    def held(self) -> list[Buffer]:
        """What is to be held as floats."""
        left, found = POINT_LIMIT, []
        for buffer in self.read:
            fits = buffer.data is not None and buffer.elements <= left
            if fits and buffer not in self.bare and buffer not in self.fixed:
                left -= buffer.elements
                found.append(buffer)
        values = (*self.products, *(b for b in self.copied if b not in self.products))
        return found + [b for b in values if b.kind == "workspace" and b not in self.fixed]

    def _loops(self, loops: Loops) -> None:
        self.writers[loops.out] += 1
        nodes = [*walk(*loops.roots())]
        for node in nodes:
            inside = (node.value,) if isinstance(node, Fold | Guard) else ()
            for operand in (*node.operands(), *inside):
                self._read(operand, as_float=_widens(node))
        for root in loops.roots():
            self._read(root, as_float=False)
        if loops.partial:
            self.fixed.add(loops.out)
        places = walk(*loops.roots()[1:])  # that say where it stores
        self.fixed.update(node.buffer for node in places if isinstance(node, Load))
        if loops.out.dtype.kind == HALF and any(isinstance(n, Fold) and n.hint for n in nodes):
            self.products[loops.out] = None
        if _widens(loops.value) and isinstance(load := loops.value.operands()[0], Load):
            self.copied[load.buffer] = None

    def _read(self, load: Expr, *, as_float: bool) -> None:
        if isinstance(load, Load) and load.dtype.kind == HALF:
            self.read[load.buffer] = None
            if not as_float or any(index.dynamic for index in load.indices):
                self.bare.add(load.buffer)


def _own(step: Step) -> tuple[Buffer, ...]:
    """What a step that is no Loops reads and writes, but for the kernels of nested programs."""
    match step:
        case Branch():
            nested = (step.then, step.otherwise)
            return (step.condition, *(b for p in nested for b in (*p.inputs, *p.written)))
        case Repeat():
            limits = (b for b in (step.count, step.condition, step.counter) if b is not None)
            ports = (*step.body.inputs, *step.body.written)
            return (*limits, *ports, *(b for pair in step.carried for b in pair))
    return (*step.reads(), *step.writes())


def _has_halves(loops: Loops) -> bool:
    return any(node.dtype.kind == HALF for node in walk(*loops.roots()))


def _widens(node: Expr) -> bool:
    """Whether it is a 16-bit float as a float."""
    return (
        isinstance(node, Apply)
        and node.operation == "cast"
        and node.dtype is FLOAT
        and node.args[0].dtype.kind == HALF
    )


def _narrows(node: Expr) -> bool:
    """Whether it is a float, rounded to 16 bits."""
    return (
        isinstance(node, Apply)
        and node.operation == "cast"
        and node.dtype.kind == HALF
        and node.args[0].dtype is FLOAT
    )


def _of_floats(buffer: Buffer) -> Buffer:
    """For the same values."""
    data = None if buffer.data is None else convert(buffer.data, buffer.dtype, FLOAT)
    return Buffer(buffer.name, buffer.shape, FLOAT, buffer.kind, data)


class _Change:
    """The kernels of a program on the buffers of floats.

    held    the new buffer of each that is replaced
    exact   buffers of floats whose numbers are all of a type of 16 bits, by that type
    stored  how many loops have been seen that store such numbers to a buffer
    """

    def __init__(self, uses: _Uses, held: Mapping[Buffer, Buffer]) -> None:
        self.uses = uses
        self.held = held
        self.exact: dict[ElementType, set[Buffer]] = {half: set() for half in HALVES}
        for old, new in held.items():
            self.exact[old.dtype].add(new)
        self.stored: Counter[tuple[Buffer, ElementType]] = Counter()

    def of(self, program: Program) -> Program:
        names = {self.held.get(buffer, buffer): name for buffer, name in program.held.items()}
        changed = map_loops(program, lambda loops: [self._kernel(loops)])
        return replace(changed, held=names)

    def _kernel(self, loops: Loops) -> Loops:
        buffers = {node.buffer for node in walk(*loops.roots()) if isinstance(node, Load)}
        exact = (self.exact[half] for half in HALVES)
        if loops.out in self.held or _has_halves(loops) or any(map(buffers.intersection, exact)):
            loops = replace(loops, value=self._rounding(self._read(loops.value)))
        if loops.out in self.held:
            return replace(loops, out=self.held[loops.out], value=self._as_float(loops.value))
        self._note(loops)
        return loops

    def _note(self, loops: Loops) -> None:
        """What the numbers of its buffer are known to be once all that store there are seen."""
        out = loops.out
        if out.dtype is FLOAT and out.kind == "workspace" and out not in self.uses.fixed:
            for half in HALVES:
                if holds(half, loops.value, self.exact[half]):
                    self.stored[out, half] += 1
                    if self.stored[out, half] == self.uses.writers[out]:
                        self.exact[half].add(out)

    def _read(self, value: Expr) -> Expr:
        """With loads of the buffers of floats."""

        def read(buffer: Buffer) -> Callable[[tuple[Index, ...]], Expr]:
            new, half = self.held[buffer], buffer.dtype
            return lambda walks: Apply(half, "cast", (Load(FLOAT, new, walks),))

        loads = (node.buffer for node in walk(value) if isinstance(node, Load))
        places = {buffer: read(buffer) for buffer in loads if buffer in self.held}
        return map_indices(value, lambda index: index, places=places) if places else value

    def _rounding(self, value: Expr) -> Expr:
        """With one operation where a float becomes one of 16 bits and then a float again."""
        new: dict[Expr, Expr] = {}
        for node in walk(value):
            if _widens(node) and _narrows(inner := node.operands()[0]):
                argument = map_indices(inner.operands()[0], lambda index: index, nodes=new)
                new[node] = self._rounded(argument, inner.dtype)
        return map_indices(value, lambda index: index, nodes=new) if new else value

    def _rounded(self, value: Expr, half: ElementType) -> Expr:
        """The nearest number of a type of 16 bits, as a float."""
        return value if holds(half, value, self.exact[half]) else apply(f"as_{half}", value)

    def _as_float(self, value: Expr) -> Expr:
        """The float that a 16-bit float is."""
        match value:
            case Const(dtype, raw):
                number = convert(np.frombuffer(raw, numpy_dtype(dtype)), dtype, FLOAT)
                return literal(FLOAT, number[0])
            case Guard(_, bounds, inside, otherwise):
                return guard(bounds, self._as_float(inside), self._as_float(otherwise))
            case Apply(_, "where", (condition, then, otherwise)):
                return where(condition, self._as_float(then), self._as_float(otherwise))
            case Apply(dtype, "cast", (argument,)) if _narrows(value):
                return self._rounded(argument, dtype)
        return Apply(FLOAT, "cast", (value,))


def _without_copies(program: Program, exact: frozenset[Buffer]) -> Program:
    """Without kernels that copy floats of `exact` buffers, where loops can read these instead."""
    writes = Counter(buffer for step in every_step(program) for buffer in step.writes())
    kept, walked = {*program.written}, dict[Buffer, set[int]]()
    for step in every_step(program):
        if not isinstance(step, Loops):
            kept.update(_own(step))
            continue
        if len(step.roots()) > 1:  # which say where it stores
            kept.update(step.reads())
        for node in walk(*step.roots()):
            if isinstance(node, Load):
                walked.setdefault(node.buffer, set()).add(len(node.indices))
    copies = {
        step.out: step
        for step in program.steps
        if isinstance(step, Loops)
        and step.out not in kept
        and writes[step.out] == 1
        and walked.get(step.out, set()) <= {len(step.axes)}  # not one index for all dimensions
        and _copies(step, exact)
    }
    places = {out: partial(_read_through, copy) for out, copy in copies.items()}

    def through(loops: Loops) -> list[Step]:
        if loops.out in copies:
            return []
        found = [copies[buffer] for buffer in loops.reads() if buffer in copies]
        if not found:
            return [loops]
        value = map_indices(loops.value, lambda index: index, places=places)
        origins = dict.fromkeys(origin for copy in found for origin in copy.origins)
        return [replace(loops, value=value, origins=tuple(origins | dict.fromkeys(loops.origins)))]

    return map_loops(program, through)


def _copies(step: Loops, exact: frozenset[Buffer]) -> bool:
    """Whether each element of what a kernel fills is one of a buffer in `exact`, at a known place.

    Its axes, one each, walk the dimensions of what it fills, which is in the workspace.
    """
    value, out = step.value, step.out
    if not isinstance(value, Load) or value.buffer not in exact or out.kind != "workspace":
        return False
    if step.accumulate or any(index.dynamic for index in value.indices):
        return False
    if len(step.where) != len(step.axes):
        return False
    if math.prod(axis.extent for axis in step.axes) != out.elements:
        return False
    pairs = zip(step.where, step.axes, strict=True)
    return all(
        index == along(axis) or (axis.extent == 1 and not index.terms) for index, axis in pairs
    )


def _read_through(copy: Loops, walks: tuple[Index, ...]) -> Expr:
    """What a copy has at some indices, from where it has it."""
    return substitute(copy.value, dict(zip(copy.axes, walks, strict=True)))
