"""Running sums and products along one axis."""

from __future__ import annotations

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL
from onnxc.errors import RefusalError
from onnxc.expression import Buffer, Checked, compare
from onnxc.kernel import Branch, Loops, Program, Routine, Step, define
from onnxc.op import Ints, op
from onnxc.ops.agreement import whole
from onnxc.ops.checks import positive_axis, require_one_number, scalar
from onnxc.routines import sides
from onnxc.status import Status
from onnxc.tensor import Tensor, of_buffer


@op("CumSum")
def cumulative_sum(x: Tensor, axis: Ints | Tensor, *, exclusive: int, reverse: int) -> Tensor:
    return _cumulated("sum", x, axis, exclusive, reverse)


@op("CumProd")
def cumulative_product(x: Tensor, axis: Ints | Tensor, *, exclusive: int, reverse: int) -> Tensor:
    return _cumulated("prod", x, axis, exclusive, reverse)


def _cumulated(
    operation: str, x: Tensor, axis: Ints | Tensor, exclusive: int, reverse: int
) -> Tensor:
    """With a Routine for the axis or, where that is known only at run time, one for each axis."""
    if x.rank == 0:
        raise RefusalError(Kind.OPERAND_RANK, "an input of 0 dimensions has no axis")
    if x.elements == 0:
        return x
    given = x.held("the elements")
    out = Buffer("", x.shape, x.dtype, "workspace")

    def along(position: int) -> Routine:
        parameters = (
            ("operation", operation),
            ("exclusive", bool(exclusive)),
            ("reverse", bool(reverse)),
            *sides(x.shape, position),
        )
        return Routine("cumulate", (given,), (out,), parameters)

    if isinstance(axis, Tensor):
        _choose(axis, [along(position) for position in range(x.rank)])
    else:
        require_one_number("axis", axis)
        define((along(positive_axis(axis[0], x.rank)),))
    return of_buffer(out)


def _choose(axis: Tensor, routines: list[Routine]) -> None:
    """Runs the one that the axis names; the last, and reports it, where there is no such axis."""
    rank = len(routines)
    value = whole(scalar("axis", axis))
    known = (value >= -rank) & (value < rank)
    conditions = []
    chosen: Step = routines[-1]
    for position in reversed(range(max(1, rank - 1))):
        fits = compare("equal", value, position) | compare("equal", value, position - rank)
        checked = Checked(BOOL, fits, known, Status.INDEX_OUT_OF_RANGE)
        condition = Buffer("", (), BOOL, "workspace")
        conditions.append(Loops(condition, (), (), checked, (), f"whether the axis is {position}"))
        if rank > 1:
            then, otherwise = Program(steps=(routines[position],)), Program(steps=(chosen,))
            chosen = Branch(condition, then, otherwise)
    define((*conditions, chosen))
