"""The text of the two files: wrapping, comments, names, and the same bytes every time."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxc.emit.text import wrapped
from onnxc.expression import Axis, Checked, along, apply, at, compare, load
from onnxc.kernel import Loops, Origin, Program
from onnxc.names import model_name
from onnxc.pipeline import Compiled, compile_model
from onnxc.status import Status
from onnxc.target import TARGETS
from tests.kernels.programs import BOOL, FLOAT, INT64, buffer, const, emitted, over
from tests.portable_models import LARGE_CONSTANTS, models

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CHECKED = [(name, proto) for name, proto in models() if name != LARGE_CONSTANTS]


@pytest.fixture(scope="module")
def outputs() -> list[Compiled]:
    return [compile_model(proto, name=model_name(f"m_{name}")) for name, proto in CHECKED]


def lines_of(compiled: Compiled) -> Iterator[str]:
    """Without the constants, which are data."""
    code = compiled.c_source.partition("\nstatic const ")[0]
    yield from [*code.splitlines(), *compiled.body.splitlines(), *compiled.header.splitlines()]


def test_lines_are_short(outputs: list[Compiled]) -> None:
    """Macros, which have no place to break, excepted."""
    for compiled in outputs:
        long = [line for line in lines_of(compiled) if len(line) > 100]
        assert [line for line in long if not line.startswith("#")] == []


def test_the_text_is_plain_ascii_without_stray_blanks(outputs: list[Compiled]) -> None:
    for compiled in outputs:
        for text in (compiled.header, compiled.c_source):
            assert text.isascii()
            assert text.endswith("\n")
            assert "\t" not in text
            assert not re.search(r" $", text, re.MULTILINE)


def test_comments_end_where_they_should(outputs: list[Compiled]) -> None:
    """Whatever the names in them: outside of comments there is no `*/`, inside no `/*`."""
    for compiled in outputs:
        for text in (compiled.header, compiled.c_source):
            without_strings = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
            assert "*/" not in COMMENT.sub("", without_strings)
            assert not any("/*" in found[2:] for found in COMMENT.findall(text))
            assert "??" not in text


def test_the_same_bytes_every_time(outputs: list[Compiled]) -> None:
    for compiled, (name, proto) in zip(outputs, CHECKED, strict=True):
        again = compile_model(proto, name=model_name(f"m_{name}"))
        assert again.header == compiled.header
        assert again.c_source == compiled.c_source


def test_equal_kernels_are_one_function() -> None:
    shapes: list[Any] = [helper.make_tensor_value_info(n, 1, [8]) for n in "abcd"]
    nodes = [helper.make_node("Equal", pair, [pair[0] + "y"]) for pair in ("ab", "cd")]
    results = [helper.make_tensor_value_info(n, TensorProto.BOOL, [8]) for n in ("ay", "cy")]
    graph = helper.make_graph(nodes, "g", shapes, results)
    body = compile_model(helper.make_model(graph)).body
    assert len(re.findall(r"^static ONNXC_KERNEL void ", body, re.MULTILINE)) == 1
    assert len(re.findall(r"^    equal_0\(", body, re.MULTILINE)) == 2


def test_every_node_is_listed() -> None:
    """Also one that was folded, one that is an alias, and one that nothing needs."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, [8])
    n = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    nodes = [
        helper.make_node("Identity", ["x"], ["same"], name="alias"),
        helper.make_node("Equal", ["same", "x"], ["y"], name="real"),
        helper.make_node("Size", ["x"], ["n"], name="known"),
        helper.make_node("Equal", ["x", "x"], ["unused"], name="dead"),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y, n]))
    run = compile_model(model).body.partition("onnxc_status model_run(")[2]
    for name in ("alias", "real", "known", "dead"):
        assert f"'{name}'" in run
    assert "no output needs it" in run


pieces = st.lists(st.sampled_from(["a", "bcd + ", "f(x, y), ", "-1 * ", '"s, t", ', "(" * 9]))


@given(st.integers(0, 4), pieces)
def test_wrapping_changes_blanks_only(depth: int, parts: list[str]) -> None:
    line = "    " * depth + "x = " + "".join(parts) + "0;"
    broken = wrapped(line)
    assert re.sub(r"\s+", " ", broken).strip() == re.sub(r"\s+", " ", line).strip()
    first, *rest = broken.splitlines()
    assert len(first) - len(first.lstrip()) == 4 * depth
    assert all(part.startswith(" " * (4 * depth + 8)) for part in rest)


def test_lines_in_deep_loops_fit() -> None:
    subscript = "a[i * 867 + j * 289 + m * 17 + n + i5 * -34 + i6 * -1 + 1]"
    call = "(int32_t)((uint32_t)onnxc_int32_of_float(onnxc_floor_float(v0)) + (uint32_t)i6)"
    for line in (f"{' ' * 36}sum0 += {subscript} * b[k];", f"{' ' * 40}y[i] = f({call}, 0);"):
        assert max(map(len, wrapped(line).splitlines())) <= 100


def test_long_names_of_functions_fit() -> None:
    name = "transpose_mat_mul_add_1_1x20_single_part_avx512"
    line = f"static ONNXC_TUNED_AVX512 void {name}(const double *restrict x, int32_t n)"
    assert max(map(len, wrapped(line).splitlines())) <= 100


def test_a_long_line_of_a_comment_becomes_two() -> None:
    """Not where commas or operators are: it is no code."""
    first = f"    /* a - b, c{' word' * 20} */"
    assert wrapped(first) == f"    /* a - b, c{' word' * 17}\n     *{' word' * 3} */"
    later = f"     *{' word' * 19} */"
    assert wrapped(later) == f"     *{' word' * 18}\n     * word */"


