"""Copies of bytes from rows to columns, for every register file."""

from __future__ import annotations

import numpy as np
import pytest

from onnxc.dtypes import BY_NAME
from onnxc.expression import Axis, Buffer, along, load
from onnxc.kernel import Loops, Micro, Program
from onnxc.passes.choose import chosen
from onnxc.target import TARGETS
from tests.kernels.programs import built
from tests.kernels.variants import BUILDS, Build, require


@pytest.mark.parametrize("build", [*BUILDS, Build(1, "tcc", (), "sse2")], ids=str)
@pytest.mark.parametrize("name", ["uint8", "int8", "bool"])
@pytest.mark.parametrize("shape", [(1, 32, 64), (3, 17, 63), (2, 100, 16), (1, 130, 31)], ids=str)
def test_rows_become_columns(shape: tuple[int, int, int], name: str, build: Build) -> None:
    """Of whole squares, and of what they cover twice."""
    require(build)
    dtype = BY_NAME[name]
    outer, rows, columns = map(Axis, shape)
    x = Buffer("x", shape, dtype, "input")
    y = Buffer("y", (shape[0], shape[2], shape[1]), dtype, "output")
    value = load(x, tuple(map(along, (outer, rows, columns))))
    places = tuple(map(along, (outer, columns, rows)))
    target = TARGETS["generic"]
    (step,) = chosen(Loops(y, places, (outer, columns, rows), value), target)
    assert isinstance(step, Micro)
    assert step.name == "byte_transpose"
    made = Program((x,), (y,), (step,), target=target)
    bits = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    given = bits > 127 if name == "bool" else bits.view(name)
    _, results = built(made, build.compiler, build.flags).run({x: given})
    np.testing.assert_array_equal(results[y], given.transpose(0, 2, 1))
