"""One model of many nodes with any number of outputs, compared within units of the last place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from onnxc.compiled import CompiledModel
from onnxc.pipeline import compile_model, evaluate_model
from onnxc.verify.compare import Tolerance, compare
from tests.models import Array, Batch, declared, element_type, stored


@dataclass
class NodeBatch(Batch):
    def add_node(
        self,
        operator: str,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
        *,
        constants: Collection[int] = (),
        **attributes: Any,
    ) -> None:
        """As Batch.add; an input or output that is None is left out."""
        number = len(self.graph.node)
        names = ["" if a is None else f"x{number}_{n}" for n, a in enumerate(inputs)]
        made = ["" if a is None else f"y{number}_{n}" for n, a in enumerate(outputs)]
        for position, (name, array) in enumerate(zip(names, inputs, strict=True)):
            if array is not None and position in constants:
                self.graph.initializer.append(stored(name, array))
            elif array is not None:
                self.graph.input.append(declared(name, array))
                self.given[name] = array
        self.graph.node.append(helper.make_node(operator, names, made, **attributes))
        for name, array in zip(made, outputs, strict=True):
            if array is not None:
                self.graph.output.append(declared(name, array))
                self.wanted[name] = array

    def check_within(self, ulps: float, atol: float = 0) -> None:
        """By the C and by the kernel IR in numpy: types, shapes, NaN and, nearly, the values.

        An element may differ by so many units of its last place, or by `atol`.
        """
        source = self.model()
        for found in (
            CompiledModel(compile_model(source)).run(self.given),
            evaluate_model(source, self.given),
        ):
            assert list(found) == list(self.wanted)
            for name, wanted in self.wanted.items():
                got = found[name]
                assert (name, got.dtype, got.shape) == (name, wanted.dtype, wanted.shape)
                with np.errstate(invalid="ignore"):
                    near = np.abs(got.astype(np.float64) - wanted.astype(np.float64)) <= atol
                far = np.where(near, wanted, got).astype(got.dtype)
                error = compare(far, wanted, element_type(wanted), Tolerance()).max_ulp_error or 0
                assert error <= ulps, (name, got, wanted, error)
