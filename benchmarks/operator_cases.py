"""ONNX's node tests, scaled to about a million elements by operator_rules.py."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import harness
from operator_rules import PARAMETERS, RULES, STANDARD, Rule, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray


class UnscalableError(Exception):
    """Why a node test has no scaled form."""


@dataclass(frozen=True)
class NodeTest:
    """A node test of one node, with its inputs by the names of its graph."""

    name: str
    model: ModelProto
    inputs: Mapping[str, Any]

    @property
    def node(self) -> NodeProto:
        node: NodeProto = self.model.graph.node[0]
        return node

    @property
    def operator(self) -> str:
        domain = self.node.domain
        return f"{domain}.{self.node.op_type}" if domain else self.node.op_type

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The inputs. Raises UnscalableError where one is a sequence or missing."""
        found = {}
        for name, value in self.inputs.items():
            if isinstance(value, TensorProto):
                value = numpy_helper.to_array(value)
            if not isinstance(value, np.ndarray | np.generic):
                raise UnscalableError(f"input {name} is no tensor")
            found[name] = np.asarray(value)
        return found


@dataclass(frozen=True)
class Case:
    """A scaled test: its inputs, and those that become constants of the model."""

    test: NodeTest
    node: NodeProto
    inputs: Mapping[str, NDArray[Any]]
    constants: Mapping[str, NDArray[Any]]

    @property
    def shapes(self) -> str:
        texts = (f"{'x'.join(map(str, array.shape)) or '1'}" for array in self.inputs.values())
        return " ".join(texts)

    def models(self) -> list[ModelProto]:
        """The model, in each version of its operator up to the test's, the newest first."""
        imported = {told.domain: told.version for told in self.test.model.opset_import}
        domain = self.node.domain
        return [self._model({**imported, domain: v}) for v in _versions(self.node, imported)]

    def _model(self, opsets: Mapping[str, int]) -> ModelProto:
        graph = self.test.model.graph
        told = [_told(value, self.inputs) for value in graph.input if value.name in self.inputs]
        weights = [_tensor(name, array) for name, array in self.constants.items()]
        results = []
        for value in graph.output:
            copy = onnx.ValueInfoProto()
            copy.CopyFrom(value)
            copy.type.tensor_type.ClearField("shape")
            results.append(copy)
        made = helper.make_graph([self.node], "scaled", told, results, weights)
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        version = max(10, helper.find_min_ir_version_for(imports, ignore_unknown=True))
        return helper.make_model(made, ir_version=version, opset_imports=imports)


