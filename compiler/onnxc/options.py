"""Options and arguments that several commands share, and the checks of their values."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from onnxc import __version__, output
from onnxc.diagnostics import Kind
from onnxc.errors import UsageError
from onnxc.target import OPTIMIZE, TARGETS

DEBUG_HELP: Final = """
For those who work on onnxc itself:
  --dump-after PASS  of compile: prints the model as it is after that pass to
                     standard error. Passes:
                     {passes}
  --debug            checks the model between passes; an internal error shows
                     its traceback. ONNXC_DEBUG=1 in the environment does it, too."""


AGAINST: Final = ("auto", "onnxruntime", "reference", "both")
"""What results are compared with, as onnxc.verify has it."""


def _meant(word: str, known: Iterable[str]) -> str:
    """A question where `word` is nearly one of `known`, folder and suffix aside; else nothing."""
    by_stem = {Path(name).stem: name for name in known}
    close = difflib.get_close_matches(Path(word).stem, by_stem, n=1, cutoff=0.75)
    return f"; did you mean {by_stem[close[0]]}?" if close else ""


def check_exists(word: str, verbs: Iterable[str] = ()) -> None:
    """Raises UsageError where there is no file `word`, which might be a misspelt verb, too."""
    path = Path(word)
    if os.path.lexists(word):
        return
    models = [str(path.parent / near.name) for near in path.parent.glob("*.onnx")]
    if not verbs or word.endswith(".onnx") or os.sep in word:
        raise UsageError(Kind.NO_SUCH_FILE, f"no such file: {word}{_meant(word, models)}")
    raise UsageError(
        Kind.UNKNOWN_VERB, f"no verb or file '{word}'{_meant(word, [*verbs, *models])}"
    )


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        with output.standard_output() as stream:
            print(f"onnxc {__version__}", file=stream)
        context.exit()


def _print_debug_help(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from onnxc.pipeline import PASS_NAMES

        with output.standard_output() as stream:
            print(context.get_help(), file=stream)
            print(DEBUG_HELP.format(passes=" ".join(PASS_NAMES)), file=stream)
        context.exit()


def _set_debug(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Sets ONNXC_DEBUG until the command is done."""
    before = os.environ.get("ONNXC_DEBUG")
    if asked and before != "1":
        os.environ["ONNXC_DEBUG"] = "1"
        context.call_on_close(lambda: os.environ.update(ONNXC_DEBUG=before or ""))


def _dimensions(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """KEY=N options as a mapping; whether the model has such dimensions is for bind to say."""
    found: dict[str, int] = {}
    for value in values:
        key, _equals, number = value.rpartition("=")
        if re.fullmatch(r"[0-9]*\.\.[0-9]*", number):
            raise UsageError(
                Kind.DIMENSION_RANGE,
                f"--dim {value}: ranges are not supported yet; give one number",
            )
        if not key or not re.fullmatch(r"[0-9]{1,19}", number):
            raise UsageError(
                Kind.DIMENSION_SIZE, f"--dim {value}: write KEY=N with a number N of 0 or more"
            )
        if found.setdefault(key, int(number)) != int(number):
            raise UsageError(
                Kind.DIMENSION_CONFLICT,
                f"--dim {key} is given twice: {found[key]} and {int(number)}",
            )
    return found


def _fixed(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE options as a mapping; whether the model has such inputs is for fix to say."""
    found: dict[str, str] = {}
    for value in values:
        name, _equals, text = value.rpartition("=")
        if not name or not text:
            raise UsageError(
                Kind.FIX_VALUE,
                f"--fix {value}: write NAME=VALUE with a number, true or false, or several: 1,3,2",
            )
        if found.setdefault(name, text) != text:
            raise UsageError(
                Kind.FIX_CONFLICT, f"--fix {name} is given twice: {found[name]} and {text}"
            )
    return found


def _model(_: click.Context, __: click.Parameter, path: Path) -> Path:
    check_exists(str(path))
    return path


version_option = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
debug_option = click.option(
    "--debug", is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_set_debug
)
debug_help_option = click.option(
    "--help-debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    hidden=True,
    callback=_print_debug_help,
)
dim_option = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="KEY=N",
    callback=_dimensions,
    help="Fix an open dimension: its name, or INPUT:AXIS. Repeatable.",
)
fix_option = click.option(
    "--fix",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_fixed,
    help="Make an input a constant: one value fills it, or one for each element, as in 1,3,2. "
    "Repeatable.",
)
weights_option = click.option(
    "--weights",
    type=click.Choice(output.WEIGHTS),
    default="inline",
    show_default=True,
    help="Where constants stand: in OUT.c; in OUT.bin, which the assembler includes; in OUT.bin, "
    "which each run is given.",
)
target_option = click.option(
    "--target",
    type=click.Choice([*TARGETS]),
    default="generic",
    show_default=True,
    help="Whom the fast kernels are for; generic C runs anywhere, and fastest on x86-64.",
)
optimize_option = click.option(
    "--optimize",
    type=click.Choice(OPTIMIZE),
    default="speed",
    show_default=True,
    help="Fast code, or little code.",
)
portable_bits_option = click.option(
    "--portable-bits",
    is_flag=True,
    help="Float results of the same bits with every compiler and on every processor; slower.",
)
profile_option = click.option(
    "--profile",
    is_flag=True,
    help="Macros around the call of each kernel, for who wants to measure them; OUT.h says how.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
model_argument = click.argument("model", type=click.Path(path_type=Path), callback=_model)
