"""One Loops to the view that kernels/loops.c.j2 renders: parameters, loops, statements as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from onnxc.dtypes import ElementType
from onnxc.emit.expr import Scope, expression, index_text
from onnxc.kernel import (
    LANES,
    At,
    Axis,
    Buffer,
    Checked,
    Const,
    Expr,
    Fold,
    Index,
    Load,
    Loops,
    along,
    walk,
)

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
    """Folds `value`, after `body`, over `loops` into the local `name`; `lane` picks its lane."""

    kind: ClassVar[str] = "reduce"
    start: str
    operation: str
    dtype: ElementType
    name: str
    loops: tuple[Loop, ...]
    body: tuple[Statement, ...]
    value: str
    lane: str


Statement = Local | Check | Reduce


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
    value: str
    copied: int
    copies_constant: bool
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
    writer = _Writer(scope, _uses(loops.value))
    value, copied = writer.text(loops.value), _copied(loops)
    kernel = Kernel(
        index_type=_index_type(loops),
        parameters=tuple(_parameter(b, pointers[b], b is loops.out) for b in arguments),
        loops=_loops(loops.axes, scope),
        statements=tuple(writer.statements),
        target=f"out[{index_text(loops.where[0], scope)}]",
        value=_unwrapped(value),
        copied=copied,
        copies_constant=copied > 0 and arguments[0].data is not None,
        checked=any(isinstance(node, Checked) for node in walk(loops.value)),
        compares_floats=scope.compares_floats,
        needs_math_h=scope.needs_math_h,
        functions=frozenset() if copied else frozenset(scope.functions),
    )
    return kernel, arguments


def _uses(root: Expr) -> Counter[Expr]:
    """How often the text of each node is needed; a Checked has that of its value."""
    uses = Counter(operand for node in walk(root) for operand in node.operands())
    for node in walk(root):
        if isinstance(node, Checked):
            uses[node.value] += 1
    return uses


class _Writer:
    """Writes expressions, naming what is used twice or is long."""

    def __init__(self, scope: Scope, uses: Counter[Expr]) -> None:
        self.scope = scope
        self.uses = uses
        self.statements: list[Statement] = []
        self.count = 0

    def text(self, root: Expr) -> str:
        for node in walk(root, folds=False):
            if node not in self.scope.texts:
                self.scope.texts[node] = self._node(node, root)
        return self.scope.texts[root]

    def _node(self, node: Expr, root: Expr) -> str:
        match node:
            case Fold():
                return self._fold(node)
            case Checked(_, value, condition, code):
                self.statements.append(Check(self.scope.texts[condition], int(code)))
                return self.scope.texts[value]
        text = expression(node, self.scope)
        named = self.uses[node] > 1 or len(text) > LONGEST_TEXT
        if node is root or isinstance(node, Const | At) or not named:
            return text
        local = Local(node.dtype.c_type, self._name("v"), _unwrapped(text))
        self.statements.append(local)
        return local.name

    def _fold(self, fold: Fold) -> str:
        name = self._name("sum" if fold.operation == "sum" else "acc")
        outer, self.statements = self.statements, []
        outside = dict(self.scope.texts)
        depth = len(self.scope.axes)
        self.scope.axes |= {axis: _loop_name(depth + n) for n, axis in enumerate(fold.axes)}
        value = self.text(fold.value)
        body, self.statements = tuple(self.statements), outer
        loops = _loops(fold.axes, self.scope)
        lane = f"{loops[-1].name} % {LANES}" if fold.axes[-1].extent > 1 else "0"
        self.scope.needs_math_h |= fold.dtype.kind == "float"
        laned = fold.operation == "sum" and fold.dtype.kind == "float"
        self.statements.append(
            Reduce(
                _start(fold.operation, fold.dtype),
                fold.operation,
                fold.dtype,
                name,
                loops,
                body,
                value,
                lane if laned else "",
            )
        )
        # Names of the loop's body end with it.
        self.scope.texts = outside
        for axis in fold.axes:
            del self.scope.axes[axis]
        return f"{name}[0]" if laned else name

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count - 1}"


def _start(operation: str, dtype: ElementType) -> str:
    """The identity of a fold, which is its value over an empty range."""
    if operation in ("sum", "prod"):
        return "0" if operation == "sum" else "1"
    if dtype.kind == "float":
        return f"{'-' if operation == 'max' else ''}({dtype.c_type})INFINITY"
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


def _unwrapped(text: str) -> str:
    """Without parentheses around the whole, which a statement does not need."""
    if not (text.startswith("(") and text.endswith(")")) or '"' in text:
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


def _indices(loops: Loops) -> Iterator[Index]:
    yield loops.where[0]
    for node in walk(loops.value):
        match node:
            case Load():
                yield node.flat
            case At(_, index):
                yield index


def _index_type(loops: Loops) -> str:
    """int32_t where every partial sum of every index fits."""
    axes = [*loops.axes]
    axes += [axis for node in walk(loops.value) if isinstance(node, Fold) for axis in node.axes]
    for index in _indices(loops):
        ends = [axis.extent * abs(stride) for axis, stride in index.terms]
        dynamic = [e.dtype.bits > 32 for e, _ in index.dynamic]
        if abs(index.const) + sum(ends) > INT32_MAX or any(dynamic):
            return "int64_t"
    return "int64_t" if any(axis.extent > INT32_MAX for axis in axes) else "int32_t"


def _copied(loops: Loops) -> int:
    """How many elements, where the kernel is one plain copy of memory, which memcpy does best.

    It also keeps the bits of a signalling NaN where the FPU's registers would not (x87).
    """
    axes = loops.axes
    walks = along(axes[0]) if len(axes) == 1 else Index()
    if len(axes) > 1 or loops.where[0] != walks or not _is_element(loops.value, loops.out, walks):
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
