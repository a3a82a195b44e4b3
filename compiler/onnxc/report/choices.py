"""Which kernel computes each step of a program, with which tile, and why: a line each."""

from __future__ import annotations

from typing import Final

from onnxc.dtypes import DOUBLE, FLOAT
from onnxc.emit.text import node_text
from onnxc.emit.tuned import tile_texts
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Step, every_step
from onnxc.passes.merge_axes import merged
from onnxc.target import Target
from onnxc.tuned.product import only_fold, product_of

REASONS: Final = {
    "bands": "what a row of the last needs is computed just before, and stays in the cache",
    "byte_transpose": "squares of 16 bytes are turned in registers",
    "contraction": "each value that is read meets a panel of the other operand",
    "depthwise": "each channel has a filter of its own: vectors of channels",
    "depthwise_scalar": "each lane has a filter of its own, which stays in registers",
    "gemv": "few rows: the constant is read once, in order",
    "integer_depthwise": "each channel has a filter of its own: vectors of channels",
    "integer_product": "bytes by fours, each of which meets a panel of the other operand",
    "recurrent": "the state stays near from one time to the next, the gates in registers",
    "rowwise": "no row is read for two: whole rows, each times a number",
    "shared_scalar": "for little code: all such layers call one function",
    "transpose": "squares of vectors are turned in registers",
    "windows_scalar": "the sums of a tile stay in registers",
    "winograd": "3x3 with stride 1: 16 products do for 36",
}


def lines(program: Program) -> list[str]:
    """Of every step of a program that `choose` has gone through."""
    target = program.target
    if target is None:
        return []
    steps = (step for step in every_step(program) if not isinstance(step, Branch | Repeat))
    return [f"  {_named(step)}: {_chosen(step, target)}" for step in steps]


def _named(step: Step) -> str:
    origins = () if isinstance(step, Branch | Repeat) else step.origins
    names = ", ".join(map(node_text, origins[:4])) or "of no node"
    more = f" and {len(origins) - 4} more" if len(origins) > 4 else ""
    role = "" if isinstance(step, Branch | Repeat) or not step.role else f" ({step.role})"
    return names + more + role


def _chosen(step: Step, target: Target) -> str:
    match step:
        case Micro():
            tiles = ", ".join(tile_texts(step, target))
            reason = REASONS.get(step.name, "made for it")
            return f"{step.name}{', ' + tiles if tiles else ''}; {reason}"
        case Loops():
            return f"plain loops; {_why_plain(step)}"
        case Routine():
            return f"{step.name}; no sums and no function of elements"
    raise AssertionError(f"no kernel of its own: {step}")


def _why_plain(loops: Loops) -> str:
    fold = only_fold(loops)
    if fold is None:
        return "no sum of products of floats"
    if fold.dtype not in (FLOAT, DOUBLE):
        return "too few products, or bytes that do not lie as a kernel reads them"
    if product_of(merged(loops)) is None:
        return "what is multiplied is more than two operands in memory"
    return "too few products, or no operand that lies as a kernel reads it"
