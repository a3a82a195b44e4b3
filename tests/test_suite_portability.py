"""The C of ONNX's backend tests on hostile inputs: sanitizers, compilers, other machines.

A few tests at a time make one program. By default only SAMPLE of them; with ONNXC_SANITIZE=1 in the
environment all, which takes an hour.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from onnxc.kernel import Micro, every_step
from onnxc.pipeline import Compiled, compile_model
from tests.backend_suite import LIGHT, as_bytes, example, names, unsupported
from tests.hostile_program import Subject, program, set_apart
from tests.models import STRICT
from tests.toolchains import MACHINES, SANITIZED, Tool, run, run_on

UNSUPPORTED = unsupported()
SUPPORTED = [name for name in names() if name not in UNSUPPORTED and name not in LIGHT]
BATCH = 40
# Of which some compiler once warned.
WARNED = ["test_isinf_float16", "test_isnan", "test_nonmaxsuppression_single_box"]
SAMPLE = sorted({*WARNED, *SUPPORTED[:: len(SUPPORTED) // (BATCH - len(WARNED)) + 1]})
TESTS = SUPPORTED if os.environ.get("ONNXC_SANITIZE") == "1" else SAMPLE
BATCHES = [TESTS[start : start + BATCH] for start in range(0, len(TESTS), BATCH)]
ROUNDS = 24
# What C leaves undefined, and gcc does not count among the undefined.
SANITIZERS = [*SANITIZED, "-fsanitize=float-cast-overflow"]
# Compilers that use what the machine has and what C leaves undefined, each in its own way.
OPTIMISERS = ["gcc -O3 -march=native", "clang -O2"]
# Warns of arithmetic that 32 bits of size_t do not allow.
ARM = "arm-none-eabi-gcc --specs=picolibc.specs"


def compiled(batch: Sequence[str]) -> list[Compiled]:
    """model0 and so on, for some names are too long."""
    return [compile_model(example(t).model, name=f"model{n}") for n, t in enumerate(batch)]


def with_the_same_bits(batch: Sequence[str]) -> list[Compiled]:
    """The same; tuned kernels of floats keep to bounds, and have the same bits where asked to."""
    models = compiled(batch)
    for number, name in enumerate(batch):
        if any(isinstance(step, Micro) for step in every_step(models[number].program)):
            given = example(name).model
            models[number] = compile_model(given, name=f"model{number}", portable_bits=True)
    return models


def write(models: Sequence[Compiled], folder: Path) -> None:
    for model in models:
        (folder / f"{model.name}.c").write_text(model.c_source, encoding="ascii")
        (folder / f"{model.name}.h").write_text(model.header, encoding="ascii")


def write_program(batch: Sequence[str], models: Sequence[Compiled], folder: Path) -> list[Path]:
    """All files to compile."""
    subjects = []
    for name, model in zip(batch, models, strict=True):
        keys = [value.name for value in model.inputs]
        arrays = map(as_bytes, example(name).inputs)
        subjects.append(Subject(model, dict(zip(keys, arrays, strict=True))))
    write(models, folder)
    (folder / "program.c").write_text(program(subjects, ROUNDS), encoding="ascii")
    (folder / "hostile.h").write_bytes(Path(__file__).with_name("hostile.h").read_bytes())
    return sorted(folder.glob("*.c"))


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch[0])
def test_sanitizers_find_nothing(batch: list[str], tool: Tool, tmp_path: Path) -> None:
    """Nor is memory read that nobody wrote. A test's own inputs must succeed, others may fail.

    Between the buffers of the workspace is memory that must not be touched.
    """
    files = write_program(batch, list(map(set_apart, compiled(batch))), tmp_path)
    run([tool("gcc"), *SANITIZERS, *files, "-lm", "-o", "program"], tmp_path)
    lines = run([tmp_path / "program"], tmp_path).splitlines()
    assert [line for line in lines if "memory" in line] == []
    own = [line.split()[2] for line in lines[::ROUNDS]]
    assert dict(zip(batch, own, strict=True)) == dict.fromkeys(batch, "0")


@dataclass(frozen=True)
class Built:
    """The files of a program as users have them, and what it prints without optimisation.

    That is from a build with the buffers set apart, so that the plan is not taken on trust.
    """

    files: list[Path]
    printed: str


@pytest.fixture(scope="module", params=BATCHES, ids=lambda batch: batch[0])
def built(
    request: pytest.FixtureRequest, tool: Tool, tmp_path_factory: pytest.TempPathFactory
) -> Built:
    batch: list[str] = request.param
    apart, planned = (tmp_path_factory.mktemp(name) for name in ("apart", "planned"))
    models = with_the_same_bits(batch)
    files = write_program(batch, list(map(set_apart, models)), apart)
    run([tool("gcc"), "-std=c99", "-O0", *files, "-lm", "-o", "program"], apart)
    return Built(write_program(batch, models, planned), run([apart / "program"], apart))


@pytest.mark.parametrize("compiler", OPTIMISERS)
def test_optimisation_changes_no_bit(
    compiler: str, built: Built, tool: Tool, tmp_path: Path
) -> None:
    """NaN aside; nor does it matter where the plan puts the buffers."""
    name, *options = compiler.split()
    run([tool(name), "-std=c99", *options, *built.files, "-lm", "-o", "program"], tmp_path)
    assert run([tmp_path / "program"], tmp_path) == built.printed


@pytest.mark.parametrize(("machine", "order"), MACHINES)
def test_other_machines_give_the_same_bits(
    machine: str, order: str, built: Built, tool: Tool, tmp_path: Path
) -> None:
    """NaN aside. With -std=c99 alone gcc computes float as double on s390x."""
    options = ["-fexcess-precision=fast", "-lm"]
    assert run_on(machine, order, built.files, tool, tmp_path, *options) == built.printed


@pytest.mark.parametrize("compiler", ["clang", "tcc", ARM, "g++", "clang++"])
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch[0])
def test_no_warning(batch: list[str], compiler: str, tool: Tool, tmp_path: Path) -> None:
    """gcc's are errors in test_backend_suite.py. C++ takes the headers, all in one file."""
    models = compiled(batch)
    write(models, tmp_path)
    files = [f"{model.name}.c" for model in models]
    name, *options = compiler.split()
    if compiler == "clang":
        run([tool(name), *STRICT, "-fsyntax-only", *files], tmp_path)
    elif compiler == "tcc":
        run([tool(name), "-Wall", "-Werror", "-c", *files], tmp_path)
    elif compiler == ARM:
        run([tool(name), *options, *STRICT, "-O2", "-c", *files], tmp_path)
    else:
        includes = "".join(f'#include "{model.name}.h"\n' for model in models)
        (tmp_path / "all.cpp").write_text(includes, encoding="ascii")
        strict = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wundef", "-Werror"]
        run([tool(name), *strict, "-fsyntax-only", "all.cpp"], tmp_path)
