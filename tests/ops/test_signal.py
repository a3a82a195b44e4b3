"""Fourier transforms against numpy's in double, windows against their formulas, mel weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from onnxc.expression import Fold
from onnxc.kernel import Loops, Micro
from onnxc.pipeline import compile_model, evaluate_model
from onnxc.traversal import walk
from tests.models import refusal
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import assert_status, one_node

Array = NDArray[Any]
DRAW = np.random.default_rng(3).standard_normal


def parts(spectrum: Array, dtype: type = np.float32) -> Array:
    return np.stack([spectrum.real, spectrum.imag], -1).astype(dtype)


# Prime, a power of two, of several factors, one, and beyond the table of every pair.
@pytest.mark.parametrize("length", [1, 2, 7, 16, 60, 67, 128, 202])
def test_dft_of_every_kind_of_length(length: int) -> None:
    """Forward and inverse, real and complex, one-sided both ways."""
    real, z = DRAW((2, length)), DRAW((2, length)) + 1j * DRAW((2, length))
    real32, z32 = real.astype(np.float32), parts(z)
    exact = z32[..., 0].astype(np.float64) + 1j * z32[..., 1]
    wide = real32.astype(np.float64)
    batch = NodeBatch()
    batch.add("DFT", [z32], parts(np.fft.fft(exact)))
    batch.add("DFT", [z32], parts(np.fft.ifft(exact)), inverse=1)
    batch.add("DFT", [real32[..., None]], parts(np.fft.fft(wide)))
    batch.add("DFT", [real32[..., None]], parts(np.fft.rfft(wide)), onesided=1)
    half = parts(np.fft.rfft(wide))
    back = np.fft.irfft(half[..., 0] + 1j * half[..., 1].astype(np.float64), length)
    inputs = [half, np.asarray(length)]
    batch.add(
        "DFT", inputs, back[..., None].astype(np.float32), constants={1}, onesided=1, inverse=1
    )
    batch.check_within(4, 4e-6 * np.sqrt(length))


@pytest.mark.parametrize("real", [True, False])
def test_dft_sums_in_tuned_kernels(real: bool) -> None:
    """Of 400 = 16 x 5 x 5 points: no plain loop sums products."""
    x = DRAW((4, 400, 1 if real else 2)).astype(np.float32)
    z = x[..., 0] + (0j if real else 1j * x[..., 1].astype(np.float64))
    program = compile_model(one_node("DFT", [x], parts(np.fft.fft(z))).model()).program
    kernels = [step.name for step in program.steps if isinstance(step, Micro)]
    assert kernels.count("contraction") == (4 if real else 3)
    loops = [step for step in program.steps if isinstance(step, Loops)]
    assert not [n for step in loops for n in walk(step.value) if isinstance(n, Fold)]


def test_dft_along_every_axis_cut_and_filled_up() -> None:
    x = DRAW((3, 4, 5, 2)).astype(np.float32)
    z = x[..., 0].astype(np.float64) + 1j * x[..., 1]
    batch = NodeBatch()
    for axis in (0, 1, 2, -4, -3, -2):
        own = axis if axis >= 0 else axis + 1
        for length in (None, 2, 8):
            n = None if length is None else np.asarray(length)
            wanted = parts(np.fft.fft(z, length, own))
            inputs = [x, n, np.asarray(axis)]
            batch.add_node("DFT", inputs, [wanted], constants={1, 2})
    batch.check_within(4, 1e-5)


def test_dft_in_double() -> None:
    z = DRAW((2, 48)) + 1j * DRAW((2, 48))
    batch = NodeBatch()
    batch.add("DFT", [parts(z, np.float64)], parts(np.fft.fft(z), np.float64))
    batch.check_within(4, 1e-13)


def test_dft_with_operands_that_arrive_at_run_time() -> None:
    """They choose among what the declared shape allows."""
    x = DRAW((6, 6, 1)).astype(np.float32)
    batch = NodeBatch()
    for axis in (0, 1, -2, -3):
        own = axis if axis >= 0 else axis + 1
        batch.add_node("DFT", [x, None, np.asarray(axis)], [parts(np.fft.fft(x[..., 0], axis=own))])
    for length in (6, 7):
        wanted = parts(np.fft.rfft(x[..., 0], length, axis=1))
        batch.add_node("DFT", [x, np.asarray(length)], [wanted], onesided=1)
    batch.check_within(4, 1e-5)


def test_dft_with_a_run_time_operand_that_does_not_fit() -> None:
    x = DRAW((6, 6, 1)).astype(np.float32)
    y = parts(np.fft.fft(x[..., 0], 5, axis=1))
    assert_status("SHAPE_MISMATCH", one_node("DFT", [x, np.asarray(4)], y))
    z = parts(np.fft.fft(x[..., 0], axis=0))
    assert_status("SHAPE_MISMATCH", one_node("DFT", [x, None, np.asarray(2)], z))


@pytest.mark.parametrize(
    ("shape", "attributes", "fact"),
    [
        ((4, 4, 2), {"onesided": 1}, "one-sided DFT requires real input"),
        ((4, 4, 1), {"onesided": 1, "inverse": 1}, "inverse one-sided DFT requires complex input"),
    ],
)
def test_dft_refused(shape: tuple[int, ...], attributes: dict[str, Any], fact: str) -> None:
    x, y = np.zeros(shape, np.float32), np.zeros((4, 3, 2), np.float32)
    source = one_node("DFT", [x], y, **attributes).model()
    del source.graph.output[0].type.tensor_type.shape.dim[:]
    source.graph.output[0].type.tensor_type.ClearField("shape")
    assert fact in refusal(source)[0]


@pytest.mark.parametrize("constants", [(1, 3), ()])
def test_stft(constants: tuple[int, ...]) -> None:
    """With and without a window, real and complex; operands known or not."""
    x, window = DRAW((2, 40, 1)).astype(np.float32), np.hanning(8).astype(np.float32)
    frames = np.stack([x[:, start : start + 8, 0] for start in range(0, 33, 4)], 1)
    step, length = np.asarray(4), np.asarray(8)
    batch = NodeBatch()
    plain, windowed = np.fft.rfft(frames), np.fft.rfft(frames * window)
    batch.add_node("STFT", [x, step, None, length], [parts(plain)], constants=constants)
    batch.add_node("STFT", [x, step, window], [parts(windowed)], constants=constants)
    both = parts(np.fft.fft(frames * window))
    batch.add_node("STFT", [x, step, window, length], [both], constants=constants, onesided=0)
    z = np.concatenate([x, 2 * x], -1)
    wanted = parts(np.fft.fft(frames * (1 + 2j)))
    batch.add_node("STFT", [z, step, None, length], [wanted], constants=constants, onesided=0)
    batch.check_within(4, 1e-5)


def test_stft_with_another_window_than_frame() -> None:
    inputs = [
        np.zeros((1, 40, 1), np.float32),
        np.asarray(4),
        np.ones(6, np.float32),
        np.asarray(8),
    ]
    batch = one_node("STFT", inputs, np.zeros((1, 9, 5, 2), np.float32), constants={1, 3})
    assert "the dimension of the window must match the frame_length" in refusal(batch.model())[0]


WINDOWS = {
    "HannWindow": (0.5, -0.5, 0),
    "HammingWindow": (25 / 46, -21 / 46, 0),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


@pytest.mark.parametrize("operator", WINDOWS)
@pytest.mark.parametrize("constants", [(0,), ()])
def test_windows(operator: str, constants: tuple[int, ...]) -> None:
    """Periodic and symmetric; what is 0 or 1 by the formula is so, as integers too."""
    a, b, c = WINDOWS[operator]
    batch = NodeBatch()
    for size in (1, 2, 10, 11):
        for periodic in (0, 1):
            n = 2 * np.pi * np.arange(size) / max(1, size if periodic else size - 1)
            wanted = a + b * np.cos(n) + c * np.cos(2 * n)
            wanted[np.abs(wanted) < 1e-15] = 0
            wanted[np.abs(wanted - 1) < 1e-15] = 1
            y = wanted.astype(np.float32)
            batch.add(operator, [np.asarray(size)], y, constants=constants, periodic=periodic)
            half = wanted.astype(np.float16)
            attributes: dict[str, Any] = {"periodic": periodic, "output_datatype": 10}
            batch.add(operator, [np.asarray(size)], half, constants=constants, **attributes)
            attributes["output_datatype"] = TensorProto.INT64
            integers = wanted.astype(np.int64)
            batch.add(operator, [np.asarray(size)], integers, constants=constants, **attributes)
    batch.check_within(0)
    for name, found in evaluate_model(batch.model(), batch.given).items():
        assert not np.signbit(found[found == 0]).any(), name


def test_a_window_of_another_size_than_declared() -> None:
    batch = one_node("HannWindow", [np.asarray(4)], np.zeros(5, np.float32))
    assert_status("SHAPE_MISMATCH", batch)


@pytest.mark.parametrize("constants", [range(5), ()])
def test_mel_weights(constants: Any) -> None:
    """Small enough to check by hand: edges and centres at bins 0, 0, 2, 4 of 9."""
    edges = np.linspace(0, 2595 * np.log10(1 + 4096 / 700), 4, endpoint=False)
    bins = np.floor(17 * 700 * (10 ** (edges / 2595) - 1) / 8192).astype(int)
    assert bins.tolist() == [0, 0, 2, 4]
    wanted = np.array([[1, 0], [0.5, 0.5], [0, 1], [0, 0.5], *[[0, 0]] * 5], np.float32)
    low, high = np.float32(0), np.float32(4096)
    inputs = [np.asarray(value) for value in (2, 16, 8192, low, high)]
    one_node("MelWeightMatrix", inputs, wanted, constants=constants).check_within(0)
