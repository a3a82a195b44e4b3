"""`onnxc report` on the command line; cli.py adds it to the verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxc import output
from onnxc.cli_verify import progress
from onnxc.options import (
    AGAINST,
    debug_option,
    dim_option,
    fix_option,
    model_argument,
    optimize_option,
    portable_bits_option,
    target_option,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.report.facts import Subject


@click.command("report")
@model_argument
@click.option(
    "-o",
    "out",
    metavar="OUT",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The page, OUT.html, or with --json OUT.json; - writes to standard output. "
    "Default: MODEL's stem with .html in the current directory.",
)
@click.option("--json", "as_json", is_flag=True, help="The same facts as JSON, by default printed.")
@dim_option
@fix_option
@target_option
@optimize_option
@portable_bits_option
@click.option("--no-times", is_flag=True, help="Measure no times of kernels on this machine.")
@click.option(
    "--no-targets", is_flag=True, help="Build the C for --target alone: no sizes for others."
)
@click.option(
    "--inputs",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Show how accurate the results are on these values, given as for verify.",
)
@click.option(
    "--against",
    type=click.Choice(AGAINST),
    help="Show how accurate they are beside this reference. Default with --inputs: auto.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, help="Seed of the random values."
)
@click.option("--force", is_flag=True, help="Overwrite a file that onnxc did not write.")
@click.option("-q", "quiet", is_flag=True, help="No summary.")
@debug_option
def report_command(
    model: Path,
    out: Path | None,
    as_json: bool,
    dims: dict[str, int],
    fix: dict[str, str],
    target: str,
    optimize: str,
    portable_bits: bool,
    no_times: bool,
    no_targets: bool,
    inputs: Path | None,
    against: str | None,
    seed: int,
    force: bool,
    quiet: bool,
) -> int:
    """Make a page that shows what MODEL becomes: memory, kernels, times, where its nodes went."""
    to_stdout = out == Path("-") or (as_json and out is None)
    path = None if to_stdout else output.report_file(out, model.stem, as_json=as_json)
    if path is not None:
        output.check((path,), model, force)

    from onnxc.report import facts

    with progress() as tell:
        subject = facts.subject(
            model,
            dims,
            fix,
            target=target,
            optimize=optimize,
            portable_bits=portable_bits,
            observe=lambda name, _: tell(f"compile: {name}"),
        )
        values = None if inputs is None else _values(inputs, subject)
        found = facts.facts(subject, tell, others=not no_targets)
        if not no_times:
            facts.add_times(found, subject, values=values, seed=seed, tell=tell)
        if inputs is not None or against is not None:
            against = against or "auto"
            facts.add_accuracy(found, subject, inputs=inputs, against=against, seed=seed, tell=tell)
        tell("write the report")
        text = facts.text(found) if as_json else _page(found)
    if path is None:
        with output.standard_output() as stream:
            stream.write(text)
        return 0
    output.write({path: lambda stream: stream.write(text)})
    if not quiet:
        _summarize(path, subject, click.echo)
    return 0


def _values(inputs: Path, subject: Subject) -> Mapping[str, NDArray[Any]]:
    """Of the inputs, by name. Raises UsageError where the file does not fit the model."""
    from onnxc.compiled import check_inputs
    from onnxc.verify.input_files import read_inputs

    values = read_inputs(inputs, subject.compiled.inputs).values
    check_inputs(subject.compiled.inputs, values)
    return values


def _page(found: dict[str, Any]) -> str:
    from onnxc.report.html import page

    return page(found)


def _summarize(path: Path, subject: Subject, echo: Callable[..., None]) -> None:
    from onnxc.report import memory
    from onnxc.report.text import printable

    sizes = memory.sizes(subject.compiled)
    lines = (f"wrote {path}", memory.ram_line(sizes), memory.constants_line(sizes))
    for line in lines:
        echo(printable(line), err=True)
