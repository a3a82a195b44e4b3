"""How the node tests of operators are scaled to about a million elements: the rules as data.

Without a rule, every input of a test grows along the dimensions that are not 1, to a standard shape
of the same rank, and inputs that are small parameters (PARAMETERS) stay as they are, as constants.
A rule is for operators whose inputs are linked, or whose parameters have to grow too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Make = Callable[[np.random.Generator, tuple[int, ...]], "NDArray[Any]"]
Shape = tuple[int, ...]

STANDARD: Final[Mapping[int, Shape]] = {
    0: (),
    1: (1 << 20,),
    2: (1024, 1024),
    3: (64, 128, 128),
    4: (8, 32, 64, 64),
    5: (4, 16, 16, 32, 32),
    6: (4, 8, 8, 16, 16, 16),
}
"""A million elements of each rank, dimensions of 1 left out."""

_PARAMETERS: Final = """
a_scale a_zero_point axes axis b_scale b_zero_point bias block_shape cond constant_value depth
dft_length fft_length frame_length frame_step image_shape iou_threshold k max
max_output_boxes_per_class min num_mel_bins output_shape pads ratio repeats roi sample_rate scales
score_threshold shape size sizes split starts ends steps target_shape training_mode w_scale
w_zero_point window x_scale x_zero_point y_scale y_zero_point
"""
PARAMETERS: Final = frozenset(_PARAMETERS.split())
"""Formal names of inputs that models hold as constants, whatever the operator."""


@dataclass(frozen=True)
class Rule:
    """How one operator's test is scaled; inputs by the names that the test's graph gives them.

    test       the test; default: chosen by operators.py
    shapes     new shapes of inputs, filled with values as the test has them
    values     inputs made by a function of a generator and the new shape
    constants  more inputs that become constants, as they are in models
    attributes changed attributes
    """

    test: str = ""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    values: Mapping[str, Make] = field(default_factory=dict)
    constants: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


def below(limit: int, kind: str = "int64") -> Make:
    """Random integers from 0 up to `limit`."""
    return lambda random, shape: random.integers(0, limit, shape).astype(kind)


def exactly(*values: float, kind: str = "int64") -> Make:
    """These values, whatever the shape."""
    return lambda _random, _shape: np.array(values, kind)


def scalar(value: float, kind: str = "int64") -> Make:
    return lambda _random, _shape: np.array(value, kind)


def normal(scale: float = 1.0) -> Make:
    return lambda random, shape: (random.standard_normal(shape) * scale).astype(np.float32)


def uniform(low: float, high: float) -> Make:
    return lambda random, shape: random.uniform(low, high, shape).astype(np.float32)


def unpool_indices(random: np.random.Generator, shape: Shape) -> NDArray[Any]:
    """One of the first two elements of each 2 x 2 window of the output, counted as MaxPool does."""
    batch, channels, height, width = shape
    plane = np.arange(batch * channels)[:, None, None] * (4 * height * width)
    rows = np.arange(height)[:, None] * (4 * width)
    places = plane + rows + np.arange(width) * 2 + random.integers(0, 2, (1, height, width))
    return places.reshape(shape).astype(np.int64)


def rows_once(random: np.random.Generator, shape: Shape) -> NDArray[Any]:
    """Different row numbers: no two writes go to one place."""
    return random.permutation(shape[0])[:, None].astype(np.int64)


def columns_once(random: np.random.Generator, shape: Shape) -> NDArray[Any]:
    """A permutation along the last axis in each row."""
    return np.argsort(random.random(shape), axis=-1).astype(np.int64)


def rows_of_each_column(random: np.random.Generator, shape: Shape) -> NDArray[Any]:
    """A permutation along the first axis in each column."""
    return np.argsort(random.random(shape), axis=0).astype(np.int64)


def boxes(random: np.random.Generator, shape: Shape) -> NDArray[Any]:
    """Corners (y1, x1, y2, x2) of boxes up to a tenth of the unit square."""
    corner = random.random((*shape[:-1], 2))
    return np.concatenate([corner, corner + random.random(corner.shape) / 10], -1).astype("f4")


def regions(random: np.random.Generator, shape: Shape) -> NDArray[Any]:
    """(x1, y1, x2, y2) within 256 x 256 pixels, up to 64 wide."""
    corner = random.random((shape[0], 2)) * 190
    return np.concatenate([corner, corner + 8 + random.random(corner.shape) * 56], 1).astype("f4")


IMAGE: Final[Shape] = (8, 32, 64, 64)
PER_CHANNEL: Final[Shape] = (32,)

RULES: Final[Mapping[str, Rule]] = {
    "AffineGrid": Rule(
        "test_affine_grid_2d", {"theta": (2, 2, 3)}, {"size": exactly(2, 3, 512, 512)}
    ),
    "Attention": Rule(
        "test_attention_4d",
        {"Q": (1, 8, 512, 64), "K": (1, 8, 512, 64), "V": (1, 8, 512, 64)},
    ),
    "AveragePool": Rule("test_averagepool_2d_pads"),
    "MaxPool": Rule("test_maxpool_2d_pads"),
    "Concat": Rule("test_concat_3d_axis_1"),
    "CumSum": Rule("test_cumsum_2d_axis_1"),
    "LpNormalization": Rule("test_l2normalization_axis_1"),
    "Unique": Rule("test_unique_sorted_without_axis"),
    "BatchNormalization": Rule(
        "test_batchnorm_example",
        {"x": IMAGE, **dict.fromkeys(("s", "bias", "mean", "var"), PER_CHANNEL)},
        constants=("s", "bias", "mean", "var"),
    ),
    "CausalConvWithState": Rule(
        "test_causal_conv_with_state_basic",
        {"input": (2, 512, 1024), "weight": (512, 1, 4)},
        constants=("weight",),
    ),
    "Cast": Rule("test_cast_FLOAT_to_DOUBLE"),
    "CastLike": Rule("test_castlike_FLOAT_to_DOUBLE", {"input": (1024, 1024), "like": (1,)}),
    "ai.onnx.ml.ArrayFeatureExtractor": Rule(
        "test_ai_onnx_ml_array_feature_extractor",
        {"x": (1024, 1024), "y": (512,)},
        {"y": below(1024)},
    ),
    "CenterCropPad": Rule(
        "test_center_crop_pad_crop", {"x": (128, 128, 64)}, {"shape": exactly(96, 100, 48)}
    ),
    "Col2Im": Rule(
        "test_col2im_pads",
        {"input": (16, 9 * 16, 32 * 32)},
        {"image_shape": exactly(32, 32), "block_shape": exactly(3, 3)},
        attributes={"pads": [1, 1, 1, 1]},
    ),
    "Compress": Rule("test_compress_0", {"input": (1024, 1024), "condition": (1024,)}),
    "Conv": Rule(
        "test_basic_conv_with_padding",
        {"x": (1, 64, 128, 128)},
        {"W": lambda r, _: normal(0.05)(r, (64, 64, 3, 3))},
        ("W",),
    ),
    "ConvInteger": Rule(
        "test_convinteger_without_padding",
        {"x": (1, 64, 128, 128), "w": (32, 64, 2, 2)},
        {"w": below(256, "uint8")},
        ("w",),
    ),
    "ConvTranspose": Rule(
        "test_convtranspose",
        {"X": (1, 32, 128, 128)},
        {"W": lambda r, _: normal(0.05)(r, (32, 32, 3, 3))},
        ("W",),
    ),
    "DFT": Rule("test_dft", {"x": (4, 512, 512, 1)}),
    "DeformConv": Rule(
        "test_basic_deform_conv_without_padding",
        {"X": (1, 16, 129, 129), "W": (16, 16, 2, 2), "offset_without_padding": (1, 8, 128, 128)},
        {"offset_without_padding": uniform(-1.5, 1.5), "W": normal(0.1)},
        ("W",),
    ),
    "DequantizeLinear": Rule("test_dequantizelinear"),
    "Det": Rule("test_det_nd", {"x": (128, 128, 8, 8)}),
    "Einsum": Rule("test_einsum_batch_matmul", {"x": (64, 128, 128), "y": (64, 128, 128)}),
    "Expand": Rule(
        "test_expand_dim_changed",
        {"data": (1024, 1)},
        {"new_shape": exactly(1024, 1024)},
        ("new_shape",),
    ),
    "Gather": Rule(
        "test_gather_0", {"data": (1024, 32, 32), "indices": (1024,)}, {"indices": below(1024)}
    ),
    "GatherElements": Rule(
        "test_gather_elements_0",
        {"data": (1024, 1024), "indices": (1024, 1024)},
        {"indices": below(1024)},
    ),
    "GatherND": Rule(
        "test_gathernd_example_float32",
        {"data": (128, 128, 64), "indices": (16384, 1, 2)},
        {"indices": below(128)},
    ),
    "Gemm": Rule(
        "test_gemm_default_vector_bias",
        {"a": (1024, 1024), "b": (1024, 512), "c": (1, 512)},
        constants=("b", "c"),
    ),
    "GridSample": Rule(
        "test_gridsample",
        {"X": (4, 16, 128, 128), "Grid": (4, 128, 128, 2)},
        {"Grid": uniform(-1.1, 1.1)},
    ),
    "GroupNormalization": Rule(
        "test_group_normalization_example",
        {"x": IMAGE, "scale": PER_CHANNEL, "bias": PER_CHANNEL},
        constants=("scale", "bias"),
    ),
    "GRU": Rule(
        "test_gru_defaults",
        {"X": (64, 16, 256)},
        {n: (lambda r, _: normal(0.06)(r, (1, 768, 256))) for n in "WR"},
        ("W", "R"),
        {"hidden_size": 256},
    ),
    "InstanceNormalization": Rule(
        "test_instancenorm_example",
        {"x": IMAGE, "s": PER_CHANNEL, "bias": PER_CHANNEL},
        constants=("s", "bias"),
    ),
    "LSTM": Rule(
        "test_lstm_defaults",
        {"X": (64, 16, 256)},
        {n: (lambda r, _: normal(0.06)(r, (1, 1024, 256))) for n in "WR"},
        ("W", "R"),
        {"hidden_size": 256},
    ),
    "Hardmax": Rule("test_hardmax_default_axis"),
    "LogSoftmax": Rule("test_logsoftmax_default_axis"),
    "Softmax": Rule("test_softmax_default_axis"),
    "LinearAttention": Rule(
        "test_linear_attention_linear",
        dict.fromkeys(("query", "key", "value"), (1, 512, 256)),
    ),
    "MatMul": Rule("test_matmul_2d", {"a": (1024, 1024), "b": (1024, 512)}),
    "MatMulInteger": Rule("test_matmulinteger", {"A": (1024, 1024), "B": (1024, 512)}),
    "MaxUnpool": Rule(
        "test_maxunpool_export_without_output_shape",
        {"xT": (8, 32, 32, 32), "xI": (8, 32, 32, 32)},
        {"xI": unpool_indices},
    ),
    "NegativeLogLikelihoodLoss": Rule(
        "test_nllloss_NCd1d2",
        {"input": IMAGE, "target": (8, 64, 64)},
        {"target": below(32)},
    ),
    "NonMaxSuppression": Rule(
        "test_nonmaxsuppression_two_classes",
        {"boxes": (1, 1024, 4), "scores": (1, 64, 1024)},
        {"boxes": boxes, "scores": uniform(0, 1), "max_output_boxes_per_class": exactly(64)},
    ),
    "OneHot": Rule(
        "test_onehot_negative_indices",
        {"indices": (16384,)},
        {"indices": below(64), "depth": scalar(64, "float32")},
    ),
    "PRelu": Rule("test_prelu_broadcast", constants=("slope",)),
    "Pad": Rule("test_constant_pad", {"x": (8, 32, 62, 61)}),
    "QLinearConv": Rule(
        "test_qlinearconv",
        {"x": (1, 64, 128, 128), "w": (64, 64, 1, 1), "w_scale": (64,), "w_zero_point": (64,)},
        {
            "w": below(256, "uint8"),
            "w_scale": uniform(0.001, 0.002),
            "y_scale": scalar(0.01, "float32"),
        },
        ("w",),
    ),
    "QLinearMatMul": Rule(
        "test_qlinearmatmul_2D_uint8_float32",
        {"a": (1024, 1024), "b": (1024, 512)},
        {"y_scale": exactly(0.5, kind="float32")},
        ("b",),
    ),
    "RNN": Rule(
        "test_simple_rnn_defaults",
        {"X": (64, 16, 256)},
        {n: (lambda r, _: normal(0.06)(r, (1, 256, 256))) for n in "WR"},
        ("W", "R"),
        {"hidden_size": 256},
    ),
    "RMSNormalization": Rule("test_rms_normalization_2d_axis1", constants=("W",)),
    "LayerNormalization": Rule("test_layer_normalization_2d_axis1", constants=("W", "B")),
    "Reshape": Rule(
        "test_reshape_reordered_all_dims",
        {"data": (64, 128, 128)},
        {"shape": exactly(128, 64, 128)},
    ),
    "Resize": Rule(
        "test_resize_upsample_scales_linear",
        {"X": (4, 16, 64, 64)},
        {"scales": exactly(1, 1, 2, 2, kind="float32")},
    ),
    "ReverseSequence": Rule(
        "test_reversesequence_batch",
        {"x": (1024, 1024), "sequence_lens": (1024,)},
        {"sequence_lens": below(1024)},
    ),
    "RoiAlign": Rule(
        "test_roialign_aligned_true",
        {"X": (1, 16, 256, 256), "rois": (256, 4), "batch_indices": (256,)},
        {"rois": regions, "batch_indices": below(1)},
    ),
    "RotaryEmbedding": Rule(
        "test_rotary_embedding",
        {
            **{"input": (1, 16, 1024, 64), "cos_cache": (1024, 32), "sin_cache": (1024, 32)},
            "position_ids": (1, 1024),
        },
        {"position_ids": below(1024)},
        ("cos_cache", "sin_cache"),
    ),
    "STFT": Rule(
        "test_stft_with_window",
        {"signal": (1, 1 << 17, 1), "window": (512,)},
        {"frame_step": scalar(256)},
        ("window",),
    ),
    "Scatter": Rule(
        "test_scatter_without_axis",
        dict.fromkeys(("data", "indices", "updates"), (1024, 1024)),
        {"indices": rows_of_each_column},
    ),
    "ScatterElements": Rule(
        "test_scatter_elements_with_axis",
        dict.fromkeys(("data", "indices", "updates"), (1024, 1024)),
        {"indices": columns_once},
    ),
    "ScatterND": Rule(
        "test_scatternd",
        {"data": (1024, 32, 32), "indices": (1024, 1), "updates": (1024, 32, 32)},
        {"indices": rows_once},
    ),
    "Slice": Rule(
        "test_slice",
        {"x": (128, 128, 64)},
        {"starts": exactly(3, 5), "ends": exactly(120, 126)},
    ),
    "SoftmaxCrossEntropyLoss": Rule(
        "test_sce_mean_3d",
        {"x": (8, 32, 4096), "y": (8, 4096)},
        {"y": below(32)},
    ),
    "SpaceToDepth": Rule("test_spacetodepth", {"x": IMAGE}),
    "DepthToSpace": Rule("test_depthtospace_example", {"x": IMAGE}),
    "Split": Rule("test_split_equal_parts_2d"),
    "TensorScatter": Rule(
        "test_tensorscatter_3d",
        {"past_cache": (8, 1024, 128), "update": (8, 16, 128), "write_indices": (8,)},
        {"write_indices": below(1000)},
    ),
    "TopK": Rule("test_top_k", {"x": (1024, 1024)}, {"k": exactly(10)}, ("k",)),
    "Tile": Rule("test_tile_precomputed", {"x": (512, 512)}, {"y": exactly(2, 2)}, ("y",)),
    "Upsample": Rule(
        "test_upsample_nearest",
        {"X": (4, 16, 64, 64)},
        {"scales": exactly(1, 1, 2, 2, kind="float32")},
    ),
}

MORE: Final[tuple[Rule, ...]] = (
    Rule("test_averagepool_2d_strides"),
    Rule(
        "test_conv_with_strides_padding",
        {"x": (1, 64, 128, 128)},
        {"W": lambda r, _: normal(0.05)(r, (64, 64, 3, 3))},
        ("W",),
    ),
    Rule(
        "test_basic_conv_without_padding",
        {"x": (1, 128, 96, 96)},
        {"W": lambda r, _: normal(0.3)(r, (128, 1, 3, 3))},
        ("W",),
        {"group": 128},
    ),
    Rule(
        "test_conv_with_autopad_same",
        {"x": (1, 256, 64, 64)},
        {"W": lambda r, _: normal(0.06)(r, (256, 256, 1, 1))},
        ("W",),
        {"kernel_shape": [1, 1], "strides": [1, 1]},
    ),
    Rule("test_add_bcast"),
    Rule("test_gelu_default_2"),
    Rule("test_maxpool_2d_strides"),
    Rule("test_matmul_4d", {"a": (1, 12, 256, 64), "b": (1, 12, 64, 256)}),
    *(
        Rule(f"test_reduce_{kind}_negative_axes_keepdims_random", values={"axes": exactly(-1)})
        for kind in ("max", "mean", "sum", "log_sum_exp")
    ),
    Rule(
        "test_resize_upsample_scales_nearest",
        {"X": (4, 16, 64, 64)},
        {"scales": exactly(1, 1, 2, 2, kind="float32")},
    ),
    Rule(
        "test_resize_upsample_scales_cubic",
        {"X": (4, 16, 64, 64)},
        {"scales": exactly(1, 1, 2, 2, kind="float32")},
    ),
    *(Rule(f"test_transpose_all_permutations_{n}") for n in (1, 2, 3, 4)),
)
"""More rows, where how fast an operator is depends much on its form."""

_FOLDED: Final = "all of it is computed at compile time"
_KNOWN: Final = "gives constants, whatever the input"
_CONTROL: Final = "control flow: what it costs is its body"
EXCLUDED: Final[Mapping[str, str]] = {
    "BlackmanWindow": _FOLDED,
    "Constant": _FOLDED,
    "ConstantOfShape": _FOLDED,
    "EyeLike": _FOLDED,
    "HammingWindow": _FOLDED,
    "HannWindow": _FOLDED,
    "MelWeightMatrix": _FOLDED,
    "Range": _FOLDED,
    "Shape": _KNOWN,
    "Size": _KNOWN,
    "If": _CONTROL,
    "Loop": _CONTROL,
    "Scan": _CONTROL,
    "SequenceMap": _CONTROL,
    "ImageDecoder": "its input is a file, not a tensor that could grow",
    "OptionalGetElement": "no operation on elements",
    "OptionalHasElement": "no operation on elements",
}
"""Operators that have no row, and why."""

EXPLAINED: Final[Mapping[str, str]] = {}
"""Rows that may be slower than onnxruntime, by the names of their tests, and why."""
