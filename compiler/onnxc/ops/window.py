"""Windows that slide over the spatial dimensions: what convolutions and pools share.

How to use it, in an operator whose input is X of shape (N, C, *spatial)::

    windows = sliding_windows(
        X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode=ceil_mode
    )
    outputs = output_extents(windows)                      # the spatial shape of the result
    taps = tuple(window.kernel for window in windows)      # extents to fold over

    def element(n, c, *places):                            # one Index a dimension of the result
        def product(*offsets):                             # one Index a dimension of the kernel
            indices = [n, c, *tap_indices(windows, places, offsets)]
            return guarded(X, indices, zero(X.dtype))      # outside is padding
        return fold("sum", taps, product)

    return compute((N, C, *outputs), element)

A tap's index may lie in the padding, before 0 or after the last element, and with `ceil_mode` even
after the padding: always read through `guarded`, which leaves out the comparisons that no tap
needs. `window.begin` and `window.end` are the padding as declared or as auto_pad makes it, for
pools that count or clip it.

Attributes come as ONNX gives them, None where the model leaves them out. All spatial ranks work,
0 too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.expression import Index
from onnxc.op import Ints
from onnxc.ops.checks import require_choice, require_flag

SAME = ("SAME_UPPER", "SAME_LOWER")
AUTO_PADS = ("NOTSET", "VALID", *SAME)


@dataclass(frozen=True)
class Window:
    """One dimension: `output` windows of `kernel` taps over `input` elements and their padding."""

    input: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    output: int

    @property
    def reach(self) -> int:
        """Elements from the first tap to the last one."""
        return reach(self.kernel, self.dilation)

    def tap(self, place: Index, offset: Index) -> Index:
        """The input's index of tap `offset` of window `place`; in the padding it is outside."""
        return place * self.stride + offset * self.dilation + -self.begin


