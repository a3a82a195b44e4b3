"""Networks against onnxruntime: the table of the floors that onnxc has to hold.

    python benchmarks/networks.py --report-only             # all; a few minutes
    python benchmarks/networks.py resnet8 lstm              # some
    python benchmarks/networks.py --compiler clang --flags "-std=c99 -O2" resnet8
    python benchmarks/networks.py --keep FOLDER dscnn       # leaves C and library there
    python benchmarks/networks.py --engines openvino,ncnn   # other engines too (README.md)
    python benchmarks/networks.py --list                    # the names

Each network is compiled with onnxc's default options and built with -O3 alone, checked against
onnxruntime, and timed in turn with it in one pinned process: one thread, buffers bound before.
"us" are medians of the thread's CPU time; "x CPU" is onnxruntime's median divided by onnxc's,
"x wall" the same of the best wall times. The exit status is 1 when a result is wrong, a floor is
missed or a model absent, or the geometric mean over the seven networks is below 1.45; --report-only
leaves of that only the wrong results.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import generated
import harness
import onnx_runtime
import peers
from comparison import largest_error
from network_models import NETWORKS, SEVEN, Network, model_file, random_inputs
from onnxc import library
from onnxc.errors import OnnxcError
from onnxc.pipeline import compile_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEAN_FLOOR: Final = 1.45
SECONDS: Final = 30.0
"""The longest that one network is timed, unless 5 rounds take longer."""
PATIENCE: Final = 1800.0
"""The longest that one network may take in all, with every engine."""
OWN, REFERENCE = "onnxc", "ORT"


@dataclass
class Result:
    """What was found of one network.

    figures   by candidate; none where the network could not be built or run
    error     the largest absolute difference from onnxruntime's outputs
    problems  what makes the result wrong, or why there is none
    absent    why there is no model
    skipped   why other engines were left out, by their names
    """

    network: Network
    figures: dict[str, harness.Figures] = field(default_factory=dict)
    error: float = float("nan")
    problems: list[str] = field(default_factory=list)
    absent: str = ""
    skipped: dict[str, str] = field(default_factory=dict)

    def ratio(self, name: str = REFERENCE) -> float:
        """A candidate's CPU time as a multiple of onnxc's; 0 where there is none."""
        return self.figures[name].cpu / self.figures[OWN].cpu if self.figures else 0.0

    @property
    def wall_ratio(self) -> float:
        """onnxruntime's best wall time as a multiple of onnxc's; 0 where there is none."""
        return self.figures[REFERENCE].wall / self.figures[OWN].wall if self.figures else 0.0

    @property
    def fastest(self) -> str:
        """The fastest candidate besides onnxc."""
        return min(self.figures.keys() - {OWN}, key=lambda name: self.figures[name].cpu)

    @property
    def verdict(self) -> str:
        if not self.figures:
            return "absent" if self.absent else "FAILED"
        if self.problems:
            return "WRONG"
        return "ok" if self.ratio() >= self.network.floor else "below"


def measured(network: Network, options: argparse.Namespace) -> Result:
    """Compiles, builds, checks and times one network."""
    result = Result(network)
    try:
        path = model_file(network, options.models)
    except harness.UnavailableError as error:
        result.absent = str(error)
        return result
    inputs = random_inputs(path)
    try:
        build = generated.Build(compile_model(path), options.flags, options.compiler, options.keep)
        candidates = {
            OWN: build.candidate(inputs),
            REFERENCE: onnx_runtime.candidate(path, inputs),
        }
        first = _outputs(candidates[OWN])
        right = _outputs(candidates[REFERENCE])
    except (harness.UnavailableError, OnnxcError) as error:
        result.problems.append(str(error))
        return result
    result.error, result.problems = largest_error(first, right)
    candidates |= _peers(path, inputs, right, options.engines, result)
    runs = {name: candidate.run for name, candidate in candidates.items()}
    result.figures = harness.interleaved(runs, options.rounds, SECONDS)
    again = candidates[OWN].outputs()
    if any(first[name].tobytes() != again[name].tobytes() for name in first):
        result.problems.append("two runs differ")
    return result


def run(network: Network, options: argparse.Namespace) -> Result:
    """`measured` in a process of its own: a crash costs one row."""
    try:
        return harness.isolated(lambda: measured(network, options), PATIENCE)
    except harness.UnavailableError as error:
        return Result(network, problems=[str(error)])


def _outputs(candidate: harness.Candidate) -> dict[str, NDArray[Any]]:
    """Copies of what one call leaves."""
    candidate.run(1)
    return {name: array.copy() for name, array in candidate.outputs().items()}


def _peers(
    path: Path,
    inputs: dict[str, NDArray[Any]],
    right: dict[str, NDArray[Any]],
    engines: Sequence[str],
    result: Result,
) -> dict[str, harness.Candidate]:
    """The other engines that can run the model and do it right."""
    found = {}
    for name in engines:

        def problems(name: str = name) -> list[str]:
            return largest_error(_outputs(peers.candidate(name, path, inputs)), right)[1]

        try:
            wrong = harness.isolated(problems, PATIENCE)  # some crash
            if wrong:
                raise harness.UnavailableError(f"wrong: {wrong[0]}")
            found[name] = peers.candidate(name, path, inputs)
        except harness.UnavailableError as error:
            result.skipped[name] = str(error)
    return found


def row(result: Result, engines: Sequence[str]) -> list[str]:
    def time_of(name: str) -> str:
        return f"{result.figures[name].cpu / 1e3:.1f}" if name in result.figures else "-"

    if engines and result.figures:
        beside = [f"{result.ratio(result.fastest):.2f} {result.fastest}"]
    else:
        beside = ["-"] if engines else []
    return [
        result.network.name,
        *(time_of(name) for name in (OWN, REFERENCE, *engines)),
        *(f"{ratio:.2f}" for ratio in (result.ratio(), result.wall_ratio)),
        *beside,
        f"{result.network.floor:.2f}",
        result.verdict,
        f"{result.error:.1e}",
    ]


def show(results: list[Result], options: argparse.Namespace) -> None:
    engines = options.engines
    times = [f"{name} us" for name in (OWN, REFERENCE, *engines)]
    beside = ["x fastest"] if engines else []
    head = ["network", *times, "x CPU", "x wall", *beside, "floor", "", "max error"]
    rows = [head, *(row(result, engines) for result in results)]
    harness.show("Networks, one thread", rows, markdown=options.markdown)
    for result in results:
        if result.absent:
            print(f"{result.network.name}: left out: {result.absent}")
        for problem in result.problems:
            print(f"{result.network.name}: {result.verdict}: {problem}")
        for name, reason in result.skipped.items():
            print(f"{result.network.name}: {name} left out: {reason}")


def held(results: list[Result]) -> bool:
    """Whether every floor is held, that of the mean too; prints the mean of the seven networks."""
    seven = [result for result in results if result.network.name in SEVEN and result.figures]
    ratios = [result.ratio() for result in seven]
    good = all(result.verdict == "ok" for result in results)
    if not ratios:
        return good
    mean = statistics.geometric_mean(ratios)
    text = f"Geometric mean over {len(ratios)} of the {len(SEVEN)} networks: {mean:.3f}"
    if len(ratios) < len(SEVEN):
        print(text)
        return good
    print(f"{text}; floor {MEAN_FLOOR}: {'ok' if mean >= MEAN_FLOOR else 'below'}")
    return good and mean >= MEAN_FLOOR


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; default: all")
    parser.add_argument("--list", action="store_true", help="print their names")
    parser.add_argument("--compiler", help="C compiler; default: $CC, else cc")
    parser.add_argument("--flags", default=generated.PLAIN, help="its flags; default: -O3")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--core", type=int, help="the core to run on; default: the last")
    parser.add_argument("--engines", default="", help=f"of {','.join(peers.ENGINES)}; or all")
    parser.add_argument("--models", type=Path, help="folder of the models; default: a cache")
    parser.add_argument("--keep", type=Path, help="folder where C and libraries stay")
    parser.add_argument("--report-only", action="store_true", help="floors do not fail")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.parse_args()
    known = [network.name for network in NETWORKS]
    options.names = options.names or known
    options.engines = list(filter(None, options.engines.split(",")))
    if options.engines == ["all"]:
        options.engines = list(peers.ENGINES)
    for kind, wanted, names in (
        ("network", options.names, known),
        ("engine", options.engines, peers.ENGINES),
    ):
        if unknown := set(wanted) - set(names):
            parser.error(f"no {kind} {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    options.compiler = shlex.split(options.compiler or "") or generated.compiler()
    options.models = options.models or library.cache_directory() / "benchmarks"
    return options


def main() -> None:
    options = arguments()
    if options.list:
        print("\n".join(network.name for network in NETWORKS))
        return
    harness.pin(options.core)
    results = []
    for network in NETWORKS:
        if network.name in options.names:
            print(f"{network.name} ...", file=sys.stderr)
            results.append(run(network, options))
    show(results, options)
    good = held(results)
    print(f"{harness.machine(options.compiler)}; flags: {options.flags}")
    wrong = any(result.problems for result in results)
    raise SystemExit(1 if wrong or not (good or options.report_only) else 0)


if __name__ == "__main__":
    main()
