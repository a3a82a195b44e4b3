"""Verifying a model: its C against independent references."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onnxc.diagnostics import Kind
from onnxc.errors import UsageError
from onnxc.passes.fix import Fix
from onnxc.verify.compare import Difference, Tolerance
from onnxc.verify.execute import Outcome, run_library
from onnxc.verify.input_files import read_inputs
from onnxc.verify.inputs import Bounds, Case, check_ranges, random_cases
from onnxc.verify.judge import Judge, Verdict
from onnxc.verify.program import Build, run_program
from onnxc.verify.result import Comparison, Node, Nodes, Reference, Skipped, Verification
from onnxc.verify.source import Subject, subject
from onnxc.verify.taps import Tapped, TappedC, write_tapped

if TYPE_CHECKING:
    import onnx

# What each choice asks; "auto" asks the second where the first refuses or differs.
CHOICES: Final = {
    "auto": ("onnxruntime", "reference"),
    "onnxruntime": ("onnxruntime",),
    "reference": ("reference",),
    "both": ("onnxruntime", "reference"),
}
NARROWER: Final = (7, 1, 0)
"""Limits of integers that are tried where both the C and the references refuse larger ones."""
NO_BUILD: Final = Build()

Tell = Callable[[str], None]


def verify_model(
    source: str | os.PathLike[str] | onnx.ModelProto,
    *,
    c_source: Path | None = None,
    dims: Mapping[str, int] | None = None,
    fix: Mapping[str, Fix] | None = None,
    target: str = "generic",
    optimize: str = "speed",
    portable_bits: bool = False,
    inputs: Path | None = None,
    ranges: Mapping[str, Bounds] | None = None,
    against: str = "auto",
    exact: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    per_node: bool = False,
    build: Build = NO_BUILD,
    tell: Tell = lambda _: None,
) -> Verification:
    """Runs the model's C and compares every output with what references make of the same inputs.

    c_source  a C file that onnxc made from the model, its header beside it; default: compile now,
              for `target` and `optimize`, and with `portable_bits`
    inputs    an .npz by input name, a .npy, a .pb or a folder of input_N.pb; default: random_cases
    ranges    of random values, by input name: the least and the greatest
    against   auto (onnxruntime, where that refuses or differs ONNX's evaluator), onnxruntime,
              reference, both
    exact, rtol, atol  as compare.py has them; None is the element type's default
    per_node  compares the tensors between the kernels, too
    build     another compiler or target, sanitizers, guard pages
    tell      is told what is being done, for a progress bar

    judge.py has the rules. Raises ModelError, UsageError (a C file that does not fit the model,
    too), ToolError, CrashError.
    """
    if isinstance(source, str | os.PathLike):
        source = Path(source)
    if against not in CHOICES:
        fact = f"no reference '{against}'; there are {', '.join(CHOICES)}"
        raise UsageError(Kind.ARGUMENT, fact)
    tell("compile the model")
    checked = subject(
        source,
        c_source,
        dims or {},
        fix or {},
        target=target,
        optimize=optimize,
        portable_bits=portable_bits,
    )
    with tempfile.TemporaryDirectory(prefix="onnxc-verify-") as folder:
        tapped = write_tapped(checked, Path(folder)) if per_node else None
        run = _Run(checked, against, Tolerance(exact, rtol, atol), build, tapped, tell)
        if inputs is None:
            found = run.drawn(seed, ranges or {})
        else:
            found = run.asked([read_inputs(inputs, checked.compiled.inputs)])
        return found.verification(c_source, None if inputs else seed)


@dataclass(frozen=True)
class _Run:
    subject: Subject
    against: str
    tolerance: Tolerance
    build: Build
    tapped: TappedC | None
    tell: Tell

    def asked(self, cases: Sequence[Case]) -> _Found:
        """With a user's inputs. Raises UsageError where nobody takes them."""
        found = self.outcomes(cases)
        refused = found.refused(0)
        if refused:
            fact = f"{cases[0].label}: {refused}, and no reference takes these inputs either"
            raise UsageError(Kind.INPUT_FILE, fact)
        return found

    def drawn(self, seed: int, ranges: Mapping[str, Bounds]) -> _Found:
        """With random inputs: where the C and the references refuse integers, smaller ones."""
        interfaces = self.subject.compiled.inputs
        check_ranges(ranges, interfaces)
        known = {**self.subject.ranges, **ranges}
        found = self.outcomes(random_cases(interfaces, seed, known))
        free = [i for i in interfaces if i.dtype.kind in ("signed", "unsigned")]
        free = [interface for interface in free if interface.name not in known]
        for limit in NARROWER if free and found.refused(0) else ():
            narrow = {interface.name: (0.0, float(limit)) for interface in free}
            found = self.outcomes(random_cases(interfaces, seed, {**known, **narrow}))
            if not found.refused(0):
                break
        if found.refused(0):
            fact = f"{found.refused(0)}, and no reference takes random inputs either"
            raise UsageError(Kind.INPUT_ARRAYS, f"{fact}; give others (--inputs FILE, --range)")
        return found

    def outcomes(self, cases: Sequence[Case]) -> _Found:
        self.tell("build the C")

        def done() -> None:
            self.tell("run the C")

        if self.build.asked:
            ran = run_program(self.subject, self.build, cases, self.tapped, done)
        else:
            ran = run_library(self.subject, cases, self.tapped, done)
        taps = [(tap.name, tap.dtype) for tap in self.tapped.inner] if self.tapped else []
        judge = Judge(self.subject, cases, self.tolerance, taps, self.tell)
        return _Found(self, cases, ran, judge)


@dataclass(frozen=True)
class _Found:
    """The outcome of each case, and who judges it."""

    run: _Run
    cases: Sequence[Case]
    outcomes: Sequence[Outcome]
    judge: Judge

    @property
    def engines(self) -> tuple[str, ...]:
        return CHOICES[self.run.against]

    def refused(self, case: int) -> str:
        """The status of the C where no reference computes the case either; else ""."""
        status = self.outcomes[case].status
        return "" if status and self.computing(case) else status

    def computing(self, case: int) -> list[str]:
        """The references that return something."""
        return [e for e in self.engines if self.judge.expected(e, case) is not None]

    def verification(self, c_source: Path | None, seed: int | None) -> Verification:
        comparisons, skipped = [], []
        for case, outcome in enumerate(self.outcomes):
            if not outcome.status:
                comparisons += list(self.compared(case))
            elif engines := self.computing(case):
                comparisons += list(self.failed(case, engines))
            else:
                note = f"{outcome.status}; no reference takes them either"
                skipped.append(Skipped(self.cases[case].label, note))
        nodes = self.nodes()
        references = tuple(self.reference(name) for name in self.judge.engines)
        used = {reference.name for reference in references if reference.used}
        auto = self.run.against == "auto"
        source = self.run.subject.source
        return Verification(
            model=str(source) if isinstance(source, Path) else "",
            c_source="" if c_source is None else str(c_source),
            build=str(self.run.build) if self.run.build.asked else "",
            seed=seed,
            tolerance=self.run.tolerance,
            references=references,
            skipped=tuple(skipped),
            comparisons=tuple(comparisons),
            complete=bool(used) if auto else used >= {*self.engines},
            nodes=nodes,
        )

    def reference(self, name: str) -> Reference:
        engine = self.judge.engines[name]
        used = any(result is not None for result in engine.results.values())
        title = engine.oracle.title if engine.oracle else ""
        return Reference(name, title, engine.refusal, used)

    def verdicts(self, case: int, position: int) -> dict[str, Verdict]:
        """Of one value; with `auto`, of the first reference alone where that suffices."""
        values, engines = self.outcomes[case].values, self.engines
        if self.run.against == "auto":
            first = next((e for e in engines if self.judge.expected(e, case) is not None), "")
            found = self.judge.judge(values, case, [first] if first else [], position, final=False)
            if all(verdict.passed for verdict in found.values()):
                return found
        return self.judge.judge(values, case, engines, position)

    def compared(self, case: int) -> Iterator[Comparison]:
        for position, output in enumerate(self.run.subject.compiled.outputs):
            shape = self.outcomes[case].values[position].shape
            for engine, verdict in self.verdicts(case, position).items():
                yield Comparison(
                    output.name,
                    output.dtype.name,
                    shape,
                    engine,
                    self.cases[case].label,
                    verdict.verdict,
                    verdict.difference,
                    verdict.note,
                )

    def failed(self, case: int, engines: Sequence[str]) -> Iterator[Comparison]:
        """Of a run that ended with a status, though references compute something."""
        reasons = [self.judge.status_deviation(engine) for engine in engines]
        missing = len(engines) < len(self.engines)
        excused = all(reasons) or (missing and self.cases[case].label == "special")
        for output in self.run.subject.compiled.outputs:
            for engine, reason in zip(engines, reasons, strict=True):
                difference = Difference(0, 0, note=self.outcomes[case].status)
                verdict = "excused" if excused else "differs"
                facts = (output.dtype.name, output.shape, engine, self.cases[case].label)
                yield Comparison(output.name, *facts, verdict, difference, reason)

    def nodes(self) -> Nodes | None:
        """The values between the kernels, on the first inputs that the C takes."""
        tapped = self.run.tapped
        case = next((n for n, outcome in enumerate(self.outcomes) if not outcome.status), None)
        if tapped is None or case is None:
            return None
        positions = {value.name: n for n, value in reversed([*enumerate(self.judge.values)])}
        found = [self.node(tap, case, positions[tap.name]) for tap in tapped.taps]
        inner = tuple(node for node in found if node is not None)
        return Nodes(tapped.values, len(inner), self.cases[case].label, inner)

    def node(self, tap: Tapped, case: int, position: int) -> Node | None:
        """One tapped value, by the reference that decides; None where none has it."""
        verdicts = self.verdicts(case, position)
        if not verdicts:
            return None
        wrong = [engine for engine, verdict in verdicts.items() if not verdict.passed]
        engine = [*wrong, *verdicts][0]
        verdict = verdicts[engine]
        return Node(
            tap.name,
            tap.dtype.name,
            self.outcomes[case].values[position].shape,
            tap.nodes,
            tap.function,
            engine,
            verdict.verdict,
            verdict.difference,
            verdict.note,
        )
