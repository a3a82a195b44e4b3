"""bind: gives the named and the open dimensions of a graph's inputs their sizes."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT64_MAX
from onnxc.errors import OptionError, OptionFault, Problem, WordedProblem
from onnxc.protobuf.where import quoted

_PLACES: Final = 3
"""Of a dimension that many inputs share, as many places are told."""
_SIZE: Final = re.compile(r"[,; ]*([^=,;]+)=([0-9]+)(?![^,; ])")
"""One of several sizes in one option, as in "batch=2,H=3"."""


@dataclass(frozen=True)
class OpenDim:
    """A dimension of a graph input without a size; `name` is None where the model gives none."""

    input: str
    axis: int
    name: str | None

    @property
    def key(self) -> str:
        """What --dim calls it."""
        return self.name if self.name is not None else f"{self.input}:{self.axis}"

    @property
    def place(self) -> str:
        return f"axis {self.axis} of input {quoted(self.input)}"


def open_dims(model: ir.Model) -> tuple[OpenDim, ...]:
    """The dimensions of tensor inputs that have no size yet, in the model's order."""
    return tuple(
        OpenDim(value.name or "", axis, extent.value or None)
        for value in model.graph.inputs
        if isinstance(value.type, ir.TensorType) and value.shape is not None
        for axis, extent in enumerate(value.shape)
        if isinstance(extent, ir.SymbolicDim)
    )


def listed(dims: Iterable[OpenDim]) -> str:
    """The dimensions for people, each once, with the places where it occurs."""
    by_key: dict[str, list[OpenDim]] = {}
    for dim in dims:
        by_key.setdefault(dim.key, []).append(dim)
    return ", ".join(map(_with_places, by_key.values()))


def _with_places(dims: Sequence[OpenDim]) -> str:
    if dims[0].name is None:
        return dims[0].place
    places = [dim.place for dim in dims[:_PLACES]]
    if len(dims) > _PLACES:
        places.append(f"{len(dims) - _PLACES:,} more")
    return f"{quoted(dims[0].name)} ({', '.join(places)})"


def options(dims: Mapping[str, int]) -> str:
    """Sizes as the command line takes them."""
    return " ".join(f"--dim {_shell_word(f'{key}={size}')}" for key, size in dims.items())


def _shell_word(text: str) -> str:
    """The text on one line, quoted where a shell needs it; by its bytes if it is not printable."""
    if text.isprintable():
        return shlex.quote(text)
    plain = (c if c.isascii() and c.isprintable() and c not in "'\\" else None for c in text)
    pairs = zip(plain, text, strict=True)
    return "$'" + "".join(p or "".join(f"\\{b:03o}" for b in c.encode()) for p, c in pairs) + "'"


def argument(dims: Mapping[str, int]) -> str:
    """Sizes as onnxc.compile takes them."""
    sizes = ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {n}" for key, n in dims.items())
    return f"dims={{{sizes}}}"


@dataclass(frozen=True)
class OpenDimsProblem(WordedProblem):
    """Dimensions that need a size."""

    dims: tuple[OpenDim, ...] = ()


class DimensionError(OptionError):
    """Wrong sizes: of each its key, the size, and what is wrong."""

    option = "--dim"
    argument = "dims"


def open_dims_problem(model: ir.Model) -> list[Problem]:
    """What an input's shape lacks: open dims, with the command line to paste, or the whole rank."""
    problems = [
        Problem(
            Kind.UNKNOWN_RANK,
            f"input {quoted(value.name or '')}",
            "has no shape, so that not even its rank is known",
            "re-export the model with shaped inputs",
        )
        for value in model.graph.inputs
        if isinstance(value.type, ir.TensorType) and value.shape is None
    ]
    dims = open_dims(model)
    if dims:
        keys = dict.fromkeys((dim.key for dim in dims), 1)
        fact = f"input dimensions without a size: {listed(dims)}"
        remedy = f"give each one: {options(keys)}"
        python = f"give each one: {argument(keys)}"
        problems.append(
            OpenDimsProblem(Kind.OPEN_DIMENSIONS, "model", fact, remedy, python=python, dims=dims)
        )
    return problems


