"""Mutation testing of the passes and the planner, with mutmut on a copy of the sources.

    pip install mutmut
    python -m tests.mutation planner --folder /tmp/mutation --sample 150

Of each group the tests that concern it run, for every mutant only those that reach it. Prints how
many of a random sample were killed, with the interval of 95 % confidence, and who survived
(`mutmut show NAME` in the folder shows how). A second run in the same folder goes on where the
first one ended.
"""

from __future__ import annotations

import argparse
import collections
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

ROOT: Final = Path(__file__).parents[1]
COPIED: Final = ("tests", "templates", "runtime_c", "examples", "docs")
SKIPPED: Final = "no tests"


@dataclass(frozen=True)
class Group:
    """`mutated` below compiler/onnxc, `tests` below tests; `left_out` is pytest's -k."""

    mutated: tuple[str, ...]
    tests: tuple[str, ...]
    left_out: str = ""


GROUPS: Final[Mapping[str, Group]] = {
    "planner": Group(
        (
            "passes/plan_memory.py",
            "passes/offsets.py",
            "passes/offset_search.py",
            "passes/order_steps.py",
            "passes/liveness.py",
            "check_plan.py",
        ),
        (
            "passes/test_plan_memory.py",
            "passes/test_offsets.py",
            "passes/test_order_steps.py",
            "test_memory_plans.py",
        ),
        "not in_c",
    ),
    "front": Group(
        (
            "passes/load.py",
            "passes/bind.py",
            "passes/branch.py",
            "passes/check_node.py",
            "passes/expand_function.py",
            "passes/fix.py",
            "passes/fold_cost.py",
            "passes/implied_shape.py",
            "passes/infer.py",
            "passes/inference.py",
            "passes/upgrade.py",
            "passes/upgrade_rules.py",
        ),
        (
            "test_malformed.py",
            "test_diagnostics.py",
            "fuzz/test_found.py",
            "passes/test_load.py",
            "passes/test_bind.py",
            "passes/test_branch.py",
            "passes/test_expand_function.py",
            "passes/test_fix.py",
            "passes/test_fold_cost.py",
            "passes/test_implied_shape.py",
            "passes/test_infer.py",
            "passes/test_infer_sizes.py",
            "passes/test_upgrade.py",
            "passes/test_upgrade_rules.py",
            "passes/test_upgrade_schemas.py",
        ),
    ),
    "kernels": Group(
        (
            "kernel.py",
            "passes/merge_axes.py",
            "passes/in_place.py",
            "passes/rejoining.py",
            "passes/update_states.py",
            "passes/widen_rows.py",
            "passes/fuse_rows.py",
            "passes/fuse_bands.py",
            "passes/keep_borders.py",
            "passes/layout.py",
            "passes/lower.py",
        ),
        ("passes",),
        "not in_c",
    ),
}


def prepare(folder: Path, group: Group, examples: int) -> None:
    """A copy of the project in the layout that mutmut knows: src/onnxc with its data inside."""
    source = folder / "src" / "onnxc"
    shutil.copytree(ROOT / "compiler" / "onnxc", source, ignore=_compiled)
    for name in ("templates", "runtime_c"):
        shutil.copytree(ROOT / name, source / name, ignore=_compiled)
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=_compiled)
    conftest = folder / "tests" / "conftest.py"
    text = conftest.read_text(encoding="utf-8")
    few = text.replace("deadline=None,", f"deadline=None, max_examples={examples},")
    conftest.write_text(few, encoding="utf-8")
    selected = [f"tests/{name}" for name in group.tests]
    selected += ["-k", group.left_out] if group.left_out else []
    (folder / "pyproject.toml").write_text(
        f"""[tool.pytest.ini_options]
pythonpath = ["."]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
filterwarnings = ["error"]

[tool.mutmut]
source_paths = ["src"]
only_mutate = {[f"src/onnxc/{name}" for name in group.mutated]}
also_copy = {[*COPIED, "pyproject.toml"]}
pytest_add_cli_args_test_selection = {selected}
""",
        encoding="utf-8",
    )
    (folder / "mutants" / "src").mkdir(parents=True)  # before Python looks for it


def _compiled(_folder: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]


def mutmut(folder: Path, *arguments: str) -> str:
    """What it says; its progress goes to a file."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "mutants" / "src")}
    if rest := os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] += os.pathsep + rest
    command = [sys.executable, "-m", "mutmut", *arguments]
    with (folder / "mutmut.log").open("a", encoding="utf-8") as log:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
        )
        log.write(done.stdout)
    return done.stdout


def results(folder: Path) -> dict[str, str]:
    """By mutant "killed", "survived", "no tests", "timeout" or "not checked"."""
    lines = mutmut(folder, "results", "--all", "True").splitlines()
    return dict(re.findall(r"^\s*(\S+): (.+?)\s*$", line)[0] for line in lines if ": " in line)


def interval(killed: int, total: int) -> tuple[float, float]:
    """Wilson's, of 95 % confidence."""
    z, share = 1.96, killed / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--folder", type=Path, required=True, help="new, or of an earlier run")
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=15, help="of a property test")
    parser.add_argument("--children", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.resolve()
    if not (folder / "mutants").is_dir():
        prepare(folder, GROUPS[options.group], options.examples)
        mutmut(folder, "run", "no such mutant")  # makes all and runs none
    names = sorted(results(folder))
    sample = Random(options.seed).sample(names, min(options.sample, len(names)))
    known = results(folder)
    open_ = [name for name in sample if known[name] == "not checked"]
    if open_:
        mutmut(folder, "run", "--max-children", str(options.children), *open_)
        known = results(folder)
    counts = collections.Counter(known[name] for name in sample)
    killed = counts["killed"] + counts["timeout"]
    total = sum(counts.values()) - counts["not checked"]
    print(f"{len(names)} mutants, of the sample: {dict(counts)}")
    if total:
        low, high = interval(killed, total)
        print(f"killed {killed} of {total}: {killed / total:.0%} ({low:.0%} to {high:.0%})")
    print("\n".join(f"{known[n]}: {n}" for n in sample if known[n] in ("survived", SKIPPED)))
    if counts["not checked"]:
        print(f"mutmut ended early: see {folder / 'mutmut.log'}", file=sys.stderr)
    return int(counts["not checked"] > 0)


if __name__ == "__main__":
    sys.exit(main())
