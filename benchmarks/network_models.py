"""The networks of networks.py: their models, and how fast each has to be.

The seven networks are written by ../shared/bench/build_models.py beside the checkout; the others
are made here, with seeded random weights.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import harness

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUILDER: Final = Path(__file__).resolve().parents[2] / "shared" / "bench" / "build_models.py"
ROWS, COLUMNS, HEADS, HIDDEN = 128, 768, 12, 3072
OPSET: Final = 20
"""The first with Gelu."""


class Graph:
    """One graph of float tensors, node by node; weights are seeded by their order."""

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        """`shape`: that of the only input, "x"."""
        self.name, self.shape = name, shape
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of its first output."""
        result = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result

    def constant(self, values: NDArray[Any]) -> str:
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def weight(self, *shape: int, scale: float, mean: float = 0.0) -> str:
        """Normally distributed."""
        values = self._random.standard_normal(shape) * scale + mean
        return self.constant(values.astype(np.float32))

    def dense(self, x: str, rows: int, columns: int) -> str:
        """x times a matrix of rows x columns, plus a bias."""
        product = self.node("MatMul", x, self.weight(rows, columns, scale=rows**-0.5))
        return self.node("Add", product, self.weight(columns, scale=0.1))

    def normalised(self, x: str) -> str:
        scale = self.weight(COLUMNS, scale=0.1, mean=1.0)
        return self.node("LayerNormalization", x, scale, self.weight(COLUMNS, scale=0.1), axis=-1)

    def model(self, result: str, shape: Sequence[int]) -> onnx.ModelProto:
        """With the tensor `result` as the only output."""
        told = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [told("x", TensorProto.FLOAT, self.shape)],
            [told(result, TensorProto.FLOAT, shape)],
            self._weights,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, ir_version=9, opset_imports=opsets)
        onnx.checker.check_model(made, full_check=True)
        return made


def recurrent(operator: str, gates: int, **attributes: Any) -> onnx.ModelProto:
    """64 steps, input and hidden state of 256; [64, 1, 256] to [64, 1, 1, 256]."""
    steps, size, hidden = 64, 256, 256
    graph = Graph(operator.lower(), (steps, 1, size))
    weights = [graph.weight(1, gates * hidden, n, scale=n**-0.5) for n in (size, hidden)]
    bias = graph.weight(1, 2 * gates * hidden, scale=0.1)
    result = graph.node(operator, "x", *weights, bias, hidden_size=hidden, **attributes)
    return graph.model(result, (steps, 1, 1, hidden))


def bert_layer() -> onnx.ModelProto:
    """Self-attention of 12 heads and a feed-forward network, each added and normalised."""
    graph = Graph("bert_layer", (1, ROWS, COLUMNS))
    depth = COLUMNS // HEADS

    def split(x: str) -> str:
        shape = graph.constant(np.array([1, ROWS, HEADS, depth], np.int64))
        return graph.node("Reshape", graph.dense(x, COLUMNS, COLUMNS), shape)

    query = graph.node("Transpose", split("x"), perm=[0, 2, 1, 3])
    key = graph.node("Transpose", split("x"), perm=[0, 2, 3, 1])
    value = graph.node("Transpose", split("x"), perm=[0, 2, 1, 3])
    scale = graph.constant(np.array(1 / math.sqrt(depth), np.float32))
    scores = graph.node("Mul", graph.node("MatMul", query, key), scale)
    attended = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), value)
    attended = graph.node("Transpose", attended, perm=[0, 2, 1, 3])
    shape = graph.constant(np.array([1, ROWS, COLUMNS], np.int64))
    joined = graph.dense(graph.node("Reshape", attended, shape), COLUMNS, COLUMNS)
    middle = graph.normalised(graph.node("Add", joined, "x"))
    wide = graph.node("Gelu", graph.dense(middle, COLUMNS, HIDDEN))
    narrow = graph.dense(wide, HIDDEN, COLUMNS)
    return graph.model(graph.normalised(graph.node("Add", narrow, middle)), (1, ROWS, COLUMNS))


