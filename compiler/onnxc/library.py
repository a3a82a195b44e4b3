"""Builds the generated C into a shared library, keeps it in a cache, loads it through cffi.

Environment variables:

CC               the C compiler, as a shell would split it ("ccache clang"); default cc
ONNXC_CFLAGS     more flags for it, after onnxc's own
ONNXC_CACHE_DIR  the cache; default $XDG_CACHE_HOME/onnxc, else ~/.cache/onnxc

The library is for this machine (-O3, -march=native where the compiler takes it). The cache may be
deleted at any time, and any number of processes and threads may build in it at once: a file is
written under a name of its own and then renamed. In the cache,

    <key>.json          of one build: the name of its library, and the header as cffi reads it;
                        key covers C source, header, compiler, flags and processor
    <sha256>.so         a library, named by its own contents, so that damage shows
    compiler-<key>.json the version text of a compiler, so that a cached build starts no process
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cffi import FFI, CDefError, FFIError

from onnxc.diagnostics import Kind
from onnxc.errors import ToolError, UsageError

if TYPE_CHECKING:
    from onnxc.pipeline import Compiled

CACHE_FORMAT: Final = 1
FLAGS: Final = ("-O3", "-std=c99", "-fPIC", "-shared")
MESSAGE_LINES: Final = 40


@dataclass(frozen=True)
class Library:
    """A loaded library; functions of `lib` are valid while this object lives."""

    ffi: Any
    lib: Any
    path: Path


@dataclass(frozen=True)
class Compiler:
    """The command, its flags, and everything that decides what it makes of a source."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    identity: str


def build(compiled: Compiled) -> Library:
    """The library of a compiled model, from the cache or built. Raises ToolError."""
    with _cache() as cache, _scratch(cache) as scratch:
        return _build(cache, scratch, write_sources(compiled, scratch))


def build_file(source: Path) -> Library:
    """The library of a generated C file, its header and its file of weights beside it.

    Raises UsageError, ToolError.
    """
    for path in (source, source.with_suffix(".h")):
        if not path.is_file():
            raise UsageError(Kind.NO_SUCH_FILE, f"no such file: {path}")
    with _cache() as cache, _scratch(cache) as scratch:
        return _build(cache, scratch, source.absolute())


def write_sources(compiled: Compiled, folder: Path) -> Path:
    """Writes the C file, its header and any file of weights for a compiler; returns the first."""
    source = folder / f"{compiled.name}.c"
    with source.open("w", encoding="utf-8", newline="\n") as stream:
        compiled.write_c(stream)
    source.with_suffix(".h").write_text(compiled.header, encoding="utf-8", newline="\n")
    if compiled.has_weights_file:
        with source.with_suffix(".bin").open("wb") as binary:
            compiled.write_weights(binary)
    return source


def assembler_flags(source: Path) -> list[str]:
    """Where .incbin looks for the file of weights beside a C file."""
    found = source.with_suffix(".bin").is_file()
    return ["-Xassembler", "-I", "-Xassembler", str(source.parent)] if found else []


def cache_directory() -> Path:
    """Where built libraries are kept; made by the first build."""
    named = os.environ.get("ONNXC_CACHE_DIR")
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "onnxc"


def _build(cache: Path, scratch: Path, source: Path) -> Library:
    compiler = _find_compiler(cache)
    digests = _digests(source)
    key = _key(CACHE_FORMAT, digests, compiler.identity)
    cached = _load(cache, key)
    if cached is not None:
        return cached
    entry = _compile(cache, scratch, source, compiler)
    if _digests(source) != digests:
        raise ToolError(
            Kind.SOURCE_CHANGED,
            f"{source.name} or its header changed while it was being compiled; try again",
        )
    _write_entry(cache / f"{key}.json", scratch, entry)
    try:
        return _open(cache, entry)
    except (OSError, CDefError, FFIError) as error:
        raise ToolError(
            Kind.LIBRARY_UNUSABLE, f"the library built from {source.name} cannot be loaded: {error}"
        ) from None


def _compile(cache: Path, scratch: Path, source: Path, compiler: Compiler) -> dict[str, str]:
    built = scratch / "library.so"
    header = source.with_suffix(".h")
    command = compiler.command
    flags = [*compiler.flags, "-o", str(built), *assembler_flags(source)]
    _run((*command, *flags, str(source), "-lm"), source)
    if not built.is_file():
        raise ToolError(
            Kind.COMPILER_FAILED,
            f"the C compiler '{shlex.join(command)}' made no library of {source.name}",
        )
    cdef = _run((*command, "-E", "-P", "-DONNXC_CFFI", "-x", "c", str(header)), header)
    digest = _digest(built)
    built.replace(cache / f"{digest}.so")
    return {"library": digest, "cdef": cdef}


