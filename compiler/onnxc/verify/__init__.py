"""Checking generated C against independent references."""

from onnxc.verify.run import Comparison, Reference, Verification, verify_model

__all__ = ["Comparison", "Reference", "Verification", "verify_model"]
