"""Compiles ONNX models to C that stands alone.

    model = onnxc.compile("model.onnx")
    model.run({"x": array})

Importing the package imports nothing else; what it exports is loaded on first use.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "CompiledModel",
    "ModelError",
    "OnnxcError",
    "Problem",
    "RunError",
    "ToolError",
    "UsageError",
    "__version__",
    "backend",
    "compile",
]

if TYPE_CHECKING:
    from onnxc import backend
    from onnxc.compiled import CompiledModel, compile
    from onnxc.errors import ModelError, OnnxcError, Problem, RunError, ToolError, UsageError
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'onnxc' has no attribute {name!r}")
        if name == "backend":
            from importlib import import_module

            return import_module("onnxc.backend")
        if name in ("CompiledModel", "compile"):
            import onnxc.compiled as module
        else:
            import onnxc.errors as module
        value = globals()[name] = getattr(module, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
