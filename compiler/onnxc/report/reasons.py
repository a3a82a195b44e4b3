"""Why a kernel does not reach the limit of the machine: rules, each with what it costs.

A rule counts only with its cost in time. Where what the rules know of does not add up to the
measured time, the reason is UNEXPLAINED: there is room, or the machine was busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from onnxc.expression import Apply, Expr, Fold, Load, static
from onnxc.kernel import Loops, Micro, Routine, Rows, Step
from onnxc.report import choices
from onnxc.report.effort import Effort
from onnxc.report.limits import Limit
from onnxc.report.machine import Machine
from onnxc.report.tiling import STORE, described, tiles_of, units
from onnxc.target import Target, Variant
from onnxc.traversal import walk
from onnxc.tuned.bands import Bands
from onnxc.tuned.byte_transpose import ByteTranspose
from onnxc.tuned.depthwise import Depthwise
from onnxc.tuned.integer_depthwise import IntegerDepthwise
from onnxc.tuned.padded_rows import PaddedRows
from onnxc.tuned.recurrent import Recurrent
from onnxc.tuned.transpose import Transpose
from onnxc.tuned.windows_pool import Pool
from onnxc.tuned.winograd import Winograd

ENOUGH: Final = 0.8
"""The share of the limit, and of a time that is explained, which will do."""
CALL_NS: Final = 60.0
"""Of a kernel: the call, and that the first of what it reads is not there yet."""
TIME_NS: Final = 250.0
"""Of one time of a recurrent kernel: sums to their ends, and functions one after the other."""
CONVERSION: Final = 20
"""Instructions of a vector of such."""
ASSIST: Final = 250
"""Instructions of a vector that Intel's processors take for a product with a subnormal number."""
PART: Final = 0.05
"""Of the time: less is not worth a word."""
BEYOND: Final = 1.005
"""The share of the limit from which on a percentage is more than 100."""
UNEXPLAINED: Final = "not explained by its tiles, its memory or its call"
PARTLY: Final = "only partly explained"


@dataclass(frozen=True)
class Case:
    """One execution of a kernel: what it asks, the limit for that, and what it took in ns."""

    step: Step
    asked: Effort
    limit: Limit
    ns: float
    machine: Machine
    target: Target

    @property
    def variant(self) -> Variant:
        """The one that runs here."""
        variants = self.target.variants
        return next((v for v in variants if v.lanes == self.machine.lanes), variants[-1])

    @property
    def unit(self) -> float:
        """Nanoseconds of a vector instruction."""
        return 1e9 * self.machine.lanes / self.machine.macs["float32"]

    @property
    def dot(self) -> float:
        """Units of an instruction that sums products of bytes, four a lane."""
        return 4 * self.machine.macs["float32"] / self.machine.macs["int8"]


@dataclass(frozen=True)
class Cause:
    """ns: what it costs beyond the limit; None where that is not known, but is all."""

    text: str
    ns: float | None = None


Rule = Callable[[Case], Iterator[Cause]]


def _other_target(case: Case) -> Iterator[Cause]:
    lanes = case.target.variants[0].lanes
    if lanes < case.machine.lanes and not case.target.small:
        yield Cause(f"made for {case.target.name}, with vectors of {lanes}, measured on a host")


def _little_code(case: Case) -> Iterator[Cause]:
    if case.target.small:
        yield Cause("for little code: plain vectors, and layers that share functions")


def _portable(case: Case) -> Iterator[Cause]:
    if case.target.portable and case.asked.products:
        yield Cause("with portable bits no product is fused into a sum")


def _types(case: Case) -> Iterator[Cause]:
    known = {*case.machine.macs}
    if others := sorted({*case.asked.products} - known):
        yield Cause(f"no tuned kernel multiplies {', '.join(others)}")


def _routine(case: Case) -> Iterator[Cause]:
    if isinstance(case.step, Routine):
        yield Cause(f"{case.step.name} compares and moves: the limit counts only its bytes")


def _plain(case: Case) -> Iterator[Cause]:
    if isinstance(case.step, Loops) and case.asked.products:
        yield Cause(f"plain loops: {choices.reason(case.step)}")


