"""What all tests share: the option for golden files, and how to find what may be missing."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.command_line import EQUAL, save
from tests.models import STRICT

ROOT = Path(__file__).parents[1]

# Every program that any test compiles goes through onnxc.check.
os.environ["ONNXC_DEBUG"] = "1"

# A time limit for each example would make a slow machine fail.
# Everywhere but in CI, where a change must not fail by chance, other examples every time.
settings.register_profile("onnxc", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("onnxc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew instead of comparing with them",
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """`tool("tcc")` is the path of tcc. Without it the test is skipped, but under CI it fails."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            reason = f"{name} is not installed (.ci/run lists the packages)"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        return path

    return find


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of models and suites beside the checkout, which not every machine has."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no folder 'shared' beside the checkout")
    return folder


@pytest.fixture(scope="session", autouse=True)
def library_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave the user's cache alone, and find in it only what this run has built.

    The workers of pytest-xdist share it.
    """
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXC_CACHE_DIR", str(session / "libraries"))
        yield


@pytest.fixture
def strict_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries are built with the strict list of warnings, as errors."""
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join(STRICT))


@pytest.fixture
def equal(tmp_path: Path) -> Path:
    """A model of one Equal, as a file."""
    return save(EQUAL, tmp_path / "equal.onnx")
