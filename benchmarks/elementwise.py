"""Identity and Equal against onnxruntime: one thread, buffers at hand, in turn, medians.

    python benchmarks/elementwise.py [--markdown] [--all] [--only WORD] [--rounds N]

"C" is built as onnxc.compile does, for this machine (-O3 -march=native), "plain" with -O3 alone.
"memcpy" moves as many bytes: nothing that reads and writes them all is much faster. "C x" and
"plain x" say how many times as fast as onnxruntime.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import generated
import harness
import onnx_runtime
from onnxc.dtypes import BY_NAME, numpy_dtype
from onnxc.packing import pack_elements
from onnxc.pipeline import compile_model

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
    """One model on inputs of these shapes, all of one element type.

    digits  of strings, which are decimal numbers of so many
    """

    operator: str
    shapes: tuple[Shape, ...]
    dtype: str
    digits: int = 0

    @property
    def output(self) -> Shape:
        return np.broadcast_shapes(*self.shapes)

    @property
    def title(self) -> str:
        if self.digits:
            return f"Equal string [{MILLION}], {self.digits} bytes each"
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


def string_cases() -> Iterator[Case]:
    yield from (Case("Equal", ((MILLION,),) * 2, "string", digits) for digits in (9, 19))


def more_cases() -> Iterator[Case]:
    yield from broadcasts(("int64", "bool", "float16"))
    yield from short_rows()
    yield from same_shape(("float", "int8"), 16 * MILLION)


def values(case: Case, shape: Shape, seed: int) -> NDArray[Any]:
    """Few different ones, so that many pairs are equal."""
    numbers = np.random.default_rng(seed).integers(0, 3, shape)
    if case.digits:
        texts = (10 ** (case.digits - 1) + numbers).astype(str)
        return np.asarray(texts, object)
    return harness.aligned_copy(numbers.astype(numpy_dtype(BY_NAME[case.dtype])))


def expected(case: Case, inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The output, as Candidate.outputs has it."""
    a, *rest = inputs.values()
    if case.operator == "Equal":
        return np.asarray(a == rest[0])
    element = BY_NAME[case.dtype]
    return pack_elements(a, element) if element.packed else a


def moved_bytes(case: Case) -> int:
    """What the model reads and writes; of a string also the pointer and the length."""
    result = BY_NAME["bool" if case.operator == "Equal" else case.dtype]
    counts = [math.prod(shape) for shape in case.shapes]
    read = sum(BY_NAME[case.dtype].packed_bytes(count) + case.digits * count for count in counts)
    return read + result.packed_bytes(math.prod(case.output))


def measured(case: Case, rounds: int) -> list[str]:
    """The row of one case; raises AssertionError where a result is wrong."""
    proto = harness.model(case.operator, case.shapes, case.output, BY_NAME[case.dtype].code)
    inputs = {chr(ord("a") + n): values(case, shape, n) for n, shape in enumerate(case.shapes)}
    compiled = compile_model(proto)
    flags = {"C": generated.NATIVE, "plain": generated.PLAIN}
    candidates = {n: generated.Build(compiled, f).candidate(inputs) for n, f in flags.items()}
    with suppress(harness.UnavailableError):  # it has no kernel for some types
        candidates["ORT"] = onnx_runtime.candidate(proto.SerializeToString(), inputs)
    moved = moved_bytes(case)
    runs = {name: candidate.run for name, candidate in candidates.items()}
    figures = harness.interleaved({**runs, "memcpy": harness.memcpy(moved)}, rounds)
    right = expected(case, inputs)
    for name, candidate in candidates.items():
        found = candidate.outputs()["y"]
        np.testing.assert_array_equal(found.view(np.uint8), right.view(np.uint8), name)
    return row(case.title, {name: figure.cpu for name, figure in figures.items()}, moved)


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
    chosen = [*cases(), *(more_cases() if options.all else ()), *string_cases()]
    chosen = [case for case in chosen if options.only in case.title]
    harness.pin()
    rows = [measured(case, options.rounds) for case in chosen]
    harness.show("Elementwise, one thread", [HEAD, *rows], markdown=options.markdown)
    print(harness.machine(generated.compiler()))


if __name__ == "__main__":
    main()
