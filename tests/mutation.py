"""Mutation testing of the front end, the planner and the passes: would a test notice a fault?

    pip install mutmut
    python -m tests.mutation planner --sample 150

makes random changes with mutmut's operators, one at a time, in the functions that
tests/mutation_groups.py names. Everything is imported once; for each mutant a copy of that process
runs the tests that reach the changed statement, until one fails. Prints how many of the sample were
killed, with the interval of 95 % confidence, and who survived. Property tests draw the same few
examples every time.

Mutants that no test can tell apart are left out: by the rules in mutation_groups.py and by the list
in equivalent_mutants.tsv, both with their reasons. A mutant that runs ten times as long as the
unchanged code counts as killed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import csv
import difflib
import importlib
import json
import math
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import process_time
from types import CodeType, FunctionType
from typing import Any, Final

import pytest
from hypothesis import Phase, settings

from tests.mutation_groups import AT_IMPORT, GROUPS, MEANINGLESS, Group

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "compiler" / "onnxc"
EQUIVALENT: Final = Path(__file__).with_name("equivalent_mutants.tsv")
MEMORY: Final = 6 << 30
"""Bytes of address space beyond which a mutant's allocations fail."""
FAULT: Final = 70
"""Exit status of a copy in which this module itself failed."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function.

    path      of the module, below compiler/onnxc
    function  its qualified name
    lines     of the statement that changes, of a compound statement those of its head
    before, after   the text that changes, each line without its indentation
    source    the whole module with the change
    """

    path: str
    function: str
    lines: range
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.path, self.before, self.after)

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.lines.start} {self.function}\n  - {self.before}\n  + {self.after}"
        )


def mutants(path: str, numbers: Sequence[int] | None = None) -> Iterator[Mutant | None]:
    """Those of a module, or the numbered ones. None stands for a change that is no Python."""
    text = (PACKAGE / path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    module, found, positions = _changes(text)
    for number in range(len(found)) if numbers is None else numbers:
        function, change = found[number]
        source = module.deep_replace(change.original_node, change.mutated_node).code
        try:
            ast.parse(source)
        except SyntaxError:
            yield None
            continue
        lines = statement_around(tree, positions[change.original_node].start.line)
        before, after = difference(text, source)
        yield Mutant(path, function, lines, before, after, source)


def _changes(text: str) -> tuple[Any, list[tuple[str, Any]], Mapping[Any, Any]]:
    """libcst's module, (function, change) for each change inside a function, and positions.

    mutmut and libcst are no requirements of the tests, so that their types are not known here.
    """
    libcst = importlib.import_module("libcst")
    metadata = importlib.import_module("libcst.metadata")
    making = importlib.import_module("mutmut.mutation.file_mutation")
    pragmas = importlib.import_module("mutmut.mutation.pragma_handling")
    wrapper = metadata.MetadataWrapper(libcst.parse_module(text))
    visitor = making.MutationVisitor(
        making.mutation_operators, pragmas.IgnoredCode(set(), set(), set())
    )
    wrapper.visit(visitor)
    names: dict[Any, str] = {}
    for node in wrapper.module.body:
        if isinstance(node, libcst.FunctionDef):
            names[node] = node.name.value
        elif isinstance(node, libcst.ClassDef):
            methods = [m for m in node.body.body if isinstance(m, libcst.FunctionDef)]
            names |= {method: f"{node.name.value}.{method.name.value}" for method in methods}
    inside = [(change.contained_by_top_level_function, change) for change in visitor.mutations]
    found = [(names[function], change) for function, change in inside if function in names]
    return wrapper.module, found, wrapper.resolve(metadata.PositionProvider)


def statement_around(tree: ast.Module, line: int) -> range:
    """The lines of the innermost statement around a line; its head where it has a body.

    What is in the head of a function runs when the module is imported: any of its lines counts.
    """
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    inner = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    body = getattr(inner, "body", None)
    if body and not isinstance(inner, ast.FunctionDef):
        return range(inner.lineno, max(inner.lineno + 1, body[0].lineno))
    return range(inner.lineno, (inner.end_lineno or 0) + 1)


def difference(before: str, after: str) -> tuple[str, str]:
    one, other = before.splitlines(), after.splitlines()
    steps = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    changed = [step for step in steps if step[0] != "equal"]
    start, start_after = changed[0][1], changed[0][3]
    end, end_after = changed[-1][2], changed[-1][4]

    def joined(lines: Sequence[str]) -> str:
        return " ".join(line.strip() for line in lines)

    return joined(one[start:end]), joined(other[start_after:end_after])


def meaningless(mutant: Mutant) -> bool:
    """Whether a rule says that its change means nothing."""
    before, after = mutant.before, mutant.after
    for pattern, standing in MEANINGLESS:
        before, after = (re.sub(pattern, standing, text) for text in (before, after))
    return re.sub(r"[\s,]", "", before) == re.sub(r"[\s,]", "", after)


def equivalents() -> list[tuple[str, str, str, str]]:
    """(path, before, after, reason) of the mutants that no test can tell from the original."""
    with EQUIVALENT.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(path, before, after, reason) for path, before, after, reason in rows]


