"""One Loops to the view that kernels/loops.c.j2 renders: parameters, loops, statements as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from onnxc.emit.expr import Scope, expression, index_text
from onnxc.emit.near import BLOCK, far_function, tested
from onnxc.emit.pieces import block_lanes, pieces, restricted, tile_size, tiled_axis
from onnxc.emit.statements import Block, Body, Loop, Near, Part, Variable
from onnxc.emit.text import unwrapped
from onnxc.emit.writer import Writer, loop_name, uses_of
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
    along,
    load,
)
from onnxc.kernel import Loops
from onnxc.summation import FEWEST, runs_across
from onnxc.traversal import walk

INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class Parameter:
    name: str
    c_type: str
    written: bool


@dataclass(frozen=True)
class Kernel:
    """What the template needs to write one function; all but `function` and `comment`.

    bodies     one, or those of kernels that run row by row
    rows       the loop around these, which each kernel has for `block` iterations at a time
    variables  what they leave for each other
    """

    index_type: str
    parameters: tuple[Parameter, ...]
    bodies: tuple[Body, ...]
    copied: int
    checked: bool
    compares_floats: bool
    needs_math_h: bool
    functions: frozenset[str] = field(default=frozenset(), compare=False)
    rows: Loop | None = None
    block: int = 1
    variables: tuple[Variable, ...] = ()

    @property
    def needs_string_h(self) -> bool:
        """For memcpy, and for memcmp in runtime_c/onnxc_string.h."""
        return self.copied > 0 or "onnxc_equal_string" in self.functions


def kernel_of(
    loops: Loops, places: Mapping[Buffer, int], *, vectors: bool = False
) -> tuple[Kernel, tuple[Buffer, ...]]:
    """The view of a merged kernel, in forms for `vectors` or not, and the buffers to call it with.

    An operand that has the place of the result is computed in place: they share one pointer.
    """
    place = places.get(loops.out)
    shared = {b: "out" for b in loops.reads() if place is not None and places.get(b) == place}
    shared[loops.out] = "out"
    arguments = (*(b for b in loops.reads() if b not in shared), loops.out)
    pointers = {b: operand_name(n) for n, b in enumerate(arguments[:-1])} | shared
    scope = Scope({axis: loop_name(n) for n, axis in enumerate(loops.axes)}, pointers)
    scope.vectors = vectors
    scope.terse = len(loops.axes) > 3 or any(map(_hides_loops, walk(*loops.roots())))
    copied = _copied(loops)
    kernel = Kernel(
        index_type=index_type(loops),
        parameters=tuple(parameter(b, pointers[b], written=b is loops.out) for b in arguments),
        bodies=(body_of(loops, scope, in_place=len(shared) > 1),),
        copied=copied,
        checked=reports(loops),
        compares_floats=scope.compares_floats,
        needs_math_h=scope.needs_math_h,
        functions=frozenset() if copied else frozenset(scope.functions),
    )
    return kernel, arguments


def body_of(loops: Loops, scope: Scope, *, in_place: bool) -> Body:
    """Its loops, inside of others in scope; `in_place` is whether it reads what it stores to."""
    ranges = _ranges(loops, in_place=in_place)
    parts = tuple(
        _part(restricted(loops, *ends), loops, scope, twice=not in_place) for ends in ranges
    )
    if scope.vectors and tested(loops):
        parts = (replace(parts[0], near=_near(loops, scope), loop=_innermost(loops, scope)),)
    apart = len(parts) > 1 or parts[0].block is not None or parts[0].near is not None
    across = None if apart else tiled_axis(loops)
    tile = (across, loops.axes[-1]) if across is not None else ()
    return Body(
        loops=tuple(
            Loop(scope.axes[axis], axis.extent)
            for axis in (loops.axes[:-1] if apart else loops.axes)
            if axis not in tile
        ),
        parts=parts if apart else (_whole(parts[0], loops, tile, scope),),
    )


def reports(loops: Loops) -> bool:
    """Whether it has a status."""
    return any(isinstance(node, Checked) for node in walk(*loops.roots()))


def _ranges(loops: Loops, *, in_place: bool) -> list[tuple[int, int]]:
    """Of the innermost axis. In place no block may overlap another: what is left is a range."""
    folds = [node for node in walk(*loops.roots()) if isinstance(node, Fold)]
    across = runs_across(loops)
    if folds and not across:
        return [(0, loops.axes[-1].extent if loops.axes else 1)]
    found = []
    cut = pieces(loops)
    left = {b for ends in cut for b in restricted(loops, *ends).reads()}
    # A guard that never holds goes where the axis is cut, but a parameter must be used.
    for start, stop in cut if left == {*loops.reads()} else [(0, loops.axes[-1].extent)]:
        whole = stop
        if across and in_place:
            whole -= (stop - start) % block_lanes(stop - start, loops, twice=False)
        found += [(start, whole), (whole, stop)] if start < whole < stop else [(start, stop)]
    return found


def _part(loops: Loops, whole: Loops, outer: Scope, *, twice: bool) -> Part:
    """The innermost loop of `whole`, or a range of it, which `loops` has for itself.

    `twice` is whether a point may be computed in two blocks.
    """
    axes = {axis: name for axis, name in outer.axes.items() if axis not in whole.axes}
    axes |= {axis: outer.axes[old] for axis, old in zip(loops.axes, whole.axes, strict=False)}
    scope = replace(outer, axes=axes, texts=dict(outer.texts))
    folds = [node for node in walk(*loops.roots(), inner=False) if isinstance(node, Fold)]
    across, axis, block = runs_across(whole), None, None
    single = len(loops.axes) < len(whole.axes)
    if across:
        axis = Axis(1) if single else loops.axes[-1]
    if across and axis is not None and axis.extent >= FEWEST:
        name, lanes = scope.axes[axis], block_lanes(axis.extent, whole, twice=twice)
        counter = name if lanes == axis.extent else "lane"
        block = Block(name, counter, lanes, axis.extent)
    writer = Writer(scope, uses_of(*loops.roots()))
    reduced = []
    for fold in folds if across else ():
        reduce = writer.reduced(fold, axis, block)
        reduced.append(reduce)
        scope.texts[fold] = f"{reduce.name}[{block.counter}]" if block else reduce.name
    for root in loops.roots()[1:]:
        writer.text(root)
    value = writer.text(loops.value)
    target = outer.texts.get(load(loops.out, loops.where))
    if target is None:
        target = f"{scope.pointers[loops.out]}[{index_text(loops.where[0], scope)}]"
    sign = {"": "=", "add": "+=", "mul": "*="}.get(loops.accumulate, "")
    if not sign or (loops.accumulate and loops.out.dtype.kind != "float"):
        sign, value = "=", _accumulated(loops, target, value, scope)
    outer.functions |= scope.functions
    outer.compares_floats |= scope.compares_floats
    outer.needs_math_h |= scope.needs_math_h
    return Part(
        loop=None
        if block or single or not loops.axes
        else Loop(scope.axes[loops.axes[-1]], loops.axes[-1].extent),
        block=block,
        folds=tuple(reduced),
        statements=tuple(writer.statements),
        target=target,
        value=unwrapped(value),
        sign=sign,
    )


def _innermost(loops: Loops, scope: Scope) -> Loop:
    return Loop(scope.axes[loops.axes[-1]], loops.axes[-1].extent)


def _near(loops: Loops, outer: Scope) -> Near:
    """The fast form of a kernel's one part."""
    calls = tested(loops)
    scope = replace(outer, texts=dict(outer.texts), near=True)
    before = Writer(scope, uses_of(*(arg for node in calls for arg in node.args)))
    tests = []
    for node in calls:
        texts = [unwrapped(before.text(arg)) for arg in node.args]
        scope.functions.add(far_function(node))
        tests.append(f"{far_function(node)}({', '.join(texts)})")
    scope = replace(outer, texts=dict(outer.texts), near=True)
    writer = Writer(scope, uses_of(*loops.roots()))
    value = unwrapped(writer.text(loops.value))
    return Near(BLOCK, tuple(before.statements), tuple(tests), tuple(writer.statements), value)


