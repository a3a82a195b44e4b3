"""Writes the model: match[4, 6] = Equal(code[6], the 4 codes that it stores), hits[4]: how many."""

import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

CODES = [
    [3, 1, 4, 1, 5, 9],
    [2, 7, 1, 8, 2, 8],
    [1, 4, 1, 4, 2, 1],
    [1, 6, 1, 8, 0, 3],
]


def main() -> None:
    digits = [digit for code in CODES for digit in code]
    graph = helper.make_graph(
        [
            helper.make_node("Equal", ["code", "codes"], ["match"], name="compare"),
            helper.make_node("Cast", ["match"], ["ones"], name="ones", to=TensorProto.INT32),
            helper.make_node("ReduceSum", ["ones", "axes"], ["hits"], name="count", keepdims=0),
        ],
        "keypad",
        [helper.make_tensor_value_info("code", TensorProto.INT8, [6])],
        [
            helper.make_tensor_value_info("match", TensorProto.BOOL, [4, 6]),
            helper.make_tensor_value_info("hits", TensorProto.INT32, [4]),
        ],
        [
            helper.make_tensor("codes", TensorProto.INT8, [4, 6], digits),
            helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
        ],
    )
    opset = helper.make_opsetid("", 19)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9, producer_name="keypad")
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


if __name__ == "__main__":
    main()
