"""Upsample, and Resize of opset 10: samples at i / scale, the nearest one without ties.

An enlarged axis takes the sample below, one made smaller the sample above, as the example of
version 10 and onnxruntime do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.dtypes import FLOAT
from onnxc.errors import RefusalError
from onnxc.passes.rewriting import Rewriting
from onnxc.values import static_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray


def upsample(r: Rewriting) -> None:
    """The scales are two attributes of four-dimensional images, an attribute, or an input."""
    height, width, scales = (r.take(name) for name in ("height_scale", "width_scale", "scales"))
    if r.schema.since_version < 7:
        if len(r.shape(0)) != 4:
            raise RefusalError(Kind.OLD_VERSION, "this version takes four dimensions only")
        scales = (1.0, 1.0, height, width)
    given = r.needed(1) if scales is None else r.constant(scales, "scales", FLOAT)
    r.rename("Resize")
    if _resampled(r, given) == "nearest":
        r.set(nearest_mode="floor")  # no scale is below 1, run-time ones too


def resize_10(r: Rewriting) -> None:
    if _resampled(r, r.needed(1)) == "nearest":
        _round_by_scale(r)


def drop_empty(r: Rewriting) -> None:
    """Before version 13 an operand could not be left out: it had no elements instead."""
    for position in (1, 2, 3):
        value = r.input(position)
        if value is not None and static_shape(value) == (0,):
            r.set_input(position, None)


def _resampled(r: Rewriting, scales: ir.Value) -> str:
    """Makes it the newest form but for the rounding of nearest positions; returns the mode."""
    mode = str(r.take("mode"))
    r.set(mode={"bilinear": "linear"}.get(mode, mode), coordinate_transformation_mode="asymmetric")
    r.set_inputs(r.needed(0), None, scales)
    return mode


def _round_by_scale(r: Rewriting) -> None:
    x = r.needed(0)
    factors = r.known(2, "scales").reshape(-1)
    smaller = factors < 1
    if smaller.any() and (factors > 1).any():
        r.set_input(0, _enlarged(r, x, np.where(smaller, np.float32(1), factors)))
        r.set_input(2, r.constant(np.where(smaller, factors, 1), "scales", FLOAT))
    r.set(nearest_mode="ceil" if smaller.any() else "floor")


def _enlarged(r: Rewriting, x: ir.Value, factors: NDArray[Any]) -> ir.Value:
    return r.add(
        "Resize",
        [x, None, r.constant(factors, "enlarge", FLOAT)],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
