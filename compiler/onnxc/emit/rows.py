"""One Rows to the view that kernels/loops.c.j2 renders: the bodies of its kernels in one loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from onnxc.emit.expr import Scope
from onnxc.emit.loops import Kernel, body_of, index_type, operand_name, parameter, reports
from onnxc.emit.ranges import range_of
from onnxc.emit.statements import Body, Loop, Variable
from onnxc.emit.text import role_name
from onnxc.emit.writer import loop_name
from onnxc.expression import Axis, Buffer, Expr, Index, along, load, static
from onnxc.kernel import Loops, Rows
from onnxc.names import Names, comment_text
from onnxc.traversal import axes_read, map_indices, move

OWN: Final = ("out", "lane", "half", "flags", "row", "rows")
"""Variables of the functions of kernels that a role could be called too, besides numbered ones."""
ROW: Final = loop_name(0)
PLACE: Final = "row"
"""The numbers of a row: of all, and of those that are computed at a time."""
NUMBERED: Final = re.compile(r"[a-z]|(acc|i|lane|out|sum|v|x)_?\d*")
"""What the others are called."""


def rows_kernel(step: Rows, places: Mapping[Buffer, int]) -> tuple[Kernel, tuple[Buffer, ...]]:
    """The view of kernels that run row by row, and the buffers to call it with.

    An operand that has the place of a result is computed in place: they share one pointer.
    """
    shared = _shared(step, places)
    outputs = step.outputs
    operands = [b for b in step.reads() if b not in shared and b not in outputs]
    arguments = (*operands, *outputs, *step.scratch)
    names = _names(step)
    pointers = {b: operand_name(n) for n, b in enumerate(operands)}
    pointers |= {b: f"out_{n}" if n else "out" for n, b in enumerate(outputs)}
    pointers |= {operand: pointers[result] for operand, result in shared.items()}
    pointers |= {rows: names[rows] for rows in step.scratch}
    variables = {b: name for b, name in names.items() if b not in step.scratch}
    writer = _Bodies(step, pointers, variables)
    bodies = tuple(map(writer.body, step.steps))
    kernel = Kernel(
        index_type=max(map(index_type, step.steps)),
        parameters=tuple(parameter(b, pointers[b], written=b not in operands) for b in arguments),
        bodies=bodies,
        copied=0,
        checked=any(map(reports, step.steps)),
        compares_floats=any(scope.compares_floats for scope in writer.scopes),
        needs_math_h=any(scope.needs_math_h for scope in writer.scopes),
        functions=frozenset(name for scope in writer.scopes for name in scope.functions),
        rows=Loop(ROW, static(step.axis.extent)),
        block=step.count,
        variables=tuple(Variable(b.dtype.c_type, v, step.count) for b, v in variables.items()),
    )
    return kernel, arguments


def _shared(step: Rows, places: Mapping[Buffer, int]) -> dict[Buffer, Buffer]:
    """Of each operand that has the place of a result, that result."""
    results = {places[b]: b for b in step.outputs if b in places}
    operands = (b for b in step.reads() if b in places and b not in step.outputs)
    return {b: results[places[b]] for b in operands if places[b] in results}


def _names(step: Rows) -> dict[Buffer, str]:
    """What holds rows is called by the role of the first kernel that fills it."""
    names, found = Names(OWN), dict[Buffer, str]()
    for kernel in step.steps:
        row = step.inside.get(kernel.out)
        if row is not None and row not in found:
            name = role_name(kernel.role)
            found[row] = names.add("part" if NUMBERED.fullmatch(name) or not name else name)
    return found


class _Bodies:
    """Writes the kernels of a step as the bodies of its loop; `variables` are rows of one element.

    place   the number of a row among those that are computed at a time
    """

    def __init__(
        self, step: Rows, pointers: dict[Buffer, str], variables: Mapping[Buffer, str]
    ) -> None:
        self.step = step
        self.pointers = pointers
        self.place = Axis(step.count)
        self.scopes: list[Scope] = []
        number = f"[{PLACE}]" if step.count > 1 else ""
        walk = self._in_block(along(step.axis))
        self.texts: dict[Expr, str] = {load(b, [walk]): v + number for b, v in variables.items()}

    def body(self, kernel: Loops) -> Body:
        part = self._of_one_row(kernel)
        axes = {self.step.axis: ROW, self.place: PLACE}
        axes |= {axis: loop_name(n) for n, axis in enumerate(part.axes, 1)}
        scope = Scope(axes, self.pointers, dict(self.texts), terse=True)
        for variable in self.texts:
            if (limits := range_of(variable, scope.ranges)) is not None:
                scope.ranges[variable] = limits
        self.scopes.append(scope)
        out = self.pointers.get(part.out)
        in_place = out in {self.pointers.get(buffer) for buffer in part.reads()}
        read = {axis for root in part.roots() for axis in axes_read(root)}
        numbered = self.step.axis in read or part.where[0].stride(self.step.axis) != 0
        found = body_of(part, scope, in_place=in_place)
        return replace(found, comment=_described(kernel), numbered=numbered)

    def _of_one_row(self, kernel: Loops) -> Loops:
        """The kernel without the loop over rows, and with few rows of what is only used inside."""
        inside = self.step.inside
        loads = {whole: self._loader(rows) for whole, rows in inside.items()}

        def moved(expr: Expr) -> Expr:
            return map_indices(expr, lambda index: index, places=loads)

        (place,) = kernel.where
        if kernel.out in inside:
            place = self._in_block(place)
        dynamic = tuple((moved(expr), stride) for expr, stride in place.dynamic)
        return replace(
            kernel,
            out=inside.get(kernel.out, kernel.out),
            where=(Index(place.const, place.terms, dynamic),),
            axes=kernel.axes[1:],
            value=moved(kernel.value),
        )

    def _loader(self, rows: Buffer) -> Callable[[tuple[Index, ...]], Expr]:
        """What makes a load of few rows from the flat index of a load from all."""
        return lambda walks: load(rows, [self._in_block(walks[0])])

    def _in_block(self, index: Index) -> Index:
        """The index from the start of the first row that is computed at the time."""
        place = along(self.place) if self.step.count > 1 else Index()
        return move(index, {self.step.axis: place})


def _described(kernel: Loops) -> str:
    return comment_text(kernel.role or ", ".join(_operators(kernel)) or "the rest")


def _operators(kernel: Loops) -> Iterable[str]:
    return dict.fromkeys(origin.operator for origin in kernel.origins)
