"""Every element type to every other: the C, the numpy, and Cast by the letter agree bit for bit."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cffi import FFI

from onnxc.conversion import CONVERTIBLE, conversion_text, convert
from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType, numpy_dtype
from onnxc.resources import runtime_functions, runtime_text
from tests.models import STRICT
from tests.runtime.exact_conversion import cast, decoded, power, wrapped
from tests.toolchains import Tool, run

Array = np.ndarray[Any, np.dtype[Any]]

TYPES = [t for t in ELEMENT_TYPES if t in CONVERTIBLE]
WIDE = [BY_NAME[name] for name in ("float", "double", "float16")]
BUILDS = [
    ("gcc -O0", TYPES),
    ("gcc -O3 -march=native -ffp-contract=fast", WIDE),  # vectorises, which takes its time
    ("clang -O1", TYPES),
    ("tcc", TYPES),
]
BUILDS_CXX = ["g++ -std=c++11", "g++ -std=c++17", "clang++ -std=c++11", "clang++ -std=c++17"]


@dataclass(frozen=True)
class Variant:
    target: ElementType
    saturate: bool = True
    round_mode: str = "up"

    @property
    def attributes(self) -> dict[str, Any]:
        return {"saturate": self.saturate, "round_mode": self.round_mode}

    def __str__(self) -> str:
        return f"{self.target}-{'' if self.saturate else 'un'}saturated-{self.round_mode}"


def variants() -> Iterator[Variant]:
    for target in TYPES:
        yield Variant(target)
        if target.name == "float8e8m0":
            yield from (Variant(target, True, mode) for mode in ("down", "nearest"))
            yield from (Variant(target, False, mode) for mode in ("up", "down", "nearest"))
        elif target.name.startswith("float8"):
            yield Variant(target, False)


VARIANTS = list(variants())


@cache
def patterns(source: ElementType) -> Array:
    """Bits of a type: all of them up to 16 bits, or else hard and random ones."""
    if source.kind == "bool":
        return np.arange(2, dtype=np.uint8)
    if source.bits <= 16:
        return np.arange(1 << source.bits, dtype=f"uint{source.size * 8}")
    surely, perhaps = (_floats if source.kind == "float" else _integers)(source.bits)
    generator = np.random.default_rng(source.code)
    candidates = np.array(sorted(perhaps), f"uint{source.bits}")
    chosen = generator.choice(candidates, min(len(candidates), 30_000), replace=False)
    random = np.frombuffer(generator.bytes(source.size * 5000), chosen.dtype)
    return np.concatenate([np.array(sorted(surely), chosen.dtype), chosen, random])


def _floats(bits: int) -> tuple[set[int], set[int]]:
    """Of every exponent that matters: powers of two and their neighbours; where something rounds.

    With infinity, and NaNs with all kinds of payload.
    """
    width, bias = {32: (23, 127), 64: (52, 1023)}[bits]
    exponents = {0, 1, 2 * bias, 2 * bias + 1, *range(max(0, bias - 155), bias + 129)}
    ones = (1 << width) - 1
    hard = set()
    for k in range(width):
        at = {1 << k, 3 << k, ones >> k << k, ones >> k}
        hard |= {(m + d) & ones for m in at for d in (-1, 0, 1)}
    starts = [s | e << width for s in (0, 1 << (bits - 1)) for e in sorted(exponents)]
    near_powers = {start | m for start in starts for m in (0, 1, ones)}
    return near_powers, {start | m for start in starts for m in hard}


def _integers(bits: int) -> tuple[set[int], set[int]]:
    """Powers of two; sums of two or three; with those one less and one more, of both signs."""
    sums = {1 << p | 1 << q for p in range(bits) for q in range(p)}
    sums |= {1 << p | 3 << q for p in range(bits) for q in range(p - 1)}

    def around(numbers: set[int]) -> set[int]:
        return {
            sign * (n + d) % (1 << bits) for n in numbers for d in (-1, 0, 1) for sign in (1, -1)
        }

    return around({1 << p for p in range(bits)}), around(sums)


def array_of(codes: Array, element_type: ElementType) -> Array:
    return codes.view(numpy_dtype(element_type))


def codes_of(array: Array, element_type: ElementType) -> Array:
    assert array.dtype == numpy_dtype(element_type)
    return array.view(f"uint{element_type.size * 8}")


def sign_extended(codes: Array, element_type: ElementType) -> Array:
    """The workspace's form: int4 and int2 are int8_t values."""
    if element_type.packed and element_type.kind == "signed":
        return array_of(codes, element_type).astype(np.int8).view(np.uint8)
    return codes


