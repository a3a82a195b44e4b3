"""The documents: what they show runs, what they quote is so, what they link to exists.

The fenced blocks of a document run in order, in one copy of the checkout. A block is of

console  commands after "$ " (continued after "> ") and exactly what each prints; "..." is any text
         in a line or, alone, any lines. A command that fails is followed by `echo $?`.
sh       commands, whatever they print
python   a program of its own
diff     a change of the copy; a hunk is found by its text, which occurs once, without line numbers
c, make  what one of the comments below says of it
cmake    a CMakeLists.txt, see test_the_cmake_snippet

and a comment above the block says more:

<!-- setup: COMMAND -->             to be run before what follows
<!-- file: NAME -->                 the block is this file; a later command has to use it
<!-- quote: FILE | START | END -->  the block is the text of the file from the first line that
                                    starts with START to the next that starts with END

`--update-golden` writes quotes anew. The tables are tested in test_doc_tables.py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import pytest

from onnxc import cli

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
GUIDE: Final = ROOT / "docs" / "guide.md"
DOCUMENTS: Final = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
PAGES: Final = [*DOCUMENTS, ROOT / "CHANGELOG.md"]

# Commands that only have to be possible, see check_possible.
NOT_RUN: Final = {
    "pip install .": "needs a network; tests/test_packaging.py installs the wheel",
    "python3 -m venv .venv && . .venv/bin/activate": "the copy has a .venv already",
    "make test": "would run this test again",
    ".venv/bin/mypy": "takes long, and `make test` runs it",
    ".venv/bin/pytest": "would run this test again",
    ".venv/bin/ruff format --check": "`make test` runs it",
}
CROSS_TOOLS: Final = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm")
NOT_COPIED: Final = (
    ".*_cache",
    ".git",
    ".hypothesis",
    ".venv",
    "*.egg-info",
    "__pycache__",
    "build",
)
DROPPED: Final = ("PYTEST_", "MAKE", "MFLAGS", "COLUMNS", "VIRTUAL_ENV", "FORCE_COLOR")
MARK: Final = "----- end of a command, status"


@dataclass(frozen=True)
class Block:
    """One fenced block, or a setup comment (language "setup"); `line` is where it starts."""

    document: Path
    line: int
    language: str
    text: str
    note: str = ""

    @property
    def where(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


_BLOCK: Final = re.compile(
    r"^<!-- setup: (?P<setup>[^\n]+) -->$"
    r"|(?:^<!-- (?P<note>(?:file|quote): [^\n]+) -->\n\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.end()) + 1
        if match["setup"]:
            found.append(Block(document, line, "setup", match["setup"]))
        else:
            line -= match["text"].count("\n")
            note = match["note"] or ""
            found.append(Block(document, line, match["language"], match["text"], note))
    return found


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a block with the output that it shows."""
    if block.language != "console":
        lines = block.text.replace("\\\n", "").splitlines()
        return [(line, "") for line in lines if line and not line.startswith("#")]
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), ""))
        else:
            assert found, f"{block.where}: output before the first command"
            command, output = found[-1]
            if line.startswith("> ") and not output:
                found[-1] = (f"{command}\n{line.removeprefix('> ')}", "")
            else:
                found[-1] = (command, f"{output}{line}\n")
    return found


def shown_pattern(output: str) -> str:
    """The regular expression of an output that a document shows."""
    lines = output.splitlines()
    return "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in lines
    )


def without_chance(output: str) -> str:
    """Without what depends on the machine: versions of the references, and widths of columns."""
    return re.sub(r"(onnxruntime|evaluator) \d+(\.\d+)+", r"\1 N", re.sub(" +", " ", output))