def sampled(group: Group, size: int, seed: int) -> tuple[int, list[Mutant]]:
    """The number of all mutants of a group, and some of them in a random order."""
    every: list[tuple[str, int]] = []
    for path in group.mutated:
        found = _changes((PACKAGE / path).read_text(encoding="utf-8"))[1]
        named = enumerate(function for function, _ in found)
        every += [(path, n) for n, function in named if (path, function) not in AT_IMPORT]
    chosen = Random(seed).sample(every, min(size, len(every)))
    made: dict[tuple[str, int], Mutant | None] = {}
    for path in group.mutated:
        numbers = [number for other, number in chosen if other == path]
        made |= zip([(path, n) for n in numbers], mutants(path, numbers), strict=True)
    return len(every), [mutant for one in chosen if (mutant := made[one]) is not None]


def put_in_place(mutant: Mutant) -> None:
    """Gives the function its changed code, which all who know the function then run."""
    name = "onnxc." + mutant.path.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name)
    *classes, plain = mutant.function.split(".")
    holder = vars(module)[classes[0]] if classes else module
    function = vars(holder)[plain]
    function = getattr(function, "__func__", function)  # of a static or class method
    code = compile(mutant.source, str(module.__file__), "exec")
    function.__code__ = next(c for c in _codes(code) if c.co_qualname == mutant.function)
    _put_defaults(function, mutant, vars(module))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _put_defaults(function: FunctionType, mutant: Mutant, known: dict[str, Any]) -> None:
    """Evaluates the defaults of the changed head, if its head is what changes."""
    old = ast.parse((PACKAGE / mutant.path).read_text(encoding="utf-8"))
    now, then = (_heads(tree)[mutant.function] for tree in (ast.parse(mutant.source), old))
    if ast.dump(now) == ast.dump(then):
        return

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<default>", "eval"), known)

    named = zip(now.kwonlyargs, now.kw_defaults, strict=True)
    function.__defaults__ = tuple(map(value, now.defaults)) or None
    function.__kwdefaults__ = {arg.arg: value(node) for arg, node in named if node is not None}


def _heads(tree: ast.Module) -> dict[str, ast.arguments]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node.args
        elif isinstance(node, ast.ClassDef):
            methods = [method for method in node.body if isinstance(method, ast.FunctionDef)]
            found |= {f"{node.name}.{method.name}": method.args for method in methods}
    return found


def in_copy(work: Callable[[], int]) -> int:
    """Runs `work` in a fork of this process: its exit status, or the negative signal's number."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status == FAULT:
            raise RuntimeError("a copy of the process failed, see above")
        return status
    status = FAULT
    try:
        status = work()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


@dataclass(frozen=True)
class Reached:
    """What the unchanged tests do: seconds of CPU of each, and which reach each line, by path."""

    seconds: Mapping[str, float]
    tests: Mapping[str, Mapping[int, Sequence[str]]]

    def by(self, mutant: Mutant) -> set[str]:
        lines = self.tests.get(mutant.path, {})
        return {test for line in mutant.lines for test in lines.get(line, ())}


class Testing:
    """A plugin of pytest: in place of the loop over all tests it runs some of them, often."""

    def __init__(self, chosen: Sequence[Mutant], paths: Sequence[str], examples: int) -> None:
        self.chosen = chosen
        self.paths = paths
        self.examples = examples
        self.outcomes: dict[Mutant, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutation",
            deadline=None,
            derandomize=True,
            database=None,
            phases=phases,
            max_examples=self.examples,
        )
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed("the tests cannot be collected")
        # Made before the first copy, so that all find the libraries that the others have built.
        vars(session.config)["_tmp_path_factory"].getbasetemp()
        reached = self._measured(session)
        print(f"{len(session.items)} tests, {sum(reached.seconds.values()):.0f} s", flush=True)
        for mutant in self.chosen:
            outcome = self.outcomes[mutant] = self._outcome(session, mutant, reached)
            if outcome in ("survived", "not reached"):
                print(f"{outcome}: {mutant}", flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Seen where the unchanged code fails; copies with a mutant are silent."""
        if report.failed:
            print(f"{report.nodeid}\n{report.longreprtext}", file=sys.stderr)

    def _measured(self, session: pytest.Session) -> Reached:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "reached.json")
            if status := in_copy(lambda: self._measure(session, file)):
                raise session.Failed(f"the tests fail without a mutant ({status})")
            return Reached(**json.loads(file.read_text(encoding="utf-8"), object_hook=_by_line))

    def _measure(self, session: pytest.Session, file: Path) -> int:
        coverage = importlib.import_module("coverage")
        measured = {path: str(PACKAGE / path) for path in self.paths}
        tracer = coverage.Coverage(data_file=None, config_file=False, include=[*measured.values()])
        seconds: dict[str, float] = {}

        def begin(item: pytest.Item) -> None:
            tracer.switch_context(item.nodeid)
            seconds[item.nodeid] = -process_time()

        def end(item: pytest.Item) -> None:
            seconds[item.nodeid] += process_time()

        tracer.start()
        passed = run(session, session.items, begin, end)
        tracer.stop()
        data = tracer.get_data()
        tests = {path: data.contexts_by_lineno(name) for path, name in measured.items()}
        file.write_text(json.dumps({"seconds": seconds, "tests": tests}), encoding="utf-8")
        return int(not passed)

    def _outcome(self, session: pytest.Session, mutant: Mutant, reached: Reached) -> str:
        names = reached.by(mutant)
        own = f"test_{Path(mutant.path).stem}.py"

        def order(item: pytest.Item) -> tuple[bool, float]:
            return (item.path.name != own, reached.seconds[item.nodeid])

        items = sorted((item for item in session.items if item.nodeid in names), key=order)
        if not items:
            return "not reached"

        def limit(item: pytest.Item) -> None:
            signal.setitimer(signal.ITIMER_PROF, 5 + 10 * reached.seconds[item.nodeid])

        def work() -> int:
            put_in_place(mutant)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            try:
                return int(not run(session, items, limit, lambda _item: None))
            except BaseException:  # not even pytest could go on
                return 1

        status = in_copy(work)
        return {0: "survived", 1: "killed", -signal.SIGPROF: "timeout"}.get(status, "crashed")