def _call(case: Case) -> Iterator[Cause]:
    took = f"{case.ns:.0f} ns" if case.ns < 1000 else f"{case.ns / 1e3:.1f} us"
    yield Cause(f"runs only {took}: the call and the first loads are much of that", CALL_NS)


def _turns(case: Case) -> Iterator[Cause]:
    """What is limited by one thing does not do all else meanwhile."""
    parts = sorted(vars(case.limit).items(), key=lambda part: -part[1])
    first, *others = [name for name, ns in parts if ns > PART / 2 * case.ns] or [parts[0][0]]
    if others:
        listed = f"{', '.join([first, *others[:-1]])} and {others[-1]}"
        text = f"{listed} do not overlap: their times add up"
        yield Cause(text, sum(ns for _, ns in parts[1:]))


def _between(case: Case) -> Iterator[Cause]:
    """Of layers by bands of rows: what passes from one to the next."""
    if isinstance(case.step, Micro) and isinstance(bands := case.step.parameters, Bands):
        size = sum(link.whole for link in bands.links)
        rate = case.machine.bandwidth(4 * bands.scratch).copy
        text = f"{size >> 10} KiB pass through the cache from layer to layer inside"
        yield Cause(text, 1e9 * 2 * size / rate)


def _tiles(case: Case) -> Iterator[Cause]:
    if isinstance(case.step, Micro) and (tiles := tiles_of(case.step, case.variant, case.dot)):
        for text, cost in described(tiles):
            yield Cause(text, cost * case.unit)


def _kernel(case: Case) -> Iterator[Cause]:
    """Of tuned kernels whose products are not all of their work."""
    if not isinstance(case.step, Micro) or tiles_of(case.step, case.variant, case.dot):
        return
    cost = units(case.step, case.variant, case.dot) * case.unit
    text = next((text for kind, text in TEXTS if isinstance(case.step.parameters, kind)), "")
    if text and cost:
        yield Cause(text, max(0.0, cost - case.limit.products))


TEXTS: Final = (
    (Depthwise, "each value that is loaded has one product, and few products share a store"),
    (IntegerDepthwise, "bytes are widened and paired before their few products"),
    (Winograd, "the tiles are transformed before and after their products"),
    (Transpose, "values are turned in registers, with several shuffles for each vector"),
    (ByteTranspose, "bytes are turned in registers, with several shuffles for each vector"),
    (Pool, "of two values the greater takes several instructions: a NaN stays, +0 is above -0"),
    (PaddedRows, "each row starts and ends copies of its own, of what it holds and of its padding"),
    (Bands, "layers by bands of rows: tiles start and end with every row"),
)


def _subnormal(case: Case) -> Iterator[Cause]:
    """Of weights that are so near to zero that many processors do not multiply them at once."""
    if not isinstance(case.step, Micro):
        return
    lanes, products = case.variant.lanes, sum(case.asked.products.values())
    for weights in (buffer.data for buffer in case.step.inputs):
        if weights is None or weights.dtype.kind != "f" or not weights.size:
            continue
        slow = (weights != 0) & (np.abs(weights) < np.finfo(weights.dtype).tiny)
        if count := int(slow.sum()):
            starts = np.arange(0, slow.size, lanes)
            vectors = int(np.logical_or.reduceat(slow.reshape(-1), starts).sum())
            text = f"{count:,} of {slow.size:,} weights are subnormal: a product with one is slow"
            yield Cause(text, vectors * products / slow.size * ASSIST * case.unit)


def _halves(case: Case) -> Iterator[Cause]:
    """Of floats of 16 bits and fewer, which are no type of C."""
    loops = case.step.steps if isinstance(case.step, Rows) else (case.step,)
    casts = 0
    for nest in loops:
        if isinstance(nest, Loops):
            points = math.prod(static(axis.extent) for axis in nest.axes)
            casts += points * sum(_is_conversion(node) for node in walk(nest.value))
    if casts:
        cost = casts / case.variant.lanes * CONVERSION * case.unit
        yield Cause("floats of 16 bits or fewer are converted by integer operations", cost)


def _is_conversion(node: Expr) -> bool:
    """From or to a type that C lacks."""
    return (
        isinstance(node, Apply)
        and node.operation == "cast"
        and any(dtype.kind in ("half", "bits") for dtype in (node.dtype, node.args[0].dtype))
    )


