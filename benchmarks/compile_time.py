"""What compiling costs: the command line as a user starts it, and chains of thousands of nodes.

    python benchmarks/compile_time.py [--markdown] [--quick]

Each figure is of a process of its own. A chain that compiles linearly has one figure a node.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
from onnx import NodeProto, TensorProto, helper

import generated
import harness

LENGTHS: Final = (5_000, 10_000, 20_000, 40_000)


@dataclass(frozen=True)
class Run:
    """Seconds, and the largest memory in MiB, of one process."""

    wall: float
    cpu: float
    memory: float


def run(command: Sequence[str], folder: Path) -> Run:
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} returned {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * unit / 2**20)


def onnxc(*arguments: str) -> list[str]:
    """The installed command, which does what a user's shell would start."""
    return [str(Path(sys.executable).with_name("onnxc")), *arguments]


def chain(kind: str, length: int) -> Iterator[NodeProto]:
    """Calls that make `length` nodes, each of the tensor before; the last makes "y".

    identity  a new name for the tensor before
    equal     Equal of the tensor before and an input
    thrice    a function of three Equals, each of which reads the tensor before
    """
    calls = length // 3 if kind == "thrice" else length
    names = ["x", *(f"t{n}" for n in range(1, calls)), "y"]
    for before, made in itertools.pairwise(names):
        match kind:
            case "identity":
                yield helper.make_node("Identity", [before], [made])
            case "equal":
                yield helper.make_node("Equal", [before, "b"], [made])
            case _:
                yield helper.make_node("Thrice", [before, "b"], [made], domain="own")


def save(nodes: Iterator[NodeProto], path: Path) -> None:
    told = [helper.make_tensor_value_info(name, TensorProto.BOOL, [16]) for name in "xby"]
    graph = helper.make_graph(list(nodes), "chain", told[:2], told[2:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    reads = (("x", "b", "p"), ("p", "x", "q"), ("q", "x", "y"))
    body = [helper.make_node("Equal", [left, right], [made]) for left, right, made in reads]
    thrice = helper.make_function("own", "Thrice", ["x", "b"], ["y"], body, opsets[:1])
    onnx.save(
        helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=[thrice]), path
    )


def commands(folder: Path, rounds: int) -> Iterator[list[str]]:
    """Rows: medians of whole command lines."""
    save(chain("equal", 2), folder / "two.onnx")
    lines = (("--version",), ("two.onnx", "-o", "two.c", "-q"), ("info", "two.onnx"))
    for line in lines:
        runs = [run(onnxc(*line), folder) for _ in range(rounds)]
        figures = (statistics.median(f) for f in zip(*((r.wall, r.cpu) for r in runs), strict=True))
        yield [f"onnxc {' '.join(line)}", *(f"{figure * 1e3:.0f}" for figure in figures)]


def chains(folder: Path, lengths: Sequence[int]) -> Iterator[list[str]]:
    """Rows: compiling chains of several lengths, without what the two nodes above cost."""
    least = run(onnxc("-q", "two.onnx", "-o", "two.c"), folder).cpu
    for kind in ("identity", "equal", "thrice"):
        for length in lengths:
            save(chain(kind, length), folder / "chain.onnx")
            used = run(onnxc("-q", "chain.onnx", "-o", "chain.c"), folder)
            size = (folder / "chain.c").stat().st_size
            figures = (f"{used.cpu:.2f}", f"{(used.cpu - least) / length * 1e6:.0f}")
            yield [f"{kind} {length}", *figures, f"{used.memory:.0f}", f"{size / length:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter chains")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        head = ["command", "wall ms", "CPU ms"]
        rows = [head, *commands(folder, 5 if options.quick else 15)]
        harness.show("Command lines", rows, markdown=options.markdown)
        head = ["chain, nodes", "CPU s", "us a node", "MiB", "C bytes a node"]
        rows = [head, *chains(folder, LENGTHS[: 2 if options.quick else None])]
        harness.show("Chains", rows, markdown=options.markdown)
    print(harness.machine(generated.compiler()))


if __name__ == "__main__":
    main()