def _by_line(found: dict[str, Any]) -> dict[Any, Any]:
    """JSON has no numbers as keys."""
    return {int(key) if key.isdigit() else key: value for key, value in found.items()}


def run(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    begin: Callable[[pytest.Item], None],
    end: Callable[[pytest.Item], None],
) -> bool:
    """Whether all of them pass; none runs after the first that fails."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        begin(item)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        end(item)
        if session.testsfailed:
            return False
    return True


def interval(killed: int, total: int) -> tuple[float, float]:
    """Wilson's, of 95 % confidence."""
    z, share = 1.96, killed / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def tested(group: Group, chosen: Sequence[Mutant], examples: int) -> dict[Mutant, str]:
    """What became of each: killed, timeout, crashed, survived or not reached."""
    os.chdir(ROOT)
    plugin = Testing(chosen, group.mutated, examples)
    options = ["-q", "-s", "--assert=plain", "--tb=native", "-p", "no:cacheprovider"]
    options += ["-p", "no:xdist", "-o", "tmp_path_retention_policy=none"]
    options += ["-k", group.left_out] if group.left_out else []
    status = pytest.main([*options, *(f"tests/{name}" for name in group.tests)], [plugin])
    if len(plugin.outcomes) < len(chosen):
        raise SystemExit(f"pytest ended early, with {status!r}")
    return plugin.outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--sample", type=int, default=150, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--examples", type=int, default=25, help="of a property test")
    parser.add_argument("--survivors", type=Path, help="a file, for their names")
    parser.add_argument("--again", type=Path, help="only those that such a file names")
    parser.add_argument("--control", action="store_true", help="change nothing: all must survive")
    options = parser.parse_args(arguments)
    group = GROUPS[options.group]
    number, sample = sampled(group, options.sample, options.seed)
    if options.again:
        names = {tuple(key) for key in json.loads(options.again.read_text(encoding="utf-8"))}
        sample = [m for path in group.mutated for m in mutants(path) if m and m.key in names]
    if options.control:
        originals = {path: (PACKAGE / path).read_text(encoding="utf-8") for path in group.mutated}
        sample = [replace(mutant, source=originals[mutant.path]) for mutant in sample]
    known = {row[:3] for row in equivalents()}
    same = [m for m in sample if m.key in known or meaningless(m)]
    outcomes = tested(group, [m for m in sample if m not in same], options.examples)
    counts = collections.Counter(outcomes.values())
    alive = [m for m, outcome in outcomes.items() if outcome in ("survived", "not reached")]
    print(f"{number} mutants, of the sample: {dict(counts)}, equivalent {len(same)}")
    killed, total = len(outcomes) - len(alive), len(outcomes)
    if total:
        low, high = interval(killed, total)
        print(f"killed {killed} of {total}: {killed / total:.1%} ({low:.0%} to {high:.0%})")
    if options.survivors:
        options.survivors.write_text(json.dumps([m.key for m in alive]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
