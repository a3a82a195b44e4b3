"""What one call costs: Equal of four floats, as one would call it from Python and from C.

    python benchmarks/call_overhead.py [--markdown]

"from C" is a loop in C around the generated function, in a file of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import onnxruntime as ort

import harness
import onnxc
from onnxc.pipeline import compile_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOOPS: Final = 1000
LOOP: Final = """
#include "four.h"

void repeat(long n, const float *a, const float *b, uint8_t *y);

void repeat(long n, const float *a, const float *b, uint8_t *y)
{
    while (n-- > 0)
        (void)four_run(a, b, y, 0);
}
"""


def from_c(
    proto: onnx.ModelProto, inputs: dict[str, NDArray[Any]], out: NDArray[np.bool_]
) -> harness.Call:
    """LOOPS calls in a loop in C."""
    compiled = compile_model(proto, name="four")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "four.c").write_text(compiled.c_source, encoding="utf-8")
        (folder / "four.h").write_text(compiled.header, encoding="utf-8")
        (folder / "loop.c").write_text(LOOP, encoding="utf-8")
        command = [*shlex.split(os.environ.get("CC") or "cc"), "-std=c99", "-O3", "-fPIC"]
        subprocess.run(
            [*command, "-shared", "-o", "loop.so", "four.c", "loop.c"], cwd=folder, check=True
        )
        library = ctypes.CDLL(str(folder / "loop.so"))
    arrays = (inputs["a"], inputs["b"], out)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    return lambda: library.repeat(ctypes.c_long(LOOPS), *pointers)


def times(rounds: int) -> dict[str, float]:
    """Nanoseconds of a call, by its name."""
    proto = harness.model("Equal", [(4,), (4,)], (4,), onnx.TensorProto.FLOAT)
    a, b = (np.array(values, np.float32) for values in ([1, 2, 3, 4], [1, 0, 3, 0]))
    inputs = {"a": a, "b": b}
    outputs = {name: np.zeros(4, bool) for name in ("binding", "bind", "C")}
    session = ort.InferenceSession(proto.SerializeToString(), harness.one_thread())
    binding = harness.runtime_call(proto, inputs, {"y": outputs["binding"]})
    assert binding is not None
    model = onnxc.compile(proto)
    calls: dict[str, harness.Call] = {
        "onnxruntime run()": lambda: session.run(None, inputs),
        "onnxruntime run_with_iobinding()": binding,
        "numpy a == b": lambda: a == b,
        "onnxc run()": lambda: model.run(inputs),
        "onnxc bind(), then its call": model.bind(inputs, {"y": outputs["bind"]}),
        "onnxc from C": from_c(proto, inputs, outputs["C"]),
    }
    found = harness.medians(calls, rounds)
    for name, out in outputs.items():
        np.testing.assert_array_equal(out, a == b, name)
    found["onnxc from C"] /= LOOPS
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    rows = [
        [name, f"{figure:.{1 if figure < 10 else 0}f}"]
        for name, figure in times(options.rounds).items()
    ]
    head = ("Equal of 4 floats", "ns a call")
    harness.show("What a call costs", [head, *rows], markdown=options.markdown)
    print(harness.machine())


if __name__ == "__main__":
    main()
