"""The mel filter bank: MelWeightMatrix."""

from __future__ import annotations

import math

from onnxc.dtypes import DOUBLE, INT64
from onnxc.expression import Expr, Index, apply, at, cast, compare, where
from onnxc.op import Declared, op
from onnxc.ops.agreement import agreed, declared_shape, whole
from onnxc.ops.checks import scalar, type_of_code
from onnxc.tensor import Tensor, compute

MEL = 2595 / math.log(10)


@op("MelWeightMatrix", exact=True)
def mel_weight_matrix(
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    *,
    output_datatype: int,
    declared: Declared,
) -> Tensor:
    """[dft_length // 2 + 1, num_mel_bins]: one triangle a bin, between its neighbours' centres.

    Computed in double. Centres that fall together leave one weight of 1.
    """
    rows, bins = declared_shape(declared)
    length = whole(scalar("dft_length", dft_length))
    rate = cast(scalar("sample_rate", sample_rate), DOUBLE)
    low, high = (
        apply("log1p", cast(scalar("an edge", edge), DOUBLE) / 700) * MEL
        for edge in (lower_edge_hertz, upper_edge_hertz)
    )

    def centre(number: Index) -> Expr:
        mel = cast(at(number), DOUBLE) * ((high - low) / (bins + 2)) + low
        hertz = apply("expm1", mel / MEL) * 700
        return cast(apply("floor", cast(length + 1, DOUBLE) * hertz / rate), INT64)

    centres = compute((bins + 2,), centre).stored("the edges and centres of the triangles")

    def weight(row: Index, number: Index) -> Expr:
        left, centre_, right = (centres[[number + n]] for n in range(3))
        place = at(row)
        falling = _ratio(right - place, right - centre_)
        rising = _ratio(place - left, centre_ - left)
        alone = cast(compare("equal", place, centre_), DOUBLE)
        climbs = where((place >= left) & (place <= centre_), rising, 0)
        before = where(compare("equal", left, centre_), alone, climbs)
        return where((place >= centre_) & (place < right), falling, before)

    fits = compare("equal", apply("div", length, 2) + 1, rows)
    fits = fits & compare("equal", whole(scalar("num_mel_bins", num_mel_bins)), bins)
    return agreed(
        compute((rows, bins), weight).cast(type_of_code("output_datatype", output_datatype)), fits
    )


def _ratio(part: Expr, total: Expr) -> Expr:
    """Of integers; what a total of 0 gives is not taken."""
    return cast(part, DOUBLE) / cast(total, DOUBLE)