def bind_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Gives dimensions their sizes, everywhere where a name occurs.

    A key is a dimension's exact name, else INPUT:AXIS split at its last colon. Raises
    DimensionError for unknown keys, sizes that are none, two sizes for one dimension and a size
    other than the model's own; the model is then unchanged.
    """
    binding = _Binding(model)
    for key, size in dims.items():
        binding.add(key, size)
    if binding.faults:
        raise DimensionError(binding.faults)
    binding.apply()


def _several(key: str, size: int) -> str:
    """The options that one is meant to be which holds several sizes; "" where it does not."""
    found = {name: int(number) for name, number in _SIZE.findall(f"{key}={size}")}
    return options(found) if len(found) > 1 else ""


class _Binding:
    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._open = open_dims(model)
        self._names = {dim.name for dim in self._open if dim.name is not None}
        self._inputs = {value.name: value for value in model.graph.inputs}
        self._by_name: dict[str, tuple[str, int]] = {}
        self._by_axis: dict[tuple[str, int], int] = {}
        self.faults: list[OptionFault] = []

    def _tell(self, kind: Kind, key: str, size: object, fact: str) -> None:
        self.faults.append(OptionFault(kind, key, size, fact))

    def add(self, key: str, size: int) -> None:
        """Takes one --dim; what is wrong with it goes to `faults`."""
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= INT64_MAX:
            self._tell(Kind.DIMENSION_SIZE, key, size, "a size must be an integer of 0 or more")
        elif key in self._names:
            self._bind_name(key, key, size)
        else:
            self._bind_axis(key, size)

    def _bind_name(self, name: str, key: str, size: int) -> None:
        earlier, known = self._by_name.setdefault(name, (key, size))
        if known != size:
            fact = f"dimension {quoted(name)} has the size {known} by {quoted(earlier)}"
            self._tell(Kind.DIMENSION_CONFLICT, key, size, fact)

    def _bind_axis(self, key: str, size: int) -> None:
        input_name, colon, digits = key.rpartition(":")
        value = self._inputs.get(input_name) if colon else None
        if value is None or not (digits.isascii() and digits.isdigit()):
            if several := _several(key, size):
                fact = f"one size each; repeat --dim for each: {several}"
                self._tell(Kind.DIMENSION_SIZE, key, size, fact)
            else:
                self._tell(Kind.UNKNOWN_DIMENSION, key, size, self._unknown(key))
            return
        shape = value.shape if isinstance(value.type, ir.TensorType) else None
        axis = int(digits) if len(digits) < 10 else INT64_MAX
        if shape is None:
            fact = f"input {quoted(input_name)} has no shape in the model"
            self._tell(Kind.UNKNOWN_RANK, key, size, fact)
        elif axis >= len(shape):
            fact = f"input {quoted(input_name)} has rank {len(shape)}"
            self._tell(Kind.UNKNOWN_DIMENSION, key, size, fact)
        elif fact := self._bind_extent(input_name, axis, shape[axis], key, size):
            self._tell(Kind.DIMENSION_CONFLICT, key, size, fact)

    def _bind_extent(
        self, input_name: str, axis: int, extent: int | ir.SymbolicDim, key: str, size: int
    ) -> str:
        """Binds one axis of an input; what contradicts it."""
        if isinstance(extent, int):
            fixed = f"axis {axis} of input {quoted(input_name)} is fixed at {extent}"
            return fixed if extent != size else ""
        if extent.value:
            self._bind_name(extent.value, key, size)
            return ""
        known = self._by_axis.setdefault((input_name, axis), size)
        return f"the axis has the size {known} already" if known != size else ""

    def _unknown(self, key: str) -> str:
        fact = "the model has no such dimension"
        if key in _output_names(self._model):
            fact = "only outputs have that dimension, their sizes follow from those of the inputs"
        keys = list(dict.fromkeys(dim.key for dim in self._open))
        if not keys:
            return f"{fact}; it has no open dims"
        close = difflib.get_close_matches(key, keys, n=1)
        meant = f"; did you mean {quoted(close[0])}? Its" if close else "; its"
        return f"{fact}{meant} open dims: {listed(self._open)}"

    def apply(self) -> None:
        for value in self._model.graph.inputs:
            self._settle(value, value.name)
        for value in _values(self._model):
            self._settle(value, None)

    def _settle(self, value: ir.Value, input_name: str | None) -> None:
        if value.shape is None:
            return
        bound = [
            extent if isinstance(extent, int) else self._size(extent, input_name, axis)
            for axis, extent in enumerate(value.shape)
        ]
        if list(value.shape) != bound:
            denotations = [value.shape.get_denotation(axis) for axis in range(len(bound))]
            value.shape = ir.Shape(bound, denotations)

    def _size(
        self, extent: ir.SymbolicDim, input_name: str | None, axis: int
    ) -> int | ir.SymbolicDim:
        if extent.value in self._by_name:
            return self._by_name[extent.value][1]
        if input_name is None or extent.value:
            return extent
        return self._by_axis.get((input_name, axis), extent)


def _output_names(model: ir.Model) -> set[str]:
    """The names of dimensions of outputs."""
    extents = (extent for value in model.graph.outputs for extent in value.shape or ())
    return {e.value for e in extents if isinstance(e, ir.SymbolicDim) and e.value}


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value that nodes make, and the inputs and outputs of every graph."""
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.inputs
        yield from graph.outputs
        for node in graph:
            yield from node.outputs
