"""The kernel of copies that read along one axis and write along another: every element in place."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import pytest
from onnx import helper

from onnxc.compiled import CompiledModel
from onnxc.kernel import Loops, Micro
from onnxc.pipeline import Compiled, compile_model
from tests.kernels.variants import VARIANTS, flags_of
from tests.models import STRICT, Array, declared, model
from tests.toolchains import Tool

Case = tuple[tuple[int, ...], tuple[int, ...]]
TURNED: Final[list[Case]] = [
    # Whole vectors of any width; overlapping last squares; loops around; what is not next to it.
    ((32, 48), (1, 0)),
    ((37, 53), (1, 0)),
    ((3, 17, 31), (0, 2, 1)),
    ((16, 5, 3, 21), (1, 3, 2, 0)),
    ((2, 20, 3, 19), (0, 2, 3, 1)),
    # Bands of columns, the last one narrower.
    ((35, 2, 300), (2, 1, 0)),
]
OTHERS: Final[list[Case]] = [
    ((20, 7, 64), (1, 0, 2)),
    ((3, 1024), (1, 0)),
    ((16, 16), (1, 0)),
]


TYPES: Final = ["float32", "int32", "uint32"]


@cache
def transposes(dtype: str) -> tuple[dict[str, Array], Compiled]:
    """Of all bit patterns that floats could be changed by, if integers were read as such."""
    bits = np.random.default_rng(0).integers(0x7F7FFFF0, 0x7F9FFFFF, 2**16, np.uint32)
    graph = helper.make_graph([], "g", [], [])
    given: dict[str, Array] = {}
    for number, (shape, order) in enumerate((*TURNED, *OTHERS)):
        name = f"x{number}"
        given[name] = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
        if dtype != "float32":
            given[name] = bits[: given[name].size].view(dtype).reshape(shape)
        graph.node.append(helper.make_node("Transpose", [name], [f"y{number}"], perm=order))
        graph.input.append(declared(name, given[name]))
        graph.output.append(declared(f"y{number}", given[name].transpose(order)))
    return given, compile_model(model(graph))


def check(dtype: str) -> None:
    given, compiled = transposes(dtype)
    found = CompiledModel(compiled).run(given)
    for number, (_, order) in enumerate((*TURNED, *OTHERS)):
        np.testing.assert_array_equal(found[f"y{number}"], given[f"x{number}"].transpose(order))


@pytest.mark.parametrize("dtype", TYPES)
def test_which_copies_turn(dtype: str) -> None:
    """Not those whose rows stay rows, with a side shorter than a vector, or of few elements."""
    _, compiled = transposes(dtype)
    kinds = [type(step) for step in compiled.program.steps]
    assert kinds == [Micro] * len(TURNED) + [Loops] * len(OTHERS)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_element_in_place(variant: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, flags_of(variant)]))
    check(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("compiler", ["clang", "tcc"])
def test_by_other_compilers(
    compiler: str, dtype: str, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """clang has another builtin for shuffles; tcc has no vectors."""
    monkeypatch.setenv("CC", tool(compiler))
    check(dtype)
