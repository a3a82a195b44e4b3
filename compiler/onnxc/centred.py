"""8-bit numbers less their zero point, as expressions: the operands of integer products."""

from __future__ import annotations

from dataclasses import dataclass

from onnxc.dtypes import INT32
from onnxc.expression import Apply, Const, Expr, Load


@dataclass(frozen=True)
class Centred:
    """`source`, of int8 or uint8, less `zero`, an int32, or as it is where that is None."""

    source: Load
    zero: Expr | None

    @property
    def constant(self) -> int | None:
        """The zero point; None where it is known at run time only, or differs between elements."""
        return constant_of(self.zero)


def constant_of(zero: Expr | None) -> int | None:
    """An int32 as a number, 0 where there is none; None where it is not known."""
    if zero is None:
        return 0
    if isinstance(zero, Const):
        return int.from_bytes(zero.raw, "little", signed=True)
    return None


def centred(value: Expr) -> Centred | None:
    """What an int32 expression reads, if it is that; None of any other."""
    zero = None
    if isinstance(value, Apply) and value.operation == "sub":
        value, zero = value.args
    if not (isinstance(value, Apply) and value.operation == "cast" and value.dtype is INT32):
        return None
    (source,) = value.args
    if not isinstance(source, Load) or source.dtype.bits != 8:
        return None
    return Centred(source, zero) if source.dtype.kind in ("signed", "unsigned") else None
