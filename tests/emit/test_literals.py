"""Constants and literals in C: every bit comes back, and readable forms where they may be."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType, numpy_dtype
from onnxc.emit import literals
from onnxc.emit.literals import constant, literal, string_literal
from onnxc.expression import Axis, Buffer, along, compare, load
from onnxc.expression import literal as value_of
from onnxc.kernel import Loops, Program
from tests.kernels.programs import buffer, built, copy, over
from tests.models import any_bits

FORMS = {"values", "bits", "image"}


def of(dtype: str, *values: Any) -> Buffer:
    array = np.array(values, numpy_dtype(BY_NAME[dtype]))
    return Buffer("w", array.shape, BY_NAME[dtype], "constant", array)


def text(b: Buffer) -> str:
    return "".join(constant(b, "w").chunks())


def one(dtype: str, value: Any) -> str:
    kind = BY_NAME[dtype]
    return literal(kind, value_of(kind, value).raw)


@pytest.mark.parametrize(
    ("dtype", "value", "written"),
    [
        ("float", 1, "1.0f"),
        ("float", 0.1, "0.1f"),
        ("float", -0.0, "-0.0f"),
        ("float", 1e-45, "1e-45f"),
        ("float", 3.4028235e38, "3.4028235e38f"),
        ("float", 16777216, "1.6777216e7f"),
        ("double", 0.1, "0.1"),
        ("double", 5e-324, "5e-324"),
        ("double", 1e23, "1e23"),
        ("int8", -128, "-128"),
        ("int32", -(2**31), "INT32_MIN"),
        ("int64", -(2**63), "INT64_MIN"),
        ("int64", -5, "INT64_C(-5)"),
        ("uint32", 2**32 - 1, "4294967295u"),
        ("uint64", 2**64 - 1, "UINT64_C(18446744073709551615)"),
        ("bool", True, "1"),
        ("float16", 1, "0x3c00"),
        ("bfloat16", -2, "0xc000"),
        ("float8e4m3fn", 1, "0x38"),
        ("complex64", 1.5 - 2j, "(onnxc_complex64){1.5f, -2.0f}"),
        ("string", b"a b", '(onnxc_string){"a b", 3}'),
        ("int4", -8, "-8"),
        ("uint2", 3, "3"),
    ],
)
def test_single_values(dtype: str, value: Any, written: str) -> None:
    assert one(dtype, value) == written


def test_strings_keep_every_byte() -> None:
    r"""No digit is drawn into an escape, no trigraph and no `\x` arises."""
    assert string_literal(b"") == '{"", 0}'
    assert string_literal(b"\x001") == r'{"\0001", 2}'
    assert string_literal(b'"\\??/\n') == r'{"\042\134\077\077/\012", 6}'
    assert string_literal("é".encode()) == r'{"\303\251", 2}'


@given(st.binary(max_size=50))
def test_strings_read_back(raw: bytes) -> None:
    written = re.fullmatch(r'\{"(.*)", (\d+)\}', string_literal(raw))
    assert written
    back = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), written[1])
    assert (back.encode("latin-1"), int(written[2])) == (raw, len(raw))
    assert "??" not in written[1]


def test_values_stand_in_full_lines() -> None:
    lines = text(of("int32", *range(100))).splitlines()
    assert lines[0] == "{"
    assert lines[-1] == "}"
    assert all(len(line) <= 100 for line in lines)
    assert lines[1].startswith("    0, 1, 2,")
    assert constant(of("int32", 1, 2), "w").declaration == "int32_t w[2]"


def test_packed_values_are_bytes() -> None:
    assert text(of("int4", 1, -1, 7)).split() == ["{", "0xf1,", "0x07,", "}"]
    assert constant(of("int4", 1, -1, 7), "w").declaration == "uint8_t w[2]"


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float", "double", "complex64", "complex128"])
def test_what_has_no_literal_is_written_as_bits(dtype: str, odd: float) -> None:
    written = constant(of(dtype, 1, odd), "w")
    assert (written.form, written.member) == ("bits", ".values")
    assert constant(of(dtype, 1, 2), "w").form == "values"


def test_large_constants_are_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """In rows of a fixed length, little-endian."""
    assert constant(of("float", *[0.0] * 4095), "w").form == "values"
    assert constant(of("float", *[0.0] * 4096), "w").form == "image"
    monkeypatch.setattr(literals, "IMAGE_FROM", 4)
    monkeypatch.setattr(literals, "ROW", 4)
    w = of("uint16", 0x4142, 0x0043, 0x4445)
    assert text(w) == '{{\n    "BAC\\000",\n    "ED",\n}}'
    assert "unsigned char bytes[2][4]" in constant(w, "w").declaration


@pytest.mark.parametrize("count", [1, 4, 15, 16, 33, 256])
def test_an_image_has_each_byte_in_its_row(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Written several rows at once, as one by one."""
    monkeypatch.setattr(literals, "IMAGE_FROM", 1)
    monkeypatch.setattr(literals, "ROW", 8)
    monkeypatch.setattr(literals, "ROWS_AT_ONCE", 3)
    w = of("uint8", *range(256)[-count:])
    size = constant(w, "w").row
    values = bytes(range(256)[-count:])
    rows = [values[start : start + size] for start in range(0, count, size)]
    characters = ["".join(one("string", bytes([c])).split('"')[1] for c in row) for row in rows]
    assert text(w) == "{{\n" + "".join(f'    "{row}",\n' for row in characters) + "}}"


