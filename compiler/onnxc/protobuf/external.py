"""External data: found beside the model and nowhere else, and mapped once per file."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.protobuf.where import quoted

_KEYS: Final = ("location", "offset", "length", "checksum")
_MAX_DIGITS: Final = 19  # of a 64-bit integer


def external_faults(
    tensor: onnx.TensorProto, needed: int, folder: Path | None
) -> Iterator[tuple[Kind, str, str]]:
    """What is wrong with a tensor's external data of `needed` bytes: kind, fact and remedy.

    Nothing where it is sound: then the location is made absolute, every link followed, and offset
    and length are written out. `folder` is the model's, resolved.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if len(entries) < len(tensor.external_data):
        yield Kind.EXTERNAL_DATA, "names a key of its external data twice", ""
    elif not location:
        yield Kind.EXTERNAL_DATA, "its external data has no location", ""
    elif folder is None:
        yield (
            Kind.EXTERNAL_DATA,
            f"its data lies in the file {quoted(location)}, but the model was given in memory",
            "pass the path of the model file",
        )
    else:
        path, fault = _file(location, folder)
        fault = fault or _range_fault(path, entries, needed)
        if fault:
            yield _kind(fault), f"external data file {quoted(location)} {fault}", _remedy(fault)
        else:
            _write_entries(tensor, path, _number(entries, "offset", 0), needed)


def _file(location: str, folder: Path) -> tuple[Path, str]:
    """The resolved file, and what is wrong with it ("" if nothing)."""
    if "\0" in location:
        return folder, "has a NUL in its name"
    relative = Path(location)
    if relative.is_absolute():
        return folder, "is an absolute path"
    if ".." in relative.parts:
        return folder, "leads outside the model's folder ('..')"
    try:
        path = Path(os.path.realpath(folder / relative, strict=True))
        mode = path.stat().st_mode
    except OSError as error:
        return folder, f"cannot be found: {error.strerror}"
    if not path.is_relative_to(folder):
        return path, "leads outside the model's folder through a symbolic link"
    if not stat.S_ISREG(mode):
        return path, "is not a regular file"
    return path, "" if os.access(path, os.R_OK) else "cannot be read: permission denied"


def _range_fault(path: Path, entries: dict[str, str], needed: int) -> str:
    offset, length = _number(entries, "offset", 0), _number(entries, "length", needed)
    for key, number in (("offset", offset), ("length", length)):
        if number < 0:
            return f"has an invalid {key}: {quoted(entries[key])}"
    if length != needed:
        return f"holds {length:,} bytes for a tensor of {needed:,}"
    size = path.stat().st_size
    if offset + needed > size:
        return f"is too short: {size:,} bytes, {offset + needed:,} needed"
    return ""


def _number(entries: dict[str, str], key: str, default: int) -> int:
    """A non-negative integer of 64 bits; -1 where the text is none."""
    text = entries.get(key)
    if text is None:
        return default
    digits = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if digits else -1


def _kind(fault: str) -> Kind:
    outside = "outside" in fault or "absolute" in fault
    return Kind.EXTERNAL_DATA_OUTSIDE if outside else Kind.EXTERNAL_DATA


def _remedy(fault: str) -> str:
    if _kind(fault) is Kind.EXTERNAL_DATA_OUTSIDE:
        return "external data must lie in the model's folder or below"
    return "put it beside the model, whole" if "found" in fault or "short" in fault else ""


def _write_entries(tensor: onnx.TensorProto, path: Path, offset: int, length: int) -> None:
    del tensor.external_data[:]
    values = (str(path), str(offset), str(length))
    for key, value in zip(_KEYS, values, strict=False):
        tensor.external_data.add(key=key, value=value)


def map_external(model: ir.Model) -> None:
    """Replaces every external tensor by a view of its file, each file being mapped once.

    onnx_ir would map, and keep open, the file once for every tensor.
    """
    mapped = _Files()
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = mapped.tensor(value.const_value)
        for node in graph:
            for attribute in list(node.attributes.values()):
                _map_attribute(node, attribute, mapped)


def _map_attribute(node: ir.Node, attribute: ir.Attr, mapped: _Files) -> None:
    if attribute.type is ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if isinstance(tensor, ir.ExternalTensor):
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, mapped.tensor(tensor))
    elif attribute.type is ir.AttributeType.TENSORS:
        tensors = attribute.as_tensors()
        if any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors):
            node.attributes[attribute.name] = ir.AttrTensors(
                attribute.name, list(mapped.tensors(tensors))
            )


class _Files:
    """The files mapped so far, by path."""

    def __init__(self) -> None:
        self._bytes: dict[str, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def tensors(self, tensors: Iterable[ir.TensorProtocol]) -> Iterator[ir.TensorProtocol]:
        for tensor in tensors:
            yield self.tensor(tensor) if isinstance(tensor, ir.ExternalTensor) else tensor

    def tensor(self, tensor: ir.ExternalTensor) -> ir.TensorProtocol:
        """The same tensor over the file's mapped bytes; sub-byte values stay packed."""
        offset, length = tensor.offset or 0, tensor.length or 0
        data = self._of(tensor.path)[offset : offset + length] if length else _NOTHING
        if tensor.dtype.bitwidth < 8:
            return ir.PackedTensor(data, tensor.dtype, shape=tensor.shape, name=tensor.name)
        dtype = np.dtype(tensor.dtype.numpy()).newbyteorder("<")
        values = data.view(dtype).reshape(tensor.shape.numpy())
        return ir.Tensor(values, tensor.dtype, shape=tensor.shape, name=tensor.name)

    def _of(self, path: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if path not in self._bytes:
            with Path(path).open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._bytes[path] = np.frombuffer(mapped, np.uint8)
        return self._bytes[path]


_NOTHING = np.zeros(0, np.uint8)
