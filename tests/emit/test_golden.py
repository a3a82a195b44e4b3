"""Whole outputs, to read and to see change. `pytest --update-golden` writes them anew."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxc.emit import literals
from onnxc.pipeline import compile_model
from tests.models import model, stored

FOLDER = Path(__file__).with_name("golden")
FLOAT, BOOL, INT4, STRING = (
    TensorProto.FLOAT,
    TensorProto.BOOL,
    TensorProto.INT4,
    TensorProto.STRING,
)
tensor = helper.make_tensor_value_info


def broadcast() -> ModelProto:
    node = helper.make_node("Equal", ["A", "B"], ["C"], name="compare")
    inputs = [tensor("A", FLOAT, [3, 1, 5]), tensor("B", FLOAT, [4, 1])]
    return model(helper.make_graph([node], "g", inputs, [tensor("C", BOOL, [3, 4, 5])]))


def packed() -> ModelProto:
    """Seven nibbles, the last byte half full, and a comparison of them."""
    nodes = [
        helper.make_node("Identity", ["x"], ["copy"]),
        helper.make_node("Identity", ["w"], ["known"]),
    ]
    w = np.arange(-3, 4).astype(helper.tensor_dtype_to_np_dtype(INT4))
    outputs = [tensor("copy", INT4, [7]), tensor("known", INT4, [7])]
    graph = helper.make_graph(nodes, "g", [tensor("x", INT4, [7])], outputs, [stored("w", w)])
    return model(graph)


def wide_rows() -> ModelProto:
    """A short row, widened, and a value that two nodes read."""
    nodes = [
        helper.make_node("Equal", ["x", "row"], ["same"], name="rows"),
        helper.make_node("Equal", ["same", "flag"], ["y"]),
    ]
    inputs = [tensor("x", FLOAT, [1000, 3]), tensor("row", FLOAT, [3]), tensor("flag", BOOL, [1])]
    return model(helper.make_graph(nodes, "g", inputs, [tensor("y", BOOL, [1000, 3])]))


def constants() -> ModelProto:
    """A literal, readable values, bits where a NaN is, and, made small for this, a byte image."""
    arrays = {
        "one": np.array([0.5], np.float32),
        "values": np.array([1, -0.0, 1e-45, 0.1], np.float32),
        "bits": np.array([1, np.nan, -np.inf, 2], np.float32),
        "image": np.arange(20, dtype=np.float32),
    }
    nodes = [helper.make_node("Equal", [f"x_{k}", k], [f"y_{k}"], name=k) for k in arrays]
    inputs = [tensor(f"x_{k}", FLOAT, a.shape) for k, a in arrays.items()]
    outputs = [tensor(f"y_{k}", BOOL, a.shape) for k, a in arrays.items()]
    given = [stored(k, array) for k, array in arrays.items()]
    return model(helper.make_graph(nodes, "g", inputs, outputs, given))


def strings() -> ModelProto:
    w = np.empty(3, object)
    w[:] = [b"plain", b"a\0b", 'é"'.encode()]
    nodes = [
        helper.make_node("Equal", ["x", "w"], ["same"]),
        helper.make_node("Identity", ["w"], ["words"]),
    ]
    outputs = [tensor("same", BOOL, [2, 3]), tensor("words", STRING, [3])]
    graph = helper.make_graph(nodes, "g", [tensor("x", STRING, [2, 1])], outputs)
    graph.initializer.add(
        name="w", data_type=STRING, dims=[3], string_data=[bytes(text) for text in w]
    )
    return model(graph)


def network() -> ModelProto:
    """A small image classifier: what the nodes become, and how the buffers share memory."""
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "v", "d"], ["scores"], name="dense", transB=1),
        helper.make_node("Softmax", ["scores"], ["probability"], name="softmax"),
    ]
    weights = {"w": (2, 1, 3, 3), "b": (2,), "v": (3, 8), "d": (3,)}
    given = [
        stored(name, (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 4) / 8)
        for name, shape in weights.items()
    ]
    inputs = [tensor("image", FLOAT, [1, 1, 4, 4])]
    outputs = [tensor("probability", FLOAT, [1, 3])]
    return model(helper.make_graph(nodes, "g", inputs, outputs, given))


def recurrent() -> ModelProto:
    """Three steps of an LSTM: a loop over time with a state."""
    node = helper.make_node(
        "LSTM", ["x", "w", "r"], ["", "last"], name="lstm", hidden_size=2, direction="forward"
    )
    given = [
        stored(name, (np.arange(8 * size, dtype=np.float32).reshape(1, 8, size) - 4) / 8)
        for name, size in (("w", 1), ("r", 2))
    ]
    inputs, outputs = [tensor("x", FLOAT, [3, 1, 1])], [tensor("last", FLOAT, [1, 1, 2])]
    return model(helper.make_graph([node], "g", inputs, outputs, given))


def rows() -> ModelProto:
    """Kernels that run a few rows at a time, which are no whole number of turns."""
    node = helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], name="norm")
    scale = np.linspace(0.5, 2, 64, dtype=np.float32)
    given = [stored("scale", scale), stored("bias", scale - 1)]
    ports = [tensor(name, FLOAT, [6, 64]) for name in ("x", "y")]
    return model(helper.make_graph([node], "g", ports[:1], ports[1:], given))


MODELS = {
    make.__name__: make
    for make in (broadcast, packed, wide_rows, constants, strings, network, recurrent, rows)
}


@pytest.mark.parametrize("name", MODELS)
def test_golden(name: str, update_golden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "constants":
        monkeypatch.setattr(literals, "IMAGE_FROM", 64)
        monkeypatch.setattr(literals, "ROW", 32)
    compiled = compile_model(MODELS[name](), name=name)
    for suffix, text in ((".c", compiled.c_source), (".h", compiled.header)):
        path = FOLDER / f"{name}{suffix}"
        if update_golden:
            path.write_text(text, encoding="ascii", newline="\n")
        assert text == path.read_text(encoding="ascii")


def test_no_golden_file_is_left_over() -> None:
    names = {f"{name}{suffix}" for name in MODELS for suffix in (".c", ".h")}
    assert {path.name for path in FOLDER.iterdir()} == names
