"""Signal processing: Fourier transforms, windows, the mel filter bank.

A transform of length p·q is p-point transforms, a multiplication by twiddle factors and q-point
transforms (Cooley and Tukey, An Algorithm for the Machine Calculation of Complex Fourier Series,
1965). The factors are constants, computed in double and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, DOUBLE, INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import (
    Expr,
    Index,
    apply,
    at,
    compare,
    fold,
    literal,
    where,
)
from onnxc.op import Declared, Ints, op
from onnxc.ops.agreement import agreed, declared_shape, whole
from onnxc.ops.assembly import joined
from onnxc.ops.checks import require_one_number, require_table, type_of_code
from onnxc.tensor import (
    Shape,
    Tensor,
    compute,
    constant,
    dynamic,
    full,
    guarded,
    zero,
)

YES = literal(BOOL, True)
LARGEST_FACTOR = 16
"""Longer transforms are split, where the length has factors."""
TABLE = 64
"""Up to this length a transform has a table of every factor, beyond one of its roots of unity."""


@dataclass(frozen=True)
class Complex:
    """Two tensors of one shape [rows, length]; `im` is None for real values."""

    re: Tensor
    im: Tensor | None


def _table(values: object, dtype: ElementType) -> Tensor:
    return constant(np.asarray(values, dtype.numpy), dtype)


def _roots(length: int, sign: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """cos and sin of sign·2πn/length for n from 0, exact at the quarters."""
    require_table(length)
    turns = np.arange(length)
    angle = 2 * np.pi * turns / length
    quarter = 4 * turns % length == 0
    cosine, sine = (np.where(quarter, np.round(f(angle)), f(angle)) for f in (np.cos, np.sin))
    return cosine, sign * sine


def _factor(length: int) -> int:
    """The greatest factor that a table may have; the length itself where there is no such."""
    found = [p for p in range(2, LARGEST_FACTOR + 1) if length % p == 0]
    return max(found, default=length)


def transform(x: Complex, sign: int) -> Complex:
    """X[k] = sum of x[n]·exp(sign·2πi·kn/N), over the second dimension of [rows, N]."""
    rows, length = x.re.shape
    p = _factor(length)
    if p == length:
        return _direct(x, sign)
    q = length // p
    parts = x.re.reshape((rows, p, q)), None if x.im is None else x.im.reshape((rows, p, q))
    columns = [None if t is None else t.transpose([0, 2, 1]).reshape((rows * q, p)) for t in parts]
    assert columns[0] is not None
    short = _direct(Complex(columns[0], columns[1]), sign)
    turned = _times_twiddles(short, rows, p, q, sign)
    last = _factor(q) == q <= TABLE
    inner = (
        _of_pairs(_in_rows(turned, (rows * p, q)), sign)
        if last
        else transform(
            Complex(
                *(t.stored("times the twiddle factors").reshape((rows * p, q)) for t in turned)
            ),
            sign,
        )
    )
    return Complex(*(_interleaved(t, rows, p, q) for t in (inner.re, _present(inner))))


def _present(x: Complex) -> Tensor:
    return full(x.re.shape, zero(x.re.dtype)) if x.im is None else x.im


def _interleaved(t: Tensor, rows: int, p: int, q: int) -> Tensor:
    return t.reshape((rows, p, q)).transpose([0, 2, 1]).reshape((rows, p * q))


def _in_rows(parts: tuple[Tensor, Tensor], shape: tuple[int, int]) -> Tensor:
    """The real and the imaginary part of [..., length] as [rows, 2·length], one after the other."""
    roles = ("the real part", "the imaginary part")
    rows, length = shape
    return joined(parts, parts[0].rank - 1, roles).reshape((rows, 2 * length))


def _times_twiddles(x: Complex, rows: int, p: int, q: int, sign: int) -> tuple[Tensor, Tensor]:
    """[rows·q, p] to [rows, p, q], element (b, c) times exp(sign·2πi·bc/(pq))."""
    require_table(p * q)
    angle = 2 * np.pi * np.outer(np.arange(p), np.arange(q)) / (p * q)
    cosine = _table(np.cos(angle), x.re.dtype)
    sine = _table(sign * np.sin(angle), x.re.dtype)
    re, im = (t.reshape((rows, q, p)).transpose([0, 2, 1]) for t in (x.re, _present(x)))

    def product(first: Tensor, second: Tensor, other: int) -> Tensor:
        def element(row: Index, c: Index, b: Index) -> Expr:
            left = first[[row, c, b]] * cosine[[c, b]]
            right = second[[row, c, b]] * sine[[c, b]]
            return left - right if other < 0 else left + right

        return compute((rows, p, q), element)

    return product(re, im, -1), product(im, re, 1)


def _of_pairs(pairs: Tensor, sign: int) -> Complex:
    """By the definition, of [rows, 2·length] with the imaginary parts after the real ones.

    As one product with a matrix of real numbers, for which there are tuned kernels.
    """
    rows, both = pairs.shape
    length = both // 2
    turns = np.outer(np.arange(length), np.arange(length)) % length
    cosine, sine = (values[turns] for values in _roots(length, sign))
    matrix = _table(np.block([[cosine, sine], [-sine, cosine]]), pairs.dtype)

    def element(row: Index, k: Index) -> Expr:
        return fold("sum", [both], lambda n: pairs[[row, n]] * matrix[[n, k]], "contraction")

    made = compute((rows, both), element).stored(f"transforms of {length} points")

    def part(first: int) -> Tensor:
        return compute((rows, length), lambda row, k: made[[row, k + first]])

    return Complex(part(0), part(length))


def _direct(x: Complex, sign: int) -> Complex:
    """By the definition: each result is a sum over the whole length."""
    rows, length = x.re.shape
    if x.im is not None and length <= TABLE:
        return _of_pairs(_in_rows((x.re, x.im), (rows, length)), sign)
    cosine, sine = _factors(length, sign, x.re.dtype)
    re, im = x.re.shared(), None if x.im is None else x.im.shared()

    def part(term: Callable[[list[Index], Expr, Expr], Expr]) -> Tensor:
        def element(row: Index, k: Index) -> Expr:
            return fold(
                "sum", [length], lambda n: term([row, n], cosine(k, n), sine(k, n)), "contraction"
            )

        return compute((rows, length), element).stored(f"transforms of {length} points")

    if im is None:
        return Complex(part(lambda at, c, _: re[at] * c), part(lambda at, _, s: re[at] * s))
    return Complex(
        part(lambda at, c, s: re[at] * c - im[at] * s),
        part(lambda at, c, s: re[at] * s + im[at] * c),
    )


Factor = Callable[[Index, Index], Expr]


def _factors(length: int, sign: int, dtype: ElementType) -> tuple[Factor, Factor]:
    """cos and sin of sign·2πkn/length, from a table of every pair or of the roots of unity."""
    roots = _roots(length, sign)
    if length <= TABLE:
        turns = np.outer(np.arange(length), np.arange(length)) % length
        pairs = [_table(values[turns], dtype) for values in roots]
        return lambda k, n: pairs[0][[k, n]], lambda k, n: pairs[1][[k, n]]
    single = [_table(values, dtype) for values in roots]

    def turn(k: Index, n: Index) -> list[Index]:
        return [dynamic(apply("remainder", at(k) * at(n), length))]

    return lambda k, n: single[0][turn(k, n)], lambda k, n: single[1][turn(k, n)]


def _complex_rows(x: Tensor, axis: int) -> tuple[Complex, Shape]:
    """[..., 1 or 2] as rows of `axis`, and the shape of the dimensions before it in the rows."""
    order = [d for d in range(x.rank - 1) if d != axis] + [axis]
    outer = tuple(x.shape[d] for d in order[:-1])
    rows = (math.prod(outer), x.shape[axis])

    def part(number: int) -> Tensor:
        one = compute(x.shape[:-1], lambda *indices: x[[*indices, Index(number)]])
        return one.transpose(order).reshape(rows)

    return Complex(part(0), part(1) if x.shape[-1] == 2 else None), outer


def _joined(parts: list[Tensor], outer: Shape, axis: int) -> Tensor:
    """Rows back to where `axis` was, real and imaginary part last."""
    length = parts[0].shape[1]
    order = [*range(axis), len(outer), *range(axis, len(outer))]
    placed = [part.reshape((*outer, length)).transpose(order) for part in parts]
    last = placed[0].rank
    roles = ("the real part", "the imaginary part")[: len(parts)]
    return joined([part.unsqueeze([last]) for part in placed], last, roles)


def _resized(x: Tensor, axis: int, length: int) -> Tensor:
    """Cut, or filled up with zeros, along `axis`."""
    if x.shape[axis] == length:
        return x
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    return compute(shape, lambda *indices: guarded(x, indices, zero(x.dtype)))


def _dft(x: Tensor, axis: int, length: int, *, inverse: int, onesided: int) -> Tensor:
    if x.shape[-1] not in (1, 2):
        raise RefusalError(
            Kind.OPERAND_SHAPE,
            f"the last dimension is {x.shape[-1]}",
            "it is 1 (real) or 2 (complex)",
        )
    if inverse and onesided:
        return _real_inverse(x, axis, length)
    rows, outer = _complex_rows(_resized(x, axis, length), axis)
    result = transform(rows, 1 if inverse else -1) if length else rows
    parts = [result.re, _present(result)]
    if inverse:
        parts = [_divided(part, length) for part in parts]
    if onesided:
        half = (rows.re.shape[0], length // 2 + 1)
        parts = [compute(half, lambda r, k, part=part: part[[r, k]]) for part in parts]
    return _joined(parts, outer, axis)


def _divided(part: Tensor, length: int) -> Tensor:
    return compute(part.shape, lambda *indices: part[indices] / length)


def _real_inverse(x: Tensor, axis: int, length: int) -> Tensor:
    """The real signal whose spectrum the one side is; the other is its mirror, conjugate."""
    half, outer = _complex_rows(_resized(x, axis, length // 2 + 1), axis)
    require_table(length)
    numbers = np.arange(length)
    mirrored = numbers > length // 2
    place = constant(np.where(mirrored, length - numbers, numbers), INT64)
    sign = _table(np.where(mirrored, -1, 1), x.dtype)
    shape = (half.re.shape[0], length)
    im = _present(half)
    full_re = compute(shape, lambda r, k: half.re[[r, dynamic(place[[k]])]])
    full_im = compute(shape, lambda r, k: im[[r, dynamic(place[[k]])]] * sign[[k]])
    result = transform(Complex(full_re, full_im), 1)
    return _joined([_divided(result.re, length)], outer, axis)


def _chosen(value: Tensor, candidates: Mapping[int, tuple[Tensor, Expr]]) -> Tensor:
    """The candidate that a run-time integer names; SHAPE_MISMATCH where it names none that fits."""
    number = whole(value.reshape(())[()])
    fine: Expr = literal(BOOL, False)
    result: Tensor | None = None
    for candidate, (tensor, fits) in candidates.items():
        named = compare("equal", number, candidate)
        fine = fine | (named & fits)
        result = tensor if result is None else _either(named, tensor, result)
    if result is None:
        raise RefusalError(
            Kind.RESULT_SHAPE, "no value of a run-time operand gives the declared shape"
        )
    return agreed(result, fine)


def _either(condition: Expr, one: Tensor, other: Tensor) -> Tensor:
    return compute(one.shape, lambda *i: where(condition, one[i], other[i]))


def _lengths(extent: int, *, halved: bool) -> list[int]:
    """Of the signal, when the result has `extent` entries."""
    return [n for n in (2 * extent - 2, 2 * extent - 1) if n > 0] if halved else [extent]


@op("DFT")
def dft(
    input: Tensor,
    dft_length: Ints | Tensor | None,
    axis: Ints | Tensor | None,
    *,
    inverse: int,
    onesided: int,
    declared: Declared,
) -> Tensor:
    """Operands that arrive at run time choose among what the declared shape allows."""
    kind = {"inverse": inverse, "onesided": onesided}
    if not isinstance(axis, Tensor):
        return _along(input, -2 if axis is None else axis[0], dft_length, declared, **kind)
    wanted = declared_shape(declared)
    fitting: dict[int, tuple[Tensor, Expr]] = {}
    for dimension in range(input.rank - 1):
        try:
            found = _along(input, dimension, dft_length, declared, **kind)
        except RefusalError:
            continue
        if found.shape == wanted:
            fitting |= {dimension: (found, YES), dimension - input.rank: (found, YES)}
    return _chosen(axis, fitting)


def _along(
    x: Tensor,
    axis: int,
    dft_length: Ints | Tensor | None,
    declared: Declared,
    *,
    inverse: int,
    onesided: int,
) -> Tensor:
    if not -x.rank <= axis < x.rank or axis % x.rank == x.rank - 1:
        raise RefusalError(
            Kind.AXIS_OUT_OF_RANGE,
            f"axis {axis} is none of the signal's",
            "the last one is re and im",
        )
    axis %= x.rank
    if isinstance(dft_length, Tensor):
        extent = declared_shape(declared)[axis]
        lengths = _lengths(extent, halved=bool(onesided and not inverse))
        kind = {"inverse": inverse, "onesided": onesided}
        return _chosen(dft_length, {n: (_dft(x, axis, n, **kind), YES) for n in lengths})
    usual = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    length = usual if dft_length is None else dft_length[0]
    if length < 1:
        raise RefusalError(
            Kind.NUMBER_OUT_OF_RANGE, f"the transform has a length of {length}", "it is 1 or more"
        )
    return _dft(x, axis, length, inverse=inverse, onesided=onesided)


@op("STFT")
def stft(
    signal: Tensor,
    frame_step: Ints | Tensor,
    window: Tensor | None,
    frame_length: Ints | Tensor | None,
    *,
    onesided: int,
    declared: Declared,
) -> Tensor:
    """[batch, length] is a real signal."""
    if signal.rank == 2:
        signal = signal.unsqueeze([2])
    if signal.rank != 3:
        raise RefusalError(
            Kind.OPERAND_RANK, f"signal has {signal.rank} dimensions, neither 2 nor 3"
        )
    halved = bool(onesided) and signal.shape[-1] == 1
    if onesided and not halved:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, "onesided is 1 for a complex signal", "set onesided to 0"
        )
    if isinstance(frame_length, Tensor):
        bins = declared_shape(declared)[2]
        lengths = _lengths(bins, halved=halved)
        usable = [n for n in lengths if window is None or window.shape == (n,)]
        return _chosen(
            frame_length,
            {n: _stft(signal, frame_step, window, n, halved, declared) for n in usable},
        )
    length = signal.shape[1]
    if frame_length is not None:
        length = frame_length[0]
    elif window is not None:
        length = window.shape[0]
    result, fits = _stft(signal, frame_step, window, length, halved, declared)
    return agreed(result, fits)


def _stft(
    signal: Tensor,
    frame_step: Ints | Tensor,
    window: Tensor | None,
    length: int,
    halved: bool,
    declared: Declared,
) -> tuple[Tensor, Expr]:
    """And whether there are as many frames as declared."""
    extent = signal.shape[1]
    if not 1 <= length <= extent:
        raise RefusalError(Kind.OPERAND_SHAPE, f"a frame has {length} values, the signal {extent}")
    if not isinstance(frame_step, Tensor):
        step = frame_step[0]
        if step < 1:
            raise RefusalError(Kind.NUMBER_OUT_OF_RANGE, f"frame_step is {step}", "it is 1 or more")
        frames = (extent - length) // step + 1
        return _framed(signal, window, length, frames, lambda f: f * step, halved), YES
    stride, frames = whole(frame_step.reshape(())[()]), declared_shape(declared)[1]
    last = extent - length

    def start(f: Index) -> Index:
        return dynamic(apply("max", apply("min", at(f) * stride, last), 0))

    fits = compare("equal", apply("div", literal(INT64, last), stride) + 1, frames)
    return _framed(signal, window, length, frames, start, halved), fits & (stride > 0)


def _framed(
    signal: Tensor,
    window: Tensor | None,
    length: int,
    frames: int,
    start: Callable[[Index], Index],
    halved: bool,
) -> Tensor:
    """The transforms of `frames` pieces, each from start(number of the frame) on."""
    batch, _, parts = signal.shape

    def element(b: Index, f: Index, n: Index, part: Index) -> Expr:
        value = signal[[b, start(f) + n, part]]
        return value if window is None else value * window[[n]]

    framed = compute((batch, frames, length, parts), element)
    return _dft(framed, 2, length, inverse=0, onesided=int(halved))


def _of_rank_1(shape: Shape) -> Shape:
    if len(shape) != 1:
        raise RefusalError(Kind.RESULT_SHAPE, f"a window has 1 dimension, not {len(shape)}")
    return shape


def _window(
    size: Ints | Tensor, output_datatype: int, periodic: int, declared: Declared, *terms: float
) -> Tensor:
    """The sum of terms[k]·cos(2πkn/N), N being the size, less one where not periodic."""
    if isinstance(size, Tensor):
        (length,) = _of_rank_1(declared_shape(declared))
    else:
        require_one_number("size", size)
        length = size[0]
    require_table(length)
    if length < 0:
        raise RefusalError(Kind.NUMBER_OUT_OF_RANGE, f"size is {length}", "it is 0 or more")
    whole_turn = length if periodic else length - 1
    turns = np.arange(length) / max(whole_turn, 1)
    angles = (2 * np.pi * k * turns for k in range(len(terms)))
    values = sum(term * np.cos(angle) for term, angle in zip(terms, angles, strict=True))
    # By the formula 0 (never -0) or 1, such as 0.5 - 0.5·cos 2π.
    whole_number = np.rint(values) + 0.0
    exact = np.where(np.abs(values - whole_number) < 1e-15, whole_number, values)
    table = constant(np.asarray(exact, np.float64), DOUBLE)
    result = table.cast(type_of_code("output_datatype", output_datatype))
    if not isinstance(size, Tensor):
        return result
    return agreed(result, compare("equal", whole(size.reshape(())[()]), length))


@op("HannWindow", exact=True)
def hann_window(
    size: Ints | Tensor, *, output_datatype: int, periodic: int, declared: Declared
) -> Tensor:
    return _window(size, output_datatype, periodic, declared, 0.5, -0.5)


@op("HammingWindow", exact=True)
def hamming_window(
    size: Ints | Tensor, *, output_datatype: int, periodic: int, declared: Declared
) -> Tensor:
    return _window(size, output_datatype, periodic, declared, 25 / 46, -21 / 46)


@op("BlackmanWindow", exact=True)
def blackman_window(
    size: Ints | Tensor, *, output_datatype: int, periodic: int, declared: Declared
) -> Tensor:
    return _window(size, output_datatype, periodic, declared, 0.42, -0.5, 0.08)
