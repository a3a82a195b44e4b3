"""One node and the nodes that take its place: what the rules of upgrade.py write with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.op import OPSET
from onnxc.values import element_type_of, static_shape, tensor_of, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import defs


class Rewriting:
    """`nodes` replace `node`, in order; it is one of them and keeps its name.

    New nodes are of the newest form, named after the node and what they do.
    """

    def __init__(self, node: ir.Node, schema: defs.OpSchema) -> None:
        self.node = node
        self.schema = schema
        self.label = label_of(node)
        self._before: list[ir.Node] = []
        self._after: list[ir.Node] = []

    @property
    def nodes(self) -> list[ir.Node]:
        return [*self._before, self.node, *self._after]

    def take(self, name: str) -> Any:
        """The value of an attribute, which the node then lacks; None where it had none."""
        attribute = self.node.attributes.pop(name, None)
        return None if attribute is None else attribute.value

    def set(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            self.node.attributes[name] = ir.convenience.convert_attribute(name, value)

    def input(self, position: int) -> ir.Value | None:
        inputs = self.node.inputs
        return inputs[position] if position < len(inputs) else None

    def needed(self, position: int) -> ir.Value:
        value = self.input(position)
        if value is None:
            raise RefusalError(Kind.OPERAND_LEFT_OUT, f"input {position} is left out")
        return value

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of an input. Raises RefusalError where it is not known."""
        shape = static_shape(self.needed(position))
        if shape is None:
            name = self.schema.inputs[min(position, len(self.schema.inputs) - 1)].name
            raise RefusalError(
                Kind.SHAPE_UNKNOWN, f"the shape of input {name} must be known for this version"
            )
        return shape

    def dtype(self, position: int) -> ElementType:
        value = self.needed(position)
        assert value.dtype is not None
        return element_type_of(value.dtype)

    def known(self, position: int, name: str) -> NDArray[Any]:
        """The values of an input. Raises RefusalError where they come at run time."""
        value = self.needed(position)
        if value.const_value is None:
            fact = f"input {name} must be known at compile time for this version"
            raise RefusalError(Kind.CONSTANT_REQUIRED, fact, "make it an initializer")
        return values_of(value.const_value)

    def set_input(self, position: int, value: ir.Value | None) -> None:
        if position >= len(self.node.inputs):
            self.node.resize_inputs(position + 1)
        self.node.replace_input_with(position, value)

    def set_inputs(self, *values: ir.Value | None) -> None:
        self.node.resize_inputs(len(values))
        for position, value in enumerate(values):
            self.node.replace_input_with(position, value)

    def rename(self, op_type: str) -> None:
        """Makes the node one of another operator, in its newest form."""
        self.node.op_type = op_type
        self.node.version = OPSET

    def constant(self, values: object, name: str, dtype: ElementType = INT64) -> ir.Value:
        with np.errstate(over="ignore"):
            array = np.asarray(values, dtype.numpy)
        label = f"{self.label}/{name}"
        return ir.Value(
            name=label,
            type=ir.TensorType(ir.DataType(dtype.code)),
            shape=ir.Shape(array.shape),
            const_value=tensor_of(array, dtype, label),
        )

    def add(
        self, op_type: str, inputs: Sequence[ir.Value | None], name: str = "", **attributes: Any
    ) -> ir.Value:
        """The output of a new node before this one; `name` tells several of an operator apart."""
        new = self._new(op_type, inputs, name, attributes)
        self._before.append(new)
        return new.outputs[0]

    def reshaped(self, position: int, shape: Sequence[int]) -> ir.Value:
        """An input in another shape of as many elements."""
        name = self.schema.inputs[position].name
        target = self.constant(shape, f"{name}/shape")
        return self.add("Reshape", [self.needed(position), target], f"{name}/Reshape", allowzero=1)

    def finish(
        self, position: int, op_type: str, inputs: Sequence[ir.Value] = (), **attributes: Any
    ) -> None:
        """Lets a new node make an output from what this one gives, and from `inputs`."""
        old = self.node.outputs[position]
        new = self._new(op_type, [], "", attributes)
        take_over(old, new.outputs[0])
        old.name = f"{self.label}/{self.schema.outputs[position].name}"
        old.shape = old.type = None
        new.resize_inputs(1 + len(inputs))
        for place, value in enumerate((old, *inputs)):
            new.replace_input_with(place, value)
        self._after.append(new)

    def _new(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        attributes: dict[str, Any],
    ) -> ir.Node:
        converted = ir.convenience.convert_attributes(attributes) if attributes else ()
        label = f"{self.label}/{name or op_type}"
        new = ir.Node("", op_type, inputs, converted, name=label, version=OPSET)
        new.outputs[0].name = label
        return new


def label_of(node: ir.Node) -> str:
    """What the names of nodes and values that come from a node begin with."""
    named = (value.name for value in node.outputs if value.name)
    return node.name or next(named, None) or node.op_type


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Gives `new` the readers, name and declaration of `old`, also as output of a graph."""
    new.name, new.type, new.shape = old.name, old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)
