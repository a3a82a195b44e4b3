"""bind: --dim."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxc.errors import UsageError
from onnxc.passes.bind import (
    DimensionError,
    OpenDim,
    OpenDimsProblem,
    argument,
    bind_dims,
    open_dims,
    open_dims_problem,
    options,
)
from onnxc.passes.load import load
from tests.malformed import parse


@pytest.fixture
def model() -> ir.Model:
    """Two named dims, one nameless, one fixed; the name N also inside and on the output."""
    return load(
        parse(
            'g (float[N, 3, M] x, float[N, ?] "input:0") => (float[N, 3, M] y)'
            " <float[N, 3, M] t> { t = Neg(x) y = Identity(t) }"
        )
    )


def shapes(model: ir.Model) -> list[str]:
    values = (*model.graph.inputs, *(v for node in model.graph for v in node.outputs))
    return [f"{value.name}{value.shape}" for value in values]


def refusal(model: ir.Model, **dims: int) -> list[str]:
    before = shapes(model)
    with pytest.raises(UsageError) as caught:
        bind_dims(model, {key.replace("__", ":"): size for key, size in dims.items()})
    assert shapes(model) == before
    return str(caught.value).splitlines()


def test_open_dims(model: ir.Model) -> None:
    assert open_dims(model) == (
        OpenDim("x", 0, "N"),
        OpenDim("x", 2, "M"),
        OpenDim("input:0", 0, "N"),
        OpenDim("input:0", 1, None),
    )


def test_a_name_is_bound_wherever_it_occurs(model: ir.Model) -> None:
    bind_dims(model, {"N": 2, "M": 0, "input:0:1": 5})
    assert shapes(model) == ["x[2,3,0]", "input:0[2,5]", "t[2,3,0]", "y[2,3,0]"]
    assert open_dims(model) == ()
    assert open_dims_problem(model) == []


def test_an_axis_with_a_name_binds_the_name(model: ir.Model) -> None:
    bind_dims(model, {"input:0:0": 4})
    assert shapes(model)[:2] == ["x[4,3,M]", "input:0[4,None]"]


def test_what_is_fixed_may_be_said_again(model: ir.Model) -> None:
    bind_dims(model, {"x:1": 3, "N": 2, "x:0": 2})
    assert shapes(model)[0] == "x[2,3,M]"


def test_an_exact_name_comes_first() -> None:
    model = load(parse("g (float[N, 2] x, float[?] z) => (float[N, 2] y) { y = Identity(x) }"))
    model.graph.inputs[0].shape = ir.Shape(["z:0", 2])
    bind_dims(model, {"z:0": 7})
    assert shapes(model)[:2] == ["x[7,2]", "z[None]"]


def test_the_refusal_can_be_pasted(model: ir.Model) -> None:
    (problem,) = open_dims_problem(model)
    assert str(problem) == (
        "model: input dimensions without a size: "
        "'N' (axis 0 of input 'x', axis 0 of input 'input:0'), "
        "'M' (axis 2 of input 'x'), axis 1 of input 'input:0'; "
        "give each one: --dim N=1 --dim M=1 --dim input:0:1=1"
    )


def test_keys_are_quoted_for_a_shell(model: ir.Model) -> None:
    model.graph.inputs[0].shape = ir.Shape(["batch size", "it's", "$N"])
    (problem,) = open_dims_problem(model)
    assert problem.remedy == (
        "give each one: --dim 'batch size=1' --dim 'it'\"'\"'s=1' --dim '$N=1'"
        " --dim N=1 --dim input:0:1=1"
    )


def test_an_input_of_unknown_rank(model: ir.Model) -> None:
    model.graph.inputs[0].shape = None
    unknown, open_ = open_dims_problem(model)
    assert str(unknown) == (
        "input 'x': has no shape, so that not even its rank is known; "
        "re-export the model with shaped inputs"
    )
    assert open_.where == "model"
    assert refusal(model, x__0=1) == ["--dim x:0=1: input 'x' has no shape in the model"]


def test_rank_0_is_not_unknown() -> None:
    model = load(parse("g (float x) => (float y) { y = Identity(x) }"))
    model.graph.inputs[0].shape = ir.Shape([])
    assert open_dims_problem(model) == []
    assert refusal(model, N=1) == [
        "--dim N=1: the model has no such dimension; it has no open dims"
    ]


def test_every_wrong_key_is_told(model: ir.Model) -> None:
    said = refusal(model, N=2, x__0=3, x__1=4, x__7=1, nowhere=1, input__0__x=1, M=-1)
    dims = (
        "open dims: 'N' (axis 0 of input 'x', axis 0 of input 'input:0'), "
        "'M' (axis 2 of input 'x'), axis 1 of input 'input:0'"
    )
    assert said == [
        "--dim x:0=3: dimension 'N' has the size 2 by 'N'",
        "--dim x:1=4: axis 1 of input 'x' is fixed at 3",
        "--dim x:7=1: input 'x' has rank 3",
        f"--dim nowhere=1: the model has no such dimension; its {dims}",
        f"--dim input:0:x=1: the model has no such dimension; did you mean 'input:0:1'? Its {dims}",
        "--dim M=-1: a size must be an integer of 0 or more",
    ]


def test_an_axis_may_be_any_number(model: ir.Model) -> None:
    """More digits than Python reads at once."""
    for digits in ("3", "4294967296", "9" * 5000):
        key = f"x:{digits}"
        assert refusal(model, **{key: 1}) == [f"--dim {key}=1: input 'x' has rank 3"]


def test_options_are_words_of_a_shell_on_one_line() -> None:
    assert options({"N": 1, "a b": 2}) == "--dim N=1 --dim 'a b=2'"
    assert options({"a\nb": 1}) == r"--dim $'a\012b=1'"
    assert options({"é\x1b'\\": 1}) == r"--dim $'\303\251\033\047\134=1'"
    assert options({}) == ""


def test_several_sizes_in_one_option(model: ir.Model) -> None:
    for key in ("N=2,M", "N=2, M", "N=2;M", "N=2 M"):
        assert refusal(model, **{key: 3}) == [
            f"--dim {key}=3: one size each; repeat --dim for each: --dim N=2 --dim M=3"
        ]


def test_a_dim_of_many_inputs_is_told_once() -> None:
    inputs = ", ".join(f"float[N] x{n}" for n in range(9))
    model = load(parse(f"g ({inputs}) => (float[N] y) {{ y = Identity(x0) }}"))
    (problem,) = open_dims_problem(model)
    assert problem.fact == (
        "input dimensions without a size: "
        "'N' (axis 0 of input 'x0', axis 0 of input 'x1', axis 0 of input 'x2', 6 more)"
    )


def test_the_same_for_python(model: ir.Model) -> None:
    (problem,) = open_dims_problem(model)
    assert isinstance(problem, OpenDimsProblem)
    assert problem.in_python().remedy == 'give each one: dims={"N": 1, "M": 1, "input:0:1": 1}'
    with pytest.raises(DimensionError) as caught:
        bind_dims(model, {"n": 2, "M": -1})
    assert str(caught.value.in_python()).splitlines()[1] == (
        "dims['M'] = -1: a size must be an integer of 0 or more"
    )


def test_an_argument_shows_names_as_they_are() -> None:
    assert argument({"größe": 2, 'a"b': 3}) == 'dims={"größe": 2, "a\\"b": 3}'
