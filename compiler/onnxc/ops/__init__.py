"""The operators, by family. Importing this package registers every one."""

from onnxc.ops import constant, elementwise, movement

__all__ = ["constant", "elementwise", "movement"]
