"""What --portable-bits costs: each network with it and without, in turn.

    python benchmarks/portable_bits.py                      # all; a few minutes
    python benchmarks/portable_bits.py resnet8 lstm         # some
    python benchmarks/portable_bits.py --compiler clang resnet8

Both are compiled for the default target and built with -O3 alone. "us" are medians of the thread's
CPU time; "x" is how many times as long the network takes with the option.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
from functools import partial
from typing import Final

import generated
import harness
from network_models import NETWORKS, Network, model_file, random_inputs
from onnxc import library
from onnxc.errors import OnnxcError
from onnxc.pipeline import compile_model

SECONDS: Final = 30.0
"""The longest that one network is timed, unless 5 rounds take longer."""
PATIENCE: Final = 900.0
"""The longest that one network may take in all."""
DEFAULT, PORTABLE = "default", "portable"


def measured(network: Network, options: argparse.Namespace) -> dict[str, harness.Figures]:
    """Of both candidates. Raises UnavailableError."""
    path = model_file(network, options.models)
    inputs = random_inputs(path)
    runs = {}
    kept = []
    for name in (DEFAULT, PORTABLE):
        try:
            compiled = compile_model(path, portable_bits=name == PORTABLE)
        except OnnxcError as error:
            raise harness.UnavailableError(str(error)) from error
        build = generated.Build(compiled, options.flags, options.compiler)
        kept.append(build.candidate(inputs))
        runs[name] = kept[-1].run
    return harness.interleaved(runs, options.rounds, SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; default: all")
    parser.add_argument("--compiler", help="C compiler; default: $CC, else cc")
    parser.add_argument("--flags", default=generated.PLAIN, help="its flags; default: -O3")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--core", type=int, help="the core to run on; default: the last")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.parse_args()
    known = [network.name for network in NETWORKS]
    if unknown := {*options.names} - {*known}:
        parser.error(f"no network {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    options.compiler = shlex.split(options.compiler or "") or generated.compiler()
    options.models = library.cache_directory() / "benchmarks"
    harness.pin(options.core)
    rows, ratios = [["network", f"{DEFAULT} us", f"{PORTABLE} us", "x"]], []
    for network in NETWORKS:
        if options.names and network.name not in options.names:
            continue
        print(f"{network.name} ...", file=sys.stderr)
        try:
            found = harness.isolated(partial(measured, network, options), PATIENCE)
        except harness.UnavailableError as error:
            print(f"{network.name}: left out: {error}", file=sys.stderr)
            continue
        times = [found[name].cpu for name in (DEFAULT, PORTABLE)]
        ratios.append(times[1] / times[0])
        rows.append([network.name, *(f"{time / 1e3:.1f}" for time in times), f"{ratios[-1]:.2f}"])
    harness.show("Networks with --portable-bits, one thread", rows, markdown=options.markdown)
    if ratios:
        print(f"Geometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")
    print(f"{harness.machine(options.compiler)}; flags: {options.flags}")


if __name__ == "__main__":
    main()
