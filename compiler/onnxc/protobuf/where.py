"""Words for the place of a problem, and the two spellings of ONNX's own domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from onnxc.op import schema_at

_LONGEST_NAME = 100


def quoted(name: str) -> str:
    """A name for a message: in quotes, on one line, the middle of an over-long one left out."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME // 2]}...{name[-_LONGEST_NAME // 4 :]}"
    return repr(name)


def shown(name: str) -> str:
    """The same without the quotes, for names that are hardly ever odd."""
    return quoted(name)[1:-1]


def standard_domain(domain: str) -> str:
    """The domain with "ai.onnx" spelled as ""."""
    return "" if domain == "ai.onnx" else domain


@dataclass(frozen=True)
class Place:
    """Where nodes stand.

    inside   what goes before "node": "" in the main graph, "function 'F' " in a body
    opsets   version by domain, "" for ai.onnx
    """

    inside: str
    opsets: Mapping[str, int]

    def node(self, node: onnx.NodeProto, position: int) -> str:
        """As in "node 'fc1' (Gemm-13)"; a node without a name goes by its position."""
        name = quoted(node.name) if node.name else f"#{position}"
        return f"{self.inside}node {name} ({self._operator(node)})"

    def _operator(self, node: onnx.NodeProto) -> str:
        domain = standard_domain(node.domain)
        version = self.opsets.get(domain)
        schema = schema_at(domain, node.op_type, version or 0)
        name = shown(f"{domain}.{node.op_type}" if domain else node.op_type)
        if schema is not None:
            version = schema.since_version
        return f"{name}-{version}" if name and version else name or "no operator"
