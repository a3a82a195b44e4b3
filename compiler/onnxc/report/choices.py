"""Which kernel computes each step of a program, with which tile, and why: a line each."""

from __future__ import annotations

from typing import Final

from onnxc.dtypes import DOUBLE, FLOAT
from onnxc.emit.text import node_text
from onnxc.emit.tuned import tile_texts
from onnxc.expression import Fold
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows, Step, every_step
from onnxc.passes.merge_axes import merged
from onnxc.report import work
from onnxc.target import Target
from onnxc.traversal import walk
from onnxc.tuned.product import only_fold, product_of

REASONS: Final = {
    "bands": "what a row of the last needs is computed just before, and stays in the cache",
    "border": "with padding in memory no window needs a test at the edges",
    "byte_transpose": "squares of 16 bytes are turned in registers",
    "contraction": "each value that is read meets a panel of the other operand",
    "depthwise": "each channel has a filter of its own: vectors of channels",
    "depthwise_scalar": "each lane has a filter of its own, which stays in registers",
    "gemv": "few rows: the constant is read once, in order",
    "integer_depthwise": "each channel has a filter of its own: vectors of channels",
    "integer_product": "bytes by fours, each of which meets a panel of the other operand",
    "integers_scalar": "bytes are multiplied as they are, the sums of a tile stay in registers",
    "padded_rows": "with padding in memory no window needs a test at the edges",
    "pool_windows": "vectors of channels, and a column of taps serves all windows that share it",
    "recurrent": "the state stays near from one time to the next, the gates in registers",
    "rowwise": "no row is read for two: whole rows, each times a number",
    "shared_integers": "for little code: one function makes the sums of all such layers",
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
    name = step.name if isinstance(step, Micro | Routine) else "plain loops"
    tiles = ", ".join(tiles_of(step, target))
    return f"{name}{', ' + tiles if tiles else ''}; {reason(step)}"


def tiles_of(step: Step, target: Target) -> list[str]:
    """What a tuned kernel computes at once, for each variant of a target where it differs."""
    return tile_texts(step, target) if isinstance(step, Micro) else []


def reason(step: Step) -> str:
    """Why it is the kernel that it is."""
    match step:
        case Micro():
            return REASONS.get(step.name, "made for it")
        case Loops():
            return _why_plain(step)
        case Routine():
            return REASONS.get(step.name, "no sums and no function of elements")
        case Rows():
            return "all of them run for some rows and then for the next: what they share stays near"
        case Branch():
            return "which of the two runs is decided by a value"
        case Repeat():
            return "what is inside runs several times"


def _why_without_products(loops: Loops) -> str:
    folds = [node for node in walk(*loops.roots()) if isinstance(node, Fold)]
    if sum(bool(fold.hint) and fold.operation == "sum" for fold in folds) > 1:
        return "several sums of products at once"
    if folds and work.products(loops):
        return "sums of elementwise products, which no operator of matrices states"
    if folds:
        return "no sum of products of floats"
    if work.arithmetic(loops) == work.MOVES:
        return "elements go to another place, none is computed"
    return "each element by itself, with no sums"


def _why_plain(loops: Loops) -> str:
    fold = only_fold(loops)
    if fold is None:
        return _why_without_products(loops)
    if fold.dtype not in (FLOAT, DOUBLE):
        return "too few products, or bytes that do not lie as a kernel reads them"
    if product_of(merged(loops)) is None:
        return "what is multiplied is more than two operands in memory"
    return "too few products, or no operand that lies as a kernel reads it"
