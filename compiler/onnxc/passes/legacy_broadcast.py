"""Broadcasting before opset 7: only when told to, and one way."""

from __future__ import annotations

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.passes.rewriting import Rewriting


def align(r: Rewriting) -> None:
    """B broadcasts to A from the dimension `axis` on: it gets dimensions of 1 after its own.

    With `broadcast`, B has one element or its shape is a run of A's dimensions that starts at
    `axis` (by default the last ones); without, the shapes are equal.
    """
    wide, narrow = r.shape(0), r.shape(1)
    broadcast, axis_value = r.take("broadcast"), r.take("axis")
    if not broadcast:
        _check_equal(wide, narrow)
        return
    spare = len(wide) - len(narrow)
    axis = spare if axis_value is None else int(axis_value)
    axis += len(wide) if axis < 0 else 0
    single = all(extent == 1 for extent in narrow) and spare >= 0
    if not single and not (0 <= axis <= spare and wide[axis : axis + len(narrow)] == narrow):
        fact = f"the shape {list(narrow)} of B is no run of A's {list(wide)} from axis {axis} on"
        raise RefusalError(Kind.SHAPES_DO_NOT_BROADCAST, fact, "re-export with opset 7 or newer")
    if not single and axis != spare:
        _append_ones(r, 1, len(narrow), spare - axis)


def _check_equal(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if left != right:
        fact = f"shapes {list(left)} and {list(right)} differ and broadcast is 0"
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST, fact, "set broadcast, or re-export with opset 7 or newer"
        )


def _append_ones(r: Rewriting, position: int, rank: int, count: int) -> None:
    axes = r.constant(range(rank, rank + count), "Unsqueeze/axes")
    r.set_input(position, r.add("Unsqueeze", [r.needed(position), axes]))


def equal_shapes(r: Rewriting) -> None:
    """Sum, Max, Min and Mean did not broadcast."""
    first = r.shape(0)
    for position in range(1, len(r.node.inputs)):
        if r.shape(position) != first:
            shapes = f"shapes {list(first)} and {list(r.shape(position))} differ"
            fact = f"{shapes} and this version does not broadcast"
            raise RefusalError(
                Kind.SHAPES_DO_NOT_BROADCAST, fact, "re-export with opset 8 or newer"
            )


def align_channels(r: Rewriting) -> None:
    """PRelu's slope had one element, or one for each channel, that is on axis 1."""
    shape, slope = r.shape(0), r.shape(1)
    if len(slope) == 1 and slope[0] != 1 and len(shape) > 2:
        if slope[0] != shape[1]:
            fact = f"the slope has {slope[0]} elements for {shape[1]} channels"
            raise RefusalError(Kind.SHAPES_DO_NOT_BROADCAST, fact)
        _append_ones(r, 1, 1, len(shape) - 2)


def gemm_bias(r: Rewriting) -> None:
    """C had the shape of the product unless `broadcast` was set."""
    a, b, bias = r.shape(0), r.shape(1), r.shape(2)
    if r.take("broadcast") or len(a) != 2 or len(b) != 2:
        return
    sides = (("transA", a, (0, 1)), ("transB", b, (1, 0)))
    product = tuple(s[ax[_flag(r, name)]] for name, s, ax in sides)
    if bias != product:
        fact = f"C has shape {list(bias)}, the product {list(product)}, and broadcast is 0"
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST, fact, "set broadcast, or re-export with opset 7 or newer"
        )


def _flag(r: Rewriting, name: str) -> int:
    attribute = r.node.attributes.get(name)
    return int(attribute is not None and bool(attribute.value))
