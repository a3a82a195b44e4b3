"""The sdist and the wheel: what they hold, and that the command works from the wheel alone."""

import email
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest

from onnxc import __version__
from onnxc.pipeline import compile_model
from tests.command_line import EQUAL

ROOT = Path(__file__).parents[1]
SOURCES = (".py", ".j2", ".h", ".c", ".css", ".js", ".json", ".md", ".onnx", ".pb", ".tsv", ".txt")
NOT_COPIED = (".*_cache", ".git", ".hypothesis", ".venv", "*.egg-info", "__pycache__", "build")


def run(command: Sequence[str | Path], folder: Path) -> str:
    """The standard output of a command; its messages are shown when it fails."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_every_package_is_listed() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(config["tool"]["setuptools"]["packages"])
    source = ROOT / "compiler"
    on_disk = {
        ".".join(folder.relative_to(source).parts)
        for folder in source.rglob("*")
        if folder.is_dir() and (folder / "__init__.py").is_file()
    }
    assert listed == on_disk | {"onnxc.templates", "onnxc.runtime_c"}
    modules = {path.parent for path in (source / "onnxc").rglob("*.py")}
    assert all((folder / "__init__.py").is_file() for folder in modules)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, without a network.

    From a copy: an egg-info folder in the checkout would add files that it once listed.
    """
    folder = tmp_path_factory.mktemp("dist")
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy], ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def command(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`onnxc` in a new environment that holds the wheel, and sees the dependencies of this one.

    A plain path in a .pth file does not run the .pth files there, so an editable install of onnxc
    in this environment stays out of sight.
    """
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    run([*pip, "install", "--no-deps", "--no-index", "--quiet", distributions[1]], folder)
    paths = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin" / "onnxc"


def files_of(folder: str, *suffixes: str) -> set[str]:
    """The files below a folder of the checkout, relative to the checkout."""
    found = (path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes)
    skipped = {"build", "__pycache__"}
    relative = (path.relative_to(ROOT) for path in found)
    return {path.as_posix() for path in relative if not skipped & set(path.parts)}


def test_the_sdist_holds_all_sources(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    expected |= {"LICENSE", "LICENSE-0BSD", ".ci/run", "compiler/onnxc/py.typed"}
    for folder in ("compiler", "templates", "runtime_c", "tests", "examples", "benchmarks", "docs"):
        expected |= files_of(folder, *SOURCES)
    assert expected - held == set()
    assert not [name for name in held if name.endswith(".pyc")]


def test_the_wheel_holds_the_package_and_its_data(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as archive:
        held = {name for name in archive.namelist() if name.startswith("onnxc/")}
    sources = files_of("compiler", ".py", ".json", ".toml", ".tsv") | {"compiler/onnxc/py.typed"}
    expected = {name.removeprefix("compiler/") for name in sources}
    for folder in ("templates", "runtime_c"):
        suffixes = (".py", ".j2", ".css", ".js", ".h")
        expected |= {f"onnxc/{name}" for name in files_of(folder, *suffixes)}
    assert held == expected


def test_the_wheel_is_what_the_new_environment_runs(command: Path, tmp_path: Path) -> None:
    show = "import onnxc, onnxc.templates; print(onnxc.__file__, onnxc.templates.__file__)"
    files = run([command.with_name("python"), "-c", show], tmp_path).split()
    assert all(Path(file).is_relative_to(command.parents[1]) for file in files)
    assert run([command, "--version"], tmp_path).startswith("onnxc")


def test_the_command_line_and_examples_pass_from_the_wheel(
    command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXC", str(command))
    tests = ["tests/test_cli.py", "tests/test_cli_files.py", "tests/test_examples.py"]
    run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], ROOT)


def test_licences(distributions: tuple[Path, Path]) -> None:
    """By SPDX expression, with both texts: the tool's, and that of what it puts into outputs."""
    with zipfile.ZipFile(distributions[1]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
        folder = f"{name.rpartition('/')[0]}/licenses"
        texts = [archive.read(f"{folder}/{file}") for file in ("LICENSE", "LICENSE-0BSD")]
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("License-File") == ["LICENSE", "LICENSE-0BSD"]
    assert texts == [(ROOT / file).read_bytes() for file in ("LICENSE", "LICENSE-0BSD")]


def test_one_version(distributions: tuple[Path, Path]) -> None:
    """Of the package, its distributions, the command, the C, and the newest entry of CHANGELOG."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[([^\]]+)\] - ", changes, re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__
    assert [path.name for path in distributions] == [
        f"onnxc-{__version__}.tar.gz",
        f"onnxc-{__version__}-py3-none-any.whl",
    ]
    model = onnx.parser.parse_model(EQUAL)
    assert f"generated by onnxc {__version__} " in compile_model(model).c_source.partition("\n")[0]
