"""propose: what is tried, in which order, and how it is worded."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
import pytest

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem
from onnxc.passes import propose
from onnxc.passes.bind import bind_dims
from onnxc.passes.fix import Fix
from onnxc.passes.fixable import FixProblem
from onnxc.passes.propose import Options, improved, proposed, remaining
from onnxc.pipeline import compile_model
from tests.malformed import parse
from tests.test_proposals import BLOCKED, BOTH, RATE, UNLIKELY

TWO = "g (float[N, M] x) => (float[N, M] y) { y = Neg(x) }"


def test_options_are_worded_for_both() -> None:
    options = Options({"N": 1}, {"r": 2}).and_(Options({"M": 3}, {"s": [4, 5]}))
    assert options == Options({"N": 1, "M": 3}, {"r": 2, "s": [4, 5]})
    assert options.on_command_line() == "--dim N=1 --dim M=3 --fix r=2 --fix s=4,5"
    assert options.in_python() == 'dims={"N": 1, "M": 3}, fix={"r": 2, "s": [4, 5]}'
    assert Options({"N": 1}).on_command_line() == "--dim N=1"
    assert Options({"N": 1}).in_python() == 'dims={"N": 1}'
    assert Options({}, {"r": 2}).in_python() == 'fix={"r": 2}'
    assert Options({"N": 1}).and_(None) == Options({"N": 1})


@pytest.mark.parametrize(
    ("text", "dims", "found"),
    [
        (BOTH, {}, Options({"N": 1}, {"r": 1})),
        (RATE, {}, Options({}, {"rate": 16000})),
        (TWO, {}, Options({"N": 1, "M": 1})),
        (TWO, {"N": 3}, Options({"M": 1})),
        (UNLIKELY, {}, Options({"N": 1, "H": 1})),
        ("g (float[2] x) => (float[2] y) { y = Neg(x) }", {}, Options()),
    ],
)
def test_what_closes_a_model(text: str, dims: Mapping[str, int], found: Options) -> None:
    assert proposed(parse(text), dims, {}) == found


def test_what_is_fixed_already_is_kept() -> None:
    assert proposed(parse(BOTH), {}, {"r": 3}) == Options({"N": 1})
    assert proposed(parse(BOTH), {"N": 2}, {}) == Options({}, {"r": 1})


def test_what_remains() -> None:
    problems = remaining(parse(BOTH), Options())
    assert [(problem.kind, problem.where) for problem in problems] == [
        (Kind.OPEN_DIMENSIONS, "model")
    ]
    assert remaining(parse(BOTH), Options({"N": 1}, {"r": 1})) == ()


def error_of(text: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        compile_model(parse(text))
    return caught.value


def tried(text: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The sizes that are tried where none does."""
    error, seen = error_of(text), []

    def bound(model: ir.Model, dims: Mapping[str, int]) -> None:
        seen.append(dict(dims))
        bind_dims(model, dims)

    def never(_model: ir.Model) -> None:
        raise ModelError([Problem(Kind.RESULT_SHAPE, "", "nothing does")])

    monkeypatch.setattr(propose, "bind_dims", bound)
    monkeypatch.setattr(propose, "infer", never)
    improved(error, parse(text), {}, {})
    return seen


def test_sizes_are_tried_from_the_likely_ones_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the model are of its outputs, attributes and constants; no more than six."""
    text = """g (float[N, K] x)
    => (float[N, K] y, float[33, 1] a, float[1, 1024] b, float[1025, 7] c)
    <int64[2] sa = {33, 1}, int64[2] sb = {1, 1024}, int64[2] sc = {1025, 7},
     int64[4] sd = {1, 25, 1, 1}, int64[4] se = {1, 1, 6, 6}>
    { y = Neg(x) a = ConstantOfShape(sa) b = ConstantOfShape(sb) c = ConstantOfShape(sc)
      d = ConstantOfShape(sd) e = DepthToSpace <blocksize = 5> (d)
      f = ConstantOfShape(se) h = MaxPool <kernel_shape = [6, 6]> (f) }"""
    found = tried(text, monkeypatch)
    own = [33, 1024, 7, 5, 6, 2]
    inner = [1, 224, *own, 64, 512, 16, 4]
    assert found == [
        *({"N": 1, "K": size} for size in inner),
        *({"N": size, "K": size} for size in [*own, 4, 8]),
    ]


def test_where_there_are_batches_only_all_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "g (float[N] x, float[3, batch_2] z) => (float[N] y) { y = Foo(x, z) }"
    found = tried(text.replace("Foo", "Add"), monkeypatch)
    assert found == [{"N": size, "batch_2": size} for size in (1, 2, 4, 8)]


def test_a_sequence_is_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "g (float[Seq] x, float[M] z) => (float[Seq] y) { y = Add(x, z) }"
    found = tried(text, monkeypatch)
    assert found[:3] == [{"Seq": 1, "M": 1}, {"Seq": 224, "M": 1}, {"Seq": 64, "M": 1}]


def test_nothing_is_tried_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose, "SECONDS", -1.0)
    assert tried(TWO, monkeypatch) == []


def test_beside_what_no_option_solves_sizes_are_left_to_the_user() -> None:
    *others, dims = error_of(BLOCKED).problems
    assert len(others) == 2
    assert dims.remedy == "give each one with --dim, once the other problems are solved"


def test_without_a_size_that_fits() -> None:
    (problem,) = error_of(UNLIKELY).problems
    lead = "give each one a size that fits, none of those tried does"
    assert problem.remedy == f"{lead}: --dim N=N --dim H=N"


def test_an_error_that_no_option_solves_is_itself() -> None:
    error = ModelError([Problem(Kind.RESULT_SHAPE, "", "nothing does")])
    assert improved(error, parse(TWO), {}, {}) is error


def test_a_value_that_makes_no_difference_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two inputs may decide it; with the second fixed no problem is left."""
    candidates: tuple[tuple[str, tuple[Fix, ...]], ...] = (("a", (1, 5)), ("b", (2,)))
    problem = FixProblem(Kind.RUN_TIME_BRANCH, "", "it must be known", candidates=candidates)
    seen: list[dict[str, Fix]] = []

    def fixed(_model: ir.Model, values: Mapping[str, Fix]) -> None:
        seen.append(dict(values))

    def decided(_model: ir.Model) -> None:
        if seen[-1].get("b") != 2 or seen[-1].get("a", 5) != 5:
            raise ModelError([problem])

    monkeypatch.setattr(propose, "fix_inputs", fixed)
    monkeypatch.setattr(propose, "infer", decided)
    text = "g (int64 a, int64 b, float[2] x) => (float[2] y) { y = Neg(x) }"
    (found,) = improved(ModelError([problem]), parse(text), {}, {}).problems
    assert found.remedy == "fix what decides it: --fix b=2"
    assert seen == [{"a": 1, "b": 2}, {"a": 5, "b": 2}, {"b": 2}, {}]
