"""What the run function consists of, as its template takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from onnxc.expression import Buffer


@dataclass(frozen=True)
class Call:
    kind: ClassVar[str] = "call"
    text: str
    checked: bool
    comment: list[str]
    number: int | None = None
    """Of the kernel, where the hooks of a profile stand around the call."""

    @property
    def function(self) -> str:
        """Without the macro that picks its variant."""
        return self.text.removeprefix("ONNXC_VARIANT(").partition("(")[0].rstrip(")")


@dataclass(frozen=True)
class Note:
    kind: ClassVar[str] = "note"
    comment: list[str]


@dataclass(frozen=True)
class BranchView:
    kind: ClassVar[str] = "branch"
    condition: str
    then: list[Any]
    otherwise: list[Any]


@dataclass(frozen=True)
class RepeatView:
    kind: ClassVar[str] = "repeat"
    variable: str
    condition: str
    counter: str
    body: list[Any]
    carried: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Tap:
    """A buffer whose bytes are copied to `offset` of the memory at onnxc_taps after a step."""

    buffer: Buffer
    offset: int


@dataclass(frozen=True)
class TapView:
    kind: ClassVar[str] = "tap"
    text: str
