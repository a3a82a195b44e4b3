"""Element types: in every version of five operators in C, in the newest of the others in numpy.

tests/passes/test_upgrade_schemas.py goes through every attribute of every version.
`python -m tests.test_operator_versions` writes refused_types.tsv anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper

from onnxc import op
from onnxc.arrays import object_array
from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType, numpy_dtype
from onnxc.errors import ModelError
from onnxc.passes.load import load
from onnxc.pipeline import compile_model, evaluate_model
from onnxc.report.examples import Example, at
from onnxc.report.examples import model as example_model
from onnxc.report.examples import stored as stored_examples
from onnxc.report.operators import table
from tests.models import Array, Batch, any_bits, model, refusal, run, stored

VERSIONS: dict[str, tuple[int, ...]] = {
    "Constant": (1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
    "Equal": (1, 7, 11, 13, 19),
    "Identity": (1, 13, 14, 16, 19, 21, 23, 24, 25),
    "Size": (1, 13, 19, 21, 23, 24, 25),
    "Unsqueeze": (1, 11, 13, 21, 23, 24, 25),
}
ALL = [(operator, version) for operator, versions in VERSIONS.items() for version in versions]
# How many of the 26 element types each version allows.
COUNTS: dict[str, tuple[int, ...]] = {
    "Constant": (3, 15, 15, 15, 16, 20, 22, 23, 24, 26),
    "Equal": (3, 3, 12, 13, 14),
    "Identity": (15, 16, 16, 16, 20, 22, 23, 24, 26),
    "Size": (15, 16, 20, 22, 23, 24, 26),
    "Unsqueeze": (15, 15, 16, 22, 23, 24, 26),
}


def version_at(operator: str, opset: int) -> int:
    return max(version for version in VERSIONS[operator] if version <= opset)


def allowed(operator: str, version: int) -> list[ElementType]:
    """The types of the data that the operator takes, or if it takes none, gives."""
    schema = defs.get_schema(operator, version)
    formal = (schema.inputs or schema.outputs)[0]
    return [dtype for dtype in ELEMENT_TYPES if f"tensor({dtype.name})" in formal.types]


@pytest.mark.parametrize("operator", VERSIONS)
def test_how_many_types_each_version_allows(operator: str) -> None:
    counts = tuple(len(allowed(operator, version)) for version in VERSIONS[operator])
    assert counts == COUNTS[operator]


def pairs_of(dtype: ElementType) -> tuple[Array, Array]:
    """Two arrays of one shape, equal in about half of their elements."""
    left = any_bits(dtype, 2, 9)
    right = left.copy()
    right[:, ::2] = any_bits(dtype, 9, 2).T[:, ::2]
    return left, right


def add_nodes(batch: Batch, operator: str) -> None:
    """A node of the operator for each type that its version at the batch's opset allows."""
    version = version_at(operator, batch.opset)
    for dtype in allowed(operator, version):
        x = any_bits(dtype, 3, 7)
        match operator:
            case "Identity":
                batch.add(operator, [x], x)
            case "Size":
                batch.add(operator, [x], np.array(21))
            case "Equal":
                a, b = pairs_of(dtype)
                batch.add(operator, [a, b], np.asarray(a == b, np.bool_))
            case "Constant":
                batch.add(operator, [], x, value=stored("", x))
            case "Unsqueeze" if version < 13:
                batch.add(operator, [x], x[:, None], axes=[1])
            case "Unsqueeze":
                batch.add(operator, [x, np.array([1])], x[:, None], constants=[1])


@pytest.mark.usefixtures("strict_c")
@pytest.mark.parametrize("opset", sorted({version for _, version in ALL} | {op.OPSET}))
def test_the_types_that_a_version_allows(opset: int) -> None:
    """Opset by opset, so that one model holds every operator and type that the opset has."""
    batch = Batch(opset, ir=3 if opset == 1 else 0)
    for operator in VERSIONS:
        add_nodes(batch, operator)
    batch.check()


