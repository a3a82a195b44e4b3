"""One C program that runs many models on hostile inputs and prints statuses and hashes of outputs.

A line a round: the model's name, the round, the status, a hash of each output. Round 0 has the
inputs of the model's own test; the others have special values, random bits, small numbers, and
mixtures: of indices, lengths and shapes too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnxc.dtypes import ElementType
from onnxc.emit.interface import Banner
from onnxc.expression import Buffer
from onnxc.kernel import Program, every_step
from onnxc.pipeline import Compiled, Interface, emit_program
from tests.portable_program import declared, value_table, words

Array = NDArray[Any]

GAP: Final = 64
"""Bytes between buffers of a workspace whose parts are set apart."""
FLOATS: Final = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "complex64": np.float32,
    "complex128": np.float64,
}
# Of small floats whose NaN has a sign, the greatest magnitude that is none.
SMALL_FLOATS: Final = {"float8e5m2": 0x7C, "float8e4m3fn": 0x7E}
# With the ends of the integer types, near which conversions to them go wrong.
SPECIAL_FLOATS: Final = [
    *(0.0, 0.5, 1.0, 2.5, 8388607.5, 8388608.0, math.inf, math.nan),
    *(end + step for end in (2.0**7, 2.0**15, 2.0**31, 2.0**63) for step in (-1, 0)),
    *(end + step for end in (2.0**8, 2.0**16, 2.0**32, 2.0**64) for step in (-1, 0)),
]
ORDINARY_FLOATS: Final = [0.375 * n for n in range(-8, 9)]
SPECIAL_INTEGERS: Final = [
    *range(-4, 5),
    *(
        sign * 2**bits + n
        for bits in (7, 8, 15, 16, 31, 32, 62)
        for sign in (1, -1)
        for n in (-1, 0)
    ),
    *(-(2**63), 1 - 2**63, 2**63 - 1),
]
SPECIAL_BOOLS: Final = [0, 1, 2, 0x7F, 0x80, 0xFF]


@dataclass(frozen=True)
class Subject:
    """A model, and the inputs of its own test by name."""

    model: Compiled
    inputs: Mapping[str, Array]


def set_apart(model: Compiled) -> Compiled:
    """The same with every buffer of the workspace in a place of its own and gaps between them."""
    offsets: dict[Buffer, int] = {}
    size = 0
    for buffer in _workspace_buffers(model.program):
        offsets[buffer] = size
        size += -(-buffer.bytes // GAP) * GAP + GAP
    program = replace(model.program, offsets=offsets, workspace_size=size)
    banner = Banner(model.name, version="0", source="test", license="0BSD", options="none")
    return emit_program(program, banner)


def _workspace_buffers(program: Program) -> Iterable[Buffer]:
    steps = list(every_step(program))
    found = dict.fromkeys(b for step in steps for b in (*step.reads(), *step.writes()))
    return [buffer for buffer in found if buffer.kind == "workspace"]


def program(subjects: Iterable[Subject], rounds: int) -> str:
    """The C of the whole program; the models' headers and hostile.h are to be found beside it."""
    subjects = list(subjects)
    includes = "".join(f'#include "{one.model.name}.h"\n' for one in subjects)
    types = {v.dtype for one in subjects for v in (*one.model.inputs, *one.model.outputs)}
    tables = "".join(sorted(map(_tables, types)))
    functions = "".join(_function(one, rounds) for one in subjects)
    runs = "".join(f"    test_{one.model.name}();\n" for one in subjects)
    main = f"int main(void)\n{{\n{runs}    return 0;\n}}\n"
    return f'{includes}#include "hostile.h"\n\n{tables}\n{functions}\n{main}'


def _tables(dtype: ElementType) -> str:
    ordinary, special = _values(dtype)
    return _table(f"ordinary_{dtype.name}", ordinary) + _table(f"special_{dtype.name}", special)


def _table(name: str, values: Sequence[int]) -> str:
    """None where all bit patterns are as good as each other."""
    if not values:
        return f"#define {name} {{NULL, 0}}\n"
    texts = ", ".join(f"{value:#x}u" for value in values)
    return (
        f"static const uint64_t values_{name}[] = {{{texts}}};\n"
        f"#define {name} {{values_{name}, {len(values)}}}\n"
    )


