"""Models that differ in how they use memory, for tests of the workspace and of the stack."""

from __future__ import annotations

from typing import Final

import onnx

from onnxc.pipeline import Compiled, compile_model
from tests.shared_suite import MODELS, model_shapes, open_sizes

TEXTS: Final = {
    "convolutions": """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[1, 3, 17, 19] x, float[8, 3, 3, 3] w, float[8, 1, 5, 5] d, float[4, 8, 1, 1] p)
            => (float[1, 4, 1, 1] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w)
            b = Relu(a)
            c = Conv<pads = [2, 2, 2, 2], group = 8>(b, d)
            e = Add(b, c)
            f = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(e)
            g = Conv(f, p)
            y = GlobalAveragePool(g)
        }
    """,
    "attention": """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[2, 33, 24] q, float[2, 24, 33] k, float[2, 33, 24] v, float[24] s)
            => (float[2, 33, 24] y) {
            a = MatMul(q, k)
            b = Softmax(a)
            c = MatMul(b, v)
            y = LayerNormalization(c, s)
        }
    """,
    "recurrence": """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[7, 2, 5] x, float[1, 24, 5] w, float[1, 24, 6] r) => (float[7, 1, 2, 6] y) {
            y, h, c = LSTM<hidden_size = 6>(x, w, r)
        }
    """,
    "sorting": """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[9, 31] x) => (float[9, 4] y, int64[9, 4] z) {
            k = Constant<value_ints = [4]>()
            a = Sigmoid(x)
            y, z = TopK(a, k)
        }
    """,
}
REAL: Final = [
    "tinyml/mlperf_ic_resnet8_fp32.onnx",
    "tinyml/mlperf_kws_dscnn_int8.onnx",
    "audio-denoise/gtcrn_stream_simple.onnx",
    "audio-denoise/dtln_model_1.onnx",
    "timeseries/aircraft_lstm.onnx",
    "vision-cls/mnist_factorio_quant.onnx",
]
"""Beside the checkout, in the folder `shared`."""


def real_model(name: str) -> Compiled:
    """One of the real models, with the sizes that MODELS.tsv has for its inputs."""
    dims = open_sizes(onnx.load(MODELS / name, load_external_data=False), model_shapes()[name])
    return compile_model(MODELS / name, dims=dims, name="model")
