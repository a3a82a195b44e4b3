"""Constants as C: literals that keep every bit, and byte images for what is large."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.expression import Buffer
from onnxc.packing import pack_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMAGE_FROM: Final = 16 * 1024
"""Bytes from which a constant is written as an image: compilers read strings far faster."""
ROW: Final = 1984
"""Bytes of one string; C99 guarantees 4095.

gcc 12 keeps each in a block of a power of two bytes with a head of some 40, and needs time that
grows with the square of their number where such a block is a page of memory or more.
"""
ROWS_AT_ONCE: Final = 32
"""So many are written as one piece of text, which stays in the cache meanwhile."""
LINE: Final = 96
OUTSIDE: Final = "constants"
"""The run function's pointer to what a file holds."""


def literal(dtype: ElementType, raw: bytes) -> str:
    """One value from its bytes as numpy stores it (of a string, its own, which are few).

    Infinity and NaN are macros of math.h; only a table keeps a NaN's payload.
    """
    if dtype.kind == "string":
        return f"(onnxc_string){string_literal(raw)}"
    value = np.frombuffer(raw, numpy_dtype(dtype))
    text = next(iter(_elements(value, dtype)))
    return f"({dtype.c_type}){text}" if dtype.kind == "complex" else text


def is_finite(dtype: ElementType, raw: bytes) -> bool:
    """Whether the literal does without the macros of math.h."""
    if dtype.kind not in ("float", "complex"):
        return True
    return bool(np.isfinite(np.frombuffer(raw, numpy_dtype(dtype))).all())


def string_literal(raw: bytes) -> str:
    """A string of up to ROW bytes for use anywhere, a longer one for a table at file scope only.

    The long one's rows make an array, which inside a function would not outlive the call.
    """
    if len(raw) <= ROW:
        return f'{{"{_characters(raw)}", {len(raw)}}}'
    rows = [raw[start : start + ROW] for start in range(0, len(raw), ROW)]
    text = ",\n".join(f'        "{_characters(row)}"' for row in rows)
    return f"{{(const char[{len(rows)}][{ROW}]){{\n{text}}}[0], {len(raw)}}}"


def _characters(raw: bytes) -> str:
    return "".join(map(_CHARACTER.__getitem__, raw))


_PLAIN: Final = set(range(0x20, 0x7F)) - set(b'"\\?')
_CHARACTER: Final = [chr(c) if c in _PLAIN else f"\\{c:03o}" for c in range(256)]
_ROW_START: Final = '    "'
_ROW_END: Final = '",\n'
_PAIRS: Final = 1 << 16


def _texts_of_pairs() -> NDArray[np.uint64]:
    """Of every two bytes, by the uint16 that they are in memory, the text in eight bytes.

    It has zeros where it is shorter. The last is the text between two rows.
    """
    texts = np.array([text.encode() for text in _CHARACTER], "S4").view(np.uint32)
    pairs = np.arange(_PAIRS).astype(np.uint16).view(np.uint8)
    between = np.frombuffer(f"{_ROW_END}{_ROW_START}".encode(), np.uint64)
    return np.append(texts[pairs].view(np.uint64), between)


_TEXTS: Final = _texts_of_pairs()


