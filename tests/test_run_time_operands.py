"""Run-time indices and shapes that no element depends on are checked all the same.

A dimension of extent 1, a constant that is one value everywhere and a result without elements leave
the operand out of every address.
"""

from typing import Any

import numpy as np
import pytest

from onnxc.compiled import compile
from onnxc.errors import RunError
from tests.malformed import parse
from tests.models import Array

SLICE = "z = Constant <value_ints = [0]> () y = Slice(x, z, a)"
FRONT = "z = Constant <value_ints = [0, 0]> () s = Slice(x, z, a)"
ONES = "c = Constant <value_floats = [1.0, 1.0, 1.0]> () y = Gather(c, a)"


def run(text: str, x: Any, a: Any) -> list[Any]:
    model = compile(parse(text))
    given: dict[str, Array] = {"x": np.asarray(x, np.float32), "a": np.asarray(a, np.int64)}
    return list(model.run({port.name: given[port.name] for port in model.inputs})["y"].tolist())


@pytest.mark.parametrize(
    ("text", "x", "right", "result", "wrong"),
    [
        ("g (float[1] x, int64[1] a) => (float[1] y) { y = Gather(x, a) }", [3], [-1], [3], [1]),
        (f"g (int64[1] a) => (float[1] y) {{ {ONES} }}", [], [2], [1], [3]),
        (
            "g (float[2, 1] x, int64 a) => (float[2] y) { y = Gather <axis = 1> (x, a) }",
            [[3], [4]],
            0,
            [3, 4],
            1,
        ),
        (
            "g (float[2, 1] x, int64[2, 1] a) => (float[2, 1] y) "
            "{ y = GatherElements <axis = 1> (x, a) }",
            [[3], [4]],
            [[0], [-1]],
            [[3], [4]],
            [[0], [-2]],
        ),
        (
            "g (float[1] x, int64[1, 1] a) => (float[1] y) { y = GatherND(x, a) }",
            [3],
            [[0]],
            [3],
            [[1]],
        ),
        (f"g (float[1] x, int64[1] a) => (float[1] y) {{ {SLICE} }}", [3], [1], [3], [0]),
        (
            'g (float[1] x, int64[2] a) => (float[3] y) { y = Pad <mode = "edge"> (x, a) }',
            [3],
            [2, 0],
            [3, 3, 3],
            [2, 1],
        ),
    ],
)
def test_where_no_address_needs_it(text: str, x: Any, right: Any, result: Any, wrong: Any) -> None:
    assert run(text, x, right) == result
    with pytest.raises(RunError):
        run(text, x, wrong)


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("g (int64[1] a) => (float[0] y) { y = ConstantOfShape(a) }", [0], [1]),
        ("g (int64[1] a) => (float[0] y) { t = ConstantOfShape(a) y = Abs(t) }", [0], [1]),
        ("g (float[2] x, int64[1] a) => (float[0] y) { y = Tile(x, a) }", [0], [1]),
        (f"g (float[2] x, int64[1] a) => (float[0] y) {{ {SLICE} }}", [-2], [-1]),
        (
            f"g (float[1, 2] x, int64[2] a) => (float[0, 2] y) {{ {FRONT} y = Neg(s) }}",
            [0, 2],
            [1, 2],
        ),
    ],
)
def test_without_elements(text: str, right: list[int], wrong: list[int]) -> None:
    x = np.ones((1, 2) if "[1, 2] x" in text else 2)
    assert run(text, x, right) == []
    with pytest.raises(RunError):
        run(text, x, wrong)


def test_axes_that_are_named_twice() -> None:
    """[-1, 1] would leave another shape than two different axes of which one has extent 1."""
    made = "y = ReduceSum <keepdims = 0> (x, a)"
    text = f"g (float[1, 2, 1] x, int64[2] a) => (float[1] y) {{ {made} }}"
    assert run(text, [[[1], [2]]], [-2, 0]) == [3]
    with pytest.raises(RunError):
        run(text, [[[1], [2]]], [-2, 1])


def test_what_indices_without_elements_ask_for_is_nothing() -> None:
    assert run("g (float[2] x, int64[0] a) => (float[0] y) { y = Gather(x, a) }", [1, 2], []) == []
