"""Sparse constants, made dense; nothing behind this pass knows them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE, ElementType
from onnxc.protobuf.tensors import Fault, dims_faults, tensor_faults

MAX_DENSE_BYTES: Final = 256 << 20
"""What the dense forms of one model's sparse constants may take together."""


class Densifier:
    """Turns the sparse constants of one model into dense ones, within MAX_DENSE_BYTES."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._used = 0

    def dense(self, sparse: onnx.SparseTensorProto, faults: list[Fault]) -> onnx.TensorProto:
        """The dense tensor, named as the sparse one's values; empty where `faults` grew."""
        dense = onnx.TensorProto(name=sparse.values.name)
        found = list(self._faults(sparse))
        faults.extend(found)
        if found:
            return dense
        positions = _positions(sparse)
        dense.data_type = sparse.values.data_type
        dense.dims.extend(sparse.dims)
        if sparse.values.data_type == onnx.TensorProto.STRING:
            strings = [b""] * math.prod(sparse.dims)
            for position, text in zip(positions.tolist(), sparse.values.string_data, strict=True):
                strings[position] = text
            dense.string_data.extend(strings)
        else:
            dense.raw_data = _scattered(sparse, positions)
        return dense

    def _faults(self, sparse: onnx.SparseTensorProto) -> Iterator[Fault]:
        dtype = BY_CODE.get(sparse.values.data_type)
        parts = list(self._part_faults("values", sparse.values))
        parts += self._part_faults("indices", sparse.indices)
        if dtype is not None:
            parts += dims_faults(sparse.dims, dtype)
        if parts or dtype is None:
            yield from parts
            return
        form = _form_fault(sparse) or _index_fault(sparse)
        if form:
            yield Kind.SPARSE_TENSOR, form, ""
            return
        yield from self._size_fault(sparse, dtype)

    def _part_faults(self, part: str, tensor: onnx.TensorProto) -> Iterator[Fault]:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            fact = f"sparse {part} cannot be external data"
            yield Kind.SPARSE_TENSOR, fact, "store them in the model"
            return
        for kind, fact, remedy in tensor_faults(tensor, self.folder):
            yield kind, f"sparse {part}: {fact}", remedy

    def _size_fault(self, sparse: onnx.SparseTensorProto, dtype: ElementType) -> Iterator[Fault]:
        # on the way a sub-byte value takes one byte, a string its Python and protobuf objects
        size = 64 if dtype.kind == "string" else dtype.size
        self._used += size * math.prod(sparse.dims)
        if self._used > MAX_DENSE_BYTES:
            limit = f"{MAX_DENSE_BYTES >> 20} MiB"
            fact = f"made dense, sparse data takes more than {limit} ({self._used:,} bytes)"
            yield Kind.SPARSE_TENSOR, fact, ""


def _form_fault(sparse: onnx.SparseTensorProto) -> str:
    """What is wrong with ranks, counts and the type of the indices."""
    values, indices, rank = sparse.values.dims, sparse.indices.dims, len(sparse.dims)
    if rank == 0:
        return "a sparse tensor needs at least one dimension"
    if len(values) != 1:
        return f"sparse values must have rank 1, not {len(values)}"
    if sparse.indices.data_type != onnx.TensorProto.INT64:
        return f"sparse indices must be int64, not {BY_CODE[sparse.indices.data_type].name}"
    if list(indices) not in ([values[0]], [values[0], rank]):
        return (
            f"sparse indices have shape {list(indices)}; {values[0]} values in rank {rank} "
            f"need [{values[0]}] or [{values[0]}, {rank}]"
        )
    return ""


def _indices(sparse: onnx.SparseTensorProto) -> NDArray[np.int64]:
    return np.asarray(ir.serde.TensorProtoTensor(sparse.indices).numpy(), np.int64)


def _index_fault(sparse: onnx.SparseTensorProto) -> str:
    """What is wrong with the values of the indices, whose form is right."""
    indices = _indices(sparse)
    bounds = np.array(sparse.dims if indices.ndim == 2 else [math.prod(sparse.dims)], np.int64)
    outside = (indices < 0) | (indices >= (bounds if indices.ndim == 2 else bounds[0]))
    if outside.any():
        worst = int(indices[outside][0])
        return f"sparse index {worst} is out of range for dims {list(sparse.dims)}"
    if (np.diff(_positions(sparse)) <= 0).any():
        return "sparse indices must be in strictly ascending order"
    return ""


def _positions(sparse: onnx.SparseTensorProto) -> NDArray[np.int64]:
    """Where each value goes in the flat dense tensor."""
    indices = _indices(sparse)
    if indices.ndim == 1:
        return indices
    strides = [math.prod(sparse.dims[axis + 1 :]) for axis in range(len(sparse.dims))]
    return indices @ np.array(strides, np.int64)


def _scattered(sparse: onnx.SparseTensorProto, positions: NDArray[np.int64]) -> bytes:
    values: NDArray[Any] = ir.serde.TensorProtoTensor(sparse.values).numpy()
    dense = np.zeros(math.prod(sparse.dims), values.dtype)
    dense[positions] = values
    dtype = ir.DataType(sparse.values.data_type)
    return ir.Tensor(dense, dtype, name=sparse.values.name).tobytes()
