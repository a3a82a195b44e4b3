"""What becomes of sums of integers, where that is a scale, bounds and a divisor, as nearly always.

Quotients by a positive divisor, and the integers nearest to them, are in the order of what is
divided: bounds before the division are bounds of the integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Apply, Const, Expr, Load
from onnxc.tuned.integer_product import Epilogue

ONE: Final = np.float32(1)


@dataclass(frozen=True)
class Finish:
    """`ratio`, the number of an epilogue times `scale`, a constant, then divided by `divisor`, is
    rounded, half to even, to an integer from `least` to `most`, to which the zero point is added.

    No ratio is a NaN.
    """

    ratio: Expr
    scale: Const | Load
    divisor: np.float32
    least: int
    most: int


def finish_of(epilogue: Epilogue) -> Finish | None:
    """None of what is more than that."""
    value, number = epilogue.quotient, epilogue.number
    if epilogue.zero is None or epilogue.target is None:
        return None
    found: dict[str, Const] = {}
    for operation in ("div", "min", "max"):
        if isinstance(value, Apply) and value.operation == operation:
            value, bound = value.args
            if not isinstance(bound, Const):
                return None
            found[operation] = bound
    if not (isinstance(value, Apply) and value.operation == "mul" and number in value.args):
        return None
    known = {name: float_of(bound) for name, bound in found.items()}
    scale, divisor = value.args[value.args[0] is number], known.get("div", ONE)
    if not _is_finite(scale) or not (0 < divisor < np.inf):
        return None
    lowest = (-128 if epilogue.target.kind == "signed" else 0) - int(float_of(epilogue.zero))
    with np.errstate(over="ignore", under="ignore"):
        ends = [known.get("max", -np.inf) / divisor, known.get("min", np.inf) / divisor]
    if np.isnan(ends).any() or ends[0] > ends[1]:
        return None
    least, most = (int(np.rint(np.clip(end, lowest, lowest + 255))) for end in ends)
    ratio = Apply(FLOAT, "div", (value, found["div"])) if "div" in found else value
    assert isinstance(scale, (Const, Load))
    return Finish(ratio, scale, divisor, least, most)


def _is_finite(scale: Expr) -> bool:
    if isinstance(scale, Const):
        return bool(np.isfinite(float_of(scale)))
    if not isinstance(scale, Load) or scale.buffer.data is None or scale.flat.dynamic:
        return False
    return bool(np.isfinite(np.asarray(scale.buffer.data)).all())


def float_of(number: Const) -> np.float32:
    return np.float32(np.frombuffer(number.raw, np.float32)[0])
