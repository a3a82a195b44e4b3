"""Every attribute of every version of ai.onnx: none is dropped in silence."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import defs

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.op import newest_schema, operator_names, schemas
from onnxc.passes.upgrade import replacement, rules_for, upgrade
from onnxc.passes.upgrade_rules import HINTS, RULES

BROADCAST = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
REDUCE = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
HINTED = shlex.split("""
    Abs Add BatchNormalization Ceil Clip Div Dropout Elu Exp Floor HardSigmoid InstanceNormalization
    LeakyRelu Log Max Mean Min Mul Neg PRelu Reciprocal Relu Reshape Selu Sigmoid Sqrt Sub Sum Tanh
""")

# What became of the attributes that the newest version does not have.
GONE: dict[str, set[tuple[str, str]]] = {
    "hint": {(name, "consumed_inputs") for name in HINTED},
    "input": {
        ("Clip", "max"),
        ("Clip", "min"),
        ("DFT", "axis"),
        ("Dropout", "ratio"),
        ("Pad", "pads"),
        ("Reshape", "shape"),
        ("Slice", "axes"),
        ("Slice", "ends"),
        ("Slice", "starts"),
        ("Split", "split"),
        ("Squeeze", "axes"),
        ("Unsqueeze", "axes"),
        *((f"Reduce{kind}", "axes") for kind in REDUCE),
    },
    "rule": {
        ("BatchNormalization", "is_test"),
        ("BatchNormalization", "spatial"),
        ("Cast", "to"),
        ("Dropout", "is_test"),
        ("GRU", "output_sequence"),
        ("Gemm", "broadcast"),
        ("GlobalLpPool", "p"),
        ("LSTM", "output_sequence"),
        ("LpPool", "p"),
        ("Pad", "paddings"),
        ("Pad", "value"),
        ("RNN", "output_sequence"),
        ("TopK", "k"),
        ("Upsample", "height_scale"),
        ("Upsample", "scales"),
        ("Upsample", "width_scale"),
        *((name, attribute) for name in BROADCAST for attribute in ("axis", "broadcast")),
    },
    "refused": {("Scan", "directions")},
}


def old_schemas() -> Iterator[defs.OpSchema]:
    for domain, name in sorted(operator_names()):
        if domain == "":
            yield from schemas(domain, name)


def newest(schema: defs.OpSchema) -> defs.OpSchema:
    return newest_schema("", replacement("", schema.name))


def fate(schema: defs.OpSchema, name: str) -> str:
    """What upgrade makes of an attribute; "" if nothing takes care of it."""
    formal = newest(schema).attributes.get(name)
    if formal is not None and formal.type == schema.attributes[name].type:
        return "kept"
    if any(name in rule.handles for rule in rules_for(schema)):
        return "rule"
    if name in HINTS:
        return "hint"
    if any(parameter.name == name for parameter in newest(schema).inputs):
        return "input"
    return "refused"


def test_every_attribute_is_kept_promoted_handled_or_refused() -> None:
    found: dict[str, set[tuple[str, str]]] = {}
    for schema in old_schemas():
        for name in schema.attributes:
            found.setdefault(fate(schema, name), set()).add((schema.name, name))
    assert found.pop("kept")
    assert found == GONE


def bare(schema: defs.OpSchema, attributes: dict[str, Any] | None = None) -> ir.Node:
    """A node of the version with float inputs of shape [2, 4, 5, 5]."""
    formal = [schema.inputs[min(n, len(schema.inputs) - 1)] for n in range(schema.min_input)]
    values = [
        ir.Value(name=f"x{n}", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 4, 5, 5]))
        for n, _ in enumerate(formal)
    ]
    given = ir.convenience.convert_attributes(attributes or {})
    node = ir.Node("", schema.name, values, given, name="n", version=schema.since_version)
    node.outputs[0].name = "y"
    return node


def unknown_attributes() -> list[tuple[defs.OpSchema, str]]:
    """An attribute that neither the newest version nor any rule would take."""
    return [(schema, "directions") for schema in old_schemas() if schema.name == "Scan"][:1]


@pytest.mark.parametrize(("schema", "name"), unknown_attributes())
def test_what_nobody_takes_care_of_is_refused(schema: defs.OpSchema, name: str) -> None:
    with pytest.raises(RefusalError):
        upgrade(bare(schema, {name: [0]}), schema)


def test_the_net_under_the_rules_refuses_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its rule, an attribute of an old version reaches no operator."""
    monkeypatch.setitem(RULES, "TopK", ())
    schema = defs.get_schema("TopK", 1)
    node = bare(schema, {"k": 2})
    with pytest.raises(RefusalError, match="attribute k of version 1 is not supported") as caught:
        upgrade(node, schema)
    assert caught.value.kind is Kind.OLD_VERSION
    newest = newest_schema("", "TopK").since_version
    assert caught.value.remedy == f"re-export with opset {newest} or newer"
    monkeypatch.setitem(RULES, "Cast", ())
    schema = defs.get_schema("Cast", 1)
    with pytest.raises(RefusalError, match="attribute to of version 1 is STRING") as caught:
        upgrade(bare(schema, {"to": "FLOAT"}), schema)
    assert caught.value.kind is Kind.OLD_VERSION
    newest = newest_schema("", "Cast").since_version
    assert caught.value.remedy == f"re-export with opset {newest} or newer"


