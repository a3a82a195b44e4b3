"""What must hold of compile_model for any bytes at all, and what one model did."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx

from onnxc.errors import ModelError, UsageError
from onnxc.pipeline import compile_model
from tests.fuzz.c_tokens import tokens
from tests.fuzz.mutations import FILE_BYTES
from tests.models import STRICT

FORBIDDEN_EVENTS: Final = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.")
SECONDS: Final = 20
MEMORY: Final = 2**30
"""Bytes that a process may hold, the interpreter and its libraries among them."""


@dataclass(frozen=True)
class Outcome:
    """`kind` is "compiled", "refused" or, else, which fault it is; `text` has the details."""

    kind: str
    text: str = ""

    @property
    def fault(self) -> bool:
        return self.kind not in ("compiled", "refused")


def external_folder(parent: Path) -> Path:
    """A folder for models with the files that mutations.LOCATIONS names, and one outside it."""
    folder = parent / "model"
    (folder / "deep").mkdir(parents=True)
    (parent / "outside.bin").write_bytes(bytes(FILE_BYTES))
    for path in (folder / "w.bin", folder / "deep" / "w.bin"):
        path.write_bytes(bytes(range(256)) * (FILE_BYTES // 256))
    (folder / "link.bin").symlink_to(parent / "outside.bin")
    (folder / "linked").symlink_to(parent)
    (folder / "loop.bin").symlink_to("loop.bin")
    os.mkfifo(folder / "pipe.bin")
    return folder


class Watch:
    """Notes which files Python opens outside a folder, and which programs and sockets.

    A hook of sys.addaudithook stays for the rest of the process. What Python itself loads, modules
    and the templates of onnxc, is no finding.
    """

    def __init__(self, folder: Path) -> None:
        self._inside = os.path.realpath(folder) + os.sep
        own = Path(__file__).parents[2]
        roots = [own / name for name in ("compiler", "templates", "runtime_c")]
        roots += [Path(sys.prefix), Path(sys.base_prefix)]
        self._known = tuple(os.path.realpath(root) + os.sep for root in roots)
        self._active = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def __enter__(self) -> Watch:
        self.seen, self._active = [], True
        return self

    def __exit__(self, *_: object) -> None:
        self._active = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            path, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[2] or 0
            reading = flags & (os.O_WRONLY | os.O_RDWR) == 0
            if not (path.startswith((self._inside, *self._known)) and reading):
                self.seen.append(f"{path} (flags {flags})")
        elif event.startswith(FORBIDDEN_EVENTS):
            self.seen.append(f"{event} {arguments}")


def outcome(source: Path | onnx.ModelProto, watch: Watch, gcc: str | None) -> Outcome:
    """Compiles a model and judges; with `gcc` the C is compiled, too, under the strict flags."""
    with watch:
        try:
            compiled = compile_model(source, name="m")
            texts = compiled.header, compiled.c_source
        except Exception as error:
            texts, raised = None, error
    if watch.seen:
        return Outcome("a file or program outside the model's folder", "\n".join(watch.seen))
    if texts is not None:
        return judged_c(*texts, gcc)
    if isinstance(raised, ModelError | UsageError):
        return _judged_refusal(raised)
    return Outcome(_place(raised), "".join(traceback.format_exception(raised)))


def _judged_refusal(error: ModelError | UsageError) -> Outcome:
    """A report of one line for each problem, whatever names are in it."""
    lines = [str(problem) for problem in error.problems]
    if not lines or any(not line.strip() or "\n" in line for line in lines):
        return Outcome("not a line for each problem", repr(lines))
    return Outcome("refused", str(error))


def judged_c(header: str, body: str, gcc: str | None) -> Outcome:
    """Whether the text is C of known tokens and, by `gcc`, C without a warning."""
    try:
        for text in (header, body) if len(body) < 2**20 else (header,):
            for _ in tokens(text):
                pass
    except ValueError as error:
        return Outcome("odd C", str(error))
    if gcc is None or len(body) > 2**22:
        return Outcome("compiled")
    text = header + "\n" + body.replace('#include "m.h"', "", 1)
    command = [gcc, *STRICT, "-fsyntax-only", "-xc", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Outcome("C that does not compile", done.stderr[:2000])
    return Outcome("compiled")


def _place(error: BaseException) -> str:
    """The exception and the innermost function of onnxc that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "onnxc" in f.filename and "site-packages" not in f.filename]
    innermost = (own or list(frames))[-1]
    file = innermost.filename.rpartition("onnxc/")[2]
    return f"{type(error).__name__} in {file}:{innermost.name}:{innermost.lineno}"