def _whole(part: Part, loops: Loops, tile: tuple[Axis, ...], scope: Scope) -> Part:
    """The one part of a kernel, whose loop is the innermost of the kernel's own or in the tile."""
    inner = tuple(Loop(scope.axes[axis], axis.extent) for axis in tile)
    return replace(part, loop=None, tile=inner, tile_size=tile_size(loops) if tile else 0)


def _hides_loops(node: Expr) -> bool:
    """Whether indices are too long already to name the loops that do not move them."""
    return isinstance(node, Fold | Guard) or (isinstance(node, Load) and bool(node.flat.dynamic))


def _accumulated(loops: Loops, target: str, value: str, scope: Scope) -> str:
    dtype = loops.out.dtype
    before = load(loops.out, loops.where)
    scope.texts[before], scope.texts[loops.value] = target, value
    update = Apply(dtype, loops.accumulate, (before, loops.value))
    return expression(update, scope)


def operand_name(n: int) -> str:
    return "abcdefgh"[n] if n < 8 else f"x{n}"


def parameter(buffer: Buffer, name: str, *, written: bool) -> Parameter:
    return Parameter(name, "uint8_t" if buffer.packed else buffer.dtype.c_type, written)


def _indices(loops: Loops) -> Iterator[Index]:
    yield loops.where[0]
    for node in walk(*loops.roots()):
        match node:
            case Load():
                yield node.flat
            case At(_, index):
                yield index
            case Guard(_, bounds):
                yield from (index for index, _ in bounds)


def index_type(loops: Loops) -> str:
    """int32_t where every partial sum of the loops in every index fits; the rest is int64_t."""
    axes = [*loops.axes]
    axes += [axis for n in walk(*loops.roots()) if isinstance(n, Fold) for axis in n.axes]
    for index in _indices(loops):
        ends = [axis.extent * abs(stride) for axis, stride in index.terms]
        if abs(index.const) + sum(ends) > INT32_MAX:
            return "int64_t"
    return "int64_t" if any(axis.extent > INT32_MAX for axis in axes) else "int32_t"


def _copied(loops: Loops) -> int:
    """How many elements, where the kernel is one plain copy of memory, which memcpy does best.

    It also keeps the bits of a signalling NaN where the FPU's registers would not (x87).
    """
    axes = loops.axes
    walks = along(axes[0]) if len(axes) == 1 else Index()
    if (
        loops.partial
        or len(axes) > 1
        or loops.where[0] != walks
        or not _is_element(loops.value, loops.out, walks)
    ):
        return 0
    return axes[0].extent if axes else 1


def _is_element(value: Expr, out: Buffer, where: Index) -> bool:
    """Whether `value` is, bit for bit, what another buffer like `out` holds at `where`."""
    if not out.packed:
        if not isinstance(value, Load) or value.buffer.packed:
            return False
        return value.dtype is out.dtype and value.flat == where
    loads = [load for load in value.operands() if isinstance(load, Load)]
    wanted = [where * out.dtype.per_byte + n for n in range(out.dtype.per_byte)]
    return (
        [load.flat for load in loads] == wanted
        and {load.buffer for load in loads} == {loads[0].buffer}
        and loads[0].buffer.packed
        and loads[0].dtype is out.dtype
    )