@cache
def node_tests() -> dict[str, list[NodeTest]]:
    """Those of one node, by operator; in a domain other than ai.onnx, that and a dot before it."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    found: dict[str, list[NodeTest]] = {}
    for case in cases:
        if case.model is None or len(case.model.graph.node) != 1:
            continue
        values = (case.data_sets or [([], [])])[0][0]
        names = [value.name for value in case.model.graph.input]
        if len(names) == len(values):
            test = NodeTest(case.name, case.model, dict(zip(names, values, strict=True)))
            found.setdefault(test.operator, []).append(test)
    return found


def scaled(operator: str) -> Case:
    """The case of an operator: by its rule, else the simplest test that can be scaled.

    Raises UnscalableError.
    """
    rule = RULES.get(operator, Rule())
    if rule.test:
        return scaled_by(rule)
    reasons = []
    for test in sorted(node_tests()[operator], key=_simplicity):
        try:
            return scaled_test(test, rule)
        except UnscalableError as error:
            reasons.append(str(error))
    raise UnscalableError(reasons[0])


def scaled_by(rule: Rule) -> Case:
    """The case of a rule that names its test. Raises UnscalableError."""
    tests = (test for tests in node_tests().values() for test in tests)
    return scaled_test(next(test for test in tests if test.name == rule.test), rule)


def _simplicity(test: NodeTest) -> tuple[bool, int, str]:
    first = [value.type.tensor_type.elem_type for value in test.model.graph.input[:1]]
    return first != [TensorProto.FLOAT], len(test.name), test.name


def scaled_test(test: NodeTest, rule: Rule) -> Case:
    """Raises UnscalableError."""
    arrays = test.arrays()
    parameters = {name for name in arrays if _is_parameter(test, name)}
    fixed = parameters | set(rule.constants)
    growing = {name: array for name, array in arrays.items() if name not in parameters}
    shapes = rule.shapes or _standard_shapes(growing)
    random = np.random.default_rng(0)
    made = {}
    for name, array in arrays.items():
        shape = shapes.get(name, array.shape)
        if name in rule.values:
            made[name] = rule.values[name](random, shape)
        else:
            made[name] = array if shape == array.shape else grown(array, shape, random)
    node = NodeProto()
    node.CopyFrom(test.node)
    _set_attributes(node, rule.attributes)
    inputs = {n: harness.aligned_copy(array) for n, array in made.items() if n not in fixed}
    return Case(test, node, inputs, {n: array for n, array in made.items() if n in fixed})


def _set_attributes(node: NodeProto, attributes: Mapping[str, Any]) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name not in attributes]
    kept += [helper.make_attribute(name, value) for name, value in attributes.items()]
    del node.attribute[:]
    node.attribute.extend(kept)


def _is_parameter(test: NodeTest, name: str) -> bool:
    opsets = {told.domain: told.version for told in test.model.opset_import}
    schema = defs.get_schema(test.node.op_type, opsets[test.node.domain], test.node.domain)
    place = list(test.node.input).index(name)
    return schema.inputs[min(place, len(schema.inputs) - 1)].name in PARAMETERS


def _standard_shapes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Shape]:
    """New shapes of arrays that broadcast to one another; dimensions of 1 stay.

    Raises UnscalableError where their sizes are linked in another way.
    """
    rank = max((array.ndim for array in arrays.values()), default=0)
    padded = {n: (1,) * (rank - array.ndim) + array.shape for n, array in arrays.items()}
    sizes = [set(column) - {1} for column in zip(*padded.values(), strict=True)]
    if any(len(size) > 1 or size == {0} for size in sizes):
        raise UnscalableError("its inputs are linked: " + " ".join(map(str, padded.values())))
    growing = [axis for axis, size in enumerate(sizes) if size]
    if not growing or len(growing) not in STANDARD:
        raise UnscalableError("no dimension can grow")
    new = dict(zip(growing, STANDARD[len(growing)], strict=True))
    return {
        name: tuple(new[axis] if size > 1 else 1 for axis, size in enumerate(padded[name]))[
            rank - array.ndim :
        ]
        for name, array in arrays.items()
    }


def grown(sample: NDArray[Any], shape: Shape, random: np.random.Generator) -> NDArray[Any]:
    """Values like those of a sample: floats of its mean, deviation and range, else its own."""
    if sample.dtype.kind in "biuOUS" and sample.size:
        drawn: NDArray[Any] = sample.reshape(-1)[random.integers(0, sample.size, shape)]
        return drawn
    known = sample.astype(np.float64).reshape(-1)
    known = known[np.isfinite(known)]
    if not known.size:
        known = np.zeros(1)
    spread = random.standard_normal(shape) * known.std() + known.mean()
    clipped: NDArray[Any] = spread.clip(known.min(), known.max())
    return clipped.astype(sample.dtype)


def _versions(node: NodeProto, opsets: Mapping[str, int]) -> Sequence[int]:
    limit = opsets[node.domain]
    found = {
        schema.since_version
        for schema in defs.get_all_schemas_with_history()
        if (schema.name, schema.domain) == (node.op_type, node.domain)
        and schema.since_version <= limit
    }
    return sorted(found, reverse=True)


def _told(value: onnx.ValueInfoProto, inputs: Mapping[str, NDArray[Any]]) -> onnx.ValueInfoProto:
    kind = value.type.tensor_type.elem_type
    return helper.make_tensor_value_info(value.name, kind, inputs[value.name].shape)


def _tensor(name: str, array: NDArray[Any]) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
