"""What one call costs: Equal of four floats, as one would call it from Python and from C.

    python benchmarks/call_overhead.py [--markdown]

"from C" is a loop in C around the generated function, each in a file of its own.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnx

import generated
import harness
import onnx_runtime
import onnxc


def times(rounds: int) -> dict[str, float]:
    """Nanoseconds of a call, by its name."""
    proto = harness.model("Equal", [(4,), (4,)], (4,), onnx.TensorProto.FLOAT)
    a, b = (np.array(values, np.float32) for values in ([1, 2, 3, 4], [1, 0, 3, 0]))
    inputs, bound = {"a": a, "b": b}, np.zeros(4, bool)
    content = proto.SerializeToString()
    session = onnx_runtime.session(content)
    binding = onnx_runtime.candidate(content, inputs)
    model = onnxc.compile(proto)
    from_c = generated.Build(model.compiled, generated.NATIVE).candidate(inputs)
    runs: dict[str, harness.Run] = {
        "onnxruntime run()": harness.looped(lambda: session.run(None, inputs)),
        "onnxruntime run_with_iobinding()": binding.run,
        "numpy a == b": harness.looped(lambda: a == b),
        "onnxc run()": harness.looped(lambda: model.run(inputs)),
        "onnxc bind(), then its call": harness.looped(model.bind(inputs, {"y": bound})),
        "onnxc from C": from_c.run,
    }
    figures = harness.interleaved(runs, rounds)
    for found in (bound, binding.outputs()["y"], from_c.outputs()["y"]):
        np.testing.assert_array_equal(found, a == b)
    return {name: figure.cpu for name, figure in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    harness.pin()
    rows = [
        [name, f"{figure:.{1 if figure < 10 else 0}f}"]
        for name, figure in times(options.rounds).items()
    ]
    head = ("Equal of 4 floats", "ns a call")
    harness.show("What a call costs", [head, *rows], markdown=options.markdown)
    print(harness.machine(generated.compiler()))


if __name__ == "__main__":
    main()
