"""Identity and Equal against onnxruntime: one thread, buffers at hand, in turn, medians.

    python benchmarks/elementwise.py [--markdown] [--all] [--only WORD] [--rounds N]

"C" is built as onnxc.compile does, for this machine (-O3 -march=native), "plain" with -O3 alone.
"memcpy" moves as many bytes: nothing that reads and writes them all is much faster. "C x" and
"plain x" say how many times as fast as onnxruntime.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import harness
import strings
from onnxc.dtypes import BY_NAME, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

MILLION: Final = 1 << 20
THIRD: Final = 349525
"""Rows of three, a million elements in all."""
NUMBERS: Final = (
    *("float", "double", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool"),
)
HALVES: Final = ("float16", "bfloat16")
COLUMNS: Final = ("ORT", "memcpy", "C", "plain")
HEAD: Final = ("", "ORT us", "memcpy us", "C us", "plain us", "C GB/s", "C x", "plain x")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One model on inputs of these shapes, all of one element type."""

    operator: str
    shapes: tuple[Shape, ...]
    dtype: str

    @property
    def output(self) -> Shape:
        return np.broadcast_shapes(*self.shapes)

    @property
    def title(self) -> str:
        shapes = dict.fromkeys(self.shapes)
        texts = ["[" + ",".join(map(str, shape)) + "]" for shape in shapes]
        return f"{self.operator} {self.dtype} {' == '.join(texts)}"


def same_shape(dtypes: tuple[str, ...], size: int = MILLION) -> Iterator[Case]:
    for operator, count in (("Equal", 2), ("Identity", 1)):
        yield from (Case(operator, ((size,),) * count, dtype) for dtype in dtypes)


def broadcasts(dtypes: tuple[str, ...]) -> Iterator[Case]:
    rows = (1024, 1024)
    pairs: tuple[tuple[Shape, Shape], ...] = (
        (rows, (1024,)),
        (rows, (1024, 1)),
        (rows, ()),
        ((1024, 1), (1, 1024)),
        ((64, 1, 128), (128, 1)),
        ((THIRD, 3), (3,)),
        ((3,), (THIRD, 3)),
        ((THIRD, 3), (THIRD, 1)),
        ((THIRD, 1), (THIRD, 3)),
        ((THIRD, 1), (1, 3)),
    )
    yield from (Case("Equal", pair, dtype) for dtype in dtypes for pair in pairs)


def short_rows(dtype: str = "float") -> Iterator[Case]:
    for inner in (2, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 48, 63, 64, 65, 100):
        rows = MILLION // inner
        for other in ((inner,), (rows, 1)):
            yield Case("Equal", ((rows, inner), other), dtype)


def cases() -> Iterator[Case]:
    yield from same_shape(NUMBERS + HALVES)
    yield from same_shape(("float", "double", "int64", "int8"), MILLION // 8)
    yield Case("Identity", ((MILLION,),), "int4")
    yield from broadcasts(("float",))
    yield Case("Equal", ((THIRD // 8, 3), (3,)), "float")


def more_cases() -> Iterator[Case]:
    yield from broadcasts(("int64", "bool", "float16"))
    yield from short_rows()
    yield from same_shape(("float", "int8"), 16 * MILLION)


def values(case: Case, shape: Shape) -> NDArray[Any]:
    """Few different ones, so that many pairs are equal."""
    rng = np.random.default_rng(0)
    dtype = numpy_dtype(BY_NAME[case.dtype])
    if BY_NAME[case.dtype].packed:
        packed = BY_NAME[case.dtype].packed_bytes(int(np.prod(shape)))
        shape, dtype = (packed,), np.dtype(np.uint8)
    array = harness.aligned(shape, dtype)
    array[...] = rng.integers(0, 3, shape).astype(dtype)
    return array


def expected(case: Case, inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    return inputs["a"] == inputs["b"] if case.operator == "Equal" else inputs["a"]


def measured(case: Case, rounds: int) -> list[str]:
    """The row of one case; raises AssertionError where a result is wrong."""
    kind = BY_NAME[case.dtype].code
    proto = harness.model(case.operator, case.shapes, case.output, kind)
    inputs = {chr(ord("a") + n): values(case, shape) for n, shape in enumerate(case.shapes)}
    right = expected(case, inputs)
    outputs = {name: harness.aligned(right.shape, right.dtype) for name in COLUMNS}
    calls = {
        "C": harness.c_call(proto, inputs, {"y": outputs["C"]}),
        "plain": harness.c_call(proto, inputs, {"y": outputs["plain"]}, harness.PLAIN),
    }
    runtime = harness.runtime_call(proto, inputs, {"y": outputs["ORT"]})
    if runtime is not None:
        calls["ORT"] = runtime
    moved = sum(array.nbytes for array in (*inputs.values(), right))
    times = harness.medians({**calls, "memcpy": harness.memcpy(moved)}, rounds)
    for name in calls:
        np.testing.assert_array_equal(outputs[name].view(np.uint8), right.view(np.uint8), name)
    return row(case.title, times, moved)


def measured_strings(digits: int, rounds: int) -> list[str]:
    """Equal of a million decimal numbers of so many digits."""
    rng = np.random.default_rng(0)
    numbers = [10 ** (digits - 1) + rng.integers(0, 3, MILLION) for _ in "ab"]
    shapes = [array.shape for array in numbers]
    proto = harness.model("Equal", shapes, shapes[0], BY_NAME["string"].code)
    outputs = {name: harness.aligned((MILLION,), np.dtype(bool)) for name in COLUMNS}
    calls = {
        "ORT": strings.runtime_call(proto, numbers, outputs["ORT"]),
        "C": strings.c_call(proto, numbers, outputs["C"]),
        "plain": strings.c_call(proto, numbers, outputs["plain"], harness.PLAIN),
    }
    moved = 2 * (16 + digits) * MILLION + MILLION
    times = harness.medians({**calls, "memcpy": harness.memcpy(moved)}, rounds)
    for name in calls:
        np.testing.assert_array_equal(outputs[name], numbers[0] == numbers[1], name)
    return row(f"Equal string [{MILLION}], {digits} bytes each", times, moved)


def row(title: str, times: dict[str, float], moved: int) -> list[str]:
    runtime = times.get("ORT")
    ratios = [f"{runtime / times[name]:.2f}" if runtime else "" for name in ("C", "plain")]
    shown = [f"{times[name] / 1e3:.1f}" if name in times else "" for name in COLUMNS]
    return [title, *shown, f"{moved / times['C']:.0f}", *ratios]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--all", action="store_true", help="more types, shapes and sizes")
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    chosen = [*cases(), *(more_cases() if options.all else ())]
    chosen = [case for case in chosen if options.only in case.title]
    rows = [measured(case, options.rounds) for case in chosen]
    if options.only in "Equal string":
        rows += [measured_strings(digits, options.rounds) for digits in (9, 19)]
    harness.show("Elementwise, one thread", [HEAD, *rows], markdown=options.markdown)
    print(harness.machine())


if __name__ == "__main__":
    main()