@given(st.sampled_from(ELEMENT_TYPES), st.integers(0, 40))
def test_pieces_are_never_large(dtype: ElementType, count: int) -> None:
    w = Buffer("w", (count,), dtype, "constant", any_bits(dtype, count))
    written = constant(w, "w")
    assert written.form in FORMS
    assert all(len(piece) < 10_000 for piece in written.chunks())


def stored(dtype: ElementType, count: int, number: int) -> tuple[Buffer, Buffer, Loops]:
    """A constant of random bits, finite ones for even numbers, and the copy that shows it."""
    array = any_bits(dtype, count, 1).reshape(-1)
    if number % 2 == 0 and dtype.kind in ("float", "complex"):
        array = np.where(np.isfinite(array), array, 1).astype(array.dtype)
    w = Buffer(f"w{number}", (count,), dtype, "constant", array)
    y = buffer(f"y{number}", "output", dtype, count)
    return w, y, copy(y, w)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_bit_comes_back(compiler: str, tool: Any) -> None:
    """Readable values, bits, and images, of random bits of every unpacked type."""
    tool(compiler)
    kinds = [t for t in ELEMENT_TYPES if not t.packed]
    sizes = [300, 301, 5000, 5001]
    cases = [
        stored(dtype, sizes[n], 4 * position + n)
        for position, dtype in enumerate(kinds)
        for n in range(4)
    ]
    steps = tuple(step for _, _, step in cases)
    program = Program((), tuple(y for _, y, _ in cases), steps)
    _, outputs = built(program, compiler).run({})
    for w, y, _ in cases:
        assert w.data is not None
        if w.dtype.kind == "string":
            assert outputs[y].tolist() == w.data.tolist()
        else:
            assert outputs[y].tobytes() == w.data.tobytes(), w.name
    forms = {constant(w, "w").form for w, _, _ in cases}
    assert forms == FORMS


def test_packed_constants_are_read_by_element() -> None:
    for name in ("int4", "uint4", "int2", "uint2"):
        dtype = BY_NAME[name]
        w = Buffer("w", (7,), dtype, "constant", any_bits(dtype, 7))
        y, i, j = buffer("y", "output", BY_NAME["bool"], 7, 7), Axis(7), Axis(7)
        same = compare("equal", load(w, [along(i)]), load(w, [along(j)]))
        program = Program((), (y,), (over(y, same, i, j),))
        _, outputs = built(program).run({})
        assert w.data is not None
        assert (outputs[y] == (w.data[:, None] == w.data)).all()
