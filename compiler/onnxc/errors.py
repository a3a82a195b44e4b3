"""What goes wrong, as data: each problem says its kind, where, what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from onnxc.diagnostics import Kind


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    kind      which kind of fault it is; its `code` never changes
    where     "node 'fc1' (Gemm-13)", "input 'x'", "initializer 'w'", "model", or "" of a call
    fact      what is wrong
    remedy    what the user can do; may be empty where the fact says it
    operands  of a node the names, types and shapes of its inputs, where they matter
    said      lines that explain it, such as what a C compiler printed; they stay lines
    """

    kind: Kind
    where: str
    fact: str
    remedy: str = ""
    operands: str = ""
    said: str = ""

    @property
    def code(self) -> str:
        """As in "ONNXC0403"."""
        return self.kind.code

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        operands = f" ({self.operands})" if self.operands else ""
        text = f"{place}{self.fact}{operands}" + (f"; {self.remedy}" if self.remedy else "")
        line = text.replace("\n", r"\n")  # one line, whatever is called what
        return f"{line}\n{self.said}" if self.said else line


@dataclass(frozen=True)
class WordedProblem(Problem):
    """A problem whose remedy is for the command line; `python` is that for a caller of compile."""

    python: str = ""

    def in_python(self) -> Problem:
        """The same for a caller of onnxc.compile."""
        return Problem(self.kind, self.where, self.fact, self.python, self.operands)


class OnnxcError(Exception):
    """Base of every error that a user can cause; `problems` holds all that is wrong.

    `exit_status` is what the command line returns.
    """

    exit_status = 1

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> Self:
        """An error of this class with these problems, whatever its constructor takes."""
        error = cls.__new__(cls)
        OnnxcError.__init__(error, problems)
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).of, (self.problems,)

    @property
    def code(self) -> str:
        """That of the first problem."""
        return self.problems[0].code


class ModelError(OnnxcError):
    """The model is invalid or not supported; `problems` holds every reason, in model order."""


class _OneKindError(OnnxcError):
    """Facts of one kind, of a call and not of a place in the model."""

    def __init__(self, kind: Kind, *facts: str, said: str = "") -> None:
        super().__init__(Problem(kind, "", fact, said=said) for fact in facts)


class UsageError(_OneKindError):
    """The call or command line is wrong: a bad option, no such file, a wrong input array."""

    exit_status = 2


@dataclass(frozen=True)
class OptionFault:
    """What is wrong with one KEY=VALUE of --dim or --fix."""

    kind: Kind
    key: str
    value: object
    fact: str


class OptionError(UsageError):
    """Wrong values of --dim or --fix, worded for the command line."""

    option: ClassVar[str]
    argument: ClassVar[str]
    """What onnxc.compile calls it."""

    def __init__(self, faults: Sequence[OptionFault]) -> None:
        self.faults = tuple(faults)
        OnnxcError.__init__(
            self, (Problem(f.kind, f"{self.option} {f.key}={f.value}", f.fact) for f in faults)
        )

    def in_python(self) -> UsageError:
        """The same for a caller of onnxc.compile."""
        return UsageError.of(
            Problem(f.kind, f"{self.argument}[{f.key!r}] = {f.value!r}", f.fact)
            for f in self.faults
        )


class ToolError(_OneKindError):
    """No C compiler, it failed, or a file could not be written."""

    exit_status = 4


class RunError(_OneKindError):
    """The generated code returned a status other than ONNXC_OK."""


class CrashError(RunError):
    """The generated code, or what somebody made of it, ended the process that ran it."""

    exit_status = 3


class RefusalError(Exception):
    """Raised by an operator function that cannot compile its node; infer adds which node it is."""

    def __init__(self, kind: Kind, fact: str, remedy: str = "") -> None:
        super().__init__(fact)
        self.kind = kind
        self.fact = fact
        self.remedy = remedy

    def at(self, where: str, operands: str = "") -> Problem:
        """The problem of the node or value that this place is."""
        return Problem(self.kind, where, self.fact, self.remedy, operands)
