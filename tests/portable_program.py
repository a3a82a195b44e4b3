"""One C program that runs many compiled models on fixed inputs and prints all their outputs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxc.dtypes import ElementType
from onnxc.packing import pack_elements
from onnxc.pipeline import Compiled, Interface
from onnxc.status import Status

Array = NDArray[Any]

# Of each type, values that compare in every way, as the bits that hold them; the NaN has a payload.
FLOAT_VALUES = {
    "float": "0, 0x80000000, 1, 0x3f800000, 0x7fc12345",
    "double": "0, 0x8000000000000000, 1, 0x3ff0000000000000, 0x7ff8000012345678",
    "float16": "0, 0x8000, 1, 0x3c00, 0x7e12",
    "bfloat16": "0, 0x8000, 1, 0x3f80, 0x7fc1",
}
FLOAT_VALUES |= {"complex64": FLOAT_VALUES["float"], "complex128": FLOAT_VALUES["double"]}
INTEGER_VALUES = {
    8: "0, 1, 0x7f, 0x80, 0xff",
    16: "0, 1, 0x8000, 0xffff",
    32: "0, 1, 0x1000001, 0x80000000, 0xffffffff",
    64: "0, 0x20000000000000, 0x20000000000001, 0x8000000000000000, 0xffffffffffffffff",
}


@dataclass(frozen=True)
class Call:
    """A model on these inputs, by name; without, on some of FLOAT_VALUES and INTEGER_VALUES."""

    model: Compiled
    inputs: Mapping[str, Array] | None = None


def words(value: Interface) -> tuple[int, int]:
    """The bits of one word, and how many words the tensor has at the interface."""
    elements = math.prod(value.shape)
    if value.dtype.kind == "complex":
        return value.dtype.bits // 2, 2 * elements
    if value.dtype.packed:
        return 8, value.dtype.packed_bytes(elements)
    return value.dtype.bits, elements


def c_type(dtype: ElementType) -> str:
    return "uint8_t" if dtype.packed else dtype.c_type


def declared(value: Interface, variable: str) -> str:
    """An array, or for no elements a null pointer."""
    if math.prod(value.shape) == 0:
        return f"{c_type(value.dtype)} *const {variable} = NULL;"
    size = math.prod(value.shape) if value.dtype.kind == "string" else words(value)[1]
    size //= 2 if value.dtype.kind == "complex" else 1
    return f"static {c_type(value.dtype)} {variable}[{size}];"


def stored_words(value: Interface, array: Array) -> list[int]:
    """The words that hold an array, as numbers."""
    flat = np.ascontiguousarray(array).reshape(-1)
    packed = pack_elements(flat, value.dtype) if value.dtype.packed else flat
    return [int(word) for word in packed.view(f"u{words(value)[0] // 8}")]


def given(value: Interface, variable: str, array: Array) -> str:
    """A copy of a table of the array's values, as the machine itself stores them."""
    name = f"values_{variable}"
    table = value_table(value, name, array)
    return f"{table} memcpy({variable}, {name}, sizeof {name});" if table else ""


def value_table(value: Interface, name: str, array: Array) -> str:
    """A constant table of the array's values; none of no values."""
    if math.prod(value.shape) == 0:
        return ""
    if value.dtype.kind == "string":
        c_type = "onnxc_string"
        texts = [f'{{"{_escaped(text)}", {len(text)}}}' for text in array.reshape(-1)]
    else:
        c_type = f"uint{words(value)[0]}_t"
        texts = [f"{word:#x}" for word in stored_words(value, array)]
    return f"static const {c_type} {name}[] = {{{', '.join(texts)}}};"


def _escaped(text: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in text)


def filled(value: Interface, variable: str) -> str:
    if value.dtype.kind == "string":
        return f"fill_strings({variable}, {math.prod(value.shape)});"
    bits, count = words(value)
    values = FLOAT_VALUES.get(value.dtype.name, INTEGER_VALUES[bits])
    table = f"static const uint{bits}_t values_{variable}[] = {{{values}}};"
    return f"{table} fill{bits}({variable}, {count}, values_{variable}, {values.count(',') + 1});"