@dataclass(frozen=True)
class Constant:
    """How one constant buffer is written.

    form     values (readable), bits (of what has no literal), image (strings of bytes), or outside
             (in a file, see weights.py)
    member   of the union where the bits cannot be written in its own type: ".values", else ""
    """

    buffer: Buffer
    name: str
    form: str

    @property
    def member(self) -> str:
        return ".values" if self.form in ("bits", "image") else ""

    @property
    def place(self) -> str:
        """What a kernel is called with."""
        return f"{OUTSIDE}->{self.name}" if self.form == "outside" else self.name + self.member

    @property
    def has_full_rows(self) -> bool:
        """Whether a row of bytes has no room for the NUL of the literal that gives it."""
        data = self.buffer.data
        assert data is not None
        if self.buffer.dtype.kind == "string":
            return any(len(raw) > ROW for raw in data.reshape(-1))
        return self.form == "image"

    @property
    def reference(self) -> str:
        """The type and name once more, after the declaration has told what the union holds."""
        if self.form == "values":
            return self.declaration
        return f"union {self.name} {self.name}"

    @property
    def declaration(self) -> str:
        buffer = self.buffer
        c_type = "uint8_t" if buffer.packed else buffer.dtype.c_type
        size = buffer.bytes if buffer.packed else buffer.elements
        match self.form:
            case "bits":
                bits = self._bits()
                image = f"{bits.dtype.name}_t bits[{bits.size}]"
            case "image":
                image = f"unsigned char bytes[{-(-buffer.bytes // self.row)}][{self.row}]"
            case _:
                return f"{c_type} {self.name}[{size}]"
        return f"union {self.name} {{ {image}; {c_type} values[{size}]; }} {self.name}"

    @property
    def row(self) -> int:
        """Bytes of one string of an image: up to ROW, so that the last is nearly as long."""
        strings = -(-self.buffer.bytes // ROW)
        return -(-self.buffer.bytes // strings // 4) * 4

    def _bits(self) -> NDArray[Any]:
        assert self.buffer.data is not None
        flat = np.ascontiguousarray(self.buffer.data).reshape(-1)
        part = flat.dtype.itemsize // (2 if self.buffer.dtype.kind == "complex" else 1)
        return flat.view(f"uint{8 * part}")

    def chunks(self) -> Iterator[str]:
        """The initializer, in pieces of text that are never large."""
        assert self.buffer.data is not None
        if self.form == "image":
            yield from self._image()
            return
        nested = "{" if self.form == "bits" else ""
        yield f"{{{nested}\n"
        if self.form == "bits":
            bits = self._bits()
            width = bits.dtype.itemsize * 2
            suffix = "u" if width <= 8 else ""
            texts: Iterable[str] = (f"0x{int(bit):0{width}x}{suffix}" for bit in bits)
        else:
            flat = self.buffer.data.reshape(-1)
            texts = _stored(flat, self.buffer)
        yield from _filled(texts)
        yield f"}}{'}' if nested else ''}"

    def stored_bytes(self) -> NDArray[np.uint8]:
        """The bytes in memory of a little-endian target, one-dimensional. Not of strings."""
        buffer = self.buffer
        assert buffer.data is not None
        flat = np.ascontiguousarray(buffer.data).reshape(-1)
        if buffer.packed:
            return pack_elements(flat, buffer.dtype)
        if buffer.dtype.size > 1:
            flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
        return flat.view(np.uint8)

    def _image(self) -> Iterator[str]:
        stored = self.stored_bytes()
        yield "{{\n"
        step = self.row * ROWS_AT_ONCE
        for start in range(0, stored.size, step):
            yield _rows(stored[start : start + step], self.row)
        yield "}}"


def _rows(stored: NDArray[np.uint8], row: int) -> str:
    """The bytes as strings of `row` bytes, the last one perhaps shorter, one a line."""
    whole = stored.size // row
    pairs = np.full((whole, row // 2 + 1), _PAIRS, np.intp)
    pairs[:, :-1] = stored[: whole * row].view(np.uint16).reshape(whole, row // 2)
    texts = bytearray(pairs.size * _TEXTS.itemsize)
    np.take(_TEXTS, pairs, out=np.frombuffer(texts, np.uint64).reshape(pairs.shape), mode="clip")
    text = _ROW_START + texts.translate(None, b"\0").decode("ascii")
    rest = stored[whole * row :].tobytes()
    return f"{text}{_characters(rest)}{_ROW_END}" if rest else text.removesuffix(_ROW_START)


def constant(
    buffer: Buffer, name: str, *, outside: bool = False, any_order: bool = False
) -> Constant:
    """Chooses the form: readable values, the same as bits (NaN, infinity), or a byte image.

    outside   all but strings and what has no elements go into a file
    any_order  no image is of numbers of several bytes: those are bits, which compile slower
    """
    assert buffer.data is not None
    kind = buffer.dtype.kind
    if outside and kind != "string" and buffer.elements:
        return Constant(buffer, name, "outside")
    if kind != "string" and buffer.bytes >= IMAGE_FROM:
        as_bits = any_order and buffer.dtype.size > 1 and not buffer.packed
        return Constant(buffer, name, "bits" if as_bits else "image")
    if kind in ("float", "complex") and not np.isfinite(buffer.data).all():
        return Constant(buffer, name, "bits")
    return Constant(buffer, name, "values")


def _stored(flat: NDArray[Any], buffer: Buffer) -> Iterable[str]:
    if buffer.packed:
        return (f"0x{int(byte):02x}" for byte in pack_elements(flat, buffer.dtype))
    return _elements(flat, buffer.dtype)


def _elements(flat: NDArray[Any], dtype: ElementType) -> Iterable[str]:
    match dtype.kind:
        case "string":
            return (string_literal(raw) for raw in flat)
        case "float":
            return (_float(value, dtype.bits) for value in flat)
        case "complex":
            parts = (_float_pair(value, dtype.bits // 2) for value in flat)
            return (f"{{{re}, {im}}}" for re, im in parts)
        case "half":
            return (f"0x{int(bits):04x}" for bits in flat.view(np.uint16))
        case "bits":
            return (f"0x{int(bits):02x}" for bits in flat.view(np.uint8))
    return (_integer(int(value), dtype) for value in flat)


def _float(value: Any, bits: int) -> str:
    """The shortest decimal that reads back as the same value."""
    if not math.isfinite(value):
        kind = "NAN" if np.isnan(value) else "INFINITY"
        return f"{'-' if value < 0 else ''}{'(double)' if bits == 64 else ''}{kind}"
    if 1e-3 <= abs(value) < 1e5 or value == 0:
        text = str(value)  # as the next, much faster
    elif 1e-4 <= abs(value) < 1e7:
        text = np.format_float_positional(value, unique=True, trim="0")
    else:
        text = np.format_float_scientific(value, unique=True, trim="-", exp_digits=1)
    return text.replace("e+", "e") + ("f" if bits == 32 else "")


def _float_pair(value: Any, bits: int) -> tuple[str, str]:
    return _float(value.real, bits), _float(value.imag, bits)


def _integer(value: int, dtype: ElementType) -> str:
    if dtype.bits == 64:
        if value == -(2**63):
            return "INT64_MIN"
        return f"{'U' if dtype.kind == 'unsigned' else ''}INT64_C({value})"
    if value == -(2**31):
        return "INT32_MIN"
    return f"{value}u" if dtype.name == "uint32" else str(value)


def _filled(texts: Iterable[str]) -> Iterator[str]:
    """The texts with commas, in lines that are filled up."""
    line = "   "
    for text in texts:
        if len(line) + len(text) + 2 > LINE and line.strip():
            yield line + "\n"
            line = "   "
        line += f" {text},"
    yield line + "\n"