@cache
def expected(source: ElementType, variant: Variant) -> Array:
    result = convert(
        array_of(patterns(source), source), source, variant.target, **variant.attributes
    )
    return codes_of(result, variant.target)


def pairs(sources: list[ElementType]) -> list[tuple[ElementType, Variant]]:
    return [(source, variant) for source in sources for variant in VARIANTS]


def source_text(sources: list[ElementType]) -> tuple[str, str]:
    """A C file with a loop for every pair, and the declarations of the loops."""
    functions: set[str] = set()

    def call(function: str, *arguments: str) -> str:
        functions.add(function)
        return f"{function}({', '.join(arguments)})"

    declarations, loops = [], []
    for number, (source, variant) in enumerate(pairs(sources)):
        value = conversion_text(source, variant.target, "x[n]", call, **variant.attributes)
        types = f"const {source.c_type} *x, {variant.target.c_type} *y, int64_t count"
        declarations.append(f"void convert_{number}({types});")
        loops.append(
            f"void convert_{number}({types})\n{{\n"
            f"    for (int64_t n = 0; n < count; n++)\n        y[n] = {value};\n}}\n"
        )
    assert functions <= runtime_functions().keys()
    declared = "\n".join(declarations) + "\n"
    text = "\n".join(["#include <stdint.h>\n", *runtime_text(functions), declared, *loops])
    return text, declared


def library(command: list[str], sources: list[ElementType], folder: Path) -> tuple[FFI, Any]:
    text, declared = source_text(sources)
    (folder / "convert.c").write_text(text, encoding="ascii")
    run([*command, "-fPIC", "-shared", "-o", "convert.so", "convert.c"], folder)
    ffi = FFI()
    ffi.cdef(declared)
    return ffi, ffi.dlopen(str(folder / "convert.so"))


def converted(ffi: FFI, function: Any, source: ElementType, target: ElementType) -> Array:
    values = np.ascontiguousarray(sign_extended(patterns(source), source))
    result = np.empty(values.size, f"uint{target.size * 8}")
    x = ffi.cast(f"{source.c_type} *", values.ctypes.data)
    function(x, ffi.cast(f"{target.c_type} *", result.ctypes.data), values.size)
    return result


def check_all(command: list[str], sources: list[ElementType], folder: Path) -> None:
    """Builds the loops from `sources` and compares every result with convert's."""
    ffi, lib = library(command, sources, folder)
    for number, (source, variant) in enumerate(pairs(sources)):
        got = converted(ffi, getattr(lib, f"convert_{number}"), source, variant.target)
        wanted = sign_extended(expected(source, variant), variant.target)
        wrong = np.flatnonzero(got != wanted)
        if wrong.size:
            first = wrong[0]
            code = patterns(source)[first]
            pytest.fail(
                f"{source} to {variant}: {wrong.size} of {got.size} differ, of {code:#x}"
                f" C makes {got[first]:#x}, convert {wanted[first]:#x}"
            )


@pytest.mark.parametrize(("command", "sources"), BUILDS, ids=[command for command, _ in BUILDS])
def test_c_gives_the_bits_of_convert(
    command: str, sources: list[ElementType], tool: Tool, tmp_path: Path
) -> None:
    name, *options = command.split()
    check_all([tool(name), *options, *STRICT], sources, tmp_path)


