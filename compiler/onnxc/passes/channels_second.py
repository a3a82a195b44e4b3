"""Convolutions of floats that do not read channels last: no copy for that would pay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from onnxc.dtypes import FLOAT
from onnxc.expression import Fold, Load
from onnxc.kernel import Loops

SHORTEST: Final = 16
"""Pixels of a row that is walked as it lies: a vector."""
WINDOW: Final = 9
"""Taps of a window that is large."""
CHANNELS: Final = 16
"""From which the copy costs more than that a row of pixels is no one loop over its channels."""
BATCH: Final = 0
SPATIAL: Final = 1
CHANNEL: Final = 2
"""Kinds of dimensions, in the order of a layout with channels last; windows slide over SPATIAL."""
FEW: Final = 8
"""Channels of which no kernel wants vectors, as Winograd's does of more."""


def in_planes(step: Loops, fold: Fold, source: Load) -> bool:
    """Whether the one convolution of a kernel walks rows of pixels as they lie, element by element:
    it is depthwise, or 1x1, and its rows are as long as vectors.
    """
    rank, columns = len(step.where), step.where[-1].terms
    if len(step.out.shape) != rank or source.dtype is not FLOAT or len(source.indices) != rank:
        return False
    if len(columns) != 1:
        return False
    ((column, stride),) = columns
    if stride != 1 or column.extent < SHORTEST or source.indices[-1].stride(column) != 1:
        return False
    if source.indices[1].terms == step.where[1].terms:
        return True
    (channels, *places), outputs = source.indices[1:], step.where[2:]
    return places == list(outputs) and [axis for axis, _ in channels.terms] == [*fold.axes]


def in_windows(step: Loops, fold: Fold, source: Load) -> bool:
    """Whether a tile goes through windows so large that what it reads of a channel is of use again:
    then it may as well read row by row. Not where Winograd's kernel reads channels last.
    """
    if source.dtype is not FLOAT or len(source.indices) != 4 or len(step.where) != 4:
        return False
    channel, *places = source.indices[1:]
    if {axis for axis, _ in channel.terms} - set(fold.axes) or source.buffer.shape[1] < CHANNELS:
        return False
    taps = [axis for axis in fold.axes if not channel.stride(axis)]
    strides = [max((s for axis, s in i.terms if axis not in fold.axes), default=1) for i in places]
    return math.prod(axis.extent for axis in taps) >= WINDOW and max(strides) > 1


def in_rows(fold: Fold, source: Load, kinds: Sequence[int]) -> bool:
    """Whether a dense convolution has so few channels that whole rows of each are as good as
    channels last: of a value that meets a panel nothing beside it is asked for. Channels last would
    have to be gathered one by one; rows are read where they are, or copied whole with padding.

    kinds  of the dimensions of the source
    """
    channels = [d for d, kind in enumerate(kinds) if kind == CHANNEL]
    axes = {axis for d in channels for axis, _ in source.indices[d].terms}
    few = math.prod(source.buffer.shape[d] for d in channels) < FEW
    return source.dtype is FLOAT and few and axes <= set(fold.axes) and kinds[-1] == SPATIAL


def row_by_row(kinds: Sequence[int]) -> tuple[int, ...]:
    """The order of dimensions in which the rows of all channels lie beside each other."""
    *others, last = range(len(kinds))
    return (*sorted(others, key=lambda d: kinds[d]), last)
