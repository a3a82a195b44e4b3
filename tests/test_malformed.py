"""Models that must be refused: every problem in one go, each with its place and its way out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxc.errors import ModelError, UsageError
from onnxc.passes.load import load
from tests.malformed import GRAPHS, Malformed, parse, sound, sparse_tensor, with_initializer
from tests.malformed_functions import FUNCTIONS


def refusal(source: Path | onnx.ModelProto) -> list[str]:
    with pytest.raises(ModelError) as caught:
        load(source)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("case", [*GRAPHS, *FUNCTIONS], ids=lambda case: case.name)
def test_malformed_model(case: Malformed) -> None:
    assert refusal(case.build()) == list(case.says)


def test_all_problems_at_once() -> None:
    model = sound()
    model.ir_version = 99
    model.graph.node[0].input[0] = "nowhere"
    model.graph.initializer.append(TensorProto(name="w", data_type=1, dims=[-1]))
    model.graph.output.add(name="z")
    assert [line.partition(":")[0] for line in refusal(model)] == [
        "model",
        "initializer 'w'",
        "node 'n' (Identity-21)",
        "output 'z'",
    ]


def test_an_odd_name_stays_on_one_line() -> None:
    model = sound()
    model.graph.node[0].input[0] = "line\nbreak" + "x" * 1000
    (line,) = refusal(model)
    assert r"input 'line\nbreakxxx" in line
    assert len(line) < 250


# Files


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read '.*gone.onnx': No such file or directory"):
        load(tmp_path / "gone.onnx")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory; give an ONNX model file"):
        load(tmp_path)


def test_device() -> None:
    with pytest.raises(UsageError, match="is not a regular file"):
        load(Path("/dev/zero"))


def test_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(UsageError, match="is not a regular file"):
        load(tmp_path / "pipe.onnx")


NOT_A_MODEL = "model: the file is not an ONNX model: "
AGAIN = "; export or download the model again"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", f"model: the file is empty{AGAIN}"),
        (b"hello, world\n", f"{NOT_A_MODEL}it looks like text{AGAIN}"),
        (bytes(100), f"{NOT_A_MODEL}byte 0 does not begin a protobuf field{AGAIN}"),
        (b"\xff" * 100, f"{NOT_A_MODEL}byte 0 does not begin a protobuf field{AGAIN}"),
        (b"\x98\x06\x01", f"{NOT_A_MODEL}it holds none of a model's parts{AGAIN}"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "model: the file is a Git LFS pointer, not the model itself; "
            "fetch the model with 'git lfs pull'",
        ),
    ],
)
def test_a_file_that_is_no_model(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert refusal(path) == [says]


def test_truncated_anywhere(tmp_path: Path) -> None:
    model = with_initializer(helper.make_tensor("w", TensorProto.FLOAT, [50], [0.0] * 50))
    data = model.SerializeToString()
    path = tmp_path / "m.onnx"
    for size in range(1, len(data)):
        path.write_bytes(data[:size])
        assert all(line.startswith("model: ") for line in refusal(path)), size
    assert "the file is truncated or damaged: its field 'opset_import'" in refusal(path)[0]


def test_damaged_inside(tmp_path: Path) -> None:
    data = sound().SerializeToString().replace(b"\x0a\x01x", b"\x0a\x7fx", 1)
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert "is truncated or damaged: its field 'NodeProto.input'" in refusal(path)[0]


def nested(depth: int) -> onnx.ModelProto:
    """A model with graphs in attributes of nodes of graphs."""
    model = sound()
    graph = model.graph
    for _ in range(depth):
        node = graph.node.add(op_type="If")
        attribute = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        graph = attribute.g
    graph.name = "innermost"
    return model


@pytest.mark.parametrize("depth", [34, 5000])
def test_nested_too_deep(tmp_path: Path, depth: int) -> None:
    says = [
        "model: graphs in attributes nest deeper than protobuf reads (100 messages); "
        "flatten the nested If, Loop and Scan bodies"
    ]
    assert refusal(nested(depth)) == says
    path = tmp_path / "m.onnx"
    path.write_bytes(nested(depth).SerializeToString())
    assert refusal(path) == says


# External data


def external(entries: dict[str, str], dims: tuple[int, ...] = (2,)) -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return with_initializer(tensor)


BESIDE = "; put it beside the model, whole"
OUTSIDE = "; external data must lie in the model's folder or below"


@pytest.mark.parametrize(
    ("location", "entries", "says"),
    [
        ("", {}, "its external data has no location"),
        ("gone.bin", {}, f"'gone.bin' cannot be found: No such file or directory{BESIDE}"),
        ("short.bin", {}, f"'short.bin' is too short: 7 bytes, 8 needed{BESIDE}"),
        ("w.bin", {"offset": "16"}, f"'w.bin' is too short: 20 bytes, 24 needed{BESIDE}"),
        ("w.bin", {"offset": "-4"}, "'w.bin' has an invalid offset: '-4'"),
        ("w.bin", {"offset": "1" * 20}, f"'w.bin' has an invalid offset: '{'1' * 20}'"),
        ("w.bin", {"length": "four"}, "'w.bin' has an invalid length: 'four'"),
        ("w.bin", {"length": "4"}, "'w.bin' holds 4 bytes for a tensor of 8"),
        ("/etc/passwd", {}, f"'/etc/passwd' is an absolute path{OUTSIDE}"),
        ("../w.bin", {}, f"'../w.bin' leads outside the model's folder ('..'){OUTSIDE}"),
        (
            "link.bin",
            {},
            f"'link.bin' leads outside the model's folder through a symbolic link{OUTSIDE}",
        ),
        (
            "link/outside.bin",
            {},
            f"'link/outside.bin' leads outside the model's folder through a symbolic link{OUTSIDE}",
        ),
        ("loop.bin", {}, "'loop.bin' cannot be found: Too many levels of symbolic links" + BESIDE),
        ("pipe.bin", {}, "'pipe.bin' is not a regular file"),
        (".", {}, "'.' is not a regular file"),
        ("nul\0.bin", {}, r"'nul\x00.bin' has a NUL in its name"),
    ],
)
def test_external_data(tmp_path: Path, location: str, entries: dict[str, str], says: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(8))
    (folder / "w.bin").write_bytes(bytes(20))
    (folder / "short.bin").write_bytes(bytes(7))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "link").symlink_to(tmp_path)
    (folder / "loop.bin").symlink_to("loop.bin")
    os.mkfifo(folder / "pipe.bin")
    onnx.save_model(external({"location": location, **entries}), folder / "m.onnx")
    prefix = "initializer 'w': " + ("external data file " if location else "")
    assert refusal(folder / "m.onnx") == [prefix + says]


def test_external_device(tmp_path: Path) -> None:
    onnx.save_model(external({"location": "zero"}), tmp_path / "m.onnx")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert (
        "leads outside the model's folder through a symbolic link"
        in refusal(tmp_path / "m.onnx")[0]
    )


def test_external_dims_are_checked_before_the_file(tmp_path: Path) -> None:
    onnx.save_model(external({"location": "w.bin"}, dims=(2**31, 2**31)), tmp_path / "m.onnx")
    assert "overflow" in refusal(tmp_path / "m.onnx")[0]


# Time and memory

MEASURED = """
import resource, sys
from pathlib import Path
from onnxc.errors import ModelError
from onnxc.passes.load import load
try:
    load(Path(sys.argv[1]))
