"""Windows: extents, padding and taps by the formulas of Conv's and MaxPool's texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnxc.errors import RefusalError
from onnxc.expression import Axis, Index, along
from onnxc.ops.window import (
    Window,
    kernel_extents,
    output_extents,
    sliding_windows,
    split_padding,
    tap_indices,
    without_padded_taps,
)


def one(extent: int, kernel: int, **attributes: Any) -> Window:
    """The window of one dimension; attributes as numbers."""
    plain: dict[str, Any] = {"strides": None, "dilations": None, "pads": None, "auto_pad": None}
    for name, value in attributes.items():
        plain[name] = (value,) if name in ("strides", "dilations") else value
    (window,) = sliding_windows((extent,), (kernel,), **plain)
    return window


@pytest.mark.parametrize(
    ("extent", "kernel", "attributes", "begin", "end", "output"),
    [
        (5, 3, {}, 0, 0, 3),
        (5, 3, {"pads": (1, 1)}, 1, 1, 5),
        (5, 3, {"pads": (2, 0), "strides": 2}, 2, 0, 3),
        (7, 3, {"dilations": 2}, 0, 0, 3),
        (3, 3, {}, 0, 0, 1),
        (5, 3, {"auto_pad": "VALID", "strides": 2}, 0, 0, 2),
        (5, 3, {"auto_pad": "VALID", "pads": (0, 0)}, 0, 0, 3),
        # SAME: ceil(extent / stride) windows; the odd element of padding at either side.
        (5, 3, {"auto_pad": "SAME_UPPER"}, 1, 1, 5),
        (5, 2, {"auto_pad": "SAME_UPPER"}, 0, 1, 5),
        (5, 2, {"auto_pad": "SAME_LOWER"}, 1, 0, 5),
        (6, 3, {"auto_pad": "SAME_UPPER", "strides": 2}, 0, 1, 3),
        (6, 3, {"auto_pad": "SAME_LOWER", "strides": 2}, 1, 0, 3),
        (6, 3, {"auto_pad": "SAME_UPPER", "dilations": 2}, 2, 2, 6),
        (6, 2, {"auto_pad": "SAME_LOWER", "dilations": 3, "strides": 2}, 1, 1, 3),
        # No padding is less than none: a kernel of 1 skips elements.
        (8, 1, {"auto_pad": "SAME_UPPER", "strides": 2}, 0, 0, 4),
        (5, 1, {"auto_pad": "SAME_LOWER", "strides": 3}, 0, 0, 2),
        # Attributes that agree with auto_pad say the same twice.
        (5, 3, {"auto_pad": "SAME_UPPER", "pads": (1, 1)}, 1, 1, 5),
        # ceil_mode: one window more where one begins before the padding at the end.
        (6, 3, {"strides": 2, "ceil_mode": 1}, 0, 0, 3),
        (6, 3, {"strides": 2, "ceil_mode": 0}, 0, 0, 2),
        (7, 3, {"strides": 2, "ceil_mode": 1}, 0, 0, 3),
        (4, 1, {"strides": 3, "pads": (0, 1), "ceil_mode": 1}, 0, 1, 2),
        (3, 1, {"strides": 3, "pads": (0, 1), "ceil_mode": 1}, 0, 1, 1),
        (2, 1, {"strides": 4, "pads": (1, 2), "ceil_mode": 1}, 1, 2, 1),
    ],
)
def test_extents(
    extent: int, kernel: int, attributes: dict[str, Any], begin: int, end: int, output: int
) -> None:
    window = one(extent, kernel, **attributes)
    assert (window.begin, window.end, window.output) == (begin, end, output)


def test_several_dimensions() -> None:
    windows = sliding_windows((5, 7), (3, 1), (1, 2), (2, 1), (0, 1, 2, 3), "NOTSET")
    assert kernel_extents(windows) == (3, 1)
    assert output_extents(windows) == (3, 6)
    assert [(w.begin, w.end) for w in windows] == [(0, 2), (1, 3)]
    assert sliding_windows((), (), None, None, None, None) == ()


def test_taps() -> None:
    place, offset = along(Axis(4)), along(Axis(3))
    window = one(9, 3, strides=2, dilations=3, pads=(4, 5))
    assert window.tap(place, offset) == place * 2 + offset * 3 + -4
    assert tap_indices([window], [Index(1)], [Index(2)]) == [Index(2 + 6 - 4)]


@pytest.mark.parametrize(
    ("attributes", "fact"),
    [
        ({"strides": 0}, "strides is"),
        ({"dilations": -1}, "dilations is"),
        ({"pads": (1,)}, "pads has 1 values"),
        ({"pads": (-1, 0)}, "pads is"),
        ({"auto_pad": "SAME"}, "auto_pad is 'SAME'"),
        ({"auto_pad": "VALID", "pads": (1, 1)}, "both auto_pad VALID and pads"),
        ({"dilations": 3}, "reaches over 7 elements"),
    ],
)
def test_refusals(attributes: dict[str, Any], fact: str) -> None:
    with pytest.raises(RefusalError, match=fact):
        one(5, 3, **attributes)
    with pytest.raises(RefusalError, match="kernel_shape has 1 values for 2"):
        sliding_windows((5, 5), (3,), None, None, None, None)


@given(st.integers(0, 99), st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
def test_split_padding(total: int, mode: str) -> None:
    begin, end = split_padding(total, mode)
    assert begin + end == total
    assert (end - begin if mode == "SAME_UPPER" else begin - end) == total % 2


@given(
    extent=st.integers(1, 20),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    pads=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    ceil_mode=st.booleans(),
)
def test_windows_cover_what_fits(
    extent: int,
    kernel: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    ceil_mode: bool,
) -> None:
    """Counted: windows start every `stride` elements and end in the padded input, or, in ceil mode,
    the last one anywhere; but then none starts in the padding at the end (of which there is
    less than a kernel)."""
    reach = dilation * (kernel - 1) + 1
    begin, end = pads
    padded = extent + begin + end
    assume(padded >= reach)
    assume(end < reach)
    window = one(
        extent, kernel, strides=stride, dilations=dilation, pads=pads, ceil_mode=int(ceil_mode)
    )
    starts = [start for start in range(0, padded, stride) if start + reach <= padded]
    if ceil_mode:
        starts += [starts[-1] + stride] if starts[-1] + reach < padded else []
        starts = [start for start in starts if start < extent + begin]
    assert window.output == len(starts)


@pytest.mark.parametrize(
    ("window", "first", "kernel", "begin"),
    [
        (one(1, 3, pads=(1, 1)), 1, 1, 0),
        (one(2, 5, pads=(2, 2)), 1, 3, 1),
        (one(1, 3, pads=(1, 2)), 0, 2, 1),
        (one(4, 3, pads=(6, 6), dilations=6), 1, 1, 0),
        (one(9, 3, pads=(1, 1)), 0, 3, 1),
        (one(1, 1, pads=(0, 2), strides=2), 0, 1, 0),
    ],
)
def test_taps_that_meet_padding_alone(window: Window, first: int, kernel: int, begin: int) -> None:
    ((kept,), skipped) = without_padded_taps([window])
    assert (skipped, kept.kernel, kept.begin, kept.output) == (
        (first,),
        kernel,
        begin,
        window.output,
    )


def test_windows_of_padding_alone_stay() -> None:
    window = one(1, 2, pads=(4, 0), strides=9)
    assert without_padded_taps([window]) == ((window,), (0,))
