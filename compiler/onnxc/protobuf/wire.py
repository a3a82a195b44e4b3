"""A model file's bytes: read as protobuf, or why that cannot be done.

The protobuf library says only that it failed, and some versions accept the first bytes of a text
file. So the outer fields are walked before it parses, which also keeps a huge file of rubbish out
of memory, and all fields after it has failed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnx
from google.protobuf.message import DecodeError

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem, UsageError
from onnxc.protobuf.where import quoted

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MAX_BYTES: Final = 2**31 - 1
"""The largest message that protobuf can hold."""
MAX_DEPTH: Final = 100
"""How deep protobuf lets messages nest; a graph in a node takes three levels."""
_MAX_OUTER_FIELDS = 100_000
_MAX_FIELDS = 2_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOWNLOAD = "export or download the model again"

_BLOCK = 4096


class _Blocks:
    """A file's bytes by position; one block of them is in memory."""

    def __init__(self, file: int, size: int) -> None:
        self._file = file
        self._size = size
        self._number = -1
        self._block = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, position: int) -> int:
        number, offset = divmod(position, _BLOCK)
        if number != self._number:
            self._number, self._block = number, os.pread(self._file, _BLOCK, number * _BLOCK)
        return self._block[offset] if offset < len(self._block) else 0


Buffer = bytes | _Blocks


def read_model(path: Path) -> onnx.ModelProto:
    """The model in a file.

    Raises UsageError where there is no regular, readable file, and ModelError where it holds no
    ONNX model. Never opens a device or a pipe.
    """
    data = _contents(path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ModelError([_diagnosis(data)]) from None
    if not (model.HasField("ir_version") or model.HasField("graph") or model.opset_import):
        raise ModelError([_not_a_model("it holds none of a model's parts")])
    return model


def _contents(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise UsageError(
                Kind.UNREADABLE_FILE, f"{quoted(str(path))} is {kind}; give an ONNX model file"
            )
        if status.st_size == 0:
            raise ModelError([Problem(Kind.EMPTY_FILE, "model", "the file is empty", _DOWNLOAD)])
        if status.st_size > MAX_BYTES:
            fact = f"the file has {status.st_size:,} bytes, more than the 2 GB of a protobuf"
            remedy = "store the weights as external data"
            raise ModelError([Problem(Kind.FILE_TOO_LARGE, "model", fact, remedy)])
        with path.open("rb") as file:
            text = _text_problem(os.pread(file.fileno(), 64, 0))
            if text:
                raise ModelError([text])
            _check_outer_fields(_Blocks(file.fileno(), status.st_size))
            return file.read(status.st_size)  # a larger number would be set aside at once
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            Kind.UNREADABLE_FILE, f"cannot read {quoted(str(path))}: {reason}"
        ) from None


def _check_outer_fields(data: Buffer) -> None:
    try:
        for _ in islice(_fields(data, 0, len(data)), _MAX_OUTER_FIELDS):
            pass
    except _WireError as error:
        raise ModelError([error.problem(_outer_field_name(error.number))]) from None


def _text_problem(start: bytes) -> Problem | None:
    if start.startswith(b"version https://git-lfs"):
        fact = "the file is a Git LFS pointer, not the model itself"
        return Problem(Kind.GIT_LFS_POINTER, "model", fact, "fetch the model with 'git lfs pull'")
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start):
        return _not_a_model("it looks like text")
    return None


def _not_a_model(reason: str) -> Problem:
    return Problem(Kind.NOT_A_MODEL, "model", f"the file is not an ONNX model: {reason}", _DOWNLOAD)


def _outer_field_name(number: int) -> str:
    field = onnx.ModelProto.DESCRIPTOR.fields_by_number.get(number)
    return field.name if field else f"#{number}"


@dataclass
class _WireError(Exception):
    """Bytes that are no protobuf; `missing` of them where a field runs past the end."""

    offset: int
    number: int
    missing: int = 0

    def problem(self, field: str) -> Problem:
        if self.missing:
            fact = (
                f"the file is truncated or damaged: its field {quoted(field)} at byte "
                f"{self.offset:,} needs {self.missing:,} bytes more than there are"
            )
            return Problem(Kind.DAMAGED_FILE, "model", fact, _DOWNLOAD)
        return _not_a_model(f"byte {self.offset:,} does not begin a protobuf field")


def _fields(data: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, start and end of the value) of each field of one message."""
    position = start
    while position < end:
        tag, value = _varint(data, position, end, 0)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or wire_type not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
            raise _WireError(position, number)
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire_type, 0)
        if wire_type == _BYTES:
            length, value = _varint(data, value, end, number)
        elif wire_type == _VARINT:
            length = _varint(data, value, end, number)[1] - value
        if length > end - value:
            raise _WireError(position, number, missing=length - (end - value))
        yield number, wire_type, value, value + length
        position = value + length


def _varint(data: Buffer, position: int, end: int, number: int) -> tuple[int, int]:
    """An integer and the position after it."""
    result = 0
    for count in range(10):
        if position + count >= end:
            raise _WireError(position, number, missing=1)
        byte = data[position + count]
        result |= (byte & 127) << (7 * count)
        if byte < 128:
            return result, position + count + 1
    raise _WireError(position, number)


def _diagnosis(data: bytes) -> Problem:
    """Why protobuf refused bytes whose outer fields are sound."""
    pending: list[tuple[Descriptor, int, int, int]]
    pending = [(onnx.ModelProto.DESCRIPTOR, 0, len(data), 1)]
    seen = 0
    while pending and seen < _MAX_FIELDS:
        message, start, end, depth = pending.pop()
        if depth > MAX_DEPTH:
            return too_deep()
        try:
            for number, wire_type, begin, finish in _fields(data, start, end):
                seen += 1
                field = message.fields_by_number.get(number)
                if field and field.message_type and wire_type == _BYTES:
                    pending.append((field.message_type, begin, finish, depth + 1))
        except _WireError as error:
            inner = message.fields_by_number.get(error.number)
            return error.problem(f"{message.name}.{inner.name if inner else error.number}")
    return _not_a_model("protobuf cannot parse it")


def too_deep() -> Problem:
    """The problem of messages that nest deeper than protobuf reads."""
    fact = f"graphs in attributes nest deeper than protobuf reads ({MAX_DEPTH} messages)"
    return Problem(
        Kind.NESTING_TOO_DEEP, "model", fact, "flatten the nested If, Loop and Scan bodies"
    )


def file_folder(path: Path) -> Path:
    """The folder of a model file with every symbolic link followed; external data lies in it."""
    return Path(os.path.realpath(path.parent))
