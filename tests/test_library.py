"""Building and caching shared libraries."""

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onnxc import library
from onnxc.errors import ToolError, UsageError

HEADER = """
#ifndef ONNXC_CFFI
#include <stdint.h>
#endif
int32_t answer(void);
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CC", "ONNXC_CFLAGS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setenv("ONNXC_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A C file in a folder with a space in its name."""
    path = tmp_path / "some models" / "answer.c"
    path.parent.mkdir()
    path.with_suffix(".h").write_text(HEADER)
    write_answer(path, "42")
    return path


def write_answer(source: Path, value: str) -> None:
    source.write_text(f'#include "answer.h"\nint32_t answer(void) {{ return {value}; }}\n')


def answer(source: Path) -> int:
    return int(library.build_file(source).lib.answer())


def libraries(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.so"))


def wrapper(path: Path, script: str) -> str:
    """A compiler command: a shell script that ends in the system's own compiler."""
    path.write_text(f'#!/bin/sh\n{script}\nexec cc "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_build_runs_and_leaves_nothing_but_its_entry(source: Path, cache: Path) -> None:
    assert answer(source) == 42
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert [path.suffix for path in sorted(cache.iterdir())].count(".so") == 1
    assert {path.suffix for path in cache.iterdir()} == {".so", ".json"}
    assert len(list(cache.iterdir())) == 3


def test_a_cached_build_starts_no_process(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(source)

    def refuse(command: object) -> None:
        raise AssertionError(command)

    monkeypatch.setattr(library, "_start", refuse)
    assert answer(source) == 42


def test_source_header_flags_and_compiler_decide(
    source: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_answer(source, "ANSWER")
    monkeypatch.setenv("ONNXC_CFLAGS", "-DANSWER=1")
    assert answer(source) == 1
    monkeypatch.setenv("ONNXC_CFLAGS", "-DANSWER=2")
    assert answer(source) == 2
    source.with_suffix(".h").write_text(HEADER + "#undef ANSWER\n#define ANSWER 3\n")
    assert answer(source) == 3
    write_answer(source, "ANSWER + 1")
    assert answer(source) == 4
    entries = len(list(cache.iterdir()))
    monkeypatch.setenv("CC", wrapper(tmp_path / "mycc", ""))
    assert answer(source) == 4
    assert len(list(cache.iterdir())) > entries


def test_a_compiler_that_changed_is_asked_for_its_version_again(
    source: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", wrapper(tmp_path / "mycc", "# 1"))
    assert answer(source) == 42
    wrapper(tmp_path / "mycc", "# another")
    assert answer(source) == 42
    assert len(list(cache.glob("compiler-*.json"))) == 2


def test_cc_may_have_words_of_its_own(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_answer(source, "ANSWER")
    monkeypatch.setenv("CC", "env ANSWERS=1 cc -DANSWER='(2 * 4)'")
    assert answer(source) == 8


def test_a_compiler_without_march_native(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'case "$*" in *-march=native*) exit 1 ;; esac'
    monkeypatch.setenv("CC", wrapper(tmp_path / "mycc", script))
    assert answer(source) == 42


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b"\0" * 64, lambda b: b[: len(b) // 2]]
)
def test_a_damaged_library_is_built_again(
    source: Path, cache: Path, damage: Callable[[bytes], bytes]
) -> None:
    answer(source)
    (built,) = libraries(cache)
    whole = built.read_bytes()
    built.unlink()
    built.write_bytes(damage(whole))
    assert answer(source) == 42
    (built,) = libraries(cache)
    assert hashlib.sha256(built.read_bytes()).hexdigest() == built.stem


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"library": 1, "cdef": 2}', "\0"])
def test_a_damaged_entry_is_made_again(source: Path, cache: Path, text: str) -> None:
    answer(source)
    for entry in cache.glob("*.json"):
        entry.write_text(text)
    assert answer(source) == 42


def test_a_missing_compiler(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with pytest.raises(ToolError, match=r"'no-such-compiler' was not found; install .* CC"):
        answer(source)


def test_a_compiler_that_makes_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "true")
    with pytest.raises(ToolError, match=r"'true' made no library of "):
        answer(source)


def test_an_unbalanced_quote_in_cc(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc '")
    with pytest.raises(ToolError, match="No closing quotation"):
        answer(source)


def test_a_failing_compiler_says_why(source: Path, cache: Path) -> None:
    write_answer(source, "unheard_of")
    with pytest.raises(ToolError, match=r"(?s)answer\.c with status 1.*unheard_of"):
        answer(source)
    assert not libraries(cache)
    assert not list(cache.glob("build-*"))


def test_a_cache_that_cannot_be_made(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ONNXC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(ToolError, match=r"cannot write to the cache directory .* ONNXC_CACHE_DIR"):
        answer(source)


def test_missing_files(source: Path) -> None:
    source.with_suffix(".h").unlink()
    with pytest.raises(UsageError, match=r"no such file: .*answer\.h"):
        answer(source)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("ONNXC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert library.cache_directory() == tmp_path / "xdg" / "onnxc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert library.cache_directory() == tmp_path / ".cache" / "onnxc"


def test_many_builds_at_once(source: Path, cache: Path) -> None:
    script = (
        "import sys, pathlib; from onnxc import library\n"
        "print(library.build_file(pathlib.Path(sys.argv[1])).lib.answer())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, source],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(answer, [source] * 8)) == {42}
    assert [process.communicate()[0] for process in processes] == ["42\n"] * 3
    assert len(libraries(cache)) == 1
    assert not list(cache.glob("build-*"))
