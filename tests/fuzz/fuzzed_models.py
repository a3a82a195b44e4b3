"""Small models whose C is fuzzed: of every family of operators those that indices run through."""

from __future__ import annotations

from typing import Final

import onnx

from tests import backend_suite
from tests.malformed import parse

BACKEND: Final = """
    gather_2d_indices gather_elements_negative_indices gathernd_example_int32_batch_dim1
    scatter_elements_with_duplicate_indices scatternd_add tensorscatter_circular
    onehot_with_axis top_k top_k_same_values_largest nonzero_example compress_0
    unique_sorted_without_axis unique_sorted_with_axis_3d resize_downsample_scales_cubic
    resize_tf_crop_and_resize resize_upsample_sizes_nearest_not_larger slice slice_neg_steps
    split_variable_parts_2d_opset18 constant_pad reflect_pad wrap_pad
    range_int32_type_negative_delta cast_FLOAT_to_FLOAT8E5M2 bitshift_left_int8_shift_ge_width
    mod_mixed_sign_int64 div_int8 pow_types_float32_int64 quantizelinear_blocked_asymmetric
    dequantizelinear_blocked qlinearconv qlinearmatmul_3D_int8_float32 matmulinteger
    dynamicquantizelinear layer_normalization_2d_axis1 group_normalization_example
    basic_conv_with_padding convtranspose_pads maxpool_with_argmax_2d_precomputed_pads
    averagepool_2d_ceil maxunpool_export_with_output_shape lstm_with_peepholes gru_seq_length
    rnn_seq_length gridsample_bicubic gridsample_reflection_padding roialign_mode_max
    roialign_aligned_true nonmaxsuppression_two_classes dft stft_with_window
    reversesequence_batch deform_conv_with_mask_bias attention_4d_gqa_causal_nonpad_decode
    det_nd col2im tile_precomputed cumsum_2d_axis_0 softmax_example sce_mean_weight_ii
    nllloss_NCd1_weight_ii triu_one_row affine_grid_2d center_crop_pad_crop_and_pad
    einsum_batch_matmul
"""
"""Tests of ONNX's backend suite, without "test_"."""
WRITTEN: Final = {
    "casts_to_integers": """g (float[9] x, double[9] z, float16[9] h)
        => (int8[9] a, uint8[9] b, int32[9] c, int64[9] d, uint64[9] e, int16[9] f, bool[9] t)
        { a = Cast <to = 3> (x) b = Cast <to = 2> (z) c = Cast <to = 6> (x) d = Cast <to = 7> (z)
          e = Cast <to = 13> (z) f = Cast <to = 5> (h) t = Cast <to = 9> (x) }""",
    "integer_arithmetic": """g (int64[5] a, int64[5] b, int32[5] c, int32[5] d)
        => (int64[5] p, int64[5] q, int32[5] r, int32[5] s, int64[5] t) {
        p = Div (a, b) q = Mul (a, b) r = Mod <fmod = 1> (c, d) s = Sub (c, d) u = Abs (a)
        t = Neg (u) }""",
    "reshape_at_run_time": """g (float[2,3,4] x, int64[2] s) => (float[6,4] y)
        { y = Reshape (x, s) }""",
    "strings": """g (string[4] x, int64[3] i, string[2,4] y)
        => (string[3] a, bool[2,4] e, string[2,4] w)
        { a = Gather (x, i) e = Equal (x, y) w = Where (e, x, y) }""",
    "strings_made_unique": """g (string[5] x) => (string[n] y, int64[m] i)
        { y, i = Unique (x) }""",
}


def fuzzed_models() -> dict[str, onnx.ModelProto]:
    """By name, in the order above."""
    found = {name: backend_suite.example(f"test_{name}").model for name in BACKEND.split()}
    return found | {name: parse(text) for name, text in WRITTEN.items()}
