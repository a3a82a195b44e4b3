"""propose: which --dim and --fix make a refused model compile; each proposal has been tried."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir

from onnxc.errors import ModelError, OptionError, Problem, WordedProblem
from onnxc.passes import bind, fix
from onnxc.passes.bind import OpenDim, OpenDimsProblem, bind_dims
from onnxc.passes.fix import Fix, fix_inputs
from onnxc.passes.fixable import FixProblem
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.values import static_shape

SIZES: Final = (1, 224)
"""Sizes to try first for dimensions other than a batch, which stays 1."""
OTHER_SIZES: Final = (64, 512, 16, 4, 2)
"""What is tried after numbers that the model itself has."""
OWN_SIZES: Final = 6
"""How many of these."""
LARGEST: Final = 1024
"""Of these."""
BATCHES: Final = (2, 4, 8)
"""Sizes to try for all dimensions, where nothing goes with a batch of 1."""
SECONDS: Final = 5.0
"""No trial starts after so much time of the processor."""


@dataclass
class Options:
    """What is added to the command."""

    dims: dict[str, int] = field(default_factory=dict)
    fix: dict[str, Fix] = field(default_factory=dict)

    def and_(self, other: Options | None) -> Options:
        """These and others, where there are any."""
        more = other or Options()
        return Options(self.dims | more.dims, self.fix | more.fix)

    def on_command_line(self) -> str:
        words = (bind.options(self.dims), fix.options(self.fix))
        return " ".join(filter(None, words))

    def in_python(self) -> str:
        words = [bind.argument(self.dims)] if self.dims else []
        return ", ".join([*words, *([fix.argument(self.fix)] if self.fix else [])])


def improved(
    error: ModelError,
    source: Path | onnx.ModelProto,
    dims: Mapping[str, int],
    fixed: Mapping[str, Fix],
) -> ModelError:
    """The same error; what it proposes has been tried with `dims` and `fixed`, where that can be.

    Where no trial ends well, the sizes are left to the user. Beside problems that no option solves
    nothing is proposed: that command would be refused, too.
    """
    solvable = [isinstance(problem, OpenDimsProblem | FixProblem) for problem in error.problems]
    if not any(solvable):
        return error
    if not all(solvable):
        return ModelError(map(_postponed, error.problems))
    found = _Search(error, source, dims, fixed).run()
    if found is None:
        return ModelError(map(_left_open, error.problems))
    return ModelError(_worded(problem, found) for problem in error.problems)


def proposed(
    source: Path | onnx.ModelProto, dims: Mapping[str, int], fixed: Mapping[str, Fix]
) -> Options:
    """What closes the open dimensions of a model; 1 for each where no trial ends well."""
    model = load(source)
    bind_dims(model, dims)
    fix_inputs(model, fixed)
    plain = Options({dim.key: 1 for dim in bind.open_dims(model)})
    try:
        infer(model)
    except ModelError as error:
        return _Search(error, source, dims, fixed).run() or plain
    return plain


def remaining(source: Path | onnx.ModelProto, options: Options) -> tuple[Problem, ...]:
    """The problems that the model has with these options."""
    try:
        model = load(source)
        bind_dims(model, options.dims)
        fix_inputs(model, options.fix)
        infer(model)
    except ModelError as error:
        return error.problems
    return ()


def _postponed(problem: Problem) -> Problem:
    if not isinstance(problem, OpenDimsProblem):
        return problem
    later = "once the other problems are solved"
    remedy, python = f"give each one with --dim, {later}", f"give each one in dims, {later}"
    return replace(problem, remedy=remedy, python=python)


def _left_open(problem: Problem) -> Problem:
    if not isinstance(problem, OpenDimsProblem):
        return problem
    keys = dict.fromkeys(dim.key for dim in problem.dims)
    options = " ".join(f"--dim {shlex.quote(f'{key}=N')}" for key in keys)
    lead = "give each one a size that fits, none of those tried does"
    return replace(problem, remedy=f"{lead}: {options}", python=f"{lead}: dims={{...}}")


def _worded(problem: Problem, found: Options) -> Problem:
    if isinstance(problem, OpenDimsProblem):
        lead, asked = "give each one", found
    elif isinstance(problem, FixProblem):
        names = dict(problem.candidates)
        lead = "fix what decides it"
        asked = Options(fix={name: v for name, v in found.fix.items() if name in names})
    else:
        return problem
    if not (asked.dims or asked.fix):
        return problem
    assert isinstance(problem, WordedProblem)
    remedy, python = f"{lead}: {asked.on_command_line()}", f"{lead}: {asked.in_python()}"
    return replace(problem, remedy=remedy, python=python)


class _Search:
    def __init__(
        self,
        error: ModelError,
        source: Path | onnx.ModelProto,
        dims: Mapping[str, int],
        fixed: Mapping[str, Fix],
    ) -> None:
        self._error = error
        self._source = source
        self._dims = dims
        self._fix = fixed
        self._deadline = time.process_time() + SECONDS
        others = [p for p in error.problems if not isinstance(p, OpenDimsProblem | FixProblem)]
        self._others = {(problem.kind, problem.where) for problem in others}

    def run(self) -> Options | None:
        """The first options with which no problem is left but those that no option solves."""
        asked = [p for p in self._error.problems if isinstance(p, OpenDimsProblem)]
        dims = [dim for problem in asked for dim in problem.dims]
        for sizes in self._sizes(dims):
            left: Sequence[Problem] | None = self._error.problems
            if sizes:
                left = self._left(Options(sizes))
            if left is not None and not left:
                return Options(sizes)
            for values in _values(left or ()):
                found = Options(sizes, values)
                if self._left(found) == []:
                    return self._fewer(found)
        return None

    def _sizes(self, dims: Sequence[OpenDim]) -> Iterator[dict[str, int]]:
        """Sizes for all of them, the likely ones first."""
        if not dims:
            yield {}
            return
        inner = {dim.key for dim in dims if not _is_batch(dim)}
        yield from (_sized(dims, inner, size) for size in (SIZES if inner else SIZES[:1]))
        own = (size for size in _own_sizes(load(self._source)) if 1 < size <= LARGEST)
        more = list(islice(dict.fromkeys(own), OWN_SIZES))
        for size in dict.fromkeys([*more, *OTHER_SIZES]) if inner else ():
            yield _sized(dims, inner, size)
        for size in dict.fromkeys([*more, *BATCHES]):
            yield dict.fromkeys((dim.key for dim in dims), size)

    def _fewer(self, found: Options) -> Options:
        """Without the values that make no difference."""
        for name in list(found.fix) if len(found.fix) > 1 else ():
            rest = Options(found.dims, {n: v for n, v in found.fix.items() if n != name})
            if self._left(rest) == []:
                found = rest
        return found

    def _left(self, options: Options) -> list[Problem] | None:
        """The problems that these options would solve or bring; None where that is not known."""
        if time.process_time() > self._deadline:
            return None
        try:
            model = load(self._source)
            bind_dims(model, {**self._dims, **options.dims})
            fix_inputs(model, {**self._fix, **options.fix})
            infer(model)
        except ModelError as error:
            return [p for p in error.problems if (p.kind, p.where) not in self._others]
        except OptionError:
            return None
        return []


def _own_sizes(model: ir.Model) -> Iterator[int]:
    """Numbers of declared shapes, attributes and constants, with which sizes may have to agree."""
    for value in model.graph.outputs:
        yield from (extent for extent in value.shape or () if isinstance(extent, int))
    for node in model.graph:
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.INT:
                yield attribute.as_int()
            elif attribute.type is ir.AttributeType.INTS:
                yield from attribute.as_ints()
    for value in model.graph.initializers.values():
        yield from static_shape(value) or ()


def _sized(dims: Sequence[OpenDim], inner: set[str], size: int) -> dict[str, int]:
    return {dim.key: size if dim.key in inner else 1 for dim in dims}


def _is_batch(dim: OpenDim) -> bool:
    return "batch" in dim.key.lower() or (dim.axis == 0 and "seq" not in dim.key.lower())


def _values(problems: Sequence[Problem]) -> Iterator[dict[str, Fix]]:
    """Values for the inputs on which the problems depend."""
    candidates: dict[str, tuple[Fix, ...]] = {}
    for problem in problems:
        if isinstance(problem, FixProblem):
            for name, values in problem.candidates:
                candidates.setdefault(name, values)
    for number in range(max(map(len, candidates.values()), default=0)):
        yield {name: v[min(number, len(v) - 1)] for name, v in candidates.items()}
