"""Single operators against onnxruntime: ONNX's node tests, scaled to about a million elements.

    python benchmarks/operators.py --report-only            # all; about five minutes
    python benchmarks/operators.py Conv Softmax             # some
    python benchmarks/operators.py --tests "test_reduce_*"  # any test of one node, by pattern
    python benchmarks/operators.py --keep FOLDER MatMul     # leaves C and library below it

One row an operator, the slowest against onnxruntime first. How the inputs grow is in
operator_rules.py. Columns are those of networks.py; the exit status is 1 when a result is wrong, or
when an operator is slower than onnxruntime and not explained there.
"""

from __future__ import annotations

import argparse
import fnmatch
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onnx import ModelProto

import generated
import harness
import onnx_runtime
from comparison import largest_error
from onnxc.errors import OnnxcError
from onnxc.pipeline import compile_model
from operator_cases import Case, UnscalableError, node_tests, scaled, scaled_by, scaled_test
from operator_rules import EXCLUDED, EXPLAINED, MORE, Rule

SECONDS: Final = 4.0
"""The longest that one operator is timed, unless 5 rounds take longer."""
PATIENCE: Final = 120.0
"""The longest that one operator may take in all."""
OWN, REFERENCE = "onnxc", "ORT"


@dataclass
class Result:
    """What was found of one operator.

    figures  by candidate; without onnxruntime's where it cannot run the model
    problem  what makes the result wrong, or broke the run
    reason   why there is no result, or none of onnxruntime
    """

    operator: str
    test: str = ""
    shapes: str = ""
    figures: dict[str, harness.Figures] = field(default_factory=dict)
    error: float = float("nan")
    problem: str = ""
    reason: str = ""

    @property
    def ratio(self) -> float:
        return self.figures[REFERENCE].cpu / self.figures[OWN].cpu

    @property
    def verdict(self) -> str:
        if self.problem:
            return "WRONG" if self.figures else "FAILED"
        if self.ratio >= 1:
            return "ok"
        return "explained" if f"test_{self.test}" in EXPLAINED else "below"


def measured(case: Case, options: argparse.Namespace) -> Result:
    """Compiles, builds, checks and times one case."""
    result = Result(case.test.operator, case.test.name.removeprefix("test_"), case.shapes)
    model, reference, result.reason = _reference(case)
    candidates = {} if reference is None else {REFERENCE: reference}
    try:
        keep = options.keep and options.keep / result.test
        build = generated.Build(compile_model(model), options.flags, options.compiler, keep)
        candidates[OWN] = build.candidate(case.inputs)
        candidates[OWN].run(1)
    except (harness.UnavailableError, OnnxcError) as error:
        result.reason = f"onnxc: {str(error).splitlines()[0]}"
        return result
    if reference is not None:
        result.error, problems = largest_error(candidates[OWN].outputs(), reference.outputs())
        result.problem = "; ".join(problems)
    runs = {name: candidate.run for name, candidate in candidates.items()}
    result.figures = harness.interleaved(runs, options.rounds, SECONDS)
    return result


def _reference(case: Case) -> tuple[ModelProto, harness.Candidate | None, str]:
    """The newest model that onnxruntime runs, and it; else the newest, and why."""
    models, reason = case.models(), ""
    for model in models:
        try:
            candidate = onnx_runtime.candidate(model.SerializeToString(), case.inputs)
        except harness.UnavailableError as error:
            reason = reason or f"onnxruntime: {error}"
        else:
            return model, candidate, ""
    return models[0], None, reason


def cases(options: argparse.Namespace) -> Iterator[Case | Result]:
    """What to measure, and a Result for what cannot be."""
    if options.tests:
        tests = [test for tests in node_tests().values() for test in tests]
        for test in tests:
            if fnmatch.fnmatch(test.name, options.tests):
                try:
                    yield scaled_test(test, Rule())
                except UnscalableError as error:
                    yield Result(test.operator, test.name, reason=f"not scaled: {error}")
        return
    for operator in options.names or sorted(node_tests()):
        if operator in EXCLUDED:
            yield Result(operator, reason=f"left out: {EXCLUDED[operator]}")
            continue
        try:
            yield scaled(operator)
        except UnscalableError as error:
            yield Result(operator, reason=f"not scaled: {error}")
    more = map(scaled_by, MORE)
    yield from (case for case in more if case.test.operator in (options.names or node_tests()))


def run(case: Case, options: argparse.Namespace) -> Result:
    """`measured` in a process of its own: a crash or an endless loop costs one row."""
    try:
        return harness.isolated(lambda: measured(case, options), PATIENCE)
    except harness.UnavailableError as error:
        name = case.test.name.removeprefix("test_")
        return Result(case.test.operator, name, case.shapes, problem=str(error))


def row(result: Result) -> list[str]:
    own, other = result.figures[OWN], result.figures[REFERENCE]
    times = [f"{figure.cpu / 1e3:.1f}" for figure in (own, other)]
    ratios = [f"{ratio:.2f}" for ratio in (result.ratio, other.wall / own.wall)]
    told = [result.verdict, f"{result.error:.1e}", result.test, result.shapes]
    return [result.operator, *times, *ratios, *told]


def show(results: list[Result], *, markdown: bool) -> None:
    head = ["operator", "onnxc us", "ORT us", "x CPU", "x wall", "", "max error", "test", "inputs"]
    compared = sorted((r for r in results if len(r.figures) == 2), key=lambda r: r.ratio)
    harness.show("Operators, one thread", [head, *map(row, compared)], markdown=markdown)
    for result in results:
        name = f"{result.operator} ({result.test})" if result.test else result.operator
        if result.reason:
            own = result.figures.get(OWN)
            time = f"; onnxc {own.cpu / 1e3:.1f} us" if own else ""
            print(f"{name}: {result.reason}{time}")
        if result.problem:
            print(f"{name}: {result.verdict}: {result.problem}")
    slower = [r.operator for r in compared if r.verdict == "below"]
    print(f"{len(compared)} compared, {len(slower)} slower than onnxruntime and not explained")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="OPERATOR", help="operators; default: all")
    parser.add_argument("--tests", metavar="PATTERN", help="node tests in place of operators")
    parser.add_argument("--compiler", help="C compiler; default: $CC, else cc")
    parser.add_argument("--flags", default=generated.PLAIN, help="its flags; default: -O3")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--core", type=int, help="the core to run on; default: the last")
    parser.add_argument("--keep", type=Path, help="folder where C and library stay")
    parser.add_argument("--report-only", action="store_true", help="slow operators do not fail")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.parse_args()
    if unknown := set(options.names) - set(node_tests()):
        parser.error(f"no node test of {', '.join(sorted(unknown))}")
    options.compiler = shlex.split(options.compiler or "") or generated.compiler()
    return options


def main() -> None:
    options = arguments()
    harness.pin(options.core)
    results = []
    for case in cases(options):
        if isinstance(case, Case):
            print(f"{case.test.name} ...", file=sys.stderr)
            case = run(case, options)
        results.append(case)
    show(results, markdown=options.markdown)
    print(f"{harness.machine(options.compiler)}; flags: {options.flags}")
    wrong = any(result.problem for result in results)
    slower = any(len(r.figures) == 2 and r.verdict == "below" for r in results)
    raise SystemExit(1 if wrong or (slower and not options.report_only) else 0)


if __name__ == "__main__":
    main()
