"""bind: gives the named and the open dimensions of a graph's inputs their sizes."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import onnx_ir as ir

from onnxc.dtypes import INT64_MAX
from onnxc.errors import Problem, UsageError
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
    return " ".join(f"--dim {shlex.quote(f'{key}={size}')}" for key, size in dims.items())


def argument(dims: Mapping[str, int]) -> str:
    """Sizes as onnxc.compile takes them."""
    sizes = ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {n}" for key, n in dims.items())
    return f"dims={{{sizes}}}"


@dataclass(frozen=True)
class OpenDimsProblem(Problem):
    """Dimensions that need a size; the remedy is for the command line."""

    keys: tuple[str, ...] = ()

    def in_python(self) -> Problem:
        """The same for a caller of onnxc.compile."""
        return replace(self, remedy=f"give each one: {argument(dict.fromkeys(self.keys, 1))}")


class DimensionError(UsageError):
    """Wrong sizes: of each its key, the size, and what is wrong; worded for the command line."""

    def __init__(self, faults: Sequence[tuple[str, object, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(f"--dim {key}={size}: {fact}" for key, size, fact in faults))

    def in_python(self) -> UsageError:
        """The same for a caller of onnxc.compile."""
        lines = [f"dims[{key!r}] = {size!r}: {fact}" for key, size, fact in self.faults]
        return UsageError("\n".join(lines))


def open_dims_problem(model: ir.Model) -> list[Problem]:
    """What an input's shape lacks: open dims, with the command line to paste, or the whole rank."""
    problems = [
        Problem(
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
        problems.append(OpenDimsProblem("model", fact, remedy, tuple(keys)))
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


class _Binding:
    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._open = open_dims(model)
        self._names = {dim.name for dim in self._open if dim.name is not None}
        self._inputs = {value.name: value for value in model.graph.inputs}
        self._by_name: dict[str, tuple[str, int]] = {}
        self._by_axis: dict[tuple[str, int], int] = {}
        self.faults: list[tuple[str, object, str]] = []

    def add(self, key: str, size: int) -> None:
        """Takes one --dim; what is wrong with it goes to `faults`."""
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= INT64_MAX:
            self.faults.append((key, size, "a size must be an integer of 0 or more"))
        elif key in self._names:
            self._bind_name(key, key, size)
        else:
            self._bind_axis(key, size)

    def _bind_name(self, name: str, key: str, size: int) -> None:
        earlier, known = self._by_name.setdefault(name, (key, size))
        if known != size:
            fact = f"dimension {quoted(name)} has the size {known} by {quoted(earlier)}"
            self.faults.append((key, size, fact))

    def _bind_axis(self, key: str, size: int) -> None:
        input_name, colon, digits = key.rpartition(":")
        value = self._inputs.get(input_name) if colon else None
        if value is None or not (digits.isascii() and digits.isdigit()):
            self.faults.append((key, size, self._unknown(key, size)))
            return
        shape = value.shape if isinstance(value.type, ir.TensorType) else None
        axis = int(digits) if len(digits) < 10 else INT64_MAX
        if shape is None:
            fact = f"input {quoted(input_name)} has no shape in the model"
        elif axis >= len(shape):
            fact = f"input {quoted(input_name)} has rank {len(shape)}"
        else:
            fact = self._bind_extent(input_name, axis, shape[axis], key, size)
        if fact:
            self.faults.append((key, size, fact))

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

    def _unknown(self, key: str, size: int) -> str:
        several = {name: int(number) for name, number in _SIZE.findall(f"{key}={size}")}
        if len(several) > 1:
            return f"one size each; repeat --dim for each: {options(several)}"
        fact = "the model has no such dimension"
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


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value that nodes make, and the inputs and outputs of every graph."""
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.inputs
        yield from graph.outputs
        for node in graph:
            yield from node.outputs
