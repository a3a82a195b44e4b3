"""The known deviations of the references, from deviations.tsv.

A line has, separated by tabs:

operator   ONNX's name
opsets     of the model: "*", "-12" (up to 12), "13-" (from 13 on), "18-20"
when       an attribute that the node sets, or attribute=value|value; "-" for any node
engine     which reference is wrong, or departs from what onnxc does: onnxruntime or reference
seen       the version in which this was measured
fixed      the first version in which it is known to be right again, or "-"
inputs     "any", or "special" where only NaN, infinities, -0, overflow and ties show it
right      what settles it: "spec", or "choice" where ONNX is silent and onnxc has chosen
what       in words
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import onnx

FILE: Final = Path(__file__).with_name("deviations.tsv")


@dataclass(frozen=True)
class Deviation:
    """One line of the file."""

    operator: str
    opsets: str
    when: str
    engine: str
    seen: str
    fixed: str
    inputs: str
    right: str
    what: str

    @property
    def only_special(self) -> bool:
        return self.inputs == "special"

    def applies(self, node: onnx.NodeProto, opset: int, version: str) -> bool:
        """To a node of a model of that opset in that version of the engine."""
        least, dash, greatest = self.opsets.partition("-")
        inside = self.opsets == "*" or (
            int(least or 0) <= opset <= int((greatest or 1000) if dash else least)
        )
        alike = node.op_type == self.operator and (self.when == "-" or self._set_by(node))
        return alike and inside and (self.fixed == "-" or _numbers(version) < _numbers(self.fixed))

    def _set_by(self, node: onnx.NodeProto) -> bool:
        name, _, values = self.when.partition("=")
        found = [
            str(a.i) if a.type == a.INT else a.s.decode() for a in node.attribute if a.name == name
        ]
        return bool(found) and (not values or found[0] in values.split("|"))

    def __str__(self) -> str:
        settled = "ONNX settles it" if self.right == "spec" else "ONNX leaves it open"
        return f"{self.operator}: {self.what} ({settled}; seen in {self.engine} {self.seen})"


@cache
def deviations() -> tuple[Deviation, ...]:
    """Every line of the file."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    return tuple(Deviation(*line.split("\t")) for line in lines)


def known(model: onnx.ModelProto, output: str, engine: str, version: str) -> list[Deviation]:
    """The deviations of the engine in what the value named `output` is computed from."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    nodes = list(_nodes_before(model, output))
    return [
        deviation
        for deviation in deviations()
        if deviation.engine == engine
        and any(deviation.applies(node, opset, version) for node in nodes)
    ]


def _nodes_before(model: onnx.ModelProto, output: str) -> Iterator[onnx.NodeProto]:
    """Every node from which a value of the main graph comes, in functions' bodies too."""
    functions = {(f.domain, f.name): f for f in model.functions}
    makers = {name: node for node in model.graph.node for name in node.output}
    pending, visited = [output], {output}
    while pending:
        node = makers.get(pending.pop())
        for inner in _with_inner(node, functions) if node is not None else ():
            yield inner
            fresh = set(inner.input) - visited
            visited |= fresh
            pending += fresh


def _with_inner(
    node: onnx.NodeProto, functions: dict[tuple[str, str], onnx.FunctionProto]
) -> Iterator[onnx.NodeProto]:
    """The node, those of the graphs in its attributes, and those of functions, each once."""
    stack, called = [node], set()
    while stack:
        one = stack.pop()
        yield one
        for attribute in one.attribute:
            for graph in (attribute.g, *attribute.graphs):
                stack += graph.node
        key = (one.domain, one.op_type)
        if key in functions and key not in called:
            called.add(key)
            stack += functions[key].node


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
