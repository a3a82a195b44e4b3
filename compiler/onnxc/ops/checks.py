"""What many operators ask of their operands and attributes; RefusalError where it is not so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import Expr
from onnxc.op import Floats, Ints
from onnxc.tensor import Shape, Tensor

LARGEST_TABLE: Final = 2**24
"""Numbers of a table that an operator makes at compile time."""


def require_table(entries: int) -> None:
    """Before a table is made whose size a dimension decides."""
    if entries > LARGEST_TABLE:
        fact = f"a table of {entries:,} numbers would be needed"
        raise RefusalError(Kind.MEMORY_TOO_LARGE, fact, "use smaller dimensions")


def positive_axis(axis: int, rank: int) -> int:
    """The axis, counted from the first."""
    if not -rank <= axis < rank:
        raise RefusalError(
            Kind.AXIS_OUT_OF_RANGE, f"axis {axis} is not in a tensor of {rank} dimensions"
        )
    return axis % rank


def distinct_axes(axes: Iterable[int], rank: int) -> Ints:
    """The axes in their order, counted from the first, none twice."""
    given = list(axes)
    found = tuple(positive_axis(axis, rank) for axis in given)
    if len(set(found)) < len(found):
        raise RefusalError(
            Kind.AXIS_TWICE, f"axes {given} name a dimension twice", "name each once"
        )
    return found


def dimensions(axes: Sequence[int] | None, entries: int, rank: int) -> Ints:
    """The dimension of each entry of an operand that `axes` (None: all in order) go with."""
    found = distinct_axes(range(rank) if axes is None else axes, rank)
    if len(found) != entries:
        raise RefusalError(
            Kind.ENTRY_COUNT, f"{entries} entries for {len(found)} axes", "give one for each"
        )
    return found


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether `shape` broadcasts to `target` and leaves it as it is."""
    spare = len(target) - len(shape)
    pairs = zip(shape, target[max(spare, 0) :], strict=spare >= 0)
    return spare >= 0 and all(n in (1, wanted) for n, wanted in pairs)


def require_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Of an attribute that names what to do."""
    known = tuple(choices)
    if value not in known:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"{name} is {value!r}", f"give one of {', '.join(known)}"
        )


def require_shape(name: str, tensor: Tensor, shape: Shape) -> None:
    if tensor.shape != shape:
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"{name} has shape {list(tensor.shape)}, not {list(shape)}"
        )


def type_of_code(name: str, code: int) -> ElementType:
    """The element type that an attribute gives by its number."""
    found = BY_CODE.get(code)
    if found is None:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"{name} is {code}, which is the number of no element type"
        )
    return found


def require_rank(name: str, tensor: Tensor, rank: int) -> None:
    if tensor.rank != rank:
        raise RefusalError(Kind.OPERAND_RANK, f"{name} has {tensor.rank} dimensions, not {rank}")


def require_flag(name: str, value: int) -> None:
    if value not in (0, 1):
        raise RefusalError(Kind.ATTRIBUTE_VALUE, f"{name} is {value}, neither 0 nor 1")


def require_one_element(name: str, tensor: Tensor) -> None:
    if tensor.elements != 1:
        raise RefusalError(
            Kind.NOT_ONE_ELEMENT, f"{name} has {tensor.elements} elements", "give one"
        )


def require_one_number(name: str, values: Ints | Floats) -> None:
    """Of an operand that is known."""
    if len(values) != 1:
        raise RefusalError(Kind.NOT_ONE_ELEMENT, f"{name} has {len(values)} elements", "give one")


def scalar(name: str, tensor: Tensor) -> Expr:
    """The one element of an operand of any rank."""
    require_one_element(name, tensor)
    return tensor.reshape(()).value
