"""What refusals propose to add to a command, and how many of these commands then work.

`python -m tests.proposal_suite` counts them over the models beside the checkout and over ONNX's
backend tests: as they are, without the shapes of outputs, and with every size of an input left out.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
from onnx import ModelProto

from onnxc import cli
from tests import backend_suite, shared_suite

OPTIONS: Final = re.compile(r"(?:--(?:dim|fix) (?:'[^']*'|\S)+ ?)+$")
"""At the end of a message, ready to paste."""
CODE: Final = re.compile(r"^error\[(ONNXC\d{4})\]: (.*)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """A refusal that proposes options, and what a command with them says.

    problems   the code and text of each problem before
    left       the same with the options; empty where the command works
    """

    options: str
    problems: tuple[tuple[str, str], ...]
    left: tuple[tuple[str, str], ...]

    @property
    def works(self) -> bool:
        return not self.left

    @property
    def solves(self) -> bool:
        """Nothing is left but problems that were there before and propose nothing."""
        silent = {code for code, text in self.problems if not OPTIONS.search(text)}
        return all(code in silent for code, _ in self.left)


def outcome(model: Path) -> Outcome | None:
    """None where the model compiles, or where the refusal proposes nothing."""
    problems = _told([str(model)])
    proposed: dict[str, None] = {}
    for _, text in problems:
        if (found := OPTIONS.search(text)) and not found[0].endswith("=N"):
            words = shlex.split(found[0])
            pairs = zip(words[::2], words[1::2], strict=True)
            proposed.update({f"{option} {shlex.quote(value)}": None for option, value in pairs})
    if not proposed:
        return None
    options = " ".join(proposed)
    return Outcome(options, problems, _told([str(model), *shlex.split(options)]))


def _told(words: list[str]) -> tuple[tuple[str, str], ...]:
    """What a command line says of a model; () where it compiles."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()) as told,
    ):
        status = cli.main([*words, "-q", "-o", str(Path(folder, "m.c"))])
    found = tuple(CODE.findall(told.getvalue()))
    assert bool(found) == (status != 0), told.getvalue()
    return found


def without_sizes(model: ModelProto) -> ModelProto:
    """Every dimension of an input has a name, and no output a shape."""
    named, _ = backend_suite.with_symbolic_inputs(model)
    return backend_suite.without_output_shapes(named)[0]


def backend_models(step: int = 1) -> Iterator[tuple[str, ModelProto]]:
    """Every `step`th of ONNX's tests in each of its forms."""
    for name in backend_suite.names()[::step]:
        if name in backend_suite.LIGHT:
            continue
        model = backend_suite.example(name).model
        yield name, model
        yield f"{name} (without output shapes)", backend_suite.without_output_shapes(model)[0]
        yield f"{name} (without sizes)", without_sizes(model)


def backend_outcomes(step: int = 1) -> Iterator[tuple[str, Outcome]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        for name, model in backend_models(step):
            onnx.save(model, path)
            found = outcome(path)
            if found is not None:
                yield name, found


def shared_outcomes() -> Iterator[tuple[str, Outcome]]:
    for name in shared_suite.model_shapes():
        found = outcome(shared_suite.MODELS / name)
        if found is not None:
            yield name, found


def _count(title: str, outcomes: Iterator[tuple[str, Outcome]]) -> None:
    total: Counter[str] = Counter()
    for name, found in outcomes:
        total.update(proposed=1, works=found.works, solves=found.solves)
        if not found.solves:
            print(f"{name}\t{found.options}\t{found.left[0][0]} {found.left[0][1]:.150}")
    print(
        f"{title}: {total['proposed']} refusals propose options; with them {total['works']}"
        f" compile, and of {total['solves']} no problem is left but what no option solves"
    )


if __name__ == "__main__":
    _count("models", shared_outcomes())
    _count("ONNX tests", backend_outcomes(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
