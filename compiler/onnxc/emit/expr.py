"""One expression node to C text. Statements are the templates' business."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxc.dtypes import ElementType
from onnxc.emit.literals import is_finite, literal
from onnxc.kernel import Apply, At, Axis, Buffer, Const, Expr, Index, Load, static


@dataclass
class Scope:
    """What the text may refer to, and what it turned out to need.

    texts     of the expressions that are written already; a name where it is a local
    functions of runtime_c/ that the text calls
    """

    axes: dict[Axis, str]
    pointers: dict[Buffer, str]
    texts: dict[Expr, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    compares_floats: bool = False
    needs_math_h: bool = False


def expression(node: Expr, scope: Scope) -> str:
    """The text of a node whose operands are in scope.texts; an operand of any C operator."""
    match node:
        case Const(dtype, raw):
            scope.needs_math_h |= not is_finite(dtype, raw)
            return literal(dtype, raw)
        case At(_, index):
            return f"(int64_t)({index_text(index, scope)})"
        case Load(dtype, buffer, (index,)):
            return _load(dtype, buffer, index, scope)
        case Apply(_, operation, args):
            return _apply(operation, args, scope)
    raise AssertionError(f"no text for {node}")


def index_text(index: Index, scope: Scope) -> str:
    """Every loop with its stride, in loop order: a stride of 0 is where an operand broadcasts."""
    parts = [
        _term(name, static(index.stride(axis)))
        for axis, name in scope.axes.items()
        if index.terms or index.dynamic or not index.const
    ]
    parts += [_term(f"(int64_t){scope.texts[e]}", static(stride)) for e, stride in index.dynamic]
    if index.const or not parts:
        parts.append(str(index.const))
    return " + ".join(parts).replace("+ -", "- ")


def _term(name: str, stride: int) -> str:
    return name if stride == 1 else f"{name} * {stride}"


def _load(dtype: ElementType, buffer: Buffer, index: Index, scope: Scope) -> str:
    where = index_text(index, scope)
    if not buffer.packed:
        return f"{scope.pointers[buffer]}[{where}]"
    sign = "int" if dtype.kind == "signed" else "uint"
    return _call(scope, f"onnxc_load_{sign}{dtype.bits}", scope.pointers[buffer], where)


def _call(scope: Scope, function: str, *arguments: str) -> str:
    scope.functions.add(function)
    return f"{function}({', '.join(arguments)})"


def _apply(operation: str, args: tuple[Expr, ...], scope: Scope) -> str:
    texts = [scope.texts[arg] for arg in args]
    dtype = args[0].dtype
    match operation:
        case "equal":
            if dtype.kind in ("half", "complex", "string"):
                return _call(scope, f"onnxc_equal_{dtype.name}", *texts)
            if texts[0] == texts[1] and dtype.kind != "float":
                return "1"  # two checks of one value: compilers warn of v == v
            scope.compares_floats |= dtype.kind == "float"
            return f"({texts[0]} == {texts[1]})"
        case "truth":
            return f"({texts[0]} != 0)"
        case "pack":
            return _call(scope, f"onnxc_pack{dtype.bits}", *texts)
    raise AssertionError(f"no text for {operation}")
