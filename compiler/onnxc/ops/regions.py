"""What pools over regions of interest share: their images, and which elements each bin takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT32, INT64
from onnxc.errors import RefusalError
from onnxc.expression import Checked, Expr, Index, at, cast, fold, guard, literal, where
from onnxc.status import Status
from onnxc.tensor import Tensor, compute, dynamic

BLOCK: Final = 8
"""Elements between comparisons with a run-time end."""


def check_shapes(X: Tensor, rois: Tensor, numbers: int) -> None:
    """Of images and their regions, of which each has so many numbers. Raises RefusalError."""
    if X.rank != 4 or rois.rank != 2 or rois.shape[1] != numbers:
        shapes = f"X has shape {list(X.shape)} and rois {list(rois.shape)}"
        raise RefusalError(
            Kind.OPERAND_SHAPE, shapes, f"give images N, C, H, W and regions of {numbers} numbers"
        )


def images_of(indices: Tensor, batch: int) -> Tensor:
    """int64[rois]: the image of each region, by its first column; reports one that is not there."""

    def element(roi: Index) -> Expr:
        given = indices[[roi, Index()]]
        inside = (given >= 0) & (given < batch)
        whole = where(inside, cast(given, INT64), 0)
        return Checked(INT64, whole, inside, Status.INDEX_OUT_OF_RANGE)

    return compute(indices.shape[:1], element).stored("the image of each region")


@dataclass(frozen=True)
class Range:
    """int64[rois][bins]: from which to before which of `length` elements a bin takes."""

    length: int
    first: Tensor
    end: Tensor

    @classmethod
    def of(cls, table: Tensor, taken: Callable[[Expr], Expr]) -> Range:
        """The elements of which the entries of [rois][bins][length] are to be taken."""
        length = table.shape[2]

        def first(roi: Index, number: Index) -> Expr:
            return fold(
                "min", [length], lambda n: where(taken(table[[roi, number, n]]), at(n), length)
            )

        def end(roi: Index, number: Index) -> Expr:
            return fold(
                "max", [length], lambda n: where(taken(table[[roi, number, n]]), at(n) + 1, 0)
            )

        shape = table.shape[:2]
        return cls(
            length,
            compute(shape, first).stored("the first element of each bin"),
            compute(shape, end).stored("the element after the last of each bin"),
        )

    def folded(
        self,
        operation: str,
        roi: Index,
        number: Index,
        value: Callable[[Index], Expr],
        nothing: Expr,
    ) -> Expr:
        """`value` of each element folded, in blocks: one past the end costs a comparison."""
        first, end = self.first[[roi, number]], self.end[[roi, number]]

        def block(n: Index) -> Expr:
            def element(offset: Index) -> Expr:
                place = first + at(n * BLOCK + offset)
                return _only_if(place < end, value(dynamic(place)), nothing)

            inner = fold(operation, [BLOCK], element, "contraction")
            return _only_if(first + at(n * BLOCK) < end, inner, nothing)

        return fold(operation, [-(-self.length // BLOCK)], block, "contraction")


def _only_if(condition: Expr, value: Expr, otherwise: Expr) -> Expr:
    """`value` is computed only where the condition holds."""
    outside = where(condition, literal(INT32, 0), 1)
    return guard([(dynamic(outside), 1)], value, otherwise)
