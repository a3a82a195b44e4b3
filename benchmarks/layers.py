"""The layers of the networks against the machine's limit, and why each one below 80 % is there.

    python benchmarks/layers.py                     # all; a few minutes
    python benchmarks/layers.py resnet8 lstm --all  # some, with layers of less than 1 % too
    python benchmarks/layers.py --markdown

Each network is compiled with onnxc's default options and --profile, built as onnxc's banner says
(-std=c99 -O3) and timed kernel by kernel. The limit is the largest of: the multiply-accumulates
at the highest rate of the processor's vectors, the bytes at the bandwidth of the cache that holds
them, functions and other operations at the rates of their vectors, all measured here before. That
of winograd counts the products of the direct form, of which it needs fewer: it may pass 100 %.

The exit status is 1 where a layer of at least 1 % of its network's time is below 80 % of its limit
and the rules for reasons (onnxc/report/reasons.py) do not account for it, or a network fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import harness
from network_models import NETWORKS, Network, model_file, random_inputs
from onnxc import library
from onnxc.emit.profile import kernel_label
from onnxc.errors import OnnxcError
from onnxc.kernel import Micro, Routine, Rows, Step
from onnxc.kernel_numbers import numbered
from onnxc.pipeline import compile_model
from onnxc.report import profile, times, work
from onnxc.report.machine import MEASURED, Machine, machine
from onnxc.report.reasons import ENOUGH, UNEXPLAINED

LEAST_SHARE: Final = 0.01
"""Of the network's time: a layer of less need not have a reason, nor is it shown."""
PATIENCE: Final = 1800.0
"""Seconds that one network may take."""
NAME: Final = 44
"""Characters of a layer's nodes in the table."""


@dataclass(frozen=True)
class Layer:
    """A kernel of a network; `time` as a report has it."""

    network: str
    kernel: str
    label: str
    products: int
    time: dict[str, Any]

    @property
    def below(self) -> bool:
        """Whether it is far from its limit, and nothing accounts for it."""
        share, reached = self.time["share"], self.time["of_limit"]
        heavy = share >= LEAST_SHARE and reached is not None and reached < ENOUGH
        return heavy and self.time["reason"].startswith(UNEXPLAINED)

    def row(self, why: str) -> list[str]:
        """Of the table; `why` stands for the reason."""
        time = self.time
        label = self.label if len(self.label) <= NAME else f"{self.label[: NAME - 3]}..."
        reached = time["of_limit"]
        return [
            f"{self.network}: {label}",
            self.kernel,
            f"{time['ns'] / 1e3:.2f}",
            f"{time['share']:.1%}",
            f"{self.products / time['ns']:.1f}" if time["ns"] and self.products else "",
            f"{time['limit_ns'] / 1e3:.2f}",
            "" if reached is None else f"{reached:.0%}",
            time["bound_by"],
            why,
        ]


HEAD: Final = ("layer", "kernel", "us", "share", "Gproducts/s", "limit us", "of limit", "bound by")


def layers(network: Network, models: Path, here: Machine) -> list[Layer]:
    """Every kernel of a network, on a machine that can do so much. Raises UnavailableError."""
    path = model_file(network, models)
    try:
        compiled = compile_model(path)
    except OnnxcError as error:
        raise harness.UnavailableError(str(error)) from None
    told, found = times.timed(compiled, values=random_inputs(path), here=here)
    if "reason" in told:
        raise harness.UnavailableError(told["reason"])
    steps = {number: step for step, number in numbered(compiled.program).items()}
    return [
        Layer(
            network.name,
            kind(steps[number]),
            kernel_label(steps[number]),
            work.products(steps[number]).total(),
            time,
        )
        for number, time in found.items()
    ]


def kind(step: Step) -> str:
    """Which kernel a step has."""
    if isinstance(step, Micro | Routine):
        return step.name
    return "rows of loops" if isinstance(step, Rows) else "plain loops"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = [network.name for network in NETWORKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; default: all")
    parser.add_argument("--all", action="store_true", help="show layers of less than 1 %% too")
    parser.add_argument("--models", type=Path, help="folder of the models; default: a cache")
    parser.add_argument("--core", type=int, help="the core to run on; default: the last")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no network {', '.join(unknown)}; known: {', '.join(known)}")
    options.names = options.names or known
    options.models = options.models or library.cache_directory() / "benchmarks"
    return options


def show(found: Sequence[Layer], options: argparse.Namespace) -> None:
    """The table, and below it the reasons by their numbers, as they are long."""
    shown = [one for one in found if options.all or one.time["share"] >= LEAST_SHARE]
    reasons = dict.fromkeys(one.time["reason"] for one in shown if one.time["reason"])
    numbers = {reason: str(number) for number, reason in enumerate(reasons, 1)}
    rows = [[*HEAD, "reason"], *(one.row(numbers.get(one.time["reason"], "")) for one in shown)]
    harness.show("Layers against the machine's limit", rows, markdown=options.markdown)
    print("\n".join(f"{number}. {reason}" for reason, number in numbers.items()), end="\n\n")


def main() -> int:
    options = arguments()
    harness.pin(options.core)
    found: list[Layer] = []
    failed = []
    try:
        here = machine(MEASURED)
    except profile.NotMeasuredError as error:
        print(f"the machine cannot be measured: {error}")
        return 1
    for network in NETWORKS:
        if network.name in options.names:
            print(f"{network.name} ...", file=sys.stderr)
            try:
                wanted = partial(layers, network, options.models, here)
                found += harness.isolated(wanted, PATIENCE)
            except harness.UnavailableError as error:
                failed.append(f"{network.name}: {error}")
    show(found, options)
    below = [one for one in found if one.below]
    lines = [f"{one.network}: {one.label}: {one.time['reason']}" for one in below]
    print("\n".join([*lines, *failed]))
    return 1 if below or failed else 0


if __name__ == "__main__":
    sys.exit(main())