def test_every_handled_attribute_exists_and_is_gone_or_has_changed() -> None:
    for name, rules in RULES.items():
        for rule in rules:
            known = [s for s in schemas("", name) if s.since_version < rule.before]
            assert known, name
            assert all(any(a in s.attributes for s in known) for a in rule.handles), name


def changed_defaults() -> list[tuple[str, int, str, object]]:
    """Attributes whose default was another, or that did not exist, and what they must be."""
    found = []
    for schema in old_schemas():
        if schema.name in RULES or newest(schema).deprecated:
            continue
        for name, formal in newest(schema).attributes.items():
            own = schema.attributes.get(name)
            wanted = (formal if own is None else own).default_value
            if wanted.name and (own is None or own.default_value != formal.default_value):
                value = onnx.helper.get_attribute_value(wanted)
                found.append((schema.name, schema.since_version, name, value))
    return found


SAMPLES: dict[str, Any] = {"INT": 1, "INTS": [1], "FLOAT": 1.0, "STRING": "x"}


def required(schema: defs.OpSchema) -> dict[str, Any] | None:
    """Values for what the version or the newest one insists on; None where that is a graph."""
    needed = {n: f.type for n, f in schema.attributes.items() if f.required}
    inputs = [p.name for p in newest(schema).inputs[: newest(schema).min_input]]
    needed |= {n: f.type for n, f in schema.attributes.items() if n in inputs}
    names = {name: str(kind).rpartition(".")[2] for name, kind in needed.items()}
    if not set(names.values()) <= set(SAMPLES):
        return None
    return {name: SAMPLES[kind] for name, kind in names.items()}


def test_defaults_that_changed() -> None:
    """Of the node's own version where it has one, else of the newest."""
    cases = changed_defaults()
    assert ("Selu", 1, "alpha", pytest.approx(1.6732)) in cases
    assert ("ReduceSum", 1, "noop_with_empty_axes", 0) in cases
    for operator, version, name, value in cases:
        schema = defs.get_schema(operator, version)
        node = bare(schema, required(schema))
        upgrade(node, schema)
        wanted = value.decode() if isinstance(value, bytes) else value
        assert (operator, version, node.attributes[name].value) == (operator, version, wanted)


def test_defaults_of_the_newest_version_are_filled_in() -> None:
    schema = newest_schema("", "Gemm")
    node = bare(schema)
    upgrade(node, schema)
    assert {name: a.value for name, a in node.attributes.items()} == {
        "alpha": 1.0,
        "beta": 1.0,
        "transA": 0,
        "transB": 0,
    }


def test_so_are_those_of_the_nodes_around_it() -> None:
    schema = defs.get_schema("GroupNormalization", 18)
    node = bare(schema, {"num_groups": 2})
    for value in node.inputs[1:]:
        assert value is not None
        value.shape = ir.Shape([2])
    for new in upgrade(node, schema):
        wanted = {n for n, a in newest_schema("", new.op_type).attributes.items()}
        assert set(new.attributes) == wanted


def test_the_operators_whose_shapes_onnx_does_not_infer() -> None:
    """infer gives them the type and shape of their input, which they keep."""
    without = {
        name
        for domain, name in operator_names()
        if domain == "" and not newest_schema("", name).has_type_and_shape_inference_function
    }
    assert without == {"GroupNormalization", "MeanVarianceNormalization"}
