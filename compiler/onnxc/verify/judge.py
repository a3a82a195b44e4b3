"""Judging outputs against references that may be wrong themselves.

The rules, in this order; the first that applies decides:

1. An output is right where it agrees with every reference that was asked (compare.py says how
   close that is). With `auto` the first one suffices; the other is asked where the first differs.
2. `special` inputs of an output that sums of floats go into prove nothing, as the result depends
   on the order (sums.py); there it is enough that the run ends well.
3. A difference no larger than rounding alone makes in the reference itself (probe.py) is none.
4. An output that agrees with one reference and not with the other is right where the other has a
   known deviation (deviations.tsv) in an operator before it. On special inputs that holds, too,
   where every reference has one and onnxc's own evaluation in numpy agrees with the C.
5. Anything else differs.

Rules 3 and 4 are not for --exact, rule 3 not for an rtol or atol of the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc import evaluate
from onnxc.arrays import object_array, text, text_bytes
from onnxc.dtypes import ElementType
from onnxc.verify import probe
from onnxc.verify.compare import Difference, Tolerance, compare
from onnxc.verify.deviations import known
from onnxc.verify.inputs import Case
from onnxc.verify.oracle import ORACLES, Oracle, RefusedError
from onnxc.verify.source import Subject
from onnxc.verify.sums import depending_on_order

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

NUMBERS: Final = ("float", "half", "signed", "unsigned")
"""Kinds of types that have a size of an error."""
MOST_NAMED: Final = 3
"""Deviations in one note."""
WORK: Final = 3_000_000
"""Elements of all buffers up to which a program is evaluated in numpy."""


@dataclass(frozen=True)
class Value:
    """An output or a tapped value, by its ONNX name."""

    name: str
    dtype: ElementType
    ordered: bool


@dataclass(frozen=True)
class Verdict:
    """What became of one value against one reference.

    verdict  ok, excused (it differs for a reason that is no fault of the C), not compared, differs
    note     the reason
    """

    verdict: str
    difference: Difference
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict != "differs"


@dataclass
class _Engine:
    """A reference with what it returned by case, or why it did not."""

    name: str
    oracle: Oracle | None = None
    refusal: str = ""
    results: dict[int, list[NDArray[Any]] | None] = field(default_factory=dict)
    changes: dict[int, list[float]] = field(default_factory=dict)


class Judge:
    """Asks the references, each no more often than needed."""

    def __init__(
        self,
        subject: Subject,
        cases: Sequence[Case],
        tolerance: Tolerance,
        taps: Sequence[tuple[str, ElementType]] = (),
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.subject = subject
        self.cases = cases
        self.tolerance = tolerance
        self.tell = tell
        compiled = subject.compiled
        ordered = depending_on_order(compiled.program)
        buffers = compiled.program.outputs
        self.values = [
            Value(output.name, output.dtype, buffer in ordered)
            for output, buffer in zip(compiled.outputs, buffers, strict=True)
        ]
        self.taps = [name for name, _ in taps]
        self.values += [Value(name, dtype, ordered=True) for name, dtype in taps]
        self.engines: dict[str, _Engine] = {}

    @cached_property
    def graph(self) -> onnx.ModelProto:
        return self.subject.graph()

    def expected(self, engine: str, case: int) -> list[NDArray[Any]] | None:
        """What a reference returns for a case; None where it refuses."""
        found = self._engine(engine)
        if case not in found.results:
            found.results[case] = None
            if found.oracle is not None:
                self.tell(f"{engine}, {self.cases[case].label} inputs")
                try:
                    found.results[case] = found.oracle.run(self._inputs(case))
                except RefusedError as refusal:
                    found.refusal = found.refusal or str(refusal)
        return found.results[case]

    def judge(
        self,
        got: Sequence[NDArray[Any]],
        case: int,
        engines: Sequence[str],
        position: int,
        *,
        final: bool = True,
    ) -> dict[str, Verdict]:
        """The verdict on one value against each of `engines` that returns it.

        position  that of the value
        final     whether no other reference can be asked
        """
        found: dict[str, Verdict] = {}
        value, array = self.values[position], got[position]
        for engine in engines:
            expected = self.expected(engine, case)
            if expected is not None:
                wanted = expected[position]
                difference = compare(array, wanted, value.dtype, self.tolerance)
                verdict = Verdict("ok" if difference.passed else "differs", difference)
                if not verdict.passed and self.cases[case].label == "special" and value.ordered:
                    note = "the order of float sums decides what infinities and overflows become"
                    verdict = Verdict("not compared", difference, note)
                if not verdict.passed and self._is_rounding(engine, case, position, array, wanted):
                    verdict = Verdict(
                        "excused", difference, self._rounding_note(engine, case, position)
                    )
                found[engine] = verdict
        return self._arbitrated(found, array, case, value) if final else found

    def _engine(self, name: str) -> _Engine:
        if name not in self.engines:
            engine = self.engines[name] = _Engine(name)
            self.tell(f"load the model into {name}")
            try:
                engine.oracle = ORACLES[name](self.subject.source, self.subject.compiled, self.taps)
            except RefusedError as refusal:
                engine.refusal = str(refusal)
        return self.engines[name]

    def _inputs(self, case: int) -> dict[str, NDArray[Any]]:
        return {**self.cases[case].values, **self.subject.compiled.fixed}

    def _is_rounding(
        self, engine: str, case: int, position: int, got: NDArray[Any], expected: NDArray[Any]
    ) -> bool:
        """Whether the reference itself differs as much when the last bits of its data change."""
        tolerance = self.tolerance
        asked = tolerance.exact or tolerance.rtol is not None or tolerance.atol is not None
        numbers = self.values[position].dtype.kind in NUMBERS
        if asked or not numbers or got.shape != expected.shape:
            return False
        change = self._changes(engine, case)
        allowed = probe.FACTOR * change[position] if change else 0.0
        return math.isfinite(allowed) and _furthest(got, expected) <= allowed

    def _rounding_note(self, engine: str, case: int, position: int) -> str:
        change = self._changes(engine, case)[position]
        return (
            f"rounding: changed last bits of weights, inputs and results change it by {change:.3g}"
        )

    def _changes(self, engine: str, case: int) -> list[float]:
        """By value, the largest change that changed last bits make in a reference."""
        found = self._engine(engine)
        if case not in found.changes:
            found.changes[case] = []
            expected = self.expected(engine, case)
            try:
                for seed in range(probe.ROUNDS if expected else 0):
                    self.tell(f"{engine} with other last bits, {seed + 1} of {probe.ROUNDS}")
                    results = self._changed(engine, case, seed)
                    before = found.changes[case] or [0.0] * len(results)
                    pairs = zip(results, expected or [], strict=True)
                    now = [_furthest(one, other, finite=True) for one, other in pairs]
                    found.changes[case] = list(map(max, before, now))
            except (RefusedError, ValueError):  # too large to be written, too
                found.changes[case] = []
        return found.changes[case]

    def _changed(self, engine: str, case: int, seed: int) -> list[NDArray[Any]]:
        model = probe.changed_model(self.subject.source, seed, self.subject.types)
        oracle = ORACLES[engine](model, self.subject.compiled, self.taps)
        return oracle.run(probe.changed_inputs(self._inputs(case), seed))

    def _arbitrated(
        self, found: Mapping[str, Verdict], got: NDArray[Any], case: int, value: Value
    ) -> dict[str, Verdict]:
        """Rule 4: references that disagree with the C, and why that may be right."""
        wrong = [engine for engine, verdict in found.items() if not verdict.passed]
        fine = [engine for engine, verdict in found.items() if verdict.verdict == "ok"]
        special = self.cases[case].label == "special"
        result = dict(found)
        if not wrong or self.tolerance.exact:
            return result
        reasons = {engine: self._deviations(engine, value.name, special) for engine in wrong}
        own = ""
        if not fine and special and all(reasons.values()) and self._evaluates_to(got, case, value):
            own = "onnxc's own evaluation"
        for engine in wrong:
            follows = ", ".join(fine) or own
            if follows and reasons[engine]:
                note = f"{engine} deviates; the C follows {follows}. {reasons[engine]}"
                result[engine] = Verdict("excused", found[engine].difference, note)
            elif follows:
                note = f"no known deviation of {engine}; the C follows {follows}"
                result[engine] = Verdict("differs", found[engine].difference, note)
            elif reasons[engine]:
                note = f"perhaps a known deviation of {engine}. {reasons[engine]}"
                result[engine] = Verdict("differs", found[engine].difference, note)
        return result

    def _deviations(self, engine: str, name: str, special: bool) -> str:
        oracle = self._engine(engine).oracle
        version = getattr(oracle, "version", "")
        found = known(self.graph, name, engine, version)
        texts = [str(d) for d in found if special or not d.only_special]
        more = len(texts) - MOST_NAMED
        return "; ".join(texts[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")

    def status_deviation(self, engine: str) -> str:
        """Known deviations that explain why the C returns a status and the reference does not."""
        found = (self._deviations(engine, value.name, special=True) for value in self.values)
        return next((reason for reason in found if "returns a status" in reason), "")

    def _evaluates_to(self, got: NDArray[Any], case: int, value: Value) -> bool:
        """Whether the kernels, in numpy, give the same; not asked of large programs."""
        compiled = self.subject.compiled
        buffers = {b for s in compiled.program.steps for b in (*s.reads(), *s.writes())}
        if sum(buffer.elements for buffer in buffers) > WORK:
            return False
        inputs = {b: _for_evaluation(self._inputs(case)[b.name]) for b in compiled.program.inputs}
        try:
            results = evaluate.run(compiled.program, inputs)
        except (ArithmeticError, MemoryError):
            return False
        named = zip(compiled.outputs, compiled.program.outputs, strict=True)
        buffer = next(buffer for output, buffer in named if output.name == value.name)
        return compare(got, _from_evaluation(results[buffer]), value.dtype, Tolerance()).passed


def _furthest(one: NDArray[Any], other: NDArray[Any], *, finite: bool = False) -> float:
    """The largest distance between two arrays of numbers; inf where one alone is finite.

    With `finite`, of the elements that are finite in both.
    """
    if one.shape != other.shape or one.dtype.kind in "OUSTbc":
        return math.inf
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    if finite:
        return float(apart.max(initial=0.0, where=np.isfinite(apart)))
    return float(np.where(np.isnan(apart), math.inf, apart).max(initial=0.0))


def _for_evaluation(array: NDArray[Any]) -> NDArray[Any]:
    """Strings as bytes."""
    if array.dtype.kind not in "OUST":
        return array
    return object_array([text_bytes(value) for value in array.reshape(-1).tolist()], array.shape)


def _from_evaluation(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind != "O":
        return array
    return object_array([text(value) for value in array.reshape(-1).tolist()], array.shape)