@pytest.mark.parametrize("opset", range(1, op.OPSET + 1))
def test_the_version_of_each_opset(opset: int) -> None:
    """The version in force is the newest that is not newer than the opset."""
    batch = Batch(opset)
    x = np.zeros((3, 7), bool)
    batch.add("Equal", [x, x], ~x)
    batch.add("Identity", [x], x)
    batch.add("Size", [x], np.array(21))
    zero = np.zeros(2, np.float32)
    batch.add("Constant", [], zero, value=stored("", zero))
    axes = {"axes": [1]} if opset < 13 else {}
    batch.add("Unsqueeze", [x] if axes else [x, np.array([1])], x, constants=[1], **axes)
    del batch.graph.output[-1].type.tensor_type.shape.dim[:]
    batch.graph.output[-1].type.tensor_type.ClearField("shape")
    program = compile_model(batch.model()).program
    origins = [origin for step in program.steps for origin in step.origins]
    origins += [origin for origin, _ in program.notes]
    assert {origin.operator for origin in origins} == {
        f"{operator}-{version_at(operator, opset)}" for operator in VERSIONS
    }


@pytest.mark.parametrize(
    ("operator", "version"),
    [
        pytest.param(operator, version, id=f"{operator}-{version}")
        for operator, version in ALL
        if len(allowed(operator, version)) < len(ELEMENT_TYPES)
    ],
)
def test_the_types_that_a_version_does_not_allow(operator: str, version: int) -> None:
    """Each is refused by the name of the node, the version and the type."""
    refused = [dtype for dtype in ELEMENT_TYPES if dtype not in allowed(operator, version)]
    graph = onnx.GraphProto(name="refused")
    for dtype in refused:
        data = any_bits(dtype, 2)
        node = helper.make_node(operator, [], [f"y_{dtype.name}"], name=f"node_{dtype.name}")
        if operator == "Constant":
            node.attribute.append(helper.make_attribute("value", stored("", data)))
        else:
            node.input.extend([f"x_{dtype.name}"] * (2 if operator == "Equal" else 1))
            graph.input.append(helper.make_tensor_value_info(node.input[0], dtype.code, [2]))
        if operator == "Unsqueeze" and version >= 13:
            node.input.append("axes")
        elif operator == "Unsqueeze":
            node.attribute.append(helper.make_attribute("axes", [0]))
        graph.node.append(node)
    graph.initializer.append(stored("axes", np.array([0])))
    graph.output.append(helper.make_empty_tensor_value_info(f"y_{refused[0].name}"))
    lines = refusal(model(graph, version))
    for dtype in refused:
        told = [line for line in lines if line.startswith(f"node 'node_{dtype.name}' ")]
        assert told
        for line in told:
            assert f"({operator}-{version}): " in line
            assert f"is tensor({dtype.name}); this version allows tensor(" in line
    nodes = {line.split("'")[1] for line in lines}
    assert nodes == {f"node_{dtype.name}" for dtype in refused}


def test_the_inputs_of_equal_have_one_type() -> None:
    graph = helper.make_graph(
        [helper.make_node("Equal", ["a", "b"], ["y"], name="n")],
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.INT32, [2]),
            helper.make_tensor_value_info("b", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [2])],
    )
    assert refusal(model(graph)) == [
        "node 'n' (Equal-19): input A is tensor(int32) but input B is tensor(int64); "
        "both must have one type: cast one of them"
    ]


def not_tensors() -> Iterator[tuple[str, onnx.TypeProto]]:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    sequence = helper.make_sequence_type_proto(tensor)
    yield "seq(tensor(float))", sequence
    yield "optional(tensor(float))", helper.make_optional_type_proto(tensor)
    yield "optional(seq(tensor(float)))", helper.make_optional_type_proto(sequence)
    yield "sparse_tensor", helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2])


