"""What the kernel IR can do before operators use it, on other compilers and machines.

Folds, checks, run-time indices, branches and rounds: without a warning or undefined behaviour, with
the status and the bits that evaluate gives. A float sum has the same bits everywhere.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from onnxc.pipeline import Compiled
from tests.kernels.portable import Portable, portable_programs
from tests.kernels.programs import emitted, evaluated
from tests.models import STRICT
from tests.portable_program import Call, printout, program
from tests.toolchains import MACHINES, SANITIZED, STRICT_COMPILERS, Tool, run, run_on

PROGRAMS = list(portable_programs())


@dataclass(frozen=True)
class Sources:
    """A folder with NAME.c and NAME.h of every program, and program.c that runs them all."""

    folder: Path
    compiled: list[Compiled]

    @property
    def c_files(self) -> list[Path]:
        return [self.folder / f"{one.name}.c" for one in self.compiled]

    @property
    def program(self) -> list[Path]:
        return [self.folder / "program.c", *self.c_files]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folder = tmp_path_factory.mktemp("portable_kernels")
    calls, models = [], []
    for one in PROGRAMS:
        compiled = emitted(one.program, one.name)
        models.append(compiled)
        calls += [Call(compiled, {b.name: a for b, a in given.items()}) for given in one.runs]
        (folder / f"{one.name}.h").write_text(compiled.header, encoding="ascii")
        (folder / f"{one.name}.c").write_text(compiled.c_source, encoding="ascii")
    (folder / "program.c").write_text(program(calls), encoding="ascii")
    (folder / "portable.h").write_bytes(Path(__file__).with_name("portable.h").read_bytes())
    return Sources(folder, models)


@pytest.fixture(scope="module")
def expected(sources: Sources) -> str:
    """What numpy says that the program prints: each call twice, with either workspace."""
    texts = []
    for one, compiled in zip(PROGRAMS, sources.compiled, strict=True):
        for given in one.runs:
            status, outputs = evaluated(one.program, given)
            texts += [printout(compiled, status, outputs.values())] * 2
    return "".join(texts) + "\n"


@pytest.mark.parametrize("one", PROGRAMS, ids=[one.name for one in PROGRAMS])
def test_the_status_of_every_run(one: Portable) -> None:
    assert [evaluated(one.program, given)[0] for given in one.runs] == list(one.statuses)


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
@pytest.mark.parametrize("compiler", STRICT_COMPILERS)
def test_no_warning(
    compiler: str, level: str, sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    name, *options = compiler.split()
    run([tool(name), *options, *STRICT, level, "-c", *sources.c_files], tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        *("gcc -std=c99 -O0", "gcc -std=c99 -O2", "gcc -std=c99 -O3 -march=native"),
        *("clang -std=c99 -O2", "clang -std=c99 -O3 -march=native", "tcc -Wall -Werror"),
        " ".join(["gcc", *SANITIZED]),
    ],
)
def test_the_host_prints_what_evaluate_says(
    command: str, sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    """The library for mathematics is not linked: isnan and signbit are the compiler's."""
    name, *options = command.split()
    run([tool(name), *options, *sources.program, "-o", "program"], tmp_path)
    assert run([tmp_path / "program"], tmp_path) == expected


@pytest.mark.parametrize(("machine", "order"), MACHINES)
def test_other_machines_print_the_same(
    machine: str, order: str, sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    assert run_on(machine, order, sources.program, tool, tmp_path) == expected


@pytest.mark.parametrize("command", ["gcc -O0", "gcc -O2", "clang -O2"])
def test_nothing_but_memory_functions_is_called(
    command: str, sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    """Nor are there variables, save the static workspaces."""
    name, *options = command.split()
    run([tool(name), "-std=c99", "-fno-pie", *options, "-c", *sources.c_files], tmp_path)
    allowed = {"memcmp", "memcpy", "memmove", "memset"}
    for compiled in sources.compiled:
        listing = run([tool("nm"), "-P", tmp_path / f"{compiled.name}.o"], tmp_path)
        symbols = [line.split()[:2] for line in listing.splitlines()]
        assert {symbol for symbol, kind in symbols if kind == "U"} <= allowed
        variables = {symbol for symbol, kind in symbols if kind in "bdsgBDSGC"}
        assert len(variables) <= (compiled.workspace_size > 0)
