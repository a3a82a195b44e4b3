"""Verifying a model: its C, built for this machine, against independent references."""

from __future__ import annotations

import faulthandler
import math
import multiprocessing
import os
import re
import signal
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxc.compiled import CompiledModel
from onnxc.errors import CrashError, OnnxcError, RunError, UsageError
from onnxc.passes.fix import Fix
from onnxc.pipeline import compile_model
from onnxc.verify.compare import Difference, Tolerance, compare
from onnxc.verify.inputs import Case, random_cases, read_inputs
from onnxc.verify.oracle import ORACLES, RefusedError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import onnx
    from numpy.typing import NDArray

    from onnxc.pipeline import Compiled

# What each choice tries, in order; the references after the first are for when it refuses, but for
# "both", which needs every one.
CHOICES: Final = {
    "auto": ("onnxruntime", "reference"),
    "onnxruntime": ("onnxruntime",),
    "reference": ("reference",),
    "both": ("onnxruntime", "reference"),
}


@dataclass(frozen=True)
class Reference:
    """What became of one reference.

    name    onnxruntime or reference
    title   with its version; "" where it could not be loaded
    reason  why it was not used; "" where it was
    """

    name: str
    title: str = ""
    reason: str = ""

    @property
    def used(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Comparison:
    """One output of one run against one reference.

    inputs  which inputs: random, special, repeated, or the file that they come from
    """

    output: str
    dtype: str
    shape: tuple[int, ...]
    reference: str
    inputs: str
    difference: Difference

    @property
    def passed(self) -> bool:
        return self.difference.passed


@dataclass(frozen=True)
class Verification:
    """The result of verify_model.

    model       its file, or "" for a ModelProto
    c_source    the C file that ran, or "" where the model was compiled for it
    references  each one that was tried, in that order
    complete    whether every reference that was asked for has been compared with
    """

    model: str
    c_source: str
    seed: int | None
    tolerance: Tolerance
    references: tuple[Reference, ...]
    comparisons: tuple[Comparison, ...]
    complete: bool

    @property
    def differs(self) -> bool:
        return not all(comparison.passed for comparison in self.comparisons)

    @property
    def passed(self) -> bool:
        """Nothing differs; false, too, where a reference that was asked for could not be run."""
        return self.complete and not self.differs

    def to_json(self) -> dict[str, Any]:
        """Everything, as values that JSON has; infinities as text."""
        facts = {**asdict(self), "passed": self.passed}
        for entry, comparison in zip(facts["comparisons"], self.comparisons, strict=True):
            entry["passed"] = comparison.passed
        for entry, reference in zip(facts["references"], self.references, strict=True):
            entry["used"] = reference.used
        plain: dict[str, Any] = _plain(facts)
        return plain


def verify_model(
    source: str | os.PathLike[str] | onnx.ModelProto,
    *,
    c_source: Path | None = None,
    dims: Mapping[str, int] | None = None,
    fix: Mapping[str, Fix] | None = None,
    inputs: Path | None = None,
    against: str = "auto",
    exact: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> Verification:
    """Runs the model's C and compares every output with what references make of the same inputs.

    c_source  a C file that onnxc made from the model, its header beside it; default: compile now
    inputs    an .npz by input name, a .pb or a folder of input_N.pb; default: random_cases(seed)
    against   auto (onnxruntime, where that refuses ONNX's evaluator), onnxruntime, reference, both
    exact, rtol, atol  as compare.py has them; None is the element type's default

    Raises ModelError, UsageError (a C file that does not fit the model, too), ToolError, RunError.
    """
    if isinstance(source, str | os.PathLike):
        source = Path(source)
    if against not in CHOICES:
        raise UsageError(f"no reference '{against}'; there are {', '.join(CHOICES)}")
    model = _model(source, c_source, dims or {}, fix or {})
    compiled = model.compiled
    cases = [read_inputs(inputs, model.inputs)] if inputs else random_cases(model.inputs, seed)
    results = run_apart(model, cases, random=inputs is None)
    tolerance = Tolerance(exact, rtol, atol)
    references: list[Reference] = []
    comparisons: list[Comparison] = []
    for name in CHOICES[against]:
        reference, expected = _reference_outputs(name, source, compiled, cases)
        references.append(reference)
        for case, got, wanted in zip(cases, results, expected, strict=False):
            comparisons += _comparisons(compiled, name, case, got, wanted, tolerance)
        if against == "auto" and reference.used:
            break
    used = [reference.used for reference in references]
    return Verification(
        model=str(source) if isinstance(source, Path) else "",
        c_source="" if c_source is None else str(c_source),
        seed=None if inputs else seed,
        tolerance=tolerance,
        references=tuple(references),
        comparisons=tuple(comparisons),
        complete=any(used) if against == "auto" else all(used),
    )


def _model(
    source: Path | onnx.ModelProto,
    c_source: Path | None,
    dims: Mapping[str, int],
    fix: Mapping[str, Fix],
) -> CompiledModel:
    if c_source is None:
        return CompiledModel(compile_model(source, dims=dims, fix=fix))
    header = _read_header(c_source)
    prefix = re.search(r"\bonnxc_status\s+(\w+)_run\s*\(", header)
    if prefix is None:
        raise UsageError(f"{c_source.with_suffix('.h')} is no header that onnxc made")
    weights = "incbin" if c_source.with_suffix(".bin").is_file() else "inline"
    if f"{prefix[1].upper()}_WEIGHTS_BYTES" in header:
        weights = "file"
    compiled = compile_model(source, dims=dims, fix=fix, name=prefix[1], weights=weights)
    _check_header(c_source, header, compiled)
    return CompiledModel(compiled, c_source)


def _read_header(c_source: Path) -> str:
    path = c_source.with_suffix(".h")
    for file in (c_source, path):
        if not file.is_file():
            raise UsageError(f"no such file: {file}")
    return path.read_text(encoding="utf-8", errors="replace")


def _check_header(c_source: Path, header: str, compiled: Compiled) -> None:
    """Raises UsageError unless the header declares what the model's own would."""
    found, wanted = _declarations(header), _declarations(compiled.header)
    if found == wanted:
        return
    pairs = zip([*found, "(its end)"], [*wanted, "(its end)"], strict=False)
    line, expected = next((f, w) for f, w in pairs if f != w)
    raise UsageError(
        f"{c_source} was not made from this model with these options and this version of onnxc;"
        f" compile the model again\n  header has    {line}\n  expected      {expected}"
    )


def _declarations(header: str) -> list[str]:
    """The lines of a header without comments, which tell where it came from, and blanks."""
    code = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    lines = (" ".join(line.split()) for line in code.splitlines())
    return [line for line in lines if line]


def run_apart(
    model: CompiledModel, cases: Sequence[Case], *, random: bool
) -> list[list[NDArray[Any]]]:
    """The outputs of each case, from a process of its own: C that somebody changed may crash."""
    model.build()
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_results, args=(sender, model, cases, random))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside numpy's own threads
        process.start()
    sender.close()
    try:
        outcome = receiver.recv()
    except EOFError:
        outcome = None
    process.join()
    if outcome is None:
        code = process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"status {code}"
        raise CrashError(f"the C crashed ({how}) before it gave any output")
    if isinstance(outcome, Exception):
        raise outcome
    results: list[list[NDArray[Any]]] = outcome
    return results


def _send_results(
    sender: Connection, model: CompiledModel, cases: Sequence[Case], random: bool
) -> None:
    faulthandler.disable()  # the parent tells of a crash, in one line
    try:
        sender.send([_run(model, case, random=random) for case in cases])
    except OnnxcError as error:
        sender.send(error)


def _run(model: CompiledModel, case: Case, *, random: bool) -> list[NDArray[Any]]:
    try:
        return list(model.run(case.values).values())
    except RunError as error:
        hint = "; give inputs that fit the model (--inputs FILE)" if random else ""
        raise RunError(f"{case.label} inputs: {error}{hint}") from None


def _reference_outputs(
    name: str, source: Path | onnx.ModelProto, compiled: Compiled, cases: Sequence[Case]
) -> tuple[Reference, list[list[NDArray[Any]]]]:
    """What the reference makes of each case, or why it does not."""
    title = ""
    try:
        oracle = ORACLES[name](source, compiled)
        title = oracle.title
        given = [{**case.values, **compiled.fixed} for case in cases]
        return Reference(name, title), [oracle.run(values) for values in given]
    except RefusedError as refusal:
        return Reference(name, title, str(refusal)), []


def _comparisons(
    compiled: Compiled,
    reference: str,
    case: Case,
    got: Sequence[NDArray[Any]],
    expected: Sequence[NDArray[Any]],
    tolerance: Tolerance,
) -> list[Comparison]:
    found = []
    for output, array, wanted in zip(compiled.outputs, got, expected, strict=True):
        name, dtype = output.name, output.dtype
        difference = compare(array, wanted, dtype, tolerance)
        found.append(Comparison(name, dtype.name, array.shape, reference, case.label, difference))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
