"""Binds operator functions to onnx.defs, the one source of names, defaults and types.

An operator is one function with ONNX's own signature: inputs by position, attributes by keyword.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from onnx import defs

from onnxc.errors import RefusalError
from onnxc.evaluate import constant_value
from onnxc.tensor import Tensor

if TYPE_CHECKING:
    import onnx_ir as ir

OPSET: Final = 28
"""The newest ai.onnx opset that onnxc knows; newer models are refused."""

OperatorFunction = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Operator:
    """An ONNX operator and the function that says what it computes."""

    domain: str
    name: str
    function: OperatorFunction

    @cached_property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        return tuple(inspect.signature(self.function).parameters.values())

    @property
    def inputs(self) -> tuple[inspect.Parameter, ...]:
        """In the order of the schema; the last may stand for any number (*data)."""
        return tuple(p for p in self.parameters if p.kind is not p.KEYWORD_ONLY)

    @property
    def variadic(self) -> bool:
        return any(p.kind is p.VAR_POSITIONAL for p in self.parameters)

    @property
    def attributes(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters if p.kind is p.KEYWORD_ONLY)

    def constant_inputs(self) -> frozenset[int]:
        """Positions of the inputs that must be known at compile time: those annotated `Ints`."""
        return frozenset(n for n, p in enumerate(self.inputs) if "Ints" in str(p.annotation))


Ints = tuple[int, ...]
"""Annotates an input whose values must be known at compile time."""

REGISTRY: Final[dict[tuple[str, str], Operator]] = {}


def op(*names: str, domain: str = "") -> Callable[[OperatorFunction], OperatorFunction]:
    """Registers a function as the operators `names`; its signature must be that of the schema."""

    def register(function: OperatorFunction) -> OperatorFunction:
        for name in names:
            operator = Operator(domain, name, function)
            _check_signature(operator, newest_schema(domain, name))
            REGISTRY[domain, name] = operator
        return function

    return register


def _check_signature(operator: Operator, schema: defs.OpSchema) -> None:
    formal = [parameter.name for parameter in schema.inputs]
    actual = [parameter.name for parameter in operator.inputs]
    if actual != formal[: len(actual)] or len(actual) < schema.min_input:
        raise TypeError(f"{operator.name} takes {formal}, its function {actual}")
    if unknown := operator.attributes - set(schema.attributes):
        raise TypeError(f"{operator.name} has no attribute {sorted(unknown)}")


@cache
def schemas(domain: str, name: str) -> tuple[defs.OpSchema, ...]:
    """Every version of an operator up to OPSET, oldest first; empty if ONNX has none."""
    versions = _all_schemas().get((domain, name), ())
    return tuple(sorted(versions, key=lambda schema: schema.since_version))


@cache
def _all_schemas() -> dict[tuple[str, str], list[defs.OpSchema]]:
    found: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain or schema.since_version <= OPSET:
            found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


def schema_at(domain: str, name: str, version: int) -> defs.OpSchema | None:
    """The schema in force at an opset version; None if the operator is younger or unknown."""
    known = [schema for schema in schemas(domain, name) if schema.since_version <= version]
    return known[-1] if known else None


def newest_schema(domain: str, name: str) -> defs.OpSchema:
    return schemas(domain, name)[-1]


def operator_names() -> Iterable[tuple[str, str]]:
    """(domain, name) of every operator that ONNX defines up to OPSET."""
    return _all_schemas().keys()


def supported() -> list[tuple[str, str, tuple[int, ...]]]:
    """(domain, name, since versions) of every operator that onnxc compiles, sorted."""
    return [
        (domain, name, tuple(schema.since_version for schema in schemas(domain, name)))
        for domain, name in sorted(load_operators())
    ]


def load_operators() -> Mapping[tuple[str, str], Operator]:
    """REGISTRY with every operator in it (importing onnxc.ops fills it)."""
    import onnxc.ops  # noqa: F401  (imported for its effect)

    return REGISTRY


def call(
    operator: Operator, node: ir.Node, inputs: Sequence[Tensor | None]
) -> list[tuple[ir.Value, Tensor]]:
    """The outputs that the node has a name for, with what the function makes of them.

    Raises RefusalError where the function does not take what the node gives or asks for.
    """
    formal = operator.inputs
    if len(inputs) > len(formal) and not operator.variadic:
        raise RefusalError(f"has {len(inputs)} inputs of which {len(formal)} are supported")
    bound: list[Tensor | Ints | None] = list(inputs)
    bound += [None] * (len(formal) - operator.variadic - len(inputs))
    for position in operator.constant_inputs():
        bound[position] = _constant_input(formal[position].name, bound[position])
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    result = operator.function(*bound, **{name: given.get(name) for name in operator.attributes})
    results = result if isinstance(result, tuple) else (result,)
    wanted = [value for value in node.outputs if value.name]
    if any(value.name for value in node.outputs[len(results) :]):
        raise RefusalError(f"has {len(wanted)} outputs of which {len(results)} are supported")
    return [(value, t) for value, t in zip(node.outputs, results, strict=False) if value.name]


def _constant_input(name: str, tensor: Tensor | Ints | None) -> Ints | None:
    if not isinstance(tensor, Tensor):
        return tensor
    known = constant_value(tensor)
    if known is None:
        fact = f"input {name} must be known at compile time"
        raise RefusalError(fact, "make it an initializer")
    return tuple(int(n) for n in known.reshape(-1))