def test_a_product_that_goes_on_is_no_comment() -> None:
    code = f"            * {'factor, ' * 11}last);"
    assert wrapped(code) == f"            * {'factor, ' * 9}factor,\n{' ' * 20}factor, last);"


def test_wrapping_keeps_strings_whole() -> None:
    line = "    y[i] = f(a[i], (onnxc_string){" + '"' + "a, b " * 30 + '", 150});'
    assert '"' + "a, b " * 30 + '"' in wrapped(line)
    assert len(wrapped("    f(" + "argument, " * 30 + "0);").splitlines()) > 1


def test_a_kernel_names_its_nodes_in_wrapped_comments() -> None:
    """However many and long; text that could end the comment is shown escaped."""
    x, y, i = buffer("x", "input", FLOAT, 4), buffer("y", "output", BOOL, 4), Axis(4)
    same = compare("equal", load(x, [along(i)]), const(1, FLOAT))
    origins = tuple(Origin("Equal-19", f"{'n' * 70}*/ {n}", "x -> y") for n in range(12))
    step = over(y, same, i)
    program = Program((x,), (y,), (replace(step, origins=origins),))
    body = emitted(program).body
    assert max(map(len, body.splitlines())) <= 100
    assert "*/" not in COMMENT.sub("", body)
    assert "and 4 more nodes" in body


def test_the_files_belong_together() -> None:
    """Each header has a hash of its interface; what does not change the interface keeps it."""
    hashes = []
    for shape in ((4,), (5,), (4,)):
        x, y = buffer("x", "input", FLOAT, *shape), buffer("y", "output", BOOL, *shape)
        i = Axis(shape[0])
        step = over(y, compare("equal", load(x, [along(i)]), const(1, FLOAT)), i)
        compiled = emitted(Program((x,), (y,), (step,)))
        (found,) = re.findall(r"#define P_INTERFACE (\w+)", compiled.header)
        assert f"#if P_INTERFACE != {found}" in compiled.c_source
        hashes.append(found)
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_program_without_anything() -> None:
    compiled = emitted(Program())
    assert "onnxc_status p_run(p_workspace *workspace)" in compiled.header
    assert "onnxc_status p_run_static(void)" in compiled.header


def test_a_status_is_asked_for_only_where_one_can_arise() -> None:
    y, i = buffer("y", "output", INT64, 4), Axis(4)
    plain = Program((), (y,), (over(y, at(along(i)), i),))
    assert "status" not in emitted(plain).body.replace("onnxc_status", "")
    checked = Checked(INT64, at(along(i)), const(True, BOOL), Status.DIVISION_BY_ZERO)
    assert "onnxc_first(status, " in emitted(Program((), (y,), (over(y, checked, i),))).body


def test_clang_fuses_products_in_functions_that_only_such_kernels_call() -> None:
    """gcc fuses them where it inlines the functions into such kernels."""
    x, y = buffer("x", "input", FLOAT, 4096), buffer("y", "output", FLOAT, 4096)
    z, i = buffer("z", "output", FLOAT, 4096), Axis(4096)
    value = load(x, [along(i)])
    fused = over(y, apply("erf", value), i)
    exact = over(z, apply("exp", value) * value + value * value, i)

    def functions(*steps: Loops) -> tuple[set[str], set[str]]:
        """What is outside of the part with fused products, and inside."""
        outputs = tuple(step.out for step in steps)
        program = Program((x,), outputs, steps, target=TARGETS["generic"])
        outside, _, rest = emitted(program).c_source.partition("#pragma STDC FP_CONTRACT ON")
        inside, _, after = rest.partition("#pragma STDC FP_CONTRACT OFF")
        defined = re.compile(r"^static ONNXC_INLINE float onnxc_(\w+)_float\(", re.MULTILINE)
        return set(defined.findall(outside + after)), set(defined.findall(inside))

    outside, inside = functions(fused)
    assert (outside, "erf" in inside, "exp_rest" in inside) == (set(), True, True)
    outside, inside = functions(fused, exact)
    assert {"exp", "exp_rest"} <= outside
    assert "erf" in inside
    outside, inside = functions(exact)
    assert ("exp" in outside, inside) == (True, set())


def test_indices_are_as_wide_as_they_must_be() -> None:
    """An int32_t where every partial sum fits; only looked at, not run."""
    for extent, wanted in ((2**31 - 1, "int32_t"), (2**31, "int64_t")):
        x, y = buffer("x", "input", FLOAT, extent), buffer("y", "output", BOOL, extent)
        i = Axis(extent)
        step = over(y, compare("equal", load(x, [along(i)]), const(1, FLOAT)), i)
        body = emitted(Program((x,), (y,), (step,))).body
        assert f"for ({wanted} i = 0; i < {extent}; i++)" in body


def test_onnx_names_are_kept_for_people() -> None:
    x = helper.make_tensor_value_info("in put/1", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("out:2", TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["in put/1"], ["out:2"])], "g", [x], [y]
    )
    header = compile_model(helper.make_model(graph)).header
    assert "const float in_put_1[2]" in header
    assert '"in put/1"' in header


@pytest.mark.parametrize(
    ("operator", "line"), [("Sqrt", "Link with -lm, for sqrtf."), ("Log", ""), ("Neg", "")]
)
def test_a_file_says_when_it_needs_the_mathematical_library(operator: str, line: str) -> None:
    """By what it calls: comments name square roots too."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", [x], [y])
    source = compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    assert re.findall(r"Link with -lm.*", source.c_source) == [line] * bool(line)
    assert ("#include <math.h>" in source.c_source) is bool(line)
