"""choose: which sums of products get a tuned kernel, and the steps that then stand around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from onnxc.dtypes import BY_NAME, ElementType
from onnxc.expression import Axis, Buffer, Checked, Expr, Fold, Index, along, cast, compare, load
from onnxc.kernel import Loops, Micro, Program, Step
from onnxc.passes.choose import choose, chosen, in_order
from onnxc.passes.merge_axes import merged
from onnxc.status import Status
from onnxc.summation import IN_ORDER
from onnxc.target import Target, target_of
from onnxc.traversal import walk
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT32,
    assert_same_bits,
    buffer,
    constant,
    evaluated,
    over,
)

GENERIC, CORTEX_M = target_of("generic"), target_of("cortex-m4")
PORTABLE = target_of("generic", portable=True)
DOUBLE = BY_NAME["double"]

After = Callable[[Expr, Index, Index], Expr]


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(-4, 5, shape)


def operand(name: str, kind: str, dtype: ElementType, *shape: int) -> Buffer:
    if kind == "constant":
        return constant(integers(*shape).astype(dtype.numpy), dtype)
    return buffer(name, kind, dtype, *shape)


def alone(sums: Expr, _row: Index, _column: Index) -> Expr:
    return sums


def checked(sums: Expr, _row: Index, _column: Index) -> Expr:
    """What no vectors compute."""
    return Checked(FLOAT, sums, compare("equal", sums, sums), Status(2))


def product(
    rows: int,
    length: int = 24,
    columns: int = 40,
    *,
    kinds: str = "input constant",
    turned: bool = False,
    after: After = alone,
    dtype: ElementType = FLOAT,
) -> Loops:
    """y[m][n] = after(sum over k of a[m][k] b[k][n]); `turned`: b[n][k]."""
    m, k, n = Axis(rows), Axis(length), Axis(columns)
    a_kind, b_kind = kinds.split()
    a = operand("a", a_kind, dtype, rows, length)
    b = operand("b", b_kind, dtype, *((columns, length) if turned else (length, columns)))
    place = [along(n), along(k)] if turned else [along(k), along(n)]
    sums = Fold(dtype, "sum", (k,), load(a, [along(m), along(k)]) * load(b, place), "gemm")
    y = buffer("y", "output", dtype, rows, columns)
    return over(y, after(sums, along(m), along(n)), m, n)


def kinds_of(steps: list[Step]) -> list[str]:
    """The names of kernels, and of plain loops their role."""
    return [s.name if isinstance(s, Micro) else f"loops: {s.role}" for s in map(_known, steps)]


def _known(step: Step) -> Micro | Loops:
    assert isinstance(step, Micro | Loops)
    return step


def plain(step: Step) -> tuple[Loops, ...]:
    """The loops that compute what a step does."""
    steps = step.steps if isinstance(step, Micro) else (step,)
    return tuple(s for s in steps if isinstance(s, Loops))


def assert_same_values(before: Loops, after: list[Step]) -> None:
    """Of whole numbers, whose sums are exact in any order."""
    inputs = {b: integers(*b.shape).astype(b.dtype.numpy) for b in before.reads() if not b.made_by}
    inputs = {b: array for b, array in inputs.items() if b.kind == "input"}
    steps = tuple(loops for step in after for loops in plain(step))
    found = [
        evaluated(Program(tuple(inputs), (before.out,), some), inputs)[1][before.out]
        for some in ((before,), steps)
    ]
    assert_same_bits(*found)


@pytest.mark.parametrize(
    ("step", "generic", "cortex_m"),
    [
        pytest.param(product(1), ["gemv"], ["windows_scalar"], id="one row"),
        pytest.param(product(4), ["gemv"], ["windows_scalar"], id="few rows"),
        pytest.param(product(8), ["contraction"], ["windows_scalar"], id="rows"),
        pytest.param(product(8, turned=True), ["contraction"], ["windows_scalar"], id="turned"),
        pytest.param(
            product(1, kinds="input input"), ["loops: "], ["loops: "], id="of inputs, few"
        ),
        pytest.param(
            product(8, kinds="input input"), ["contraction"], ["contraction"], id="of inputs"
        ),
        pytest.param(product(8, dtype=DOUBLE), ["contraction"], ["contraction"], id="of doubles"),
        pytest.param(product(1, dtype=DOUBLE), ["loops: "], ["loops: "], id="of doubles, one row"),
    ],
)
def test_the_kernel_of_a_product(step: Loops, generic: list[str], cortex_m: list[str]) -> None:
    assert kinds_of(chosen(step, GENERIC)) == generic
    assert kinds_of(chosen(step, CORTEX_M)) == cortex_m
    assert_same_values(step, chosen(step, GENERIC))


def test_offsets_beyond_int32_keep_the_plain_loops() -> None:
    few = product(8, 1 << 20, 1 << 10, kinds="input input")
    many = product(8, 1 << 20, 1 << 11, kinds="input input")
    assert kinds_of(chosen(few, GENERIC)) == ["contraction"]
    assert chosen(many, GENERIC) == [many]


@pytest.mark.parametrize("rows", [3, 4, 8])
def test_an_operand_by_columns_is_laid_out_row_by_row_where_that_pays(rows: int) -> None:
    step = product(rows, 65, 100, kinds="input input", turned=True)
    found = chosen(step, GENERIC)
    expected = ["transpose", "contraction"] if rows >= 4 else ["loops: "]
    assert kinds_of(found) == expected
    assert_same_values(step, found)
    if rows < 4:
        return
    (copied,) = plain(found[0])
    assert copied.role == "an operand, row by row"
    assert (copied.out.shape, copied.out.kind, copied.out.dtype) == ((65, 100), "workspace", FLOAT)
    assert copied.out in found[1].reads()
    assert step.reads()[1] not in found[1].reads()


def test_small_operands_are_laid_out_by_plain_loops() -> None:
    step = product(8, kinds="input input", turned=True)
    assert kinds_of(chosen(step, GENERIC)) == ["loops: an operand, row by row", "contraction"]


def test_what_follows_the_sums_is_a_step_of_its_own_where_vectors_cannot_compute_it() -> None:
    step = product(8, after=checked)
    sums, rest = chosen(step, GENERIC)
    assert kinds_of([sums, rest]) == ["contraction", "loops: what follows the sums"]
    assert isinstance(sums, Micro)
    assert (sums.twin.out.shape, sums.twin.out.kind) == ((8, 40), "workspace")
    assert isinstance(rest, Loops)
    assert rest.reads() == (sums.twin.out,)
    assert rest.out is step.out
    assert_same_values(step, [sums, rest])
    named = replace(step, role="mine")
    assert kinds_of(chosen(named, GENERIC))[1] == "loops: mine"


def test_sums_that_several_elements_share_are_made_once() -> None:
    """y[m][n][p] = checked(sum of products [m][n]) + x[p]."""
    m, n, p, k = Axis(8), Axis(40), Axis(3), Axis(24)
    a, x = buffer("a", "input", FLOAT, 8, 24), buffer("x", "input", FLOAT, 3)
    b = operand("b", "constant", FLOAT, 24, 40)
    factors = load(a, [along(m), along(k)]) * load(b, [along(k), along(n)])
    sums = checked(Fold(FLOAT, "sum", (k,), factors, "gemm"), along(m), along(n))
    step = over(buffer("y", "output", FLOAT, 8, 40, 3), sums + load(x, [along(p)]), m, n, p)
    found = chosen(step, GENERIC)
    assert kinds_of(found) == ["contraction", "loops: what follows the sums"]
    (sums_alone,) = plain(found[0])
    assert sums_alone.out.elements == 8 * 40
    assert [axis.extent for axis in sums_alone.axes] == [8, 40]
    assert_same_values(step, found)


def test_sums_without_a_kernel_stay_with_what_follows_them() -> None:
    step = product(1, kinds="input input", after=checked)
    assert chosen(step, GENERIC) == [step]


def test_sums_that_nothing_moves_stay() -> None:
    k, n = Axis(24), Axis(40)
    a, b = buffer("a", "input", FLOAT, 24), operand("b", "constant", FLOAT, 24)
    total = Fold(FLOAT, "sum", (k,), load(a, [along(k)]) * load(b, [along(k)]), "gemm")
    step = over(buffer("y", "output", FLOAT, 40), checked(total, along(n), along(n)), n)
    assert chosen(step, GENERIC) == [step]


def test_constant_rows_are_laid_out_now() -> None:
    """a[k][m], a constant, is read with k innermost."""
    m, k, n = Axis(8), Axis(24), Axis(40)
    a, b = operand("a", "constant", FLOAT, 24, 8), buffer("b", "input", FLOAT, 24, 40)
    factors = load(a, [along(k), along(m)]) * load(b, [along(k), along(n)])
    step = over(
        buffer("y", "output", FLOAT, 8, 40), Fold(FLOAT, "sum", (k,), factors, "gemm"), m, n
    )
    found = chosen(step, GENERIC)
    assert kinds_of(found) == ["contraction"]
    (twin,) = plain(found[0])
    (laid_out,) = (buffer for buffer in twin.reads() if buffer.kind == "constant")
    assert laid_out.shape == (8, 24)
    assert a.data is not None
    np.testing.assert_array_equal(laid_out.data, a.data.T)
    assert_same_values(step, found)


def test_constant_rows_that_lie_so_stay() -> None:
    step = product(8, kinds="constant input")
    (micro,) = chosen(step, GENERIC)
    assert {b for b in plain(micro)[0].reads() if b.kind == "constant"} == {step.reads()[0]}


def hints(steps: list[Step]) -> list[tuple[str, list[int]]]:
    """Of each Fold its hint and extents."""
    values = [node for step in steps for part in plain(step) for node in walk(part.value)]
    folds = [node for node in values if isinstance(node, Fold)]
    return [(fold.hint, [axis.extent for axis in fold.axes]) for fold in folds]


def window(after: After = alone) -> Loops:
    """y[n] = sum over i and j of a[j][i] b[i][j][n]: the loops of the sum walk a the other way."""
    i, j, n = Axis(5), Axis(7), Axis(2)
    a, b = buffer("a", "input", FLOAT, 7, 5), buffer("b", "input", FLOAT, 5, 7, 2)
    factors = load(a, [along(j), along(i)]) * load(b, [along(i), along(j), along(n)])
    sums = Fold(FLOAT, "sum", (i, j), factors, "gemm")
    return over(buffer("y", "output", FLOAT, 2), after(sums, along(n), along(n)), n)


@pytest.mark.parametrize("after", [alone, checked])
def test_with_portable_bits_plain_sums_run_in_the_order_of_tuned_ones(after: After) -> None:
    """As the operand lies whose elements are broadcast."""
    step = window(after)
    assert hints(chosen(step, GENERIC)) == [("gemm", [5, 7])]
    assert hints(chosen(step, PORTABLE)) == [(IN_ORDER, [7, 5])]
    assert_same_values(step, chosen(step, PORTABLE))


def test_what_is_no_sum_of_products_stays_in_its_order() -> None:
    k, n = Axis(24), Axis(40)
    b = buffer("b", "input", FLOAT, 24, 40)
    value = Fold(FLOAT, "sum", (k,), load(b, [along(k), along(n)]), "gemm")
    step = merged(over(buffer("y", "output", FLOAT, 40), value, n))
    assert in_order(step) is step


def test_products_of_whole_numbers() -> None:
    m, k, n = Axis(4), Axis(64), Axis(40)
    x = buffer("x", "input", BY_NAME["uint8"], 4, 64)
    w = operand("w", "constant", BY_NAME["int8"], 64, 40)
    one, other = load(x, [along(m), along(k)]), load(w, [along(k), along(n)])
    sums = Fold(INT32, "sum", (k,), cast(one, INT32) * cast(other, INT32), "contraction")
    step = over(buffer("y", "output", INT32, 4, 40), sums, m, n)
    assert kinds_of(chosen(step, GENERIC)) == ["integer_product"]


def test_without_a_target_nothing_is_chosen() -> None:
    step = product(8)
    program = Program(step.reads()[:1], (step.out,), (step,))
    assert choose(program) is program
    (found,) = choose(replace(program, target=GENERIC)).steps
    assert isinstance(found, Micro)


def test_copies_that_turn() -> None:
    i, j = Axis(64), Axis(48)
    x, y = buffer("x", "input", FLOAT, 48, 64), buffer("y", "output", FLOAT, 64, 48)
    step = over(y, load(x, [along(j), along(i)]), i, j)
    assert kinds_of(chosen(step, GENERIC)) == ["transpose"]
    assert chosen(step, CORTEX_M) == [step]


def test_copies_of_bytes_that_turn() -> None:
    i, j = Axis(64), Axis(48)
    x, y = buffer("x", "input", BOOL, 48, 64), buffer("y", "output", BOOL, 64, 48)
    step = over(y, load(x, [along(j), along(i)]), i, j)
    assert kinds_of(chosen(step, GENERIC)) == ["byte_transpose"]


@pytest.mark.parametrize("target", [GENERIC, CORTEX_M])
def test_what_no_kernel_computes_stays(target: Target) -> None:
    n = Axis(40)
    x, y = buffer("x", "input", FLOAT, 40), buffer("y", "output", FLOAT, 40)
    step = merged(over(y, load(x, [along(n)]) + 1.0, n))
    assert chosen(step, target) == [step]
