"""One Loops to the view that kernels/loops.c.j2 renders: parameters, loops, statements as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from onnxc.dtypes import ElementType
from onnxc.emit.expr import Scope, bounds_text, expression, index_text
from onnxc.emit.text import unwrapped
from onnxc.expression import (
    LANES,
    Apply,
    At,
    Axis,
    Buffer,
    Checked,
    Const,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    along,
    load,
)
from onnxc.kernel import Loops
from onnxc.traversal import walk

LONGEST_TEXT: Final = 60
"""A longer expression is given a name, so that lines stay readable."""
INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class Loop:
    name: str
    extent: int


@dataclass(frozen=True)
class Local:
    """const c_type name = text;"""

    kind: ClassVar[str] = "local"
    c_type: str
    name: str
    text: str


@dataclass(frozen=True)
class Check:
    """Reports `code` unless `condition`."""

    kind: ClassVar[str] = "check"
    condition: str
    code: int


@dataclass(frozen=True)
class Reduce:
    """Folds `value`, after `body`, over `loops` into the local `name`; `lane` picks its lane.

    `lanes` are as many as the innermost loop fills: the others would stay 0. With `in_blocks` it
    is a loop over blocks of one element a lane, which compilers vectorise, and one over the rest.
    """

    kind: ClassVar[str] = "reduce"
    start: str
    operation: str
    dtype: ElementType
    name: str
    loops: tuple[Loop, ...]
    body: tuple[Statement, ...]
    value: str
    lane: str
    lanes: int
    in_blocks: bool
    compensated: bool


@dataclass(frozen=True)
class When:
    """`name` is `value`, after `body`, where `condition` holds, else `otherwise`."""

    kind: ClassVar[str] = "when"
    c_type: str
    name: str
    condition: str
    body: tuple[Statement, ...]
    value: str
    otherwise: str


Statement = Local | Check | Reduce | When


@dataclass(frozen=True)
class Parameter:
    name: str
    c_type: str
    written: bool


@dataclass(frozen=True)
class Kernel:
    """What the template needs to write one function; all but `function` and `comment`."""

    index_type: str
    parameters: tuple[Parameter, ...]
    loops: tuple[Loop, ...]
    statements: tuple[Statement, ...]
    target: str
    assignment: str
    value: str
    copied: int
    checked: bool
    compares_floats: bool
    needs_math_h: bool
    functions: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def needs_string_h(self) -> bool:
        """For memcpy, and for memcmp in runtime_c/onnxc_string.h."""
        return self.copied > 0 or "onnxc_equal_string" in self.functions


def kernel_of(loops: Loops, places: Mapping[Buffer, int]) -> tuple[Kernel, tuple[Buffer, ...]]:
    """The view of a merged kernel, and the buffers to call it with.

    An operand that has the place of the result is computed in place: they share one pointer.
    """
    place = places.get(loops.out)
    shared = {b: "out" for b in loops.reads() if place is not None and places.get(b) == place}
    shared[loops.out] = "out"
    arguments = (*(b for b in loops.reads() if b not in shared), loops.out)
    pointers = {b: _operand_name(n) for n, b in enumerate(arguments[:-1])} | shared
    scope = Scope({axis: _loop_name(n) for n, axis in enumerate(loops.axes)}, pointers)
    scope.terse = len(loops.axes) > 3 or any(map(_hides_loops, walk(*loops.roots())))
    writer = _Writer(scope, _uses(*loops.roots()))
    for root in loops.roots()[1:]:
        writer.text(root)
    value, copied = writer.text(loops.value), _copied(loops)
    target = f"out[{index_text(loops.where[0], scope)}]"
    floats = loops.out.dtype.kind == "float"
    assignment = {"add": "+=", "mul": "*="}.get(loops.accumulate, "=") if floats else "="
    kernel = Kernel(
        index_type=_index_type(loops),
        parameters=tuple(_parameter(b, pointers[b], b is loops.out) for b in arguments),
        loops=_loops(loops.axes, scope),
        statements=tuple(writer.statements),
        target=target,
        assignment=assignment,
        value=unwrapped(value if assignment != "=" else _accumulated(loops, target, value, scope)),
        copied=copied,
        checked=any(isinstance(node, Checked) for node in walk(*loops.roots())),
        compares_floats=scope.compares_floats,
        needs_math_h=scope.needs_math_h,
        functions=frozenset() if copied else frozenset(scope.functions),
    )
    return kernel, arguments


def _hides_loops(node: Expr) -> bool:
    """Whether indices are too long already to name the loops that do not move them."""
    return isinstance(node, Fold | Guard) or (isinstance(node, Load) and bool(node.flat.dynamic))


def _accumulated(loops: Loops, target: str, value: str, scope: Scope) -> str:
    if not loops.accumulate:
        return value
    dtype = loops.out.dtype
    before = load(loops.out, loops.where)
    scope.texts[before], scope.texts[loops.value] = target, value
    update = Apply(dtype, loops.accumulate, (before, loops.value))
    return expression(update, scope)


def _uses(*roots: Expr) -> Counter[Expr]:
    """How often the text of each node is needed; a Checked has that of its value."""
    uses = Counter(operand for node in walk(*roots) for operand in node.operands())
    for node in walk(*roots):
        if isinstance(node, Checked | Fold | Guard):
            uses[node.value] += 1
        if isinstance(node, Apply) and _is_extreme_integer(node):
            uses.update(node.args)
    return uses


def _is_extreme_integer(node: Apply) -> bool:
    """Whether the text has the operands twice: x > y ? x : y."""
    return node.operation in ("max", "min") and node.dtype.kind != "float"


class _Writer:
    """Writes expressions, naming what is used twice or is long."""

    def __init__(self, scope: Scope, uses: Counter[Expr]) -> None:
        self.scope = scope
        self.uses = uses
        self.statements: list[Statement] = []
        self.checks: frozenset[Check] = frozenset()
        self.count = 0

    def text(self, root: Expr) -> str:
        for node in walk(root, inner=False):
            if node not in self.scope.texts:
                self.scope.texts[node] = self._node(node, root)
        return self.scope.texts[root]

    def _node(self, node: Expr, root: Expr) -> str:
        match node:
            case Fold():
                return self._fold(node)
            case Guard():
                return self._guard(node)
            case Checked(_, value, condition, code):
                self._check(Check(self.scope.texts[condition], int(code)))
                return self.scope.texts[value]
        text = expression(node, self.scope)
        named = self.uses[node] > 1 or len(text) > LONGEST_TEXT
        if node is root or isinstance(node, Const | At) or not named:
            return text
        local = Local(node.dtype.c_type, self._name("v"), unwrapped(text))
        self.statements.append(local)
        return local.name

    def _check(self, check: Check) -> None:
        """Once is enough, also for what is computed inside."""
        if check not in self.checks:
            self.checks |= {check}
            self.statements.append(check)

    def _guard(self, guard: Guard) -> str:
        """What only the guarded value needs is computed inside the condition."""
        name = self._name("v")
        outer, self.statements = self.statements, []
        outside, checks = dict(self.scope.texts), self.checks
        value = self.text(guard.value)
        body, self.statements = tuple(self.statements), outer
        self.scope.texts, self.checks = outside, checks
        condition = bounds_text(guard, self.scope)
        otherwise = self.scope.texts[guard.otherwise]
        if body:
            value, otherwise = unwrapped(value), unwrapped(otherwise)
        self.statements.append(When(guard.dtype.c_type, name, condition, body, value, otherwise))
        return name

    def _fold(self, fold: Fold) -> str:
        name = self._name("sum" if fold.operation == "sum" else "acc")
        outer, self.statements = self.statements, []
        outside, checks = dict(self.scope.texts), self.checks
        depth = len(self.scope.axes)
        self.scope.axes |= {axis: _loop_name(depth + n) for n, axis in enumerate(fold.axes)}
        value = self.text(fold.value)
        body, self.statements = tuple(self.statements), outer
        loops = _loops(fold.axes, self.scope)
        length = fold.axes[-1].extent
        lane = f"{loops[-1].name} % {LANES}" if length > LANES else loops[-1].name
        self.scope.needs_math_h |= fold.dtype.kind == "float" and fold.operation in ("max", "min")
        if fold.compensated:
            self.scope.functions.add(f"onnxc_add_exactly_{fold.dtype.name}")
        floats = fold.dtype.kind == "float"
        laned = floats and fold.operation == "sum"
        self.statements.append(
            Reduce(
                _start(fold.operation, fold.dtype),
                fold.operation,
                fold.dtype,
                name,
                loops,
                body,
                unwrapped(value) if floats or not _adds(fold) else value,
                lane if laned else "",
                min(LANES, 1 << max(0, length - 1).bit_length()),
                laned and length > LANES and not any(map(_folds, body)),
                fold.compensated,
            )
        )
        # Names of the loop's body end with it.
        self.scope.texts, self.checks = outside, checks
        for axis in fold.axes:
            del self.scope.axes[axis]
        return f"{name}[0]" if laned else name

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count - 1}"


def _adds(fold: Fold) -> bool:
    """Whether its value becomes an operand of + or *."""
    return fold.operation in ("sum", "prod")


def _folds(statement: Statement) -> bool:
    inside = isinstance(statement, When) and any(map(_folds, statement.body))
    return inside or isinstance(statement, Reduce)


def _start(operation: str, dtype: ElementType) -> str:
    """The identity of a fold, which is its value over an empty range."""
    if operation in ("sum", "prod"):
        return "0" if operation == "sum" else "1"
    if dtype.kind == "float":
        infinity = "INFINITY" if dtype.bits == 32 else "(double)INFINITY"
        return f"-{infinity}" if operation == "max" else infinity
    limit = "MIN" if operation == "max" else "MAX"
    if dtype.kind == "unsigned":
        return "0" if operation == "max" else f"UINT{dtype.bits}_MAX"
    return f"INT{dtype.bits}_{limit}"


def _loops(axes: tuple[Axis, ...], scope: Scope) -> tuple[Loop, ...]:
    return tuple(Loop(scope.axes[axis], axis.extent) for axis in axes)


def _loop_name(n: int) -> str:
    return "ijkmn"[n] if n < 5 else f"i{n}"


def _operand_name(n: int) -> str:
    return "abcdefgh"[n] if n < 8 else f"x{n}"


def _parameter(buffer: Buffer, name: str, written: bool) -> Parameter:
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


def _index_type(loops: Loops) -> str:
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