def sliding_windows(
    spatial: Sequence[int],
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str | None,
    *,
    ceil_mode: int | None = 0,
) -> tuple[Window, ...]:
    """One Window a spatial dimension.

    With `ceil_mode` the last window may leave the padded input, even where it is the only one; one
    that would begin in the padding at the end is dropped, as ONNX's own inference drops one.

    Raises RefusalError for attributes of a wrong length or range, for a kernel that does not fit,
    and for auto_pad beside other pads.
    """
    rank = len(spatial)
    kernel = per_dimension("kernel_shape", kernel_shape, rank, least=1)
    steps = per_dimension("strides", strides, rank, least=1)
    spread = per_dimension("dilations", dilations, rank, least=1)
    mode = checked_auto_pad(auto_pad)
    require_flag("ceil_mode", ceil_mode or 0)
    padding = _padding(spatial, kernel, steps, spread, pads, mode)
    found = []
    for d, (begin, end) in enumerate(padding):
        free = spatial[d] + begin + end - reach(kernel[d], spread[d])
        output = (-(-free // steps[d]) if ceil_mode else free // steps[d]) + 1
        if output < 1:
            fact = (
                f"a kernel that reaches over {reach(kernel[d], spread[d])} elements does not fit"
                f" into the {spatial[d] + begin + end} of spatial dimension {d}"
            )
            raise RefusalError(
                Kind.WINDOW_TOO_LARGE, fact, "pad the input, or give a smaller kernel"
            )
        if ceil_mode and (output - 1) * steps[d] >= spatial[d] + begin:
            output -= 1
        found.append(Window(spatial[d], kernel[d], steps[d], spread[d], begin, end, output))
    return tuple(found)


def output_extents(windows: Sequence[Window]) -> Ints:
    """The spatial shape of the result."""
    return tuple(window.output for window in windows)


def kernel_extents(windows: Sequence[Window]) -> Ints:
    """The spatial shape of the kernel."""
    return tuple(window.kernel for window in windows)


def tap_indices(
    windows: Sequence[Window], places: Sequence[Index], offsets: Sequence[Index]
) -> list[Index]:
    """The input's spatial indices of the tap `offsets` of the window at `places`."""
    triples = zip(windows, places, offsets, strict=True)
    return [window.tap(place, offset) for window, place, offset in triples]


def without_padded_taps(windows: Sequence[Window]) -> tuple[tuple[Window, ...], Ints]:
    """The windows without the taps that meet padding alone, and how many are left out before the
    first one: those of the rows above and below an image of one row.
    """
    pairs = [_without_padded_taps(window) for window in windows]
    return tuple(window for window, _ in pairs), tuple(first for _, first in pairs)


def _without_padded_taps(window: Window) -> tuple[Window, int]:
    ends = (0, (window.output - 1) * window.stride)
    met = [
        tap
        for tap in range(window.kernel)
        if ends[1] + tap * window.dilation >= window.begin
        and ends[0] + tap * window.dilation < window.begin + window.input
    ]
    if not met or len(met) == window.kernel:
        return window, 0
    begin = window.begin - met[0] * window.dilation
    return replace(window, kernel=len(met), begin=begin), met[0]


def reach(kernel: int, dilation: int) -> int:
    """Elements from the first tap of a dilated kernel to the last one."""
    return (kernel - 1) * dilation + 1


def checked_auto_pad(auto_pad: str | None) -> str:
    """One of AUTO_PADS; NOTSET where the model leaves it out."""
    mode = auto_pad or "NOTSET"
    require_choice("auto_pad", mode, AUTO_PADS)
    return mode


def split_padding(total: int, mode: str) -> tuple[int, int]:
    """Padding of both sides; the odd element is at the end, but for SAME_LOWER."""
    less, more = total // 2, total - total // 2
    return (more, less) if mode == "SAME_LOWER" else (less, more)


def per_dimension(name: str, values: Sequence[int] | None, rank: int, *, least: int) -> Ints:
    """An attribute of one number a spatial dimension; `least` everywhere where it is left out."""
    if values is None:
        return (least,) * rank
    if len(values) != rank:
        fact = f"{name} has {len(values)} values for {rank} spatial dimensions"
        raise RefusalError(Kind.ENTRY_COUNT, fact, "give one a spatial dimension")
    if any(value < least for value in values):
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"{name} is {list(values)}", f"give numbers of at least {least}"
        )
    return tuple(values)


def begin_end_pads(pads: Sequence[int] | None, rank: int) -> list[tuple[int, int]]:
    """(begin, end) a dimension of the attribute pads; zeros where it is left out."""
    values = tuple(pads or (0,) * (2 * rank))
    if len(values) != 2 * rank:
        fact = f"pads has {len(values)} values for {rank} spatial dimensions"
        raise RefusalError(Kind.ENTRY_COUNT, fact, "give a begin for each, then an end for each")
    if any(value < 0 for value in values):
        raise RefusalError(Kind.PADS, f"pads is {list(values)}", "crop with a Slice before")
    return list(zip(values[:rank], values[rank:], strict=True))


def _padding(
    spatial: Sequence[int],
    kernel: Ints,
    strides: Ints,
    dilations: Ints,
    pads: Sequence[int] | None,
    mode: str,
) -> list[tuple[int, int]]:
    rank = len(spatial)
    given = begin_end_pads(pads, rank)
    if mode == "NOTSET":
        return given
    made = [(0, 0)] * rank
    if mode in SAME:
        totals = [
            (-(-spatial[d] // strides[d]) - 1) * strides[d]
            + reach(kernel[d], dilations[d])
            - spatial[d]
            for d in range(rank)
        ]
        made = [split_padding(max(0, total), mode) for total in totals]
    if any(map(any, given)) and given != made:
        raise RefusalError(
            Kind.ATTRIBUTES_CONFLICT, f"has both auto_pad {mode} and pads", "remove one of the two"
        )
    return made
