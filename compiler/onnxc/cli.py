"""The command line. Imports of onnx, numpy and the compiler are late: `--version` is instant."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onnxc import output
from onnxc.cli_report import report_command
from onnxc.cli_verify import verify_command
from onnxc.diagnostics import Kind
from onnxc.errors import OnnxcError, Problem, ToolError, UsageError
from onnxc.options import (
    check_exists,
    debug_help_option,
    debug_option,
    dim_option,
    fix_option,
    json_option,
    model_argument,
    optimize_option,
    portable_bits_option,
    profile_option,
    target_option,
    version_option,
    weights_option,
)
from onnxc.report.text import printable, some

if TYPE_CHECKING:
    from onnxc.pipeline import Compiled

INTERNAL: Final = 70
"""EX_SOFTWARE of sysexits.h."""
INTERRUPTED: Final = 130
LONGEST_LICENSE: Final = 200
SPDX: Final = r"(X)( +(AND|OR|WITH) +(X))*".replace("X", r"\(*[A-Za-z0-9.:-]+\+?\)*")
"""The form of a licence expression; whether there is such a licence is not asked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (default: the process's) and returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        # Names in a model are any text; what the encoding lacks is shown as an escape.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with commands.make_context("onnxc", words) as context:
            status: int = commands.invoke(context)
        return status
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "onnxc"
        text = _joined(error.format_message(), f"see {path} --help")
        return _fail(UsageError(Kind.COMMAND_LINE, text))
    except OnnxcError as error:
        return _fail(error)
    except BrokenPipeError:
        output.abandon_standard_output()
        return ToolError.exit_status
    except KeyboardInterrupt:
        _say("\ninterrupted")
        return INTERRUPTED
    except MemoryError:
        return _fail(OnnxcError([Problem(Kind.OUT_OF_MEMORY, "", "out of memory")]))
    except RecursionError:
        return _internal_error("the model nests too deeply", words)
    except OSError as error:
        output.abandon_standard_output()
        return _fail(ToolError(Kind.SYSTEM_ERROR, str(error)))
    except Exception as error:
        return _internal_error(f"{type(error).__name__}: {error}", words)


def _say(text: str, end: str = "\n") -> None:
    """Writes to standard error; where nobody listens, the exit status has to do."""
    with contextlib.suppress(OSError):
        click.echo(f"{text}{end}", err=True, nl=False)


def _fail(error: OnnxcError) -> int:
    for line in some([f"error[{problem.code}]: {problem}" for problem in error.problems]):
        _say(line)
    return error.exit_status


def _joined(fact: str, remedy: str) -> str:
    """One message of two; a question ends the first sentence."""
    fact = fact.rstrip(".")
    if fact.endswith("?"):
        return f"{fact} {remedy[0].upper()}{remedy[1:]}"
    return f"{fact}; {remedy}"


def _internal_error(fact: str, words: Sequence[str]) -> int:
    """A fault of onnxc and not of the model, with a status of its own."""
    debug = "--debug" in words or os.environ.get("ONNXC_DEBUG") == "1"
    if debug:
        _say(traceback.format_exc().rstrip())
    remedy = "this is a bug in onnxc, not in the model: please report it"
    remedy += "" if debug else ", with what --debug shows"
    _fail(OnnxcError([Problem(Kind.INTERNAL_ERROR, "internal error", fact, remedy)]))
    return INTERNAL


class Commands(click.Group):
    """The first word decides: a verb is that verb, anything else starts a compile command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_status)
        own = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        first = args[0]
        if first in self.commands or first in own:
            return super().parse_args(ctx, args)
        if not first.startswith("-"):
            check_exists(first, self.commands)
        return super().parse_args(ctx, ["compile", *args])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of compile before the verbs: that is the verb which may be left out."""
        options = (p for p in self.commands["compile"].params if isinstance(p, click.Option))
        records = [record for option in options if (record := option.get_help_record(ctx))]
        with formatter.section("Options of compile"):
            formatter.write_dl(records)
        super().format_commands(ctx, formatter)


def _license(_: click.Context, __: click.Parameter, value: str) -> str:
    if len(value) > LONGEST_LICENSE or not re.fullmatch(SPDX, value):
        raise UsageError(
            Kind.LICENSE, f"--license {value}: not an SPDX licence expression, such as Apache-2.0"
        )
    return value


@click.group(
    cls=Commands,
    subcommand_metavar="[compile] MODEL [-o OUT.c] | COMMAND ...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@version_option
@debug_help_option
def commands() -> None:
    """Compile ONNX models to C that stands alone.

    `onnxc model.onnx -o model.c` writes model.c and model.h.

    \b
    Exit status: 0 done; 1 the model is invalid or not supported; 2 wrong
    command line or no such file; 3 verify: values differ; 4 no C compiler,
    it failed, or a file cannot be written; 70 a bug in onnxc; 130
    interrupted. `onnxc explain CODE` says what an error means.
    """


@commands.command("compile")
@model_argument
@click.option(
    "-o",
    "out",
    metavar="OUT.c",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The C file, OUT.h goes beside it; - writes one text to standard output. "
    "Default: MODEL's stem in the current directory.",
)
@click.option("--name", metavar="ID", help="Prefix of the C names. Default: OUT's stem.")
@dim_option
@fix_option
@click.option(
    "--license",
    "license_",
    metavar="ID",
    default="LicenseRef-Model",
    callback=_license,
    show_default=True,
    help="SPDX licence of the output, that of the model.",
)
@target_option
@optimize_option
@portable_bits_option
@weights_option
@profile_option
@click.option("--force", is_flag=True, help="Overwrite files that onnxc did not write.")
@click.option("-q", "quiet", is_flag=True, help="No summary.")
@click.option("-v", "verbose", is_flag=True, help="Print each pass and kernel.")
@click.option("--dump-after", metavar="PASS", hidden=True)
@debug_option
@debug_help_option
def compile_command(
    model: Path,
    out: Path | None,
    name: str | None,
    dims: dict[str, int],
    fix: dict[str, str],
    license_: str,
    target: str,
    optimize: str,
    portable_bits: bool,
    weights: str,
    profile: bool,
    force: bool,
    quiet: bool,
    verbose: bool,
    dump_after: str | None,
) -> int:
    """Compile MODEL to a C source file and its header."""
    if quiet and verbose:
        raise UsageError(Kind.OPTIONS_CONFLICT, "-q and -v exclude each other")
    to_stdout = out == Path("-")
    if to_stdout and weights != "inline":
        raise UsageError(
            Kind.OPTIONS_CONFLICT,
            f"--weights {weights} writes several files; give -o OUT.c, not -o -",
        )
    paths = output.files(None if to_stdout else out, model.stem, weights=weights)
    if not to_stdout:
        output.check(paths, model, force)

    from onnxc import names, pipeline

    if name is not None:
        names.check_model_name(name)
    if dump_after is not None:
        _check_pass(dump_after, pipeline.PASS_NAMES)
    watch = Watch(dump_after, pipeline.dump, verbose, not (quiet or verbose))
    try:
        compiled = pipeline.compile_model(
            model,
            dims=dims,
            fix=fix,
            name=name or names.model_name(paths[0].stem),
            license=license_,
            target=target,
            optimize=optimize,
            portable_bits=portable_bits,
            weights=weights,
            profile=profile,
            observe=watch,
        )
    finally:
        watch.close()
    if to_stdout:
        with output.standard_output() as stream:
            compiled.write_single(stream)
        files = "to standard output"
    else:
        files = output.listed(output.write_model(compiled, paths))
    _warn(compiled, target)
    if not quiet:
        named = "" if name is not None else _why_named(compiled.name, paths[0].stem)
        _summarize(f"wrote {files}{named}", compiled)
    return 0


def _check_pass(name: str, known: Iterable[str]) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            Kind.UNKNOWN_PASS, _joined(f"no pass '{name}'{hint}", f"the passes: {' '.join(known)}")
        )


def _why_named(prefix: str, stem: str) -> str:
    """Where the C names do not start with the file's stem: with what, and why not."""
    from onnxc import names

    try:
        names.check_model_name(stem)
    except UsageError as error:
        reason = str(error).rpartition("; take ")[0]
        return f"; C names start with {prefix}_ ({reason})"
    return ""


def _warn(compiled: Compiled, target: str) -> None:
    from onnxc.report import memory

    for problem in memory.warnings(compiled, target):
        _say(f"warning[{problem.code}]: {problem}")


def _summarize(files: str, compiled: Compiled) -> None:
    from onnxc.report import memory

    sizes = memory.sizes(compiled)
    _say("\n".join([printable(files), memory.ram_line(sizes), memory.constants_line(sizes)]))


class Watch:
    """Follows the passes on standard error: --dump-after, -v, and on a terminal the progress."""

    def __init__(
        self, dump_after: str | None, dump: Callable[[Any], str], verbose: bool, progress: bool
    ) -> None:
        self.dump_after = dump_after
        self.dump = dump
        self.verbose = verbose
        self.progress = progress and sys.stderr is not None and sys.stderr.isatty()
        self.last = time.perf_counter()

    def __call__(self, name: str, thing: Any) -> None:
        """Called after each pass with what it made."""
        if self.verbose:
            seconds = time.perf_counter() - self.last
            _say(f"{name}: {seconds * 1e3:,.1f} ms")
            if name == "fuse_bands":
                self.tell_choices(thing)
        if self.progress:
            _say(f"\r\x1b[K{name}", end="")
        if name == self.dump_after:
            self.close()
            _say(self.dump(thing))
        self.last = time.perf_counter()

    def tell_choices(self, program: Any) -> None:
        """Which kernel each step has, and why."""
        from onnxc.report import choices

        for line in choices.lines(program):
            _say(printable(line))

    def close(self) -> None:
        """Takes the progress off the line."""
        if self.progress:
            _say("\r\x1b[K", end="")


commands.add_command(verify_command)
commands.add_command(report_command)


@commands.command("info")
@model_argument
@dim_option
@fix_option
@target_option
@optimize_option
@portable_bits_option
@json_option
@debug_option
def info_command(
    model: Path,
    dims: dict[str, int],
    fix: dict[str, str],
    target: str,
    optimize: str,
    portable_bits: bool,
    as_json: bool,
) -> int:
    """Say what MODEL needs, and what of it is not supported."""
    from onnxc.report import info

    found = info.gather(
        model, dims, fix, target=target, optimize=optimize, portable_bits=portable_bits
    )
    _print(json.dumps(found, indent=2) if as_json else "\n".join(info.lines(found)))
    return 0


@commands.command("ops")
@click.argument("name", metavar="[NAME[-VERSION]]", required=False)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@json_option
def ops_command(name: str | None, as_markdown: bool, as_json: bool) -> int:
    """List the supported operators, or print the page of one."""
    if as_markdown and as_json:
        raise UsageError(Kind.OPTIONS_CONFLICT, "--markdown and --json exclude each other")

    from onnxc.report import operators, page

    if name is None:
        if as_json:
            _print(json.dumps(operators.table(), indent=2))
        elif as_markdown:
            _print(operators.table_markdown())
        else:
            _print_table()
        return 0
    found = operators.page(name)
    if as_json:
        _print(json.dumps(found, indent=2))
    else:
        _print(page.markdown(found) if as_markdown else page.terminal(found))
    return 0


@commands.command("explain")
@click.argument("code", metavar="CODE")
def explain_command(code: str) -> int:
    """Say what an error code such as ONNXC0403 means, and what to do."""
    from onnxc.report import explanation

    _print(explanation.terminal(explanation.find(code)))
    return 0


def _print_table() -> None:
    from rich.console import Console

    from onnxc.report.operators import terminal_table

    with output.standard_output() as stream:
        Console(file=stream).print(terminal_table())


def _print(text: str) -> None:
    with output.standard_output() as stream:
        stream.write(f"{text}\n")
