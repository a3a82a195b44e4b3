"""What the operators' tests share: element types by schema, and runs that must report a status."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from onnxc.compiled import CompiledModel
from onnxc.dtypes import BY_NAME, ElementType
from onnxc.errors import ModelError, RunError
from onnxc.op import newest_schema
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import Array, assert_same, run
from tests.ops.node_batch import NodeBatch


def allowed_types(operator: str, parameter: str = "T") -> list[ElementType]:
    """The element types that the newest schema allows."""
    constraints = newest_schema("", operator).type_constraints
    (allowed,) = (c for c in constraints if c.type_param_str == parameter)
    names = [text.removeprefix("tensor(").removesuffix(")") for text in allowed.allowed_type_strs]
    return [BY_NAME[name] for name in names]


def check_fused_and_plain(batch: NodeBatch) -> None:
    """In C as one would have it, in C with every value in a buffer of its own, and in numpy."""
    batch.check()
    assert_same(run(batch.model(), batch.given, plain=True), batch.wanted)


def one_node(
    operator: str,
    inputs: Sequence[Array | None],
    *outputs: Array | None,
    constants: Collection[int] = (),
    **attributes: Any,
) -> NodeBatch:
    batch = NodeBatch()
    batch.add_node(operator, inputs, outputs, constants=constants, **attributes)
    return batch


def assert_status(status: str, batch: NodeBatch) -> None:
    """The run ends with this status, in C and in numpy; the outputs give the declared shapes."""
    source = batch.model()
    with pytest.raises(RunError, match=rf"\(ONNXC_{status}\)"):
        CompiledModel(compile_model(source)).run(batch.given)
    with pytest.raises(ArithmeticError, match=f"^{status}$"):
        evaluate_model(source, batch.given)


def assert_refused(text: str, batch: NodeBatch) -> None:
    """`text` is of the problem without the operands, which stand before the remedy."""
    with pytest.raises(ModelError) as caught:
        compile_model(batch.model())
    (problem,) = caught.value.problems
    assert text in str(replace(problem, operands=""))
