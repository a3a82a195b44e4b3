"""What a verification found, and its form as JSON.

`onnxc verify --json` prints one object:

model         the model's file
c_source      the C file that was checked, "" where the model was compiled for it
build         compiler, runner and the like of --cc, --cflags, --sanitize, --runner, --guard, "" of
              the library that is loaded here
seed          of the random values, null with --inputs
tolerance     exact, rtol, atol: what was asked for, null for the default of the element type
passed        whether the exit status is 0
complete      whether every reference that was asked for has been compared with
references    a list: name, title (with its version), used, reason (why it was not, or not always)
skipped       a list of inputs that were not compared: inputs, note
comparisons   a list, of one output with one reference on one kind of inputs:
    output, dtype, shape, reference, inputs (random, special, repeated or a file)
    verdict   ok, excused, not compared, differs; `passed` is false for the last alone
    note      why it is excused or not compared, or what may be behind a difference
    difference  elements; mismatches (elements beyond the tolerance); first (index, got, expected)
              of them or null; max_abs_error; max_rel_error; max_scaled_error (beside the largest
              value of the tensor); max_ulp_error; note (why nothing could be compared). Errors are
              null where the type has none, "inf" as text
nodes         with --per-node, else null:
    values    how many values the nodes of the main graph make
    tapped    how many of them a kernel stores, which are those that are compared
    inputs    on which inputs
    first     the name of the first value that differs, "" of none
    list      in the order of the kernels: value, dtype, shape, nodes (whose work the kernel is),
              function (of the C), and reference, verdict, note, difference as above
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from onnxc.verify.compare import Difference, Tolerance


@dataclass(frozen=True)
class Reference:
    """What became of one reference.

    name    onnxruntime or reference
    title   with its version; "" where it could not be loaded
    reason  why it was not used, or not with all inputs
    used    whether anything was compared with it
    """

    name: str
    title: str = ""
    reason: str = ""
    used: bool = False


@dataclass(frozen=True)
class Comparison:
    """One output of one run against one reference.

    inputs   which inputs: random, special, repeated, or the file that they come from
    verdict  ok, excused, not compared or differs; `note` says why
    """

    output: str
    dtype: str
    shape: tuple[int, ...]
    reference: str
    inputs: str
    verdict: str
    difference: Difference
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict != "differs"


@dataclass(frozen=True)
class Skipped:
    """A kind of inputs that was not compared, and why."""

    inputs: str
    note: str


@dataclass(frozen=True)
class Node:
    """One value between the kernels against one reference.

    nodes     the ONNX nodes whose work the kernel is
    function  of the C
    """

    value: str
    dtype: str
    shape: tuple[int, ...]
    nodes: tuple[str, ...]
    function: str
    reference: str
    verdict: str
    difference: Difference
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict != "differs"


@dataclass(frozen=True)
class Nodes:
    """The values between the kernels, in the order of the kernels.

    values  how many the nodes of the main graph make, of which `tapped` are stored by a kernel
    inputs  on which inputs they were compared
    """

    values: int
    tapped: int
    inputs: str
    list: tuple[Node, ...]

    @property
    def first(self) -> Node | None:
        """The first that differs."""
        return next((node for node in self.list if not node.passed), None)


@dataclass(frozen=True)
class Verification:
    """The result of verify_model; the fields of JSON are explained above."""

    model: str
    c_source: str
    build: str
    seed: int | None
    tolerance: Tolerance
    references: tuple[Reference, ...]
    skipped: tuple[Skipped, ...]
    comparisons: tuple[Comparison, ...]
    complete: bool
    nodes: Nodes | None = None

    @property
    def differs(self) -> bool:
        inner = self.nodes is not None and self.nodes.first is not None
        return inner or not all(comparison.passed for comparison in self.comparisons)

    @property
    def passed(self) -> bool:
        """Nothing differs; false, too, where a reference that was asked for could not be run."""
        return self.complete and not self.differs

    def to_json(self) -> dict[str, Any]:
        """Everything, as values that JSON has; infinities as text."""
        facts = {**asdict(self), "passed": self.passed}
        for entry, comparison in zip(facts["comparisons"], self.comparisons, strict=True):
            entry["passed"] = comparison.passed
        if self.nodes is not None:
            first = self.nodes.first
            facts["nodes"]["first"] = first.value if first else ""
        plain: dict[str, Any] = _plain(facts)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
