"""Any name that ONNX allows, from the model through the C and back to the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx import GraphProto, TensorProto, helper

import onnxc
from onnxc.compiled import CompiledModel
from onnxc.pipeline import compile_model
from tests.models import STRICT, Array, model
from tests.portable_models import NOT_UTF8, ODD_NAMES

# What the generated code calls its own: parameters, loops, locals, kernels, constants, rows.
OWN_NAMES = [
    *("a", "b", "y", "j", "k", "m", "n", "i5", "v0", "v1", "sum0", "acc0", "arena", "row", "round"),
    "over",
    *("equal_0", "Equal_0", "identity_0", "copy_0", "w_value", "w_w", "value", "half", "lane"),
    *("onnxc_first", "onnxc_pack4", "onnxc_string", "ONNXC_OK", "uint8_t", "memcpy", "restrict"),
    *("odd", "odd_run", "odd_run_static", "odd_workspace", "ODD_H", "ODD_INTERFACE", "ODD_SLACK"),
    *("odd_input_a", "ODD_OUTPUT_Y_BYTES", "Odd", "oDD_RUN", "bytes", "align", "flags", "y_2"),
]
# Texts that only look like a name, or that C or a comment could read as something else.
ODD_TEXTS = [
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "_",
        "__",
        ".",
        "-",
        "/",
        "'",
        '"',
        '""',
        "\\",
        "\\\\",
        "\\\n",
        "\r\n",
    ),
    *("*", "**/", "/*/", "//", "??/", "??/\n", "%s%n", "#define x", "#", "\0", "a\0b", "\x1b[31m"),
    *("\u200b", "\ufeff", "e\u0301", "\u00e9", "\u202e", "\U0001f642", "\u2028", "x" * 5000),
    *("0", "00", "0x1", "1e5", "true", "nullptr", "this", "and", "template", "unix", "i386"),
]
NAMES = list(dict.fromkeys([*ODD_NAMES, *OWN_NAMES, *ODD_TEXTS]))


def named(names: Sequence[str], code: int = TensorProto.FLOAT) -> GraphProto:
    """Of each name an input, an initializer, a value between, a node, and an output.

    The output NAME! is whether the input NAME equals the initializer NAME~.
    """
    graph = GraphProto(name="*/ \\ ??/")
    for number, name in enumerate(names):
        constant = helper.make_tensor(f"{name}~", code, [2], [number, -1])
        graph.initializer.append(constant)
        graph.node.append(helper.make_node("Equal", [name, f"{name}~"], [f"{name}="], name=name))
        graph.node.append(helper.make_node("Identity", [f"{name}="], [f"{name}!"], name=f"{name}2"))
        graph.input.append(helper.make_tensor_value_info(name, code, [2]))
    # In another order than the inputs.
    for name in reversed(names):
        graph.output.append(helper.make_tensor_value_info(f"{name}!", TensorProto.BOOL, [2]))
    return graph


def values(names: Sequence[str]) -> dict[str, Array]:
    """Each input has the number of its name, so that a swapped name shows."""
    return {name: np.array([number, 0], np.float32) for number, name in enumerate(names)}


def check(compiled: CompiledModel, names: Sequence[str]) -> None:
    assert [value.name for value in compiled.inputs] == list(names)
    assert [value.name for value in compiled.outputs] == [f"{name}!" for name in reversed(names)]
    parameters = [value.c_name.upper() for value in (*compiled.inputs, *compiled.outputs)]
    assert len(set(parameters)) == len(parameters)
    assert compiled.header.isascii()
    assert compiled.c_source.isascii()
    found = compiled.run(values(names))
    assert {name: value.tolist() for name, value in found.items()} == {
        f"{name}!": [True, False] for name in names
    }


@pytest.mark.parametrize("standard", ["c99", "gnu99", "gnu17"])
@pytest.mark.parametrize("plain", [False, True], ids=["fused", "realised"])
def test_odd_names(standard: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In GNU C `linux` and `unix` are macros; realised, every value is a variable, too."""
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, f"-std={standard}"]))
    compiled = compile_model(model(named(NAMES)), name="odd", plain=plain)
    check(CompiledModel(compiled), NAMES)


def test_odd_names_without_attributes(
    tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the attribute for alignment, the run function has one variable more."""
    monkeypatch.setenv("CC", tool("tcc"))
    compiled = compile_model(model(named(OWN_NAMES)), name="odd", plain=True)
    assert compiled.workspace_size > 0
    check(CompiledModel(compiled), OWN_NAMES)


@pytest.mark.usefixtures("strict_c")
@pytest.mark.parametrize("name", ["i", "x", "equal_0", "a", "y", "w_a"])
def test_a_model_called_like_its_parts(name: str) -> None:
    names = [name, f"{name}_run", f"{name}_workspace", f"{name.upper()}_H", "x", "y"]
    names = list(dict.fromkeys(names))
    check(onnxc.compile(model(named(names)), name=name), names)


@pytest.mark.usefixtures("strict_c")
def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """They get backslash escapes, and so they can be given from Python."""
    raw = model(named(["x", NOT_UTF8])).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(raw.replace(NOT_UTF8.encode(), b"\xff\xfe\x80\xc3\xed\xa0\x80\xf5"))
    name = r"\xff\xfe\x80\xc3\xed\xa0\x80\xf5"
    check(onnxc.compile(path), ["x", name])


@pytest.mark.usefixtures("strict_c")
def test_names_that_differ_only_for_onnx() -> None:
    """`x.1` beside `x_1`, `x` beside `X`, composed beside combining characters."""
    names = ["x.1", "x_1", "X_1", "x 1", "x", "X", "x.", "é", "e\u0301", "x_1_2", "X.1"]
    check(onnxc.compile(model(named(names))), names)


@pytest.mark.usefixtures("strict_c")
@given(st.lists(st.text(min_size=1, max_size=12), min_size=30, max_size=30, unique=True))
@settings(max_examples=8, phases=(Phase.generate,))  # to shrink would take minutes
def test_any_names(names: list[str]) -> None:
    # A protobuf holds no surrogates, and the names that `named` makes must stay different, too.
    names = [name.encode("utf-8", "ignore").decode().rstrip("~=!2") for name in names]
    names = list(dict.fromkeys(name for name in names if name))
    check(onnxc.compile(model(named(names))), names)


@pytest.mark.usefixtures("strict_c")
def test_texts_that_nobody_names_things_by() -> None:
    """Of the producer, the documentation, the metadata and dimensions: none reaches the C."""
    source = model(named(["x"]))
    text = "*/ #error \\\n??/"
    source.producer_name = source.producer_version = source.doc_string = source.domain = text
    source.graph.doc_string = source.graph.node[0].doc_string = text
    source.metadata_props.append(onnx.StringStringEntryProto(key=text, value=text))
    source.graph.input[0].type.tensor_type.shape.dim[0].dim_param = text
    check(onnxc.compile(source, dims={text: 2}), ["x"])
