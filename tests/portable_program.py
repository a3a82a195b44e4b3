"""One C program that runs many compiled models on fixed inputs and prints all their outputs."""

import math
from collections.abc import Iterable

from onnxc.dtypes import ElementType
from onnxc.pipeline import Compiled, Interface

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
    if value.dtype.kind == "string":
        call = f"print_strings({variable}, {math.prod(value.shape)});"
    else:
        bits, count = words(value)
        call = f"print{bits}({variable}, {count});"
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


def function(model: Compiled) -> str:
    """`run_NAME` runs the model with a workspace of its own, then with the static one."""
    inputs = [(value, f"input{i}") for i, value in enumerate(model.inputs)]
    outputs = [(value, f"output{i}") for i, value in enumerate(model.outputs)]
    arguments = "".join(f"{variable}, " for _, variable in inputs + outputs)
    lines = [declared(*pair) for pair in inputs + outputs]
    lines += [f"static {model.name}_workspace workspace;"]
    lines += [checked(value, "INPUT", model.name) for value, _ in inputs]
    lines += [checked(value, "OUTPUT", model.name) for value, _ in outputs]
    lines += [filled(*pair) for pair in inputs]
    static_arguments = arguments.removesuffix(", ")
    for call in (f"run({arguments}&workspace)", f"run_static({static_arguments})"):
        lines += [spoiled(*pair) for pair in outputs]
        lines += [f'printf("\\n-- {model.name} %d", (int){model.name}_{call});']
        lines += [printed(*pair) for pair in outputs]
    return f"static void run_{model.name}(void)\n{{\n" + "\n".join(lines) + "\n}\n"


def program(models: Iterable[Compiled]) -> str:
    """The C of the whole program; the models' headers and portable.h are to be found beside it."""
    models = list(models)
    includes = "".join(f'#include "{model.name}.h"\n' for model in models)
    functions = "\n".join(map(function, models))
    calls = "\n".join(f"run_{model.name}();" for model in models)
    main = f'int main(void)\n{{\n{calls}\nprintf("\\n");\nreturn 0;\n}}\n'
    return f'{includes}#include "portable.h"\n\n{functions}\n{main}'