def spoiled(value: Interface, variable: str) -> str:
    """So that an element shows that is not written."""
    return f"memset({variable}, 0xa5, sizeof {variable});" if math.prod(value.shape) else ""


def printed(value: Interface, variable: str) -> str:
    """Of what the data decides the size of, the elements that there are."""
    bits, count = (0, math.prod(value.shape)) if value.dtype.kind == "string" else words(value)
    number = str(count)
    if value.actual is not None and count:
        extents = [f"(size_t){variable}_shape[{n}]" for n in range(len(value.shape))]
        number = " * ".join([*extents, str(count // math.prod(value.shape))])
    call = f"print{bits or '_strings'}({variable}, {number});"
    return f'printf("\\n{value.c_name}:"); {call}'


def checked(value: Interface, role: str, model: str) -> str:
    """A line that compiles when the header's macros are right."""
    prefix = f"{model}_{role}_{value.c_name}".upper()
    elements, rank = math.prod(value.shape), len(value.shape)
    condition = f"{prefix}_ELEMENTS == {elements} && {prefix}_RANK == {rank}"
    if value.dtype.kind != "string":
        bits, count = words(value)
        condition += f" && {prefix}_BYTES == {bits // 8 * count}"
    return f"typedef char check_{role}_{value.c_name}[({condition}) ? 1 : -1];"


def with_shape(value: Interface, variable: str) -> list[tuple[Interface, str]]:
    """An output, and the array that receives its actual shape where it has one."""
    shape = [] if value.actual is None else [(value.actual, f"{variable}_shape")]
    return [(value, variable), *shape]


def function(call: Call, name: str) -> str:
    """`name` runs the model with a workspace of its own, then with the static one."""
    model = call.model
    inputs = [(value, f"input{i}") for i, value in enumerate(model.inputs)]
    outputs = [(value, f"output{i}") for i, value in enumerate(model.outputs)]
    written = [pair for output in outputs for pair in with_shape(*output)]
    arguments = [variable for _, variable in inputs + written]
    lines = [declared(*pair) for pair in inputs + written]
    lines += [f"static {model.name}_workspace workspace;"]
    lines += [checked(value, "INPUT", model.name) for value, _ in inputs]
    lines += [checked(value, "OUTPUT", model.name) for value, _ in outputs]
    if call.inputs is None:
        lines += [filled(*pair) for pair in inputs]
    else:
        lines += [given(*pair, call.inputs[pair[0].name]) for pair in inputs]
    for run, more in (("run", ["&workspace"]), ("run_static", [])):
        lines += [spoiled(*pair) for pair in written]
        status = f"(int){model.name}_{run}({', '.join([*arguments, *more])})"
        lines += [f'printf("\\n-- {model.name} %d", {status});']
        lines += [printed(*pair) for pair in written]
    return f"static void {name}(void)\n{{\n" + "\n".join(lines) + "\n}\n"


def program(calls: Iterable[Call]) -> str:
    """The C of the whole program; the models' headers and portable.h are to be found beside it."""
    calls = list(calls)
    names = dict.fromkeys(call.model.name for call in calls)
    includes = "".join(f'#include "{name}.h"\n' for name in names)
    functions = "\n".join(function(call, f"run{n}") for n, call in enumerate(calls))
    runs = "\n".join(f"run{n}();" for n in range(len(calls)))
    main = f'int main(void)\n{{\n{runs}\nprintf("\\n");\nreturn 0;\n}}\n'
    return f'{includes}#include "portable.h"\n\n{functions}\n{main}'


def printout(model: Compiled, status: Status, outputs: Iterable[Array]) -> str:
    """What the program prints of one call with these outputs."""
    lines = [f"\n-- {model.name} {int(status)}"]
    for value, array in zip(model.outputs, outputs, strict=True):
        if value.dtype.kind == "string":
            texts = [f"{len(text)}:{text.hex()}" for text in array.reshape(-1)]
        else:
            texts = [f"{word:x}" for word in stored_words(value, array)]
        lines.append(" ".join([f"{value.c_name}:", *texts]))
    return "\n".join(lines)
