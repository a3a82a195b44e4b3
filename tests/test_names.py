"""Names: whatever a model calls its tensors, the C compiles and the comments stay comments."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxc.errors import UsageError
from onnxc.names import (
    LONGEST_IDENTIFIER,
    Names,
    c_identifier,
    check_model_name,
    comment_text,
    model_name,
    unique_names,
)
from tests.portable_models import ODD_NAMES

# Plain text, text with the characters that hurt, and bytes that are not UTF-8.
ANY_TEXT = (
    st.text()
    | st.text(st.sampled_from("aA1_. -*/?\\\n\"'%=(<é"))
    | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)
NOT_UTF8 = b"\xff\xfe".decode("utf-8", "surrogateescape")


def is_identifier(text: str) -> bool:
    """A C and C++ identifier that no implementation may keep for itself."""
    return re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", text) is not None


@given(st.lists(ANY_TEXT, max_size=20), st.sets(st.sampled_from(["x", "X_1", "value", "a"])))
def test_any_names_become_different_identifiers(names: list[str], taken: set[str]) -> None:
    identifiers = unique_names(names, taken)
    assert len(identifiers) == len(names)
    assert all(map(is_identifier, identifiers))
    upper = [name.upper() for name in identifiers]
    assert len(set(upper)) == len(upper)
    assert not set(upper) & {name.upper() for name in taken}


@given(ANY_TEXT)
def test_an_identifier_and_a_model_name_are_stable(text: str) -> None:
    assert c_identifier(c_identifier(text)) == c_identifier(text)
    assert model_name(model_name(text)) == model_name(text)
    assert is_identifier(model_name(text))
    check_model_name(model_name(text))
    assert len(c_identifier(text)) <= LONGEST_IDENTIFIER


@given(ANY_TEXT)
def test_comment_text_cannot_leave_its_comment(text: str) -> None:
    shown = comment_text(text)
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) <= 67
    assert not re.search(r"\*/|/\*|\?\?[=/'()!<>-]|\\$", f"/{shown}/".strip("/"))
    assert "*/" not in f"{shown}/"
    assert "/*" not in f"/{shown}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/conv1/Conv_output_0", "/conv1/Conv_output_0"),
        ("a*b", "a*b"),
        ("a*/b", "a\\u002a/b"),
        ("???=", "?\\u003f\\u003f="),
        ("a\\\n", "a\\u005c\\u000a"),
        ("\\xff\\ \\", "\\xff\\u005c \\u005c"),
        ("größe", "gr\\u00f6\\u00dfe"),
        ("\N{GRINNING FACE}", "\\U0001f600"),
        (NOT_UTF8, "\\udcff\\udcfe"),
        ("k" * 1024, "k" * 64 + "..."),
    ],
)
def test_comment_text_shows(text: str, shown: str) -> None:
    assert comment_text(text) == shown


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("input", "input"),
        ("x.1", "x_1"),
        ("/conv1/Conv_output_0", "conv1_Conv_output_0"),
        ("__x__", "x"),
        ("3", "v3"),
        ("é", "u00e9"),
        ("", "value"),
        ("\N{GRINNING FACE}", "value"),
        ("int", "int_v"),
        ("NULL", "NULL_v"),
        ("y1", "y1_v"),
        ("sinf", "sinf_v"),
        ("uint_fast32_t", "uint_fast32_t_v"),
        ("INT64_C", "INT64_C_v"),
        ("FLT_EPSILON", "FLT_EPSILON_v"),
        ("workspace", "workspace_v"),
        ("ONNXC_OK", "v_ONNXC_OK"),
    ],
)
def test_c_identifier(text: str, identifier: str) -> None:
    assert c_identifier(text) == identifier


def test_a_fit_name_keeps_itself() -> None:
    assert unique_names(["x.1", "x_1", "X_1", "y", "y"]) == ("x_1_3", "x_1", "X_1_2", "y", "y_2")


def test_names_stay_clear_of_the_models_own() -> None:
    names = ["foo", "foo_run", "Foo_Workspace", "FOO_INPUT_X_BYTES", "foo_x"]
    expected = ("foo", "foo_run_2", "Foo_Workspace_2", "v_FOO_INPUT_X_BYTES", "foo_x")
    assert unique_names(names, model="foo") == expected


def test_names_are_handed_out_one_by_one() -> None:
    names = Names(taken=["i"])
    assert [names.add(text) for text in ("i", "I0", "i0", "x")] == ["i_2", "I0", "i0_2", "x"]


def test_long_names_that_differ_at_the_end_differ() -> None:
    long, other = c_identifier("k" * 1024), c_identifier("k" * 1023 + "j")
    assert long != other
    assert len(long) == len(other) == LONGEST_IDENTIFIER


def test_a_hundred_thousand_alike_names() -> None:
    """In quadratic time this would take hours."""
    names = ["x"] * 50_000 + [f"x_{number}" for number in range(50_000)]
    assert len(set(unique_names(names))) == len(names)


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("foo", "foo"),
        ("foo_run", "foo_run_m"),
        ("foo_run_static", "foo_run_static_m"),
        ("mobilenet-v2 (1)", "mobilenet_v2_1"),
        ("3d", "m3d"),
        ("exp", "exp_m"),
        ("int", "int_m"),
        ("onnxc", "m_onnxc"),
        ("", "model"),
        ("模型", "u6a21u578b"),
    ],
)
def test_model_name(stem: str, name: str) -> None:
    assert model_name(stem) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a b", "not a C identifier that starts with a letter; take 'a_b'"),
        ("_x", "not a C identifier that starts with a letter; take 'x'"),
        ("float", r"a word of C or C\+\+ or of their libraries; take 'float_m'"),
        ("foo_run", "clash with the functions of another model; take 'foo_run_m'"),
        ("onnxc", "that all outputs of onnxc share; take 'm_onnxc'"),
        ("a__b", "two underscores in a row .*; take 'a_b'"),
        ("k" * 60, "longer than 48 characters; take 'kkk"),
    ],
)
def test_a_bad_model_name_is_refused_with_another(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_model_name(name)


HEADERS = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg
    stdbool stddef stdint stdio stdlib string tgmath time unistd wchar wctype
"""