@dataclass
class Copy:
    """A copy of the checkout in which a document's blocks run, with its own `.venv`."""

    folder: Path
    programs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.copytree(
            ROOT, self.folder, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True
        )
        # Where an installed onnxc has its data packages, so that the copy's own are used.
        package = self.folder / "compiler" / "onnxc"
        for name in ("templates", "runtime_c"):
            (package / name).symlink_to(self.folder / name)
        binaries = self.folder / ".venv" / "bin"
        binaries.mkdir(parents=True)
        for name in ("python", "onnxc", "pytest", "ruff", "mypy"):
            module = "" if name == "python" else f"-m {name}"
            (binaries / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (binaries / name).chmod(0o755)
        for name in ("demo.stamp", "dev.stamp"):  # What make installs is there.
            (self.folder / ".venv" / name).touch()

    def environment(self) -> dict[str, str]:
        kept = {name: v for name, v in os.environ.items() if not name.startswith(DROPPED)}
        paths = [str(self.folder / ".venv" / "bin"), os.environ.get("PATH", "")]
        return {
            **kept,
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": str(self.folder / "compiler"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
        }

    def run(self, block: Block, quotes: dict[str, str]) -> None:
        """Does what the block is for; a quote is put into `quotes` with the text as it now is."""
        kind, _, detail = block.note.partition(": ")
        if kind == "quote":
            quotes[block.text] = self.quoted(*detail.split(" | "))
        elif kind == "file":
            (self.folder / detail).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            (self.folder / "block.py").write_text(block.text, encoding="utf-8")
            self.shell(block, [("python block.py", "")])
        elif block.language == "diff":
            apply_diff(block, self.folder)
        elif block.language in ("console", "sh", "setup"):
            self.shell(block, commands(block))
        elif block.language == "cmake":
            pass
        else:
            pytest.fail(f"{block.where}: what is to be done with '{block.language}'?")

    def shell(self, block: Block, listed: list[tuple[str, str]]) -> None:
        """Runs the commands in one shell; compares what they print, and their status with 0."""
        listed = [(command, shown) for command, shown in listed if command not in NOT_RUN]
        end = f"__status=$?; printf '\\n%s %d\\n' '{MARK}' $__status; (exit $__status)\n"
        script = "".join(f"{command}\n{end}" for command, _ in listed)
        result = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        parts = re.split(rf"\n{MARK} (\d+)\n", result.stdout)
        assert len(parts) == 2 * len(listed) + 1, f"{block.where}:\n{result.stdout}"
        following = [command for command, _ in listed[1:]] + [""]
        for (command, shown), after, printed, status in zip(
            listed, following, parts[::2], parts[1::2], strict=False
        ):
            told = f"{block.where}: {command}\n{printed}(status {status})"
            assert status == "0" or after == "echo $?", told
            if block.language == "console":
                pattern = shown_pattern(without_chance(shown))
                assert re.fullmatch(pattern, without_chance(printed)), f"{told}\nnot\n{shown}"

    def quoted(self, file: str, start: str, end: str) -> str:
        lines = (self.folder / file).read_text(encoding="utf-8").splitlines(keepends=True)
        first = next(n for n, line in enumerate(lines) if line.startswith(start))
        last = next(n for n, line in enumerate(lines) if n > first and line.startswith(end))
        return "".join(lines[first : last + 1])


def hunks(block: Block) -> Iterator[tuple[str, str, str]]:
    """(file, old text, new text) of each hunk."""
    for part in re.split(r"^--- .*\n", block.text, flags=re.MULTILINE)[1:]:
        file, *texts = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
        name = file.strip().removeprefix("+++ b/")
        for text in texts:
            lines = text.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            yield name, old, "".join(line[1:] for line in lines if line[0] in " +")


def apply_diff(block: Block, folder: Path) -> None:
    for name, old, new in hunks(block):
        path = folder / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        assert (before.count(old) if old else not path.exists()) == 1, (
            f"{block.where}: a hunk of {name} does not apply; has its code changed, or is what the"
            f" diff adds there already?\n{old}"
        )
        path.write_text(before.replace(old, new) if old else new, encoding="utf-8")


def identifier(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_what_it_shows_runs(
    document: Path, tool: Callable[[str], str], update_golden: bool, tmp_path: Path
) -> None:
    found = blocks(document)
    if not found:
        return
    needed = [name for name in CROSS_TOOLS if any(name in block.text for block in found)]
    for name in ("bash", "cc", "make", "nm", "size", *needed):
        tool(name)
    copy, quotes = Copy(tmp_path / "checkout"), dict[str, str]()
    for block in found:
        copy.run(block, quotes)
    if update_golden:
        text = document.read_text(encoding="utf-8")
        for shown, actual in quotes.items():
            text = text.replace(shown, actual)
        document.write_text(text, encoding="utf-8")
    for shown, actual in quotes.items():
        assert update_golden or shown == actual, "--update-golden writes it anew"


def test_the_cmake_snippet(tool: Callable[[str], str], tmp_path: Path) -> None:
    """With the README's app.c; a header that was deleted comes back."""
    tool("cc")
    (snippet,) = (block for block in blocks(GUIDE) if block.language == "cmake")
    (app,) = (block for block in blocks(README) if block.note == "file: app.c")
    copy = Copy(tmp_path / "checkout")
    (copy.folder / "CMakeLists.txt").write_text(snippet.text, encoding="utf-8")
    (copy.folder / "app.c").write_text(app.text, encoding="utf-8")
    cmake = f"'{tool('cmake')}'"
    script = [
        "python examples/hello/make_model.py hello.onnx",
        f"{cmake} -S . -B out",
        f"{cmake} --build out",
        "rm out/hello.h",
        f"{cmake} --build out",
        "./out/app",
        "test -f out/hello.h",
    ]
    copy.shell(snippet, [(command, "") for command in script])


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_every_block_is_used(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    found = blocks(document)
    assert text.count("\n```") == 2 * len([b for b in found if b.language != "setup"])
    assert len(re.findall("<!-- (?:file|quote):", text)) == len([b for b in found if b.note])
    for number, block in enumerate(found):
        if block.note.startswith("file: "):
            later = (c for b in found[number + 1 :] if b.language != "c" for c, _ in commands(b))
            name = block.note.removeprefix("file: ")
            assert any(name in command.split() for command in later), f"{block.where}: {name}"
        elif block.language in ("c", "make"):
            assert block.note, f"{block.where}: no comment says what the block is"


# What is said between the blocks


def prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def inline_commands(page: Path) -> list[str]:
    spans = re.findall(r"`([^`]+)`", prose(page))
    starts = ("onnxc ", "make ", "pip ", "python ", "pytest ", ".ci/")
    return [" ".join(span.split()) for span in spans if span.startswith(starts)]


def options_of(command: click.Command) -> set[str]:
    return {word for parameter in command.params for word in parameter.opts}


def check_possible(command: str) -> None:
    """Asserts that what the command names exists, without running it."""
    program, *words = command.replace("'", "").split()
    options = {word for word in words if word.startswith("-") and word != "-"}
    match Path(program).name, words:
        case "onnxc", [verb, *_]:
            known = cli.commands.commands
            assert options <= options_of(known.get(verb, known["compile"])) | {"--version"}
        case "make", targets:
            files = ["Makefile", "examples/hello/Makefile", "examples/cortex_m/Makefile"]
            rules = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
            assert all(re.search(rf"^{target}:", rules, re.MULTILINE) for target in targets)
        case "pip", ["install", requirement]:
            config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
            extras = re.search(r"\[(\w+)\]", requirement)
            assert extras is None or extras[1] in config["project"]["optional-dependencies"]
        case "python" | "python3", ["-m", module, *_]:
            assert importlib.util.find_spec(module)
        case "python", [script, *_]:
            text = (ROOT / script).read_text(encoding="utf-8")
            assert all(f'"{option}"' in text for option in options)
        case "pytest", _:
            assert all(f'"{o}"' in (ROOT / "tests" / "conftest.py").read_text() for o in options)
        case ("mypy" | "ruff") as module, _:
            assert importlib.util.find_spec(module)
        case _:
            assert os.access(ROOT / program, os.X_OK)


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_commands_that_are_not_run_are_possible(page: Path) -> None:
    listed = {command for block in blocks(page) for command, _ in commands(block)}
    for command in [*inline_commands(page), *(listed & NOT_RUN.keys())]:
        check_possible(command)


def test_no_command_is_left_out_without_need() -> None:
    shown = {c for page in DOCUMENTS for block in blocks(page) for c, _ in commands(block)}
    assert shown >= NOT_RUN.keys()


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_links(page: Path) -> None:
    text = prose(page)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(ROOT), target
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
    folders = "benchmarks|compiler|docs|examples|runtime_c|templates|tests"
    for path in re.findall(rf"(?<![\w/.])(?:{folders})/[\w./-]*\w", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_no_path_of_a_machine(page: Path) -> None:
    assert not re.findall(r"(?:/home|/root|/tmp|/usr|/Users|/work)/\S*", page.read_text("utf-8"))
