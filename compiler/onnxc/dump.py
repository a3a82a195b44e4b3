"""The text of what a pass left, for --dump-after and for tests."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxc.expression import Apply, At, Axis, Buffer, Checked, Const, Expr, Fold, Guard, Index, Load
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows
from onnxc.traversal import walk


def dump(thing: ir.Model | Program) -> str:
    """ONNX's own textual form of a graph; one line a kernel and value of a program."""
    if isinstance(thing, ir.Model):
        return str(ir.to_onnx_text(thing, exclude_initializers=True))
    return "\n".join(_program(thing, "", _Names()))


class _Names:
    """Short names for axes and buffers, by first use."""

    def __init__(self) -> None:
        self.axes: dict[Axis, str] = {}
        self.buffers: dict[Buffer, str] = {}

    def axis(self, axis: Axis) -> str:
        return self.axes.setdefault(axis, f"i{len(self.axes)}")

    def buffer(self, buffer: Buffer) -> str:
        name = buffer.name or f"%{len(self.buffers)}"
        return self.buffers.setdefault(buffer, name)


def _program(program: Program, indent: str, names: _Names) -> Iterator[str]:
    for buffer in (*program.inputs, *program.written):
        yield f"{indent}{buffer.kind} {_typed(buffer, names)}"
    for buffer, offset in program.offsets.items():
        yield f"{indent}workspace {_typed(buffer, names)} at {offset}"
    for step in program.steps:
        match step:
            case Loops():
                yield from _loops(step, indent, names)
            case Micro():
                yield f"{indent}by {step.name}, as"
                yield from _program(Program(steps=step.steps), f"{indent}    ", names)
            case Rows():
                yield f"{indent}row by row of {names.axis(step.axis)} < {step.axis.extent}:"
                yield from _program(Program(steps=step.steps), f"{indent}    ", names)
            case Branch(condition, then, otherwise):
                yield f"{indent}if {names.buffer(condition)}:"
                yield from _program(then, indent + "    ", names)
                yield f"{indent}else:"
                yield from _program(otherwise, indent + "    ", names)
            case Routine():
                results, operands = (
                    ", ".join(map(names.buffer, buffers))
                    for buffers in (step.writes(), step.inputs)
                )
                origins = "; ".join(map(str, step.origins))
                yield f"{indent}{results} = {step.name}({operands})  # {origins}"
            case Repeat():
                limits = (step.count, step.condition)
                shown = (names.buffer(b) if b is not None else "-" for b in limits)
                counted = (
                    "" if step.counter is None else f" counted by {names.buffer(step.counter)}"
                )
                yield f"{indent}repeat {' while '.join(shown)}{counted}:"
                yield from _program(step.body, indent + "    ", names)
                for state, value in step.carried:
                    yield f"{indent}    {names.buffer(state)} becomes {names.buffer(value)}"


def _typed(buffer: Buffer, names: _Names) -> str:
    return f"{names.buffer(buffer)}: {buffer.dtype}{list(buffer.shape)}"


def _loops(loops: Loops, indent: str, names: _Names) -> Iterator[str]:
    axes = ", ".join(f"{names.axis(axis)} < {axis.extent}" for axis in loops.axes)
    yield f"{indent}for {axes or 'once'}:  # {'; '.join(map(str, loops.origins))}"
    texts: dict[Expr, str] = {}
    for node in walk(*loops.roots()):
        if isinstance(node, Load | Const | At):
            texts[node] = _leaf(node, texts, names)
        else:
            texts[node] = f"v{len(texts)}"
            yield f"{indent}    {texts[node]} = {_operation(node, texts, names)}"
    target = ", ".join(_index(index, texts, names) for index in loops.where)
    sign = f"{loops.accumulate}=" if loops.accumulate else "="
    yield f"{indent}    {names.buffer(loops.out)}[{target}] {sign} {texts[loops.value]}"


def _leaf(node: Load | Const | At, texts: dict[Expr, str], names: _Names) -> str:
    match node:
        case Const(dtype, raw):
            return f"{dtype}:{raw!r}" if dtype.kind == "string" else f"{dtype}:{raw.hex()}"
        case At(_, index):
            return f"at({_index(index, texts, names)})"
        case Load(_, buffer, indices):
            places = (_index(index, texts, names) for index in indices)
            return f"{names.buffer(buffer)}[{', '.join(places)}]"


def _operation(node: Expr, texts: dict[Expr, str], names: _Names) -> str:
    match node:
        case Apply(_, operation, args):
            return f"{operation}({', '.join(texts[arg] for arg in args)})"
        case Fold(_, operation, axes, value):
            return f"{operation} over {', '.join(map(names.axis, axes))} of {texts[value]}"
        case Guard(_, bounds, value, otherwise):
            tests = " and ".join(f"0 <= {_index(i, texts, names)} < {n}" for i, n in bounds)
            return f"{texts[value]} if {tests} else {texts[otherwise]}"
        case Checked(_, value, condition, code):
            return f"{texts[value]} if {texts[condition]} else {code.name}"
    raise AssertionError(node)


def _index(index: Index, texts: dict[Expr, str], names: _Names) -> str:
    parts = [f"{names.axis(axis)}*{stride}" for axis, stride in index.terms]
    parts += [f"{texts[expr]}*{stride}" for expr, stride in index.dynamic]
    return " + ".join([*parts, *([str(index.const)] if index.const or not parts else [])])