def _load(cache: Path, key: str) -> Library | None:
    """The library of a cache entry, or None where there is none or it is damaged."""
    entry = _read_entry(cache / f"{key}.json")
    if entry is None or not entry.keys() >= {"library", "cdef"}:
        return None
    try:
        return _open(cache, entry)
    except (OSError, CDefError, FFIError):
        return None


def _open(cache: Path, entry: dict[str, str]) -> Library:
    path = cache / f"{entry['library']}.so"
    if _digest(path) != entry["library"]:
        raise OSError(f"{path} is damaged")
    ffi = FFI()
    ffi.cdef(entry["cdef"])
    return Library(ffi, ffi.dlopen(str(path)), path)


def _find_compiler(cache: Path) -> Compiler:
    """The compiler that CC names, with its version from the cache where its file is unchanged."""
    try:
        command = tuple(shlex.split(os.environ.get("CC", "")) or ["cc"])
        extra = tuple(shlex.split(os.environ.get("ONNXC_CFLAGS", "")))
    except ValueError as error:
        raise ToolError(
            Kind.COMPILER_OPTIONS, f"CC or ONNXC_CFLAGS is not a command line: {error}"
        ) from None
    if shutil.which(command[0]) is None:
        raise ToolError(
            Kind.NO_COMPILER,
            f"no C compiler: '{command[0]}' was not found; install gcc or clang, or set the"
            " environment variable CC to one",
        )
    files = [(word, _file_state(word)) for word in command]
    key = _key(CACHE_FORMAT, files, _processor())
    path = cache / f"compiler-{key}.json"
    entry = _read_entry(path)
    if entry is None or not entry.keys() >= {"version", "native"}:
        entry = {"version": _version(command), "native": _native_flag(command)}
        with _scratch(cache) as scratch:
            _write_entry(path, scratch, entry)
    flags = (*FLAGS, *entry["native"].split(), *extra)
    return Compiler(command, flags, _key(key, entry["version"], flags))


def _file_state(word: str) -> tuple[str, int, int] | None:
    """Path, size and time of the program that a word of the command names, if it names one."""
    found = shutil.which(word)
    if found is None:
        return None
    path = Path(found).resolve()
    state = path.stat()
    return str(path), state.st_size, state.st_mtime_ns


def _processor() -> list[str]:
    """What -march=native depends on: a cache may be shared by machines of several kinds."""
    facts = [platform.system(), platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = (line for line in lines if line.startswith(("model name", "flags", "Features")))
        facts += sorted(set(kept))
    return facts


def _version(command: Sequence[str]) -> str:
    done = _start((*command, "--version"))
    return f"{done.stdout}{done.stderr}"


def _native_flag(command: Sequence[str]) -> str:
    flag = "-march=native"
    return "" if _start((*command, flag, "-E", "-x", "c", os.devnull)).returncode else flag


def _run(command: Sequence[str], source: Path) -> str:
    """Standard output of the compiler; ToolError with its own message when it fails."""
    done = _start(command)
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines() or ["(it printed nothing)"]
    shown = lines[:MESSAGE_LINES]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more lines")
    raise ToolError(
        Kind.COMPILER_FAILED,
        f"the C compiler failed on {source.name} with status {done.returncode}; set the environment"
        " variable CC to use another, ONNXC_CFLAGS to change its flags",
        said="\n".join([f"$ {shlex.join(command)}", *shown]),
    )


def _start(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ToolError(
            Kind.NO_COMPILER,
            f"the C compiler '{command[0]}' cannot be started: {error.strerror}; set the"
            " environment variable CC to another",
        ) from None


@contextmanager
def _cache() -> Iterator[Path]:
    """The cache directory, made where it is missing; a failed write in it becomes ToolError."""
    try:
        cache = cache_directory()
    except RuntimeError:
        raise ToolError(
            Kind.CACHE_FOLDER, "no home directory to cache libraries in; set ONNXC_CACHE_DIR"
        ) from None
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield cache
    except OSError as error:
        raise ToolError(
            Kind.CACHE_FOLDER,
            f"cannot write to the cache directory {cache}: {error.strerror or error}; make room or"
            " set ONNXC_CACHE_DIR to a directory that you can write",
        ) from error


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A directory of our own in the cache, so that a rename from it stays in one file system."""
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as name:
        yield Path(name)


def _read_entry(path: Path) -> dict[str, str] | None:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())
    return entry if whole else None


def _write_entry(path: Path, scratch: Path, entry: dict[str, str]) -> None:
    written = scratch / path.name
    written.write_text(json.dumps(entry), encoding="utf-8")
    written.replace(path)


def _digests(source: Path) -> list[str]:
    paths = [source, source.with_suffix(".h"), source.with_suffix(".bin")]
    return [_digest(path) for path in paths if path.is_file()]


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _key(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