def _values(dtype: ElementType) -> tuple[list[int], list[int]]:
    """Ordinary and special ones, as bits."""
    if dtype.name in FLOATS:
        ordinary, positive = (_bits(dtype, values) for values in (ORDINARY_FLOATS, SPECIAL_FLOATS))
        infinity, sign = _infinity(dtype), 1 << _width(dtype) - 1
        positive += [1, infinity - 1, infinity + 1]  # a denormal, the largest, a signalling NaN
        return ordinary, [bits | side for bits in positive for side in (0, sign)]
    if dtype.kind == "bool":
        return SPECIAL_BOOLS[:2], SPECIAL_BOOLS
    if dtype.kind in ("signed", "unsigned") and not dtype.packed:
        lowest = -4 if dtype.kind == "signed" else 0
        return [n % 2**64 for n in range(lowest, 12)], [n % 2**64 for n in SPECIAL_INTEGERS]
    return [], []


def _width(dtype: ElementType) -> int:
    return int(np.dtype(FLOATS[dtype.name]).itemsize) * 8


def _bits(dtype: ElementType, values: Sequence[float]) -> list[int]:
    with np.errstate(over="ignore"):
        array = np.asarray(values).astype(FLOATS[dtype.name])
    return [int(bits) for bits in array.view(f"u{_width(dtype) // 8}")]


def _infinity(dtype: ElementType) -> int:
    """Above it, sign aside, all bits are a NaN; 0 where there is no such thing."""
    if dtype.name in FLOATS:
        return _bits(dtype, [math.inf])[0]
    return SMALL_FLOATS.get(dtype.name, 0)


def _function(one: Subject, rounds: int) -> str:
    model, name = one.model, one.model.name
    inputs = [(value, f"{name}_input{n}") for n, value in enumerate(model.inputs)]
    outputs = [(value, f"{name}_output{n}") for n, value in enumerate(model.outputs)]
    shapes = [(value.actual, f"{variable}_shape") for value, variable in outputs if value.actual]
    lines = [_static(value, variable) for value, variable in (*inputs, *outputs, *shapes)]
    lines += [value_table(v, f"own_{variable}", one.inputs[v.name]) for v, variable in inputs]
    arguments = [variable for _, variable in inputs]
    for value, variable in outputs:
        arguments += [variable, *([f"{variable}_shape"] if value.actual else [])]
    call = f"{name}_run({', '.join([*arguments, f'&{name}_memory'])})"
    lines += [
        f"static {name}_workspace {name}_memory;",
        f"static int run_{name}(void) {{ return (int){call}; }}",
    ]
    spans = sorted((offset, b.bytes) for b, offset in model.program.offsets.items() if b.bytes)
    body = [
        _list("tensor", "inputs", [_tensor(*pair, own=True) for pair in inputs]),
        _list("tensor", "outputs", [_tensor(*pair, own=False) for pair in outputs]),
        _list("span", "spans", [f"{{{offset}, {size}}}" for offset, size in spans]),
        f'const subject one = {{"{name}", inputs, {len(inputs)}, outputs, {len(outputs)}, '
        f"{name}_memory.bytes, {model.workspace_size}, spans, {len(spans)}, run_{name}}};",
        f"try_out(&one, {rounds});",
    ]
    lines += [f"static void test_{name}(void)", "{", *(f"    {line}" for line in body), "}", ""]
    return "\n".join(lines)


def _list(c_type: str, name: str, items: Sequence[str]) -> str:
    if not items:
        return f"const {c_type} *const {name} = NULL;"
    return f"const {c_type} {name}[] = {{{', '.join(items)}}};"


def _static(value: Interface, variable: str) -> str:
    text = declared(value, variable)
    return text if text.startswith("static") else f"static {text}"


def _tensor(value: Interface, variable: str, *, own: bool) -> str:
    """The initializer of a tensor."""
    count, size = math.prod(value.shape), 0
    if value.dtype.kind != "string" and count:
        bits, count = words(value)
        size = bits // 8
    given = f"own_{variable}" if own and count else "NULL"
    shape = f"{variable}_shape, {len(value.shape)}" if value.actual else "NULL, 0"
    kind = value.dtype.name
    return (
        f"{{{variable}, {given}, {count}, {size}, {_infinity(value.dtype):#x}, "
        f"ordinary_{kind}, special_{kind}, {shape}}}"
    )
