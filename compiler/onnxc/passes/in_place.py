"""Which operands a kernel may overwrite with its result, proved from its indices.

A result that takes over an operand starts where the operand starts. That is sound where no point of
the loops reads an element after an earlier point, or another, has stored over it:

- each point reads of the operand only the element that it alone then stores, in whatever order, or
- the points store upwards, and none reads below the place where it stores: what a later point
  reads then lies above all that is stored by then.

Of kernels that run row by row, each row of the result may take over the same row of an operand that
no kernel reads after the first that stores to the result, if that one may.
"""

from __future__ import annotations

from onnxc.expression import Axis, Buffer, Index, Load, along, static
from onnxc.kernel import Loops, Micro, Rows, Step
from onnxc.traversal import walk


def overwritable(step: Step) -> list[Buffer]:
    """The workspace buffers, smaller or larger than the result, that the step may overwrite.

    Of steps other than Loops, Rows and tuned kernels that keep the order of loops none is: they may
    read and write in any order.
    """
    if isinstance(step, Micro) and step.in_place:
        return overwritable(step.twin)
    if isinstance(step, Rows):
        return _overwritable_by_rows(step)
    if not isinstance(step, Loops) or step.partial:
        return []
    if not _is_plain(step.out) or len(step.where) != 1 or step.where[0].dynamic:
        return []
    return [buffer for buffer, read in _read(step).items() if _may_take(step, buffer, read)]


def _read(step: Loops) -> dict[Buffer, list[Index]]:
    """Where it reads, by buffer."""
    loads: dict[Buffer, list[Index]] = {}
    for node in walk(*step.roots()):
        if isinstance(node, Load):
            loads.setdefault(node.buffer, []).append(node.flat)
    return loads


def _overwritable_by_rows(step: Rows) -> list[Buffer]:
    if len(step.outputs) != 1:
        return []
    (out,) = step.outputs
    if not _is_plain(out) or out in step.reads():
        return []
    first = next(number for number, kernel in enumerate(step.steps) if kernel.out is out)
    stored = [kernel.where[0] for kernel in step.steps if kernel.out is out]
    reads = list(map(_read, step.steps))
    later = {buffer for found in reads[first + 1 :] for buffer in found}
    found = []
    for buffer in step.reads():
        alike = _is_plain(buffer) and buffer.dtype.c_type == out.dtype.c_type
        indices = [*stored, *(index for read in reads for index in read.get(buffer, ()))]
        if buffer in later or not alike or not _in_rows(step.axis, out, indices):
            continue
        here = reads[first].get(buffer)
        if here is None or buffer in overwritable(step.steps[first]):
            found.append(buffer)
    return found


def _in_rows(axis: Axis, out: Buffer, indices: list[Index]) -> bool:
    """Whether all walk `axis` in rows as `out` has them, and stay within a row."""
    size, rest = divmod(out.elements, static(axis.extent))
    if rest or any(index.stride(axis) != size for index in indices):
        return False
    spans = [(index + along(axis) * -size).span() for index in indices]
    return all(span is not None and span[0] >= 0 and span[1] < size for span in spans)


def _is_plain(buffer: Buffer) -> bool:
    """Whether its elements fill its memory, one after the other."""
    return buffer.kind == "workspace" and buffer.bytes == buffer.elements * buffer.dtype.size


def _may_take(step: Loops, buffer: Buffer, read: list[Index]) -> bool:
    if buffer is step.out or not _is_plain(buffer):
        return False
    if buffer.dtype.c_type != step.out.dtype.c_type:
        return False
    (stored,) = step.where
    gaps = [index + stored * -1 for index in read]
    if all(gap == Index() for gap in gaps):
        # A copy to the same place is memcpy, which needs two.
        return not isinstance(step.value, Load) and _one_to_one(stored, step.axes)
    return _upwards(stored, step.axes) and all(map(_never_negative, gaps))


def _never_negative(gap: Index) -> bool:
    span = gap.span()
    return span is not None and span[0] >= 0


def _one_to_one(stored: Index, axes: tuple[Axis, ...]) -> bool:
    """Whether no two points store to one element: each stride is longer than all shorter walks."""
    strides = sorted((abs(static(stored.stride(axis))), static(axis.extent)) for axis in axes)
    return _nested([pair for pair in strides if pair[1] > 1])


def _upwards(stored: Index, axes: tuple[Axis, ...]) -> bool:
    """Whether every point stores above all that come before it."""
    strides = [(static(stored.stride(axis)), static(axis.extent)) for axis in reversed(axes)]
    return _nested([pair for pair in strides if pair[1] > 1])


def _nested(strides: list[tuple[int, int]]) -> bool:
    """Of (stride, extent) pairs from the inside: each stride leaves the reach of those before."""
    reach = 0
    for stride, extent in strides:
        if stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True