def softmax() -> onnx.ModelProto:
    graph = Graph("softmax", (ROWS, COLUMNS))
    return graph.model(graph.node("Softmax", "x", axis=-1), (ROWS, COLUMNS))


def layernorm() -> onnx.ModelProto:
    graph = Graph("layernorm", (ROWS, COLUMNS))
    return graph.model(graph.normalised("x"), (ROWS, COLUMNS))


def gelu() -> onnx.ModelProto:
    graph = Graph("gelu", (ROWS, COLUMNS))
    return graph.model(graph.node("Gelu", "x"), (ROWS, COLUMNS))


def chain() -> onnx.ModelProto:
    """x * sigmoid(a * x + b + z): a and b have a value a column, z is a constant."""
    graph = Graph("chain", (ROWS, COLUMNS))
    scaled = graph.node("Mul", "x", graph.weight(COLUMNS, scale=0.1, mean=1.0))
    moved = graph.node("Add", scaled, graph.weight(COLUMNS, scale=0.1))
    moved = graph.node("Add", moved, graph.weight(ROWS, COLUMNS, scale=1.0))
    return graph.model(graph.node("Mul", graph.node("Sigmoid", moved), "x"), (ROWS, COLUMNS))


@dataclass(frozen=True)
class Network:
    """One row of the table.

    file   the stem of its model's file
    floor  the least ratio of CPU times, onnxruntime's to onnxc's
    make   makes the model; None for those that BUILDER writes
    """

    name: str
    file: str
    floor: float
    make: Callable[[], onnx.ModelProto] | None = None


NETWORKS: Final = (
    Network("autoencoder", "autoencoder_ad", 2.0),
    Network("dscnn", "dscnn_kws", 1.6),
    Network("mobilenetv1", "mobilenetv1_025_96", 1.6),
    Network("resnet8", "resnet8_cifar", 1.5),
    Network("mobilenetv2", "mobilenetv2_224", 1.25),
    Network("squeezenet", "squeezenet_rand", 1.15),
    Network("resnet50", "resnet50_rand", 1.10),
    Network("lstm", "lstm", 1.4, partial(recurrent, "LSTM", 4)),
    Network("gru", "gru", 1.4, partial(recurrent, "GRU", 3, linear_before_reset=1)),
    Network("bert_layer", "bert_layer", 1.15, bert_layer),
    Network("softmax", "softmax", 1.0, softmax),
    Network("layernorm", "layernorm", 2.5, layernorm),
    Network("gelu", "gelu", 1.2, gelu),
    Network("chain", "chain", 3.0, chain),
)
SEVEN: Final = tuple(network.name for network in NETWORKS if network.make is None)


def model_file(network: Network, folder: Path) -> Path:
    """The model in `folder`, written first where it is not there. Raises UnavailableError."""
    path = folder / f"{network.file}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    if network.make is not None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            onnx.save(network.make(), Path(scratch) / path.name)
            (Path(scratch) / path.name).replace(path)
    elif not path.exists():
        _build(folder)
    return path


def _build(folder: Path) -> None:
    """Runs BUILDER; the files appear in `folder` when all are written."""
    if not BUILDER.is_file():
        raise harness.UnavailableError(f"no {BUILDER} to write the model; --models names a folder")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        words = [sys.executable, str(BUILDER), scratch]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise harness.UnavailableError(f"{BUILDER} failed: {done.stderr[-500:]}")
        for path in Path(scratch).glob("*.onnx"):
            path.replace(folder / path.name)


def random_inputs(path: Path) -> dict[str, NDArray[Any]]:
    """Normally distributed values for the float inputs of a model, aligned, seeded."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    random = np.random.default_rng(0)
    inputs = {}
    for told in graph.input:
        if told.name not in weights:
            shape = [dim.dim_value for dim in told.type.tensor_type.shape.dim]
            values = random.standard_normal(shape).astype(np.float32)
            inputs[told.name] = harness.aligned_copy(values)
    return inputs
