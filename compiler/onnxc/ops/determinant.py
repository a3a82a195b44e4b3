"""Determinants of square matrices."""

from __future__ import annotations

import math

from onnxc.diagnostics import Kind
from onnxc.dtypes import DOUBLE
from onnxc.errors import RefusalError
from onnxc.expression import Buffer, literal
from onnxc.kernel import Routine, define
from onnxc.op import op
from onnxc.tensor import Tensor, full, of_buffer


@op("Det")
def determinant(X: Tensor) -> Tensor:
    """Of the last two dimensions; that of no rows is 1. It is computed in double."""
    if X.rank < 2 or X.shape[-1] != X.shape[-2]:
        raise RefusalError(Kind.OPERAND_SHAPE, f"matrices of shape {list(X.shape)} are not square")
    *batch, size, _ = X.shape
    if X.elements == 0:
        return full(tuple(batch), literal(X.dtype, 1))
    out = Buffer("", tuple(batch), X.dtype, "workspace")
    rows = Buffer("", (size, size), DOUBLE, "workspace")
    parameters = (("matrices", math.prod(batch)), ("size", size))
    define((Routine("determinant", (X.held("the matrices"),), (out,), parameters, (rows,)),))
    return of_buffer(out)
