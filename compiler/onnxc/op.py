"""Binds operator functions to onnx.defs, the one source of names, defaults and types.

An operator is one function with ONNX's own signature: inputs by position, attributes by keyword.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from onnx import defs

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE, FLOAT, ElementType
from onnxc.errors import RefusalError
from onnxc.evaluate import constant_value
from onnxc.tensor import Sized, Tensor

if TYPE_CHECKING:
    import onnx_ir as ir

OPSET: Final = 28
"""The newest ai.onnx opset that onnxc knows; newer models are refused."""
_ANY_VERSION: Final = 2**31 - 1

Result = Tensor | Sized
OperatorFunction = Callable[..., Result | tuple[Result, ...]]


@dataclass(frozen=True)
class Operator:
    """An ONNX operator and the function that says what it computes.

    exact   whether the function takes 16-bit floats as they are; else it gets them as float, and
            its results are rounded once
    """

    domain: str
    name: str
    function: OperatorFunction
    exact: bool
    signature: inspect.Signature | None = None

    @cached_property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        signature = self.signature or inspect.signature(self.function)
        return tuple(signature.parameters.values())

    @cached_property
    def inputs(self) -> tuple[inspect.Parameter, ...]:
        """In the order of the schema; the last may stand for any number (*data)."""
        return tuple(p for p in self.parameters if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def variadic(self) -> bool:
        return any(p.kind is p.VAR_POSITIONAL for p in self.parameters)

    @cached_property
    def attributes(self) -> frozenset[str]:
        keywords = (p for p in self.parameters if p.kind is p.KEYWORD_ONLY)
        return frozenset(p.name for p in keywords if "Declared" not in str(p.annotation))

    @cached_property
    def declared(self) -> str:
        """The name of the keyword that asks for the outputs' types and shapes, if there is one."""
        keywords = (p for p in self.parameters if p.kind is p.KEYWORD_ONLY)
        return next((p.name for p in keywords if "Declared" in str(p.annotation)), "")

    @cached_property
    def constant_inputs(self) -> Mapping[int, bool]:
        """Positions of the inputs annotated `Ints` or `Floats`: whether they must be known.

        With `| Tensor` beside it, what is known only at run time arrives as a tensor.
        """
        annotations = {n: str(p.annotation) for n, p in enumerate(self.inputs)}
        return {
            n: "Tensor" not in text
            for n, text in annotations.items()
            if "Ints" in text or "Floats" in text
        }


Ints = tuple[int, ...]
"""Annotates an input whose values must be known at compile time."""
Floats = tuple[float, ...]
"""The same, of floats."""


@dataclass(frozen=True)
class Output:
    """What inference knows of an output: its type and shape; named by the model, or left out."""

    dtype: ElementType
    shape: tuple[int, ...]


Declared = tuple[Output | None, ...]
"""Annotates the keyword, no attribute, that gets an Output for each output; None if left out."""

REGISTRY: Final[dict[tuple[str, str], Operator]] = {}


def op(
    *names: str,
    domain: str = "",
    exact: bool = False,
    signature: inspect.Signature | None = None,
) -> Callable[[OperatorFunction], OperatorFunction]:
    """Registers a function as the operators `names`; its signature must be that of the schema.

    `exact` is for what computes nothing, or computes 16-bit floats by rules of its own; `signature`
    for a function that takes its arguments whatever they are called.
    """

    def register(function: OperatorFunction) -> OperatorFunction:
        for name in names:
            REGISTRY[domain, name] = Operator(domain, name, function, exact, signature)
        return function

    return register


@cache
def schemas(domain: str, name: str) -> tuple[defs.OpSchema, ...]:
    """Every version of an operator up to OPSET, oldest first; empty if ONNX has none."""
    found: list[defs.OpSchema] = []
    newest = _ANY_VERSION if domain else OPSET
    while newest > 0:
        try:
            found.append(defs.get_schema(name, newest, domain))
        except defs.SchemaError:
            break
        newest = found[-1].since_version - 1
    return tuple(reversed(found))


def schema_at(domain: str, name: str, version: int) -> defs.OpSchema | None:
    """The schema in force at an opset version; None if the operator is younger or unknown."""
    known = [schema for schema in schemas(domain, name) if schema.since_version <= version]
    return known[-1] if known else None


def newest_schema(domain: str, name: str) -> defs.OpSchema:
    return schemas(domain, name)[-1]


