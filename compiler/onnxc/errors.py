"""What goes wrong, as data: each problem says where, what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that stops a model from being compiled.

    where    "node 'fc1' (Gemm-13)", "input 'x'", "initializer 'w'" or "model"
    fact     what is wrong
    remedy   what the user can do; may be empty where the fact says it
    """

    where: str
    fact: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.fact}" + (f"; {self.remedy}" if self.remedy else "")


class OnnxcError(Exception):
    """Base of every error that a user can cause; `exit_status` is what the command line returns."""

    exit_status = 1


class ModelError(OnnxcError):
    """The model is invalid or not supported; `problems` holds every reason, in model order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UsageError(OnnxcError):
    """The call or command line is wrong: a bad option, no such file, a wrong input array."""

    exit_status = 2


class ToolError(OnnxcError):
    """No C compiler, it failed, or a file could not be written."""

    exit_status = 4


class RunError(OnnxcError):
    """The generated code returned a status other than ONNXC_OK."""


class CrashError(RunError):
    """The generated code, or what somebody made of it, ended the process that ran it."""

    exit_status = 3


class RefusalError(Exception):
    """Raised by an operator function that cannot compile its node; infer adds which node it is."""

    def __init__(self, fact: str, remedy: str = "") -> None:
        super().__init__(fact)
        self.fact = fact
        self.remedy = remedy
