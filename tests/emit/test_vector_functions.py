"""The functions of vectors give the bits of the functions of floats that they are made from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc import library
from onnxc.emit.text import render
from onnxc.emit.vector_functions import vector_functions
from onnxc.resources import runtime_text
from onnxc.target import TARGETS
from onnxc.tuned.product import FUNCTIONS
from tests.models import STRICT
from tests.runtime.math_inputs import float_inputs
from tests.toolchains import Tool

ATTRIBUTES: Final = {v.lanes: v.attribute for v in TARGETS["x86-64"].variants}
PLAIN: Final = 0
"""Stands for vectors of one lane, without extensions of C."""
ALL: Final = (*FUNCTIONS, "sqrt")
PROTOTYPE: Final = "void {kind}_{name}(const float *x, float *y, int64_t n)"
LOOPS: Final = """
{vector};
OWN {vector}
{{
    for (int64_t i = 0; i < n; i += LANES)
        vf_store(y + i, vf_{name}(vf_load(x + i)));
}}

{scalar};
{scalar}
{{
    for (int64_t i = 0; i < n; i++)
        y[i] = onnxc_{name}_float(x[i]);
}}
"""


def prototypes(name: str) -> dict[str, str]:
    return {kind: PROTOTYPE.format(kind=kind, name=name) for kind in ("vector", "scalar")}


def c_source(lanes: int) -> str:
    """vector_NAME and scalar_NAME of every function, over arrays of a multiple of 16 floats."""
    own = f'__attribute__((target("{ATTRIBUTES[lanes]}")))' if ATTRIBUTES.get(lanes) else ""
    text = render("vector.c.j2", lanes=lanes)
    words = f"{text}\n{vector_functions(f for f in FUNCTIONS if f' vf_{f}(' not in text)}"
    loops = (LOOPS.format(name=name, **prototypes(name)) for name in ALL)
    macros = (f"LANES {lanes or 1}", "UNROLL", f"OWN {own}", "INLINE inline OWN")
    text = "".join(f"#define {macro}\n" for macro in macros) + words + "".join(loops)
    includes = "".join(f"#include <{name}.h>\n" for name in ("math", "stdint", "string"))
    names = set(re.findall(r"onnxc_\w+", text))
    return "\n".join([includes, *runtime_text(names), text])


def build(folder: Path, lanes: int, compiler: str) -> library.Library:
    header = [f"{line};" for name in ALL for line in prototypes(name).values()]
    (folder / "apply.h").write_text("\n".join(header) + "\n", encoding="ascii")
    (folder / "apply.c").write_text(c_source(lanes), encoding="ascii")
    own = ["-Wno-float-equal", "-Wno-unused-function", "-Wno-psabi", "-ffp-contract=off"]
    flags = [] if compiler == "tcc" else [*STRICT, *own]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", compiler)
        patch.setenv("ONNXC_CFLAGS", " ".join(flags))
        return library.build_file(folder / "apply.c")


def apply(built: library.Library, function: str, x: NDArray[Any]) -> NDArray[Any]:
    result = np.empty_like(x)
    pointers = [built.ffi.from_buffer("float[]", array) for array in (x, result)]
    getattr(built.lib, function)(*pointers, len(x))
    return result


@pytest.mark.parametrize(
    ("lanes", "compiler"),
    [
        (16, "gcc"),
        (8, "gcc"),
        (4, "gcc"),
        (PLAIN, "gcc"),
        (16, "clang"),
        (4, "clang"),
        (PLAIN, "tcc"),
    ],
)
def test_the_bits_of_the_functions_of_floats(
    lanes: int, compiler: str, tmp_path: Path, tool: Tool
) -> None:
    """Of special values and of a stride of all floats."""
    tool(compiler)
    built = build(tmp_path, lanes, compiler)
    values = float_inputs()
    x = np.resize(values, -(-len(values) // 16) * 16).astype(np.float32)
    for name in ALL:
        wanted, found = (apply(built, f"{kind}_{name}", x) for kind in ("scalar", "vector"))
        same = (wanted.view(np.uint32) == found.view(np.uint32)) | (
            np.isnan(wanted) & np.isnan(found)
        )
        assert same.all(), (
            f"vf_{name} of {x[~same][:4]}: {found[~same][:4]}, not {wanted[~same][:4]}"
        )


@pytest.mark.parametrize("name", ["sin", "pow"])
def test_branches_and_doubles_are_refused(name: str) -> None:
    """What a vector of floats cannot compute lane by lane is no function of vectors."""
    with pytest.raises(ValueError, match="has a branch"):
        vector_functions([name])
