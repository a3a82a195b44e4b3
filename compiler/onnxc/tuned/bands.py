"""Kernels that follow each other, run by turns on bands of rows.

Each hands its rows to the next in a buffer that holds a band and the rows that the windows of the
next band still need; the whole of what is between them is nowhere stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onnxc.dtypes import FLOAT
from onnxc.expression import Buffer
from onnxc.kernel import Micro, Step
from onnxc.tuned.contraction import Contraction
from onnxc.tuned.depthwise import Depthwise
from onnxc.tuned.padded_rows import PaddedRows
from onnxc.tuned.windows_pool import Pool

CACHE: Final = 1 << 19
"""Bytes that the buffers of a band may take: half of a second-level cache."""
CROWDED: Final = 1 << 19
"""Bytes of a value and its neighbour from which on it does not stay in the second-level cache."""
NEAR: Final = 1 / 150
"""Nanoseconds to read or write a byte in the second-level cache."""
FAR: Final = 1 / 30
"""The same beyond it."""
CALL: Final = 200
"""Nanoseconds that a part loses each time it starts."""
LESS: Final = 0.8
"""Of the cost that larger bands must have to be preferred."""
ROUND: Final = 16
"""Floats to a multiple of which the buffers of a band are rounded up."""


@dataclass(frozen=True)
class Side:
    """How an operand moves: elements before the first row, and from one row to the next."""

    start: int
    row: int


@dataclass(frozen=True)
class Part:
    """A kernel that makes as many rows as its last argument says.

    rows      of its whole result
    width     floats from the first to the last of what it writes of a row, and `reach` of what it
              reads for a row
    clips     whether it leaves out what its windows read of rows that are not made
    numbered  whether it is told the number of its first row, too
    """

    kernel: Micro
    rows: int
    source: Side
    addends: tuple[Side, ...]
    result: Side
    width: int
    reach: int
    clips: bool = False
    numbered: bool = False


@dataclass(frozen=True)
class Link:
    """The rows between two parts, of which a band holds some.

    made    rows that the first part makes in all, each `row` floats, of which it writes `width`
            from `column` on
    window  rows that the second part reads for one row, and `stride` from one row to the next;
            `top` of those of its first row lie before the first row that is made; `start` floats
            into a row it begins
    zeros   whether there are zeros around what is made
    held    rows of the buffer, which begins `offset` floats into the scratch
    """

    made: int
    row: int
    column: int
    width: int
    window: int
    stride: int
    top: int
    start: int
    zeros: bool
    held: int = 0
    offset: int = 0

    @property
    def kept(self) -> int:
        """Rows that the next band needs too."""
        return self.window - self.stride

    @property
    def even(self) -> bool:
        """Whether the second part reads row by row what the first makes."""
        return (self.window, self.stride, self.top) == (1, 1, 0)

    @property
    def whole(self) -> int:
        """Bytes of the value, if it were stored."""
        return 4 * self.made * self.row

    def needed(self, rows: int) -> int:
        """How far the rows that are read reach, for so many rows of the second part."""
        return rows * self.stride + self.kept - self.top

    def ends_beyond(self, rows: int) -> bool:
        """Whether the windows of the second part, of so many rows, reach beyond what is made."""
        return self.needed(rows) > self.made


@dataclass(frozen=True)
class Bands:
    """What kernels/bands.c.j2 writes: `band` rows of the last part at once."""

    parts: tuple[Part, ...]
    links: tuple[Link, ...]
    band: int

    @property
    def scratch(self) -> int:
        """Floats."""
        return self.links[-1].offset + _rounded(self.links[-1].held * self.links[-1].row)


def part_of(kernel: Micro) -> Part | None:
    """The kernel by rows; None where it cannot be."""
    if kernel.outputs or kernel.scratch:
        return None
    match kernel.parameters:
        case Contraction():
            return _contraction(kernel, kernel.parameters)
        case Depthwise():
            return _depthwise(kernel, kernel.parameters)
        case Pool():
            return _pool(kernel, kernel.parameters)
        case PaddedRows():
            return _padded_rows(kernel, kernel.parameters)
    return None


def _contraction(kernel: Micro, parameters: Contraction) -> Part | None:
    p = parameters
    if p.outer or p.placed or p.dtype is not FLOAT:
        return None
    walks = (p.source, *p.addends, p.result)
    if p.rows == 1:
        shape = kernel.twin.out.shape
        columns = shape[-2] if len(shape) > 2 else 0
        if not columns or p.columns % columns or p.columns == columns:
            return None
        walks = tuple(replace(walk, row=columns * walk.column) for walk in walks)
        rows = p.columns // columns
    else:
        rows, columns = p.rows, p.columns
    sides = [Side(walk.start, walk.row) for walk in walks]
    source, *addends, result = (replace(walk, start=0) for walk in walks)
    if any(stride < 0 for stride in (source.column, *(stride for _, stride in p.folds))):
        return None
    counted = replace(
        p,
        rows=1,
        columns=columns,
        source=source,
        addends=tuple(addends),
        result=result,
        counted=True,
    )
    reach = sum((extent - 1) * stride for extent, stride in p.folds)
    return Part(
        replace(kernel, parameters=counted),
        rows,
        sides[0],
        tuple(sides[1:-1]),
        sides[-1],
        (columns - 1) * result.column + p.lanes,
        (columns - 1) * source.column + reach + 1,
    )


def _depthwise(kernel: Micro, parameters: Depthwise) -> Part | None:
    window = parameters.window
    counted = replace(parameters, band=window.rows, counted=True)
    starts = kernel.starts or (0,) * (len(window.addends) + 3)
    down, right = (
        (extent - 1) * dilation
        for extent, dilation in zip(window.kernel, window.dilations, strict=True)
    )
    across = (window.columns - 1) * window.strides[1] + right
    return Part(
        replace(kernel, parameters=counted, starts=()),
        window.rows,
        Side(starts[0], window.strides[0] * window.x.row),
        tuple(Side(s, step.row) for s, step in zip(starts[2:-1], window.addends, strict=True)),
        Side(starts[-1], window.y.row),
        (window.columns - 1) * window.y.column + parameters.channels,
        down * window.x.row + across * window.x.column + parameters.channels,
    )


def _pool(kernel: Micro, parameters: Pool) -> Part | None:
    """Its source begins where its first window does, which may be before the first row."""
    p = parameters
    if p.images > 1 or p.rows.before < 0:
        return None
    across = min(p.columns.extent, (p.columns.outputs - 1) * p.columns.stride + p.columns.reach)
    start, *starts, result = kernel.starts
    return Part(
        replace(kernel, parameters=replace(p, above=None, counted=True), starts=()),
        p.rows.outputs,
        Side(start - p.rows.before * p.x.row, p.rows.stride * p.x.row),
        tuple(Side(s, step.row) for s, step in zip(starts, p.addends, strict=True)),
        Side(result, p.y.row),
        (p.columns.outputs - 1) * p.y.column + p.channels,
        (p.rows.reach - 1) * p.x.row + (across - 1) * p.x.column + p.channels,
        clips=p.numbered,
        numbered=p.numbered,
    )


def _at_start(part: Part) -> Part:
    """The first of bands: a pool with rows above the first one is told where that lies instead."""
    p = part.kernel.parameters
    if not isinstance(p, Pool) or p.rows.before == 0:
        return part
    source = Side(part.source.start + p.rows.before * p.x.row, 0)
    kernel = replace(part.kernel, parameters=replace(p, above=p.rows.before))
    return replace(part, kernel=kernel, source=source)


def _padded_rows(kernel: Micro, parameters: PaddedRows) -> Part | None:
    """Whole rows of all channels, one after the other."""
    p, (from_start, to_start) = parameters, kernel.starts
    if kernel.twin.out.dtype is not FLOAT or not p.outer:
        return None
    (rows, source, result), *inner = p.outer
    width = math.prod(extent for extent, _, _ in inner) * p.row
    if width != result:
        return None
    return Part(
        replace(kernel, parameters=replace(p, counted=True), starts=()),
        rows,
        Side(from_start, source),
        (),
        Side(to_start, result),
        width,
        p.columns,
    )


def link_of(first: Part, second: Part, *, zeros: bool) -> Link | None:
    """The rows of what the first writes and the second reads; None where they do not fit.

    zeros   whether what the first does not write is 0
    """
    between = first.kernel.twin.out
    if len(between.shape) < 3 or math.prod(between.shape[:-3]) != 1:
        return None
    row = between.shape[-1] * between.shape[-2]
    before, column = divmod(first.result.start, row)
    skipped, start = divmod(second.source.start, row)
    window = (start + second.reach - 1) // row + 1
    link = Link(
        made=first.rows,
        row=row,
        column=column,
        width=first.width,
        window=window,
        stride=second.source.row // row,
        top=before - skipped,
        start=start,
        zeros=zeros,
    )
    fits = (
        first.result.row == row
        and column + first.width <= row
        and second.source.row == link.stride * row
        and 0 < link.stride <= window
        and 0 <= link.top < window
    )
    dense = column == 0 and first.width == row
    if second.clips:
        return link if fits and dense and not zeros else None
    inside = skipped + (second.rows - 1) * link.stride + window <= between.shape[-3]
    filled = dense and not link.top and link.needed(second.rows) <= first.rows
    return link if fits and inside and (zeros or filled) else None


def in_bands(parts: Sequence[Part], links: Sequence[Link]) -> Bands | None:
    """The parts in bands of as few rows as cost little more than whole passes would."""
    rows = parts[-1].rows
    best: tuple[float, Bands] | None = None
    for band in dict.fromkeys(-(-rows // number) for number in range(rows, 1, -1)):
        found = bands_of(parts, links, band)
        if 4 * found.scratch > CACHE:
            break
        if best is None or cost(found) < best[0] * LESS:
            best = cost(found), found
    return best[1] if best else None


def cost(bands: Bands) -> float:
    """Nanoseconds that the bands cost more than whole passes, if all stayed in the cache."""
    times = -(-bands.parts[-1].rows // bands.band) - 1
    again = sum(2 * 4 * link.kept * link.row for link in bands.links)
    again += sum(buffer.bytes for part in bands.parts for buffer in part.kernel.inputs[1:])
    return times * (again * NEAR + CALL * len(bands.parts))


def gain(links: Sequence[Link], around: tuple[int, int]) -> float:
    """Nanoseconds that are saved by what does not leave the cache.

    around    bytes of what is read before the first of the links and written after the last
    """
    sizes = [around[0], *(link.whole for link in links), around[1]]
    return sum(
        2 * size * (FAR - NEAR)
        for before, size, after in zip(sizes, sizes[1:], sizes[2:], strict=False)
        if size + max(before, after) > CROWDED
    )


def bands_of(parts: Sequence[Part], links: Sequence[Link], band: int) -> Bands:
    """The parts in bands of so many rows, with places for the buffers of the links."""
    held = [0] * len(links)
    for counts in _counts(parts[-1].rows, links, band):
        held = [
            max(most, (n - 1) * link.stride + link.window)
            for most, n, link in zip(held, counts, links, strict=True)
        ]
    placed, offset = [], 0
    for link, most in zip(links, held, strict=True):
        placed.append(replace(link, held=most, offset=offset))
        offset += _rounded(most * link.row)
    return Bands((_at_start(parts[0]), *parts[1:]), tuple(placed), band)


def _counts(rows: int, links: Sequence[Link], band: int) -> Iterator[list[int]]:
    """Of each band, how many rows each part but the first makes."""
    done = [0] * len(links)
    for first in range(0, rows, band):
        ends = [min(first + band, rows)]
        for link in reversed(links[1:]):
            ends.insert(0, min(link.made, link.needed(ends[0])))
        yield [end - before for end, before in zip(ends, done, strict=True)]
        done = ends


def _rounded(floats: int) -> int:
    return -(-floats // ROUND) * ROUND


def fused(bands: Bands, before: tuple[Step, ...]) -> Micro:
    """The Micro of the bands; `before` are the steps that the last part follows."""
    kernels = [part.kernel for part in bands.parts]
    constants = (buffer for kernel in kernels for buffer in kernel.inputs[1:])
    last = kernels[-1]
    return Micro(
        "bands",
        last.twin,
        (kernels[0].inputs[0], *constants),
        bands,
        last.epilogue,
        last.total,
        tuple(load for kernel in kernels for load in kernel.addends),
        scratch=(Buffer("", (bands.scratch,), FLOAT, "workspace"),),
        before=(*before, *last.before),
    )
