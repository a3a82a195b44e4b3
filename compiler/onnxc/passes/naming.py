"""Names of values that passes put into a graph: each once."""

from __future__ import annotations

import onnx_ir as ir


class ValueNames:
    """The names of a graph's values."""

    def __init__(self, graph: ir.Graph) -> None:
        values = [*graph.inputs, *graph.initializers.values()]
        values += (value for node in graph for value in node.outputs)
        self._taken = {value.name for value in values}
        self._numbers: dict[str, int] = {}

    def settle(self, value: ir.Value) -> None:
        """Gives a value that is new to the graph another name where its own is taken."""
        own = value.name
        if not own:
            return
        name = own
        while name in self._taken:
            self._numbers[own] = self._numbers.get(own, 1) + 1
            name = f"{own}_{self._numbers[own]}"
        self._taken.add(name)
        if name != own:
            value.name = name
