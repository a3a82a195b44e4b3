"""A checker of kernels that run row by row: none needs of another what is no part of its row."""

from __future__ import annotations

from collections.abc import Iterator

from onnxc.expression import Axis, Buffer, Checked, Index, Load, static
from onnxc.kernel import Loops, Rows
from onnxc.traversal import walk


def rows_faults(step: Rows) -> Iterator[str]:
    """What makes rows in turn differ from one kernel after the other, in words."""
    rows = static(step.axis.extent)
    if any(kernel.axes[:1] != (step.axis,) for kernel in step.steps):
        yield "a kernel does not begin with the loop over rows"
    checks = (node for k in step.steps for node in walk(*k.roots()) if isinstance(node, Checked))
    reporting = sum(any(isinstance(n, Checked) for n in walk(*k.roots())) for k in step.steps)
    if reporting > 1 and len({node.code for node in checks}) > 1:
        yield "several kernels report a status, not all the same"
    places = [_places(kernel) for kernel in step.steps]
    for buffer in dict.fromkeys(kernel.out for kernel in step.steps):
        users = [found[buffer] for found in places if buffer in found]
        if len(users) > 1 and not all(
            _stays_in_row(index, step.axis, buffer.elements, rows)
            for user in users
            for index in user
        ):
            yield f"a row of '{buffer.name}' is used by another row"
    for whole, part in step.inside.items():
        if (part.kind, part.dtype) != ("workspace", whole.dtype):
            yield "rows are held by what is of another type"
        if part.elements * rows != whole.elements * step.count:
            yield f"{step.count} rows do not fit into what holds them"
        if whole.kind != "workspace":
            yield f"'{whole.name}' is not only used inside"


def same_rows(step: Rows, buffer: Buffer) -> bool:
    """Whether each row reads of `buffer` no more than the place of the same row of the one result.

    Both are in the workspace, of one type of C.
    """
    if len(step.outputs) != 1:
        return False
    (out,) = step.outputs
    alike = {buffer.kind, out.kind} == {"workspace"} and buffer.dtype.c_type == out.dtype.c_type
    found = [index for k in step.steps for b in (out, buffer) for index in _places(k).get(b, ())]
    rows = static(step.axis.extent)
    return alike and all(_stays_in_row(index, step.axis, out.elements, rows) for index in found)


def _places(kernel: Loops) -> dict[Buffer, list[Index]]:
    """Where a merged kernel reads and stores, by buffer."""
    found: dict[Buffer, list[Index]] = {kernel.out: list(kernel.where)}
    for node in walk(*kernel.roots()):
        if isinstance(node, Load):
            found.setdefault(node.buffer, []).append(node.flat)
    return found


def _stays_in_row(index: Index, axis: Axis, elements: int, rows: int) -> bool:
    """Whether iteration n of `axis` is at n * (elements / rows) and less than a row above."""
    if index.dynamic or elements % rows or index.stride(axis) * rows != elements:
        return False
    least = greatest = index.const
    for other, stride in index.terms:
        if other is not axis:
            reach = static(stride) * (static(other.extent) - 1)
            least, greatest = least + min(0, reach), greatest + max(0, reach)
    return least >= 0 and greatest < elements // rows