@cache
def operator_names() -> tuple[tuple[str, str], ...]:
    """(domain, name) of every operator that ONNX defines up to OPSET, each once."""
    known = defs.get_all_schemas_with_history()
    names = ((s.domain, s.name) for s in known if s.domain or s.since_version <= OPSET)
    return tuple(dict.fromkeys(names))


def supported() -> list[tuple[str, str, tuple[int, ...]]]:
    """(domain, name, since versions) of every operator that onnxc compiles, sorted.

    Each has a function, or a function body in its schema that is made of such operators.
    """
    from onnxc.passes.expand_function import expandable  # which needs this module

    return [
        (domain, name, tuple(schema.since_version for schema in schemas(domain, name)))
        for domain, name in sorted({*load_operators(), *expandable()})
    ]


def load_operators() -> Mapping[tuple[str, str], Operator]:
    """REGISTRY with every operator in it (importing onnxc.ops fills it)."""
    import onnxc.ops  # noqa: F401  (imported for its effect)

    return REGISTRY


def call(
    operator: Operator, node: ir.Node, inputs: Sequence[Tensor | None]
) -> list[tuple[ir.Value, Result]]:
    """The outputs that the node has a name for, with what the function makes of them.

    Raises RefusalError where the function does not take what the node gives or asks for.
    """
    formal = operator.inputs
    if len(inputs) > len(formal) and not operator.variadic:
        raise RefusalError(
            Kind.PART_NOT_SUPPORTED,
            f"has {len(inputs)} inputs of which {len(formal)} are supported",
        )
    if operator.variadic and None in inputs:
        raise RefusalError(
            Kind.OPERAND_LEFT_OUT, f"input {list(inputs).index(None)} is left out", "remove it"
        )
    bound: list[Tensor | Ints | Floats | None] = list(inputs)
    bound += [None] * (len(formal) - operator.variadic - len(inputs))
    for position, needed in operator.constant_inputs.items():
        if position < len(bound):
            bound[position] = _constant_input(formal[position].name, bound[position], needed)
    if not operator.exact:
        bound = [_widened(argument) for argument in bound]
    keywords: dict[str, Any] = dict.fromkeys(operator.attributes)
    keywords |= {n: a.value for n, a in node.attributes.items() if n in operator.attributes}
    if operator.declared:
        keywords[operator.declared] = tuple(_declared(value) for value in node.outputs)
    result = operator.function(*bound, **keywords)
    results = result if isinstance(result, tuple) else (result,)
    wanted = [value for value in node.outputs if value.name]
    if any(value.name for value in node.outputs[len(results) :]):
        raise RefusalError(
            Kind.PART_NOT_SUPPORTED,
            f"has {len(wanted)} outputs of which {len(results)} are supported",
        )
    pairs = zip(node.outputs, results, strict=False)
    return [(value, _rounded(result, value)) for value, result in pairs if value.name]


def _widened(argument: Tensor | Ints | Floats | None) -> Tensor | Ints | Floats | None:
    if isinstance(argument, Tensor) and argument.dtype.kind == "half":
        return argument.cast(FLOAT)
    return argument


def _rounded(tensor: Result, value: ir.Value) -> Result:
    if isinstance(tensor, Sized) or value.dtype is None:
        return tensor
    wanted = BY_CODE[int(value.dtype)]
    return tensor.cast(wanted) if wanted.kind == "half" else tensor


def _declared(value: ir.Value) -> Output | None:
    """Of what inference has settled; nothing of an output that is left out."""
    if not value.name or value.dtype is None or value.shape is None:
        return None
    shape = tuple(extent for extent in value.shape if isinstance(extent, int))
    if len(shape) != len(value.shape):
        return None
    return Output(BY_CODE[int(value.dtype)], shape)


def _constant_input(
    name: str, tensor: Tensor | Ints | Floats | None, needed: bool
) -> Tensor | Ints | Floats | None:
    if not isinstance(tensor, Tensor):
        return tensor
    known = constant_value(tensor) if tensor.elements else np.empty(0)
    if known is not None:
        number = float if tensor.dtype.kind in ("float", "half", "bits") else int
        return tuple(map(number, known.reshape(-1)))
    if needed:
        fact = f"input {name} must be known at compile time"
        raise RefusalError(Kind.CONSTANT_REQUIRED, fact, "make it an initializer")
    return tensor
