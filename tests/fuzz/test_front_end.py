"""Mutated models compile or are refused: a short campaign, and that a fault would show."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem, UsageError
from onnxc.pipeline import compile_model
from tests.conftest import ROOT
from tests.fuzz import oracle
from tests.fuzz.front_end import generated
from tests.fuzz.mutations import mutated
from tests.fuzz.oracle import Watch, external_folder, judged_c, outcome
from tests.fuzz.seed_models import seed_models
from tests.malformed import sound


@functools.cache
def seeds() -> list[onnx.ModelProto]:
    return seed_models()


def test_a_campaign() -> None:
    """In a process that may be killed, with every oracle."""
    command = [sys.executable, "-m", "tests.fuzz.front_end", "--count", "1200", "--seconds", "240"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " compiled" in done.stdout


@given(st.randoms(use_true_random=False), st.data())
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_any_mutation(random: Random, data: st.DataObject) -> None:
    """Other models every time, and a small one where it fails."""
    model, donor = (seeds()[data.draw(st.integers(0, len(seeds()) - 1))] for _ in range(2))
    with contextlib.suppress(ModelError, UsageError):
        compile_model(mutated(model, donor, random))


def test_a_number_is_a_model() -> None:
    assert generated(5, 1, seeds()[:50]) == generated(5, 1, seeds()[:50])


# That the oracle sees a fault.


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    return Watch(external_folder(tmp_path_factory.mktemp("fuzz")))


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("x"), "ValueError in "),
        (RecursionError(), "RecursionError in "),
        (MemoryError(), "MemoryError in "),
        (ModelError([]), "not a line for each problem"),
    ],
)
def test_an_exception_is_a_fault(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(oracle, "compile_model", fail)
    found = outcome(sound(), watch, None)
    assert found.fault
    assert found.kind.startswith(kind)


def test_a_foreign_file_or_program_is_a_fault(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other").write_bytes(b"")

    def compile_with(act: Callable[[], object]) -> oracle.Outcome:
        def compiled(source: onnx.ModelProto, name: str) -> object:
            act()
            return compile_model(source, name=name)

        monkeypatch.setattr(oracle, "compile_model", compiled)
        return outcome(sound(), watch, None)

    assert compile_with(lambda: None).kind == "compiled"
    read = compile_with(lambda: (tmp_path / "other").read_bytes())
    run = compile_with(lambda: subprocess.run(["true"], check=True))
    assert {read.kind, run.kind} == {"a file or program outside the model's folder"}


def test_an_external_file_is_read_within_the_folder(tmp_path: Path) -> None:
    watch = Watch(external_folder(tmp_path))
    with watch:
        (tmp_path / "model" / "w.bin").read_bytes()
        assert watch.seen == []
        (tmp_path / "model" / "link.bin").read_bytes()
        assert len(watch.seen) == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("int x;\n", "compiled"),
        ("/* a /* b */ int x;\n", "odd C"),
        ("int x; // y\n", "odd C"),
        ('const char *x = "??/";\n', "odd C"),
        ("/* a\\\n */ int x;\n", "odd C"),
        ("int x; /* \x1b */\n", "odd C"),
        ("int größe;\n", "odd C"),
        ("int x; @\n", "odd C"),
        ("int x\n", "C that does not compile"),
    ],
)
def test_odd_c_is_a_fault(tool: Callable[[str], str], body: str, kind: str) -> None:
    assert judged_c("", body, tool("gcc")).kind == kind


def test_a_refusal_of_two_lines_is_told_on_one() -> None:
    assert "\n" not in str(Problem(Kind.RESHAPE, "node 'a\nb'", "c\nd", "e\nf"))
