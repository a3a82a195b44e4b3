"""Writes the model: equal = Equal(x, y), where x is float[3, 1, 5] and y is float[4, 1]."""

import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper


def main() -> None:
    graph = helper.make_graph(
        [helper.make_node("Equal", ["x", "y"], ["equal"], name="compare")],
        "hello",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1, 5]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 1]),
        ],
        [helper.make_tensor_value_info("equal", TensorProto.BOOL, [3, 4, 5])],
    )
    opset = helper.make_opsetid("", 19)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9, producer_name="hello")
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


if __name__ == "__main__":
    main()
