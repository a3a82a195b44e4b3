"""Constants in a file of their own, OUT.bin, where the C shall not hold them.

The file starts with ALIGNMENT bytes: MAGIC, the size of the whole file as 8 bytes, the first 16
bytes of the SHA-256 of what follows, and zeros. Then come the constants, each at a multiple of
ALIGNMENT, zeros between them; several bytes of one value are in little-endian order. In the C the
file is one struct. Either the assembler includes it (incbin), or every run is given it (file).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from onnxc.emit.literals import OUTSIDE, Constant
from onnxc.emit.text import buffer_text, render
from onnxc.output import MAGIC

ALIGNMENT: Final = 64
COMPARED: Final = 32
"""Bytes of the header that each run compares."""


class ByteSink(Protocol):
    def write(self, data: bytes | memoryview, /) -> object: ...


def local_names(form: str, model: str) -> tuple[str, ...]:
    """The C names that a model with such weights has in addition."""
    if form == "inline":
        return ()
    return (OUTSIDE, "weights", f"{model}_weights_check", f"{model}_weights_data")


@dataclass(frozen=True)
class Member:
    """A constant in the struct, and the bytes between it and the next one."""

    declaration: str
    text: str
    padding: int


@dataclass(frozen=True)
class Weights:
    """The constants of the model `name` that stand in its file, in its order.

    form   incbin or file
    """

    name: str
    form: str
    constants: tuple[Constant, ...]

    @property
    def given(self) -> bool:
        """Whether each run is given the file."""
        return self.form == "file"

    @property
    def members(self) -> list[Member]:
        return [
            Member(c.declaration, buffer_text(c.buffer), -c.buffer.bytes % ALIGNMENT)
            for c in self.constants
        ]

    @cached_property
    def size(self) -> int:
        """The size of the file."""
        sizes = (constant.buffer.bytes for constant in self.constants)
        return ALIGNMENT + sum(size + -size % ALIGNMENT for size in sizes)

    def _contents(self) -> Iterator[bytes | memoryview]:
        """What follows the header, in pieces."""
        for constant in self.constants:
            stored = constant.stored_bytes()
            yield stored.data
            yield bytes(-stored.size % ALIGNMENT)

    @cached_property
    def _sums(self) -> tuple[bytes, int]:
        """SHA-256 and CRC-32 of the contents."""
        digest, crc = hashlib.sha256(), 0
        for piece in self._contents():
            digest.update(piece)
            crc = zlib.crc32(piece, crc) if self.given else 0
        return digest.digest(), crc

    @property
    def header(self) -> bytes:
        """The COMPARED bytes that the file starts with."""
        return MAGIC + self.size.to_bytes(8, "little") + self._sums[0][:16]

    def write(self, stream: ByteSink) -> None:
        """The file, in pieces."""
        stream.write(self.header.ljust(ALIGNMENT, b"\0"))
        for piece in self._contents():
            stream.write(piece)

    def declarations(self, file: str) -> str:
        """What the C has before its kernels; `file` is the name of the file."""
        header = [f"0x{byte:02x}" for byte in self.header]
        return render(
            "weights.c.j2",
            weights=self,
            file=file,
            NAME=self.name.upper(),
            alignment=ALIGNMENT,
            shift=ALIGNMENT.bit_length() - 1,
            header=[", ".join(header[start : start + 16]) for start in range(0, COMPARED, 16)],
        )

    def check(self) -> str:
        """The definition of `<model>_weights_check`, which sums up the contents."""
        table = [_crc_of_nibble(nibble) for nibble in range(16)]
        rows = [", ".join(f"0x{crc:08x}" for crc in table[n : n + 4]) for n in range(0, 16, 4)]
        return render(
            "weights_check.c.j2",
            name=self.name,
            NAME=self.name.upper(),
            alignment=ALIGNMENT,
            table=rows,
            crc=f"0x{self._sums[1]:08x}",
        )


def _crc_of_nibble(nibble: int) -> int:
    """One entry of the table that takes CRC-32 four bits further."""
    for _ in range(4):
        nibble = nibble >> 1 ^ (0xEDB88320 if nibble & 1 else 0)
    return nibble


def weights(name: str, form: str, constants: Sequence[Constant]) -> Weights | None:
    """The file of those constants that are not in the C; None where there is none."""
    outside = tuple(constant for constant in constants if constant.form == "outside")
    return Weights(name, form, outside) if outside else None