@pytest.mark.parametrize(("name", "kind"), list(not_tensors()))
def test_what_is_no_tensor_is_refused_by_its_type(name: str, kind: onnx.TypeProto) -> None:
    """Sequences and optionals are what Identity allows from versions 14 and 16 on."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", kind)],
        [helper.make_value_info("y", kind)],
    )
    (line,) = refusal(model(graph, 25))
    assert line.startswith("input 'x': ")
    assert re.search(rf"\b{re.escape(name)} is not supported", line)


def test_operator_functions_take_all_that_the_newest_version_has() -> None:
    """Of inputs and attributes; load makes a sparse value of a Constant dense."""
    missing = set()
    for (domain, name), operator in op.load_operators().items():
        schema = op.newest_schema(domain, name)
        formal = [parameter.name for parameter in schema.inputs]
        missing |= {(name, each) for each in formal[len(operator.inputs) :]}
        missing |= {(name, each) for each in set(schema.attributes) - operator.attributes}
    assert missing == {("Constant", "sparse_value")}


# Every operator, by the first of its examples, in each type that the newest version allows for the
# first input. What is refused is in refused_types.tsv with the reason.

REFUSED = Path(__file__).with_name("refused_types.tsv")
HEADING = "# Element types of an operator's first input that its example refuses, and why."


def converted(array: Array, dtype: ElementType) -> Array:
    """The values in another type: truth of a bool, decimal digits of a string."""
    if dtype.kind == "string":
        return object_array([str(value).encode() for value in array.reshape(-1)], array.shape)
    if array.dtype == object:
        array = np.arange(array.size).reshape(array.shape)
    if dtype.kind == "bool":
        return np.asarray(array != 0)
    return array.astype(np.float32).astype(numpy_dtype(dtype))


def in_type(example: Example, schema: defs.OpSchema, dtype: ElementType) -> Example:
    """The inputs that are bound to the type of the first one are of the type."""
    formals = [schema.inputs[min(n, len(schema.inputs) - 1)] for n in range(len(example.inputs))]
    inputs = {
        name: converted(array, dtype)
        if array is not None and formal.type_str == schema.inputs[0].type_str
        else array
        for (name, array), formal in zip(example.inputs.items(), formals, strict=True)
    }
    return replace(example, inputs=inputs)


def newest_example(operator: str) -> tuple[defs.OpSchema, Example]:
    schema = op.newest_schema("", operator)
    found = (at(example, schema) for example in stored_examples(operator))
    return schema, next(example for example in found if example is not None)


def refused_types(operator: str) -> dict[str, str]:
    """The first problem of each type that is refused; the others compute."""
    schema, example = newest_example(operator)
    refused = {}
    for dtype in ELEMENT_TYPES:
        if schema.inputs and f"tensor({dtype.name})" in schema.inputs[0].types:
            given = in_type(example, schema, dtype)
            try:
                evaluate_model(example_model(given, schema), given.given)
            except ModelError as error:
                problem = error.problems[0]
                told = filter(None, (problem.fact, problem.remedy))
                refused[dtype.name] = "; ".join(told)
    return refused


def listed() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in REFUSED.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            operator, name, reason = line.split("\t")
            found.setdefault(operator, {})[name] = reason
    return found


OPERATORS = [row["name"] for row in table()]


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_type_computes_or_is_refused(operator: str) -> None:
    assert refused_types(operator) == listed().get(operator, {})


def test_refused_types_are_of_supported_operators() -> None:
    assert listed().keys() <= set(OPERATORS)


# The domain


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
def test_ai_onnx_is_the_domain_without_a_name(imported: str) -> None:
    """A model may spell the domain both ways, also where it is imported."""
    x = np.array([1, 2, 3], np.int32)
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], domain="ai.onnx"),
        helper.make_node("Equal", ["a", "x"], ["b"], domain=""),
        helper.make_node("Unsqueeze", ["b"], ["y"], domain="ai.onnx", axes=[0]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, [3])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [1, 3])],
    )
    mixed = model(graph, 11, domain=imported)
    assert run(mixed, {"x": x})["y"].tolist() == [[True] * 3]
    assert [(node.domain, node.version) for node in load(mixed).graph] == [("", 11)] * 3


def test_both_spellings_may_be_imported_with_one_version() -> None:
    x = any_bits(BY_NAME["float"], 3)
    batch = Batch(13)
    batch.add("Identity", [x], x)
    twice = batch.model()
    twice.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    assert run(twice, batch.given)["y0"].tobytes() == x.tobytes()


if __name__ == "__main__":
    rows = [
        f"{operator}\t{name}\t{reason}"
        for operator in sorted(OPERATORS)
        for name, reason in refused_types(operator).items()
    ]
    REFUSED.write_text("\n".join([HEADING, *rows, ""]), encoding="utf-8")
