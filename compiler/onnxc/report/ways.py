"""Where the nodes of a model went: into a kernel, at compile time, or nowhere, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir as ir

from onnxc.kernel import Origin, Program, Rows
from onnxc.op import OPSET, schema_at
from onnxc.passes.notes import FOLDED, NO_CODE, NOT_NEEDED, joined_weights, whole_of
from onnxc.passes.provenance import number_of
from onnxc.report import choices
from onnxc.report.kernels import MOVEMENTS, Kernel

SAME: Final = "needs no code: its result is the memory of its operand, read as it lies"
SETTLED: Final = "its condition is known: the nodes of the branch stand in its place"
CONVERSIONS: Final = {
    "QuantizeLinear": "rounds floats to integers",
    "DequantizeLinear": "makes floats of integers",
    "DynamicQuantizeLinear": "finds the scale and the zero point of floats, and rounds them",
    "Cast": "floats are on one side of it",
}
"""Operators between integers and floats, and why they compute in float."""
PRODUCTS: Final = ("Conv", "Gemm", "MatMul")
"""Operators on dequantised values that become products of integers."""
NO_INTEGERS: Final = (
    "its operands are dequantised, but not of 8 bits, or with scales along what is summed,"
    " or sums of them might not fit 32 bits"
)
SHORT: Final = 60
"""Characters of a name in a sentence."""


@dataclass(frozen=True)
class Loaded:
    """A node as the model has it, after its functions are expanded.

    inside  the number of the node in whose graph it is; None in the main graph
    """

    number: int
    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inside: int | None

    @property
    def label(self) -> str:
        """Its name, or without one its first output's."""
        return self.name or next(filter(None, self.outputs), "")

    @property
    def text(self) -> str:
        """As in "Conv 'stem'"."""
        return f"{self.operator.rpartition('-')[0]} '{shortened(self.label)}'"


