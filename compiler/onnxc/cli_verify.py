"""`onnxc verify` on the command line; cli.py adds it to the verbs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from onnxc import output
from onnxc.diagnostics import Kind
from onnxc.errors import ToolError, UsageError
from onnxc.options import (
    AGAINST,
    debug_option,
    dim_option,
    fix_option,
    json_option,
    model_argument,
    optimize_option,
    portable_bits_option,
    target_option,
)

VALUES_DIFFER: Final = 3
NUMBER: Final = r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"


def _ranges(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[float, float]]:
    """NAME=LO:HI options; whether the model has such inputs is for verify_model to say."""
    found = {}
    for value in values:
        name, _equals, text = value.rpartition("=")
        pair = re.fullmatch(rf"({NUMBER}):({NUMBER})", text)
        if not name or pair is None:
            raise UsageError(Kind.ARGUMENT, f"--range {value}: write NAME=LO:HI with two numbers")
        found[name] = float(pair[1]), float(pair[2])
    return found


@click.command("verify")
@model_argument
@click.option(
    "--source",
    metavar="OUT.c",
    type=click.Path(path_type=Path),
    help="Check this C file, its header beside it. Default: compile MODEL for the check.",
)
@dim_option
@fix_option
@target_option
@optimize_option
@portable_bits_option
@click.option(
    "--inputs",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Values: an .npz, a .npy, a .pb or a folder of input_N.pb. Default: random ones.",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="NAME=LO:HI",
    callback=_ranges,
    help="Draw the values of an input from LO to HI. Repeatable.",
)
@click.option(
    "--against",
    type=click.Choice(AGAINST),
    default="auto",
    show_default=True,
    help="What to compare with; auto is onnxruntime where it can run the model, and the reference "
    "evaluator where it cannot or differs.",
)
@click.option("--exact", is_flag=True, help="Ask for the same bits.")
@click.option("--rtol", type=click.FloatRange(min=0), metavar="R", help="Relative tolerance.")
@click.option("--atol", type=click.FloatRange(min=0), metavar="A", help="Absolute tolerance.")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, help="Seed of the random values."
)
@click.option(
    "--per-node", is_flag=True, help="Compare each tensor between the kernels; name the first."
)
@click.option("--cc", metavar="COMMAND", default="", help="Build a program with this compiler.")
@click.option("--cflags", metavar="FLAGS", default="", help="Its flags. Default: -O2.")
@click.option("--sanitize", is_flag=True, help="Build it with ASan and UBSan.")
@click.option(
    "--runner", metavar="COMMAND", default="", help='Start it with this, such as "qemu-aarch64".'
)
@click.option(
    "--guard", is_flag=True, help="Run it between guard pages, twice, with poisoned workspaces."
)
@json_option
@debug_option
def verify_command(
    model: Path,
    source: Path | None,
    dims: dict[str, int],
    fix: dict[str, str],
    target: str,
    optimize: str,
    portable_bits: bool,
    inputs: Path | None,
    ranges: dict[str, tuple[float, float]],
    against: str,
    exact: bool,
    rtol: float | None,
    atol: float | None,
    seed: int,
    per_node: bool,
    cc: str,
    cflags: str,
    sanitize: bool,
    runner: str,
    guard: bool,
    as_json: bool,
) -> int:
    """Run MODEL's C and compare it with references."""
    if exact and (rtol is not None or atol is not None):
        raise UsageError(Kind.OPTIONS_CONFLICT, "--exact excludes --rtol and --atol")
    if inputs is not None and ranges:
        raise UsageError(Kind.OPTIONS_CONFLICT, "--inputs excludes --range")

    from onnxc.report import verification
    from onnxc.verify import Build, verify_model

    with progress() as tell:
        result = verify_model(
            model,
            c_source=source,
            dims=dims,
            fix=fix,
            target=target,
            optimize=optimize,
            portable_bits=portable_bits,
            inputs=inputs,
            ranges=ranges,
            against=against,
            exact=exact,
            rtol=rtol,
            atol=atol,
            seed=seed,
            per_node=per_node,
            build=Build(cc, cflags, sanitize, runner, guard),
            tell=tell,
        )
    found = json.dumps(result.to_json(), indent=2) if as_json else None
    with output.standard_output() as stream:
        stream.write((found or "\n".join(verification.lines(result))) + "\n")
    if result.differs:
        return VALUES_DIFFER
    return 0 if result.complete else ToolError.exit_status


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what is being done and for how long; gone when it is done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return

    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=20), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text: bar.update(task, description=escape(text))
