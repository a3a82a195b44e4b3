"""Compiles a model, runs the C from Python, and lets `onnxc verify` compare it with a reference."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnxc


def build_model() -> onnx.ModelProto:
    """same = Equal(text, word) and count = Size(text), where text is string[N, 3]."""
    nodes = [
        helper.make_node("Equal", ["text", "word"], ["same"], name="compare"),
        helper.make_node("Size", ["text"], ["count"], name="count"),
    ]
    graph = helper.make_graph(
        nodes,
        "words",
        [
            helper.make_tensor_value_info("text", TensorProto.STRING, ["N", 3]),
            helper.make_tensor_value_info("word", TensorProto.STRING, [1]),
        ],
        [
            helper.make_tensor_value_info("same", TensorProto.BOOL, ["N", 3]),
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
        ],
    )
    opset = helper.make_opsetid("", 19)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9, producer_name="words")


def main() -> None:
    model = build_model()

    # The size of the open dimension N is fixed when the model is compiled.
    compiled = onnxc.compile(model, dims={"N": 2}, name="words")
    print("\n".join(line for line in compiled.header.splitlines() if "words_run(" in line))
    for value in (*compiled.inputs, *compiled.outputs):
        print(f"{value.name}: {value.dtype.name}{list(value.shape)}")

    text = np.array([["to", "be", "or"], ["not", "to", "be"]], dtype=object)
    outputs = compiled.run({"text": text, "word": np.array(["be"], dtype=object)})
    print(outputs["same"])
    assert np.array_equal(outputs["same"], text == "be")
    assert outputs["count"] == text.size

    # The same from the command line, on random inputs.
    path = Path("build/words.onnx")
    path.parent.mkdir(exist_ok=True)
    onnx.save(model, path)
    subprocess.run([sys.executable, "-m", "onnxc", "verify", path, "--dim", "N=2"], check=True)


if __name__ == "__main__":
    main()