def _recurrent(case: Case) -> Iterator[Cause]:
    if isinstance(case.step, Micro) and isinstance(case.step.parameters, Recurrent):
        times = case.step.parameters.times
        text = f"each of {times} times waits for the one before"
        yield Cause(text, times * TIME_NS)


def _loads(case: Case) -> Iterator[Cause]:
    """Of plain loops: loads and stores of vectors, or of each value where they lie apart."""
    loops = case.step.steps if isinstance(case.step, Rows) else (case.step,)
    cost, apart, short = 0.0, 0, 0
    for nest in loops:
        if not isinstance(nest, Loops):
            return
        found = _units_of_loops(nest, case.variant.lanes)
        cost, apart, short = cost + found[0], apart + found[1], short + found[2]
    text = "the loads and stores of plain loops take time"
    if apart:
        text = "plain loops load or store values that do not lie side by side, one by one"
    elif short:
        text = "the loops are short: starting and ending them takes time"
    yield Cause(text, cost * case.unit)


SHORT: Final = 16
"""Iterations: no more leave vectors empty, or end before they pay."""


def _units_of_loops(loops: Loops, lanes: int) -> tuple[float, int, int]:
    """(units, accesses of values that lie apart, whether the inner loop is short)."""
    nodes = [*walk(*loops.roots())]
    folds = [node for node in nodes if isinstance(node, Fold)]
    axes = [*loops.axes, *(axis for fold in folds for axis in fold.axes)]
    points = math.prod(static(axis.extent) for axis in axes)
    inner = axes[-1] if axes else None
    units, apart = 0.0, 0
    for node in nodes:
        if isinstance(node, Load) and inner is not None:
            stride = node.flat.stride(inner)
            scalar = stride not in (0, 1) or bool(node.flat.dynamic)
            units += points if scalar else points / lanes
            apart += scalar
    stores = math.prod(static(axis.extent) for axis in loops.axes)
    place = loops.where[-1].stride(loops.axes[-1]) if loops.axes else 1
    scalar = place != 1 and not folds
    apart += scalar
    units += STORE * (stores if scalar else stores / lanes)
    short = inner is not None and static(inner.extent) <= SHORT
    operations = sum(1 for node in nodes if not isinstance(node, Load))
    if short and inner is not None:
        units += points / static(inner.extent) * (4 + operations)
    return units, apart, int(short)


DECISIVE: Final[tuple[Rule, ...]] = (
    _other_target,
    _little_code,
    _portable,
    _types,
    _routine,
    _plain,
)
"""Rules of which one is reason enough: the first that holds."""
RULES: Final[tuple[Rule, ...]] = (
    _tiles,
    _kernel,
    _subnormal,
    _recurrent,
    _between,
    _turns,
    _loads,
    _halves,
    _call,
)
"""Rules whose costs add up."""


def reason(case: Case) -> str:
    """Empty where the kernel reaches ENOUGH of its limit, and is not BEYOND it."""
    if case.limit.ns > BEYOND * case.ns:
        return _beyond(case)
    if case.limit.ns >= ENOUGH * case.ns:
        return ""
    for rule in DECISIVE:
        for cause in rule(case):
            return cause.text
    causes = [cause for rule in RULES for cause in rule(case) if cause.ns]
    causes.sort(key=lambda cause: -(cause.ns or 0))
    explained, texts = case.limit.ns, []
    for cause in causes:
        if (cause.ns or 0) < PART * case.ns or explained >= ENOUGH * case.ns:
            break
        explained += cause.ns or 0
        texts.append(cause.text)
    if explained < ENOUGH * case.ns:
        return f"{PARTLY}: {'; '.join(texts)}" if texts else UNEXPLAINED
    return "; ".join(texts)


def _beyond(case: Case) -> str:
    """Why a kernel takes less than its limit, which is of rates that are measured elsewhere."""
    bound_by = case.limit.bound_by
    if bound_by == "memory":
        return "faster than the limit: its bytes are in a nearer cache than the limit assumes"
    winograd = isinstance(case.step, Micro) and isinstance(case.step.parameters, Winograd)
    if bound_by == "products" and winograd:
        return "faster than the limit: it needs fewer products than the operator states"
    return f"faster than the limit: the rate of {bound_by} was measured when the machine was slower"