def test_odd_names_compile_after_every_standard_header(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    """As parameters, in gnu99 so that `linux` and `unix` are macros, and in C++."""
    parameters = ", ".join(
        f"const float {name}[2]" for name in unique_names([*ODD_NAMES, NOT_UTF8, ""])
    )
    comments = "".join(f"/* {comment_text(name)} */\n" for name in [*ODD_NAMES, NOT_UTF8])
    includes = "".join(f"#include <{name}.h>\n" for name in HEADERS.split())
    source = f"{includes}{comments}float f({parameters});\nfloat f({parameters}) {{ return 0; }}\n"
    (tmp_path / "names.c").write_text(source)
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wshadow", "-Wtrigraphs", "-Werror"]
    for compiler in (["gcc", "-std=gnu99"], ["gcc", "-std=c99"], ["g++", "-std=gnu++17", "-xc++"]):
        command = [tool(compiler[0]), *compiler[1:], *warnings, "-fsyntax-only", "names.c"]
        subprocess.run(command, cwd=tmp_path, check=True)


def test_no_macro_of_the_standard_headers_is_an_identifier(tool: Callable[[str], str]) -> None:
    includes = "".join(f"#include <{name}.h>\n" for name in HEADERS.split())
    command = [tool("gcc"), "-std=c99", "-dM", "-E", "-xc", "-"]
    result = subprocess.run(command, input=includes, capture_output=True, text=True, check=True)
    macros = re.findall(r"^#define ([A-Za-z]\w*)", result.stdout, re.MULTILINE)
    assert [name for name in macros if c_identifier(name) == name] == []
