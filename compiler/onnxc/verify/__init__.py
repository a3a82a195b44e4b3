"""Checking generated C against independent references."""

from onnxc.verify.program import Build
from onnxc.verify.result import Comparison, Node, Nodes, Reference, Skipped, Verification
from onnxc.verify.run import verify_model

__all__ = [
    "Build",
    "Comparison",
    "Node",
    "Nodes",
    "Reference",
    "Skipped",
    "Verification",
    "verify_model",
]