except ModelError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def rubbish_of_two_gigabytes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**31 - 1)


def more_than_a_protobuf(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**33)


def laughing_bytes(path: Path) -> None:
    """A megabyte in a function that is called a thousand times."""
    model = parse(
        '<ir_version: 10, opset_import: ["": 21, "f": 1]> g (float x) => (float y)'
        ' { y = f.G(x) } <domain: "f", opset_import: ["": 21]>'
        " F (x) => (y) { c = Constant() y = Identity(x) }"
        ' <domain: "f", opset_import: ["": 21, "f": 1]> G (x) => (y) { y = Identity(x) }'
    )
    large = TensorProto(data_type=TensorProto.UINT8, dims=[2**20], raw_data=bytes(2**20))
    model.functions[0].node[0].attribute.append(helper.make_attribute("value", large))
    for number in range(1000):
        model.functions[1].node.add(op_type="F", domain="f", input=["x"], output=[f"t{number}"])
    path.write_bytes(model.SerializeToString())


def unsorted_by_the_thousand(path: Path) -> None:
    model = sound()
    del model.graph.node[:]
    for number in range(20_000):
        model.graph.node.add(op_type="Identity", input=[f"t{number + 1}"], output=[f"t{number}"])
    model.graph.output[0].name = "t0"
    path.write_bytes(model.SerializeToString())


def dense_by_the_thousand(path: Path) -> None:
    """Sparse constants that are small one by one."""
    model = sound()
    for number in range(1000):
        sparse = sparse_tensor([0], [1], [2**22], [1.0])
        sparse.values.name = f"w{number}"
        model.graph.sparse_initializer.append(sparse)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (rubbish_of_two_gigabytes, "byte 0 does not begin a protobuf field"),
        (more_than_a_protobuf, "more than the 2 GB of a protobuf"),
        (laughing_bytes, "function calls expand to more than 256 MiB"),
        (unsorted_by_the_thousand, "input 't20000' is not defined"),
        (dense_by_the_thousand, "made dense, sparse data takes more than 256 MiB"),
    ],
)
def test_ends_within_seconds_and_a_gigabyte(
    tmp_path: Path, write: Callable[[Path], None], says: str
) -> None:
    write(tmp_path / "m.onnx")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "m.onnx")],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert says in done.stdout
    assert done.stderr == ""
    assert int(done.stdout.splitlines()[-1]) < 2**20  # kilobytes