def test_no_undefined_behaviour(
    tool: Tool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["-std=c99", "-O0", "-fsanitize=undefined,float-cast-overflow"]
    check_all([tool("gcc"), *flags], TYPES, tmp_path)
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.parametrize("command", BUILDS_CXX)
def test_no_warning_in_cxx(command: str, tool: Tool, tmp_path: Path) -> None:
    c_only = ("-std=c99", "-Wmissing-prototypes", "-Wstrict-prototypes")
    flags = [flag for flag in STRICT if flag not in c_only]
    name, *options = command.split()
    (tmp_path / "convert.cpp").write_text(source_text(TYPES)[0], encoding="ascii")
    run([tool(name), *options, *flags, "-fsyntax-only", "convert.cpp"], tmp_path)


def sample(source: ElementType, count: int) -> Array:
    codes = patterns(source)
    if codes.size <= count:
        return codes
    chosen = np.random.default_rng(source.code).choice(codes, count, replace=False)
    return np.concatenate([codes[:8], chosen])


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_convert_is_cast_by_the_letter(source: ElementType) -> None:
    codes = sample(source, 256)
    values = [decoded(int(code), source.name, source.bits) for code in codes]
    for variant in VARIANTS:
        target = variant.target
        if target.kind == "float" or target is source:
            continue
        result = convert(array_of(codes, source), source, target, **variant.attributes)
        for code, value, got in zip(codes, values, codes_of(result, target), strict=True):
            wanted = cast(value, target.name, target.bits, variant.saturate, variant.round_mode)
            if source.kind in ("signed", "unsigned") and target.kind in ("signed", "unsigned"):
                wanted = Fraction(wrapped(int(value), target.name, target.bits))
            found = decoded(int(got), target.name, target.bits)
            same = found == wanted or (found != found and wanted != wanted)
            assert same, f"{source} {code:#x} to {variant}: {found}, not {wanted}"


@pytest.mark.parametrize("target", ["float", "double"])
@pytest.mark.parametrize("source", TYPES, ids=str)
def test_float_and_double_are_nearest(source: ElementType, target: str) -> None:
    """Of the neighbours of what convert gives none is nearer, nor as near with an even last bit."""
    codes = sample(source, 256)
    form = BY_NAME[target]
    result = convert(array_of(codes, source), source, form)
    for code, number in zip(codes, result, strict=True):
        value = decoded(int(code), source.name, source.bits)
        if value != value or not np.isfinite(number):
            limit = power(128) - power(103)
            overflow = (
                target == "float" and max(value, -value) >= limit and (number > 0) == (value > 0)
            )
            assert overflow or str(value) == str(float(number))
            continue
        assert isinstance(value, Fraction)
        error = abs(Fraction(float(number)) - value)
        for towards in (-np.inf, np.inf):
            neighbour = np.nextafter(number, number.dtype.type(towards))
            if not np.isfinite(neighbour):
                continue
            other = abs(Fraction(float(neighbour)) - value)
            odd = int(codes_of(np.array([number]), form)[0]) & 1
            assert error < other or (error == other and not odd), f"{source} {code:#x}"


INF, NAN = np.inf, np.nan
FLOATS = [0.0, -0.0, NAN, -NAN, INF, -INF, 1e30, -1e30]
TABLES = [
    ("float8e4m3fn", True, "00 80 7f ff 7e fe 7e fe"),
    ("float8e4m3fnuz", True, "00 00 80 80 7f ff 7f ff"),
    ("float8e5m2", True, "00 80 7e fe 7b fb 7b fb"),
    ("float8e5m2fnuz", True, "00 00 80 80 7f ff 7f ff"),
    ("float8e4m3fn", False, "00 80 7f ff 7f ff 7f ff"),
    ("float8e4m3fnuz", False, "00 00 80 80 80 80 80 80"),
    ("float8e5m2", False, "00 80 7e fe 7c fc 7c fc"),
    ("float8e5m2fnuz", False, "00 00 80 80 80 80 80 80"),
    ("float4e2m1", True, "00 08 07 07 07 0f 07 0f"),
]


@pytest.mark.parametrize(("target", "saturate", "row"), TABLES)
def test_the_tables_of_cast(target: str, saturate: bool, row: str) -> None:
    array = np.array(FLOATS, np.float32)
    result = convert(array, BY_NAME["float"], BY_NAME[target], saturate=saturate)
    assert result.view(np.uint8).tobytes().hex(" ") == row


LARGEST, LEAST = 2.0**127, 2.0**-127
EXPONENTS = [
    (True, "up", [0.0, NAN, INF, 1.5 * LARGEST, LEAST / 2], [0, 255, 254, 254, 0]),
    (False, "nearest", [0.0, NAN, INF, 1.5 * LARGEST, LEAST / 2], [255, 255, 255, 255, 255]),
    (True, "up", [1.0, 1.0001, 1.5, 1.9999, 1.5 * LEAST], [127, 128, 128, 128, 1]),
    (True, "down", [1.0, 1.0001, 1.5, 1.9999, 1.5 * LEAST], [127, 127, 127, 127, 0]),
    (True, "nearest", [1.0, 1.4999, 1.5, 1.9999, 1.4999 * LEAST], [127, 127, 128, 128, 0]),
]


@pytest.mark.parametrize(("saturate", "round_mode", "values", "codes"), EXPONENTS)
def test_the_table_of_float8e8m0(
    saturate: bool, round_mode: str, values: list[float], codes: list[int]
) -> None:
    for name in ("float", "double"):
        array = np.array(values, BY_NAME[name].numpy)
        result = convert(
            array, BY_NAME[name], BY_NAME["float8e8m0"], saturate=saturate, round_mode=round_mode
        )
        assert result.view(np.uint8).tolist() == codes


SINGLE_ROUNDINGS: list[tuple[str, int | float, str, int]] = [
    ("double", 1 + 2.0**-11 + 2.0**-40, "float16", 0x3C01),  # a float in between would be a tie
    ("double", 65520.0 - 2.0**-30, "float16", 0x7BFF),
    ("double", -(2.0**-1000), "float16", 0x8000),
    ("float", -(2.0**-26), "float16", 0x8000),
    ("float", -0.0, "bfloat16", 0x8000),
    ("double", 1 + 2.0**-8 + 2.0**-50, "bfloat16", 0x3F81),
    ("double", 2.0**-134 + 2.0**-180, "bfloat16", 0x0001),
    ("int32", 2**30 + 2**22 + 1, "bfloat16", 0x4E81),
    ("int64", 2**62 + 2**54 + 1, "bfloat16", 0x5E81),
    ("int64", -(2**62 + 2**54 + 1), "bfloat16", 0xDE81),
    ("uint64", 2**63 + 2**55 + 1, "bfloat16", 0x5F01),
    ("uint64", 2**63 + 2**39 + 1, "float", 0x5F000001),
    ("int64", 2**62 + 2**38 + 1, "float", 0x5E800001),
]


@pytest.mark.parametrize(("source", "value", "target", "code"), SINGLE_ROUNDINGS)
def test_rounds_once(source: str, value: float, target: str, code: int) -> None:
    array = np.array([value], BY_NAME[source].numpy)
    result = convert(array, BY_NAME[source], BY_NAME[target])
    assert int(codes_of(result, BY_NAME[target])[0]) == code


NANS = [
    ("float", 0x7F800001, "float16", 0x7E00),
    ("float", 0xFFA5A000, "float16", 0xFF2D),
    ("float", 0xFFA5A000, "bfloat16", 0xFFE5),
    ("double", 0x7FF0000000000001, "float16", 0x7E00),
    ("double", 0xFFF4B40000000000, "bfloat16", 0xFFE5),
    ("float16", 0xFD2D, "float", 0xFFA5A000),
    ("float16", 0xFD2D, "bfloat16", 0xFFE5),
    ("bfloat16", 0x7F81, "float16", 0x7E08),
]


@pytest.mark.parametrize(("source", "code", "target", "wanted"), NANS)
def test_nan_payloads(source: str, code: int, target: str, wanted: int) -> None:
    from_type, to_type = BY_NAME[source], BY_NAME[target]
    array = array_of(np.array([code], f"uint{from_type.bits}"), from_type)
    result = codes_of(convert(array, from_type, to_type), to_type)
    assert hex(int(result[0])) == hex(wanted)


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_the_same_type_is_the_value_itself(source: ElementType) -> None:
    def call(function: str, *arguments: str) -> str:
        raise AssertionError(f"{function}({arguments})")

    array = array_of(patterns(source), source)
    assert convert(array, source, source) is array
    assert conversion_text(source, source, "x", call) == "x"


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_shapes_stay(shape: tuple[int, ...]) -> None:
    for source in TYPES:
        array = array_of(np.ones(shape, f"uint{source.size * 8}"), source)
        for variant in VARIANTS:
            result = convert(array, source, variant.target, **variant.attributes)
            assert (result.shape, result.dtype) == (shape, numpy_dtype(variant.target))


def test_convertible_leaves_out_strings_and_complex_numbers() -> None:
    left_out = {t.name for t in ELEMENT_TYPES} - {t.name for t in CONVERTIBLE}
    assert left_out == {"string", "complex64", "complex128"}
