"""Buffers that several kernels fill, each a part."""

from __future__ import annotations

from collections.abc import Sequence

from onnxc.expression import Buffer, along
from onnxc.kernel import Loops, define
from onnxc.tensor import Tensor, full, of_buffer, zero


def part(out: Buffer, tensor: Tensor, role: str, start: Sequence[int] = ()) -> Loops:
    """Stores the elements of `tensor` into `out`, the first at `start`: one number a dimension.

    Without `start` at the beginning.
    """
    starts = start or [0] * tensor.rank
    where = tuple(along(axis) + first for axis, first in zip(tensor.axes, starts, strict=True))
    return Loops(out, where, tensor.axes, tensor.value, role=role)


def joined(tensors: Sequence[Tensor], axis: int, roles: Sequence[str] = ()) -> Tensor:
    """One after the other along `axis`, each stored right into its place.

    They agree in type and in the other dimensions. `roles` tells what each is.
    """
    shape, dtype = list(tensors[0].shape), tensors[0].dtype
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    names = roles or [f"piece {number} of {len(tensors)}" for number in range(1, len(tensors) + 1)]
    pieces = [pair for pair in zip(tensors, names, strict=True) if pair[0].elements]
    if len(pieces) < 2:
        return pieces[0][0] if pieces else full(tuple(shape), zero(dtype))
    out = Buffer("", tuple(shape), dtype, "workspace")
    steps, start = [], [0] * len(shape)
    for tensor, name in pieces:
        steps.append(part(out, tensor, name, tuple(start)))
        start[axis] += tensor.shape[axis]
    define(tuple(steps))
    return of_buffer(out)