def shortened(name: str) -> str:
    """Both ends of a long name."""
    if len(name) <= SHORT:
        return name
    half = (SHORT - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def loaded_nodes(model: ir.Model) -> list[Loaded]:
    """To be asked before any pass changes the model."""
    inside: dict[ir.Graph, int] = {}
    found = []
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                inside[attribute.as_graph()] = number_of(node)
            elif attribute.type is ir.AttributeType.GRAPHS:
                inside |= dict.fromkeys(attribute.as_graphs(), number_of(node))
        graph = node.graph
        around = inside.get(graph) if isinstance(graph, ir.Graph) else None
        found.append(_loaded(node, around))
    return found


def _loaded(node: ir.Node, inside: int | None) -> Loaded:
    version = node.version or OPSET
    schema = schema_at(node.domain, node.op_type, version)
    since = schema.since_version if schema else version
    domain = f"{node.domain}." if node.domain else ""
    inputs = tuple("" if value is None else value.name or "" for value in node.inputs)
    outputs = tuple(value.name or "" for value in node.outputs)
    operator = f"{domain}{node.op_type}-{since}"
    return Loaded(number_of(node), operator, node.name or "", inputs, outputs, inside)


def node_facts(
    nodes: Sequence[Loaded], kernels: Sequence[Kernel], program: Program
) -> list[dict[str, Any]]:
    """The facts of each node, in the order of the model.

    fate  kernel: it has kernels of its own; fused: another node's kernel computes it; dissolved: it
          is how another's kernel reads or stores; aliased: its result is memory that is there
          anyhow; folded: computed at compile time; dropped: nothing needs it
    """
    ways = _Ways(nodes, kernels, program)
    found = {node.number: ways.of(node) for node in nodes}
    readers: dict[str, list[Loaded]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    for node in reversed(nodes):
        if found[node.number]["fate"] == "dropped" and ways.is_known(node):
            found[node.number] |= _used_up(node, readers, found)
    return [
        {
            "number": node.number,
            "operator": node.operator,
            "name": node.name,
            "inputs": [*node.inputs],
            "outputs": [*node.outputs],
            **found[node.number],
        }
        for node in nodes
    ]


def _used_up(
    node: Loaded, readers: Mapping[str, Sequence[Loaded]], found: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Of a node that is known and gone: which node its numbers were for."""
    users = [user for name in node.outputs if name for user in readers.get(name, ())]
    for user in users:
        if found[user.number]["fate"] in ("folded", "kernel", "fused"):
            return {"fate": "folded", "why": f"used up at compile time, by {user.text}"}
    return {}


@dataclass(frozen=True)
class _Place:
    """A node, or a part of what it became, in a kernel."""

    origin: Origin
    kernel: Kernel


class _Ways:
    """`places` has the kernels that name a node, `notes` what passes say of one without.

    `constant` are the names of values that are known before the run, as far as nodes are looked at.
    """

    def __init__(
        self, nodes: Sequence[Loaded], kernels: Sequence[Kernel], program: Program
    ) -> None:
        self.nodes = {node.number: node for node in nodes}
        self.views, self.known = program.views, program.known
        self.places: dict[int, list[_Place]] = {}
        self.notes: dict[int, list[tuple[Origin, str]]] = {}
        for kernel in kernels:
            for origin in kernel.origins:
                self.places.setdefault(origin.number, []).append(_Place(origin, kernel))
        for origin, fact in program.notes:
            self.notes.setdefault(origin.number, []).append((origin, fact))
        made = {name for node in nodes for name in node.outputs}
        given = {name for node in nodes for name in node.inputs} - made
        self.constant = (given - {buffer.name for buffer in program.inputs}) | {""}

    def of(self, node: Loaded) -> dict[str, Any]:
        """Fate, kernels and why."""
        places, notes = self.places.get(node.number, []), self.notes.get(node.number, [])
        if _kind(node) == "If" and (places or notes or node.inside is None):
            kernels = [*dict.fromkeys(place.kernel.number for place in places)]
            return {"fate": "folded", "kernels": kernels, "why": SETTLED}
        whole = [label for _, fact in notes if (label := whole_of(fact)) is not None]
        if not places and whole:
            return self._part(node, whole[0])
        if not places:
            fate, why = self._without_kernel(node, notes)
            return {"fate": fate, "kernels": [], "why": why}
        numbers = [*dict.fromkeys(place.kernel.number for place in places)]
        fate, why = self._in_kernels(node, places)
        parts = dict.fromkeys((*(p.origin for p in places), *(origin for origin, _ in notes)))
        if len(parts) > 1:
            why = f"it becomes {_listed(parts)}; {why}"
        return {"fate": fate, "kernels": numbers, "why": why}

    def _part(self, node: Loaded, whole: str) -> dict[str, Any]:
        """Of a node that one with the label `whole` took in."""
        into = next((n for n in self.nodes.values() if n.label == whole and n is not node), None)
        name = f"'{shortened(whole)}'" if into is None else into.text
        places = self.places.get(into.number, []) if into is not None else []
        if self.constant.issuperset(node.inputs) or not places:
            why = f"part of {name}, whose constants it is in"
            return {"fate": "folded", "kernels": [], "why": why}
        why = f"part of {name}, which computes with the integers and scales the sums"
        kernels = [*dict.fromkeys(place.kernel.number for place in places)]
        return {"fate": "fused", "kernels": kernels, "why": why}

    def is_known(self, node: Loaded) -> bool:
        """Of a node without a kernel."""
        notes = self.notes.get(node.number, [])
        return any(origin in self.known for origin, _ in notes)

    def _in_kernels(self, node: Loaded, places: Sequence[_Place]) -> tuple[str, str]:
        if all(place.origin in self.known for place in places):
            self.constant.update(node.outputs)
            return "folded", f"{self._why_folded(node)}; kernels read it or hold it"
        own = [place.kernel for place in places if place.kernel.main == place.origin]
        if own:
            return "kernel", _why_kernel(own, [place.kernel for place in places])
        if all(place.origin in self.views for place in places):
            return "aliased", SAME
        return self._fused(node, places)

    def _fused(self, node: Loaded, places: Sequence[_Place]) -> tuple[str, str]:
        place = max(places, key=lambda place: place.kernel.products)
        kernel, main = place.kernel, place.kernel.main
        assert main is not None
        around = self.nodes.get(main.number)
        name = around.text if around is not None else main.operator
        after = kernel.origins.index(place.origin) > kernel.origins.index(main)
        fate = "fused"
        if isinstance(kernel.step, Rows):
            why = f"runs row by row with {name}, so that what they share stays near"
        elif _kind(node) in MOVEMENTS:
            fate = "dissolved"
            order = "stores its results" if after else "reads what it needs"
            why = f"moves nothing: {name} {order} in that order"
        elif after:
            why = f"applied to each result of {name} before that is stored"
        else:
            why = f"computed as {name} reads it, and stored nowhere"
        others = len({p.kernel for p in places if p.kernel.main != main})
        return fate, f"{why}; so in {_more(others)} of other nodes" if others else why

    def _without_kernel(self, node: Loaded, notes: Sequence[tuple[Origin, str]]) -> tuple[str, str]:
        facts = [*dict.fromkeys(fact for _, fact in notes)]
        of_weights = [fact for fact in facts if joined_weights(fact)]
        if of_weights:
            return "folded", of_weights[0]
        if FOLDED in facts:
            self.constant.update(node.outputs)
            return "folded", self._why_folded(node)
        if NO_CODE in facts:
            if any(origin in self.views for origin, _ in notes):
                return "aliased", SAME
            return "dropped", "nothing of its result is read at run time"
        if facts:
            return "dropped", facts[0]
        around = None if node.inside is None else self.nodes[node.inside]
        if around is not None and _kind(around) == "If":
            return "dropped", f"it is in a branch of {around.text} that is never taken"
        return "dropped", NOT_NEEDED

    def _why_folded(self, node: Loaded) -> str:
        if _kind(node) == "Constant":
            return "a constant of the model"
        if self.constant.issuperset(node.inputs):
            return f"{FOLDED}: all its inputs are constants"
        return f"{FOLDED}: it asks no more than what is known then, such as shapes"


def _kind(node: Loaded) -> str:
    """Its operator without domain and version."""
    return node.operator.rpartition("-")[0].rpartition(".")[2]


def _why_kernel(own: Sequence[Kernel], every: Iterable[Kernel]) -> str:
    kernel = max(own, key=lambda kernel: kernel.products)
    why = f"{kernel.kind}: {choices.reason(kernel.step)}"
    count = len({*every})
    return f"{why}; {_more(count - 1)} for other parts of it" if count > 1 else why


def _listed(parts: Iterable[Origin]) -> str:
    """The operators of what a node became, at most four."""
    names = [*dict.fromkeys(origin.operator.rpartition("-")[0] for origin in parts)]
    return ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")


def _more(number: int) -> str:
    return "one more kernel" if number == 1 else f"{number} more kernels"


def quantised(nodes: Sequence[Loaded]) -> bool:
    """Whether the model says of some values that they are integers times a scale."""
    words = ("Quantize", "QLinear", "Integer", "QGemm", "QAttention")
    return any(word in node.operator for node in nodes for word in words)


def not_integer(
    nodes: Sequence[Loaded], kernels: Sequence[Kernel], facts: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Of a model with quantised nodes the kernels that compute in float, and why."""
    if not quantised(nodes):
        return []
    makers = {name: _kind(node) for node in nodes for name in node.outputs if name}
    by_number = {node.number: node for node in nodes}
    return [
        {
            "kernel": fact["number"],
            "nodes": fact["nodes"],
            "why": _why_float(kernel, by_number, makers),
        }
        for kernel, fact in zip(kernels, facts, strict=True)
        if not fact["integer"]
    ]


def _why_float(kernel: Kernel, nodes: Mapping[int, Loaded], makers: Mapping[str, str]) -> str:
    """`makers` has the operator that makes each value."""
    loaded = [nodes[origin.number] for origin in kernel.origins if origin.number in nodes]
    names = [*dict.fromkeys(map(_kind, loaded))]
    others = [name for name in names if name not in CONVERSIONS]
    if not names:
        return "a part of what floats go through"
    if not others:
        return "; ".join(f"{name}: {CONVERSIONS[name]}" for name in names)
    computing = [name for name in others if name not in MOVEMENTS]
    listed, main = ", ".join((computing or others)[:4]), kernel.main
    node = nodes.get(main.number) if main is not None else None
    if node is None or _kind(node) not in PRODUCTS:
        return f"{listed}: the model computes it on floats, and only products become integers"
    if not kernel.products:
        return f"{listed}: what follows the sums, which are scaled to floats"
    read = [makers.get(name, "") for name in node.inputs[:2]]
    if read == ["DequantizeLinear", "DequantizeLinear"]:
        return f"{listed}: {NO_INTEGERS}"
    return f"{listed}: what it multiplies are not two dequantised values"
