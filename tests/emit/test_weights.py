"""Constants in a file of their own: what it holds, and what the C does with any other."""

import hashlib
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxc
from onnxc.dtypes import ELEMENT_TYPES
from onnxc.emit.weights import ALIGNMENT
from onnxc.errors import UsageError
from onnxc.output import MAGIC
from onnxc.pipeline import Compiled, compile_model
from tests.models import STRICT, any_bits, declared, model, stored
from tests.toolchains import SANITIZED, STRICT_COMPILERS, Tool, run, run_on

FORMS = ["incbin", "file"]
X, Y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [5]) for name in "xy")


def affine(x: str = "x") -> onnx.ModelProto:
    """y = w * x + b."""
    nodes = [
        helper.make_node("Mul", [x, "w"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["y"]),
    ]
    w, b = np.array([1, 2, 3, 4, 5], np.float32), np.array([-1, 0, 0, 0, -1], np.float32)
    given = [stored("w", w), stored("b", b)]
    read = helper.make_tensor_value_info(x, TensorProto.FLOAT, [5])
    return model(helper.make_graph(nodes, "g", [read], [Y], given))


def every_type() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Constants of random bits of every type, which become outputs; also strings and nothing."""
    arrays = {f"w_{dtype.name}": any_bits(dtype, 7) for dtype in ELEMENT_TYPES}
    arrays["w_empty"] = np.zeros((0, 3), np.float32)
    nodes = [helper.make_node("Identity", [name], [f"y_{name}"]) for name in arrays]
    outputs = [declared(f"y_{name}", array) for name, array in arrays.items()]
    given = [stored(name, array) for name, array in arrays.items()]
    return model(helper.make_graph(nodes, "g", [], outputs, given)), arrays


def file_of(compiled: Compiled) -> bytes:
    stream = io.BytesIO()
    compiled.write_weights(stream)
    return stream.getvalue()


def written(folder: Path, form: str, proto: onnx.ModelProto | None = None) -> Compiled:
    """m.c, m.h and m.bin in the folder."""
    compiled = compile_model(proto or affine(), name="m", weights=form)
    (folder / "m.c").write_text(compiled.c_source, encoding="ascii")
    (folder / "m.h").write_text(compiled.header, encoding="ascii")
    (folder / "m.bin").write_bytes(file_of(compiled))
    return compiled


@pytest.mark.parametrize("form", FORMS)
def test_what_the_file_holds(form: str) -> None:
    """A header, then each constant at a multiple of 64, little-endian, zeros in between."""
    content = file_of(compile_model(affine(), weights=form))
    header, rest = content[:ALIGNMENT], content[ALIGNMENT:]
    assert header[:8] == MAGIC == b"onnxc-w1"
    assert int.from_bytes(header[8:16], "little") == len(content)
    assert header[16:32] == hashlib.sha256(rest).digest()[:16]
    assert header[32:] == bytes(32)
    w, b = np.array([1, 2, 3, 4, 5], "<f4").tobytes(), np.array([-1, 0, 0, 0, -1], "<f4").tobytes()
    assert rest == w.ljust(64, b"\0") + b.ljust(64, b"\0")


def test_the_same_bytes_every_time() -> None:
    first, second = (compile_model(every_type()[0], weights="file") for _ in range(2))
    assert first.c_source == second.c_source
    assert file_of(first) == file_of(second)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.usefixtures("strict_c")
def test_every_bit_comes_back(
    compiler: str, form: str, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", tool(compiler))
    proto, arrays = every_type()
    compiled = onnxc.compile(proto, weights=form)
    assert compiled.compiled.has_weights_file
    for name, found in compiled.run({}).items():
        wanted = arrays[name.removeprefix("y_")]
        if wanted.dtype == object:
            texts = [raw.decode("utf-8", "surrogateescape") for raw in wanted]
            assert found.tolist() == texts
        else:
            assert found.tobytes() == wanted.tobytes(), name


def test_a_model_without_constants_has_no_file() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    proto = model(helper.make_graph([node], "g", [X], [Y]))
    for form in FORMS:
        compiled = compile_model(proto, name="m", weights=form)
        assert not compiled.has_weights_file
        assert (
            "eights"
            not in compiled.header.replace(f"--weights {form}", "").partition(
                "ONNXC_WEIGHTS_MISMATCH"
            )[2]
        )


@pytest.mark.parametrize("name", ["weights", "constants", "m_weights_check", "m_weights_data"])
@pytest.mark.parametrize("form", FORMS)
def test_names_of_a_model_leave_those_of_the_weights_alone(name: str, form: str) -> None:
    compiled = onnxc.compile(affine(name), name="m", weights=form)
    assert compiled.run({name: np.ones(5, np.float32)})["y"].tolist() == [0, 2, 3, 4, 4]
    inline = compile_model(affine(name), name="m")
    assert f"const float {name}[5]" in inline.header


def test_only_known_forms() -> None:
    with pytest.raises(UsageError, match="give one of inline, incbin, file"):
        onnxc.compile(affine(), weights="outside")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("compiler", STRICT_COMPILERS)
def test_no_warning(compiler: str, level: str, form: str, tool: Tool, tmp_path: Path) -> None:
    written(tmp_path, form, every_type()[0])
    program, *options = compiler.split()
    run([tool(program), *options, *STRICT, level, "-c", "m.c"], tmp_path)


PROGRAM = """
#include "m.h"
#include <stdio.h>
#include <string.h>

static m_workspace workspace;

static int status_of(const void *weights)
{
    const float x[5] = {1, 1, 1, 1, 1};
    float y[5] = {0};
    onnxc_status status = m_run(x, y, weights, &workspace);

    return status != m_run_static(x, y, weights) || (status == ONNXC_OK) != (y[4] == 4)
        ? -1
        : (int)status;
}

/* The file is the standard input, behind so many bytes of a static array. */
int main(void)
{
    static union {
        unsigned char bytes[M_WEIGHTS_ALIGNMENT * 2 + M_WEIGHTS_BYTES];
        double align;
    } room;
    const uintptr_t over = (uintptr_t)room.bytes % M_WEIGHTS_ALIGNMENT;
    unsigned char *const file = room.bytes + (over ? M_WEIGHTS_ALIGNMENT - over : 0);
    int bad = 0;

    for (size_t i = 0; i < M_WEIGHTS_BYTES; i++)
        file[i] = (unsigned char)getchar();
    bad += status_of(NULL) != ONNXC_MISALIGNED_WEIGHTS;
    bad += m_weights_check(NULL, M_WEIGHTS_BYTES) != ONNXC_MISALIGNED_WEIGHTS;
    bad += status_of(file) != ONNXC_OK;
    bad += m_weights_check(file, M_WEIGHTS_BYTES) != ONNXC_OK;
    bad += m_weights_check(file, 0) != ONNXC_WEIGHTS_MISMATCH;
    bad += m_weights_check(file, M_WEIGHTS_BYTES - 1) != ONNXC_WEIGHTS_MISMATCH;
    bad += m_weights_check(file, M_WEIGHTS_BYTES + 1) != ONNXC_WEIGHTS_MISMATCH;
    for (size_t i = 0; i < M_WEIGHTS_BYTES; i++) {
        file[i] ^= 16;
        if (i < 32)
            bad += status_of(file) != ONNXC_WEIGHTS_MISMATCH;
        if (i < 32 || i >= M_WEIGHTS_ALIGNMENT)
            bad += m_weights_check(file, M_WEIGHTS_BYTES) != ONNXC_WEIGHTS_MISMATCH;
        file[i] ^= 16;
    }
    for (size_t i = 1; i < M_WEIGHTS_ALIGNMENT; i++) {
        memmove(file + i, file + i - 1, M_WEIGHTS_BYTES);
        bad += status_of(file + i) != ONNXC_MISALIGNED_WEIGHTS;
        bad += m_weights_check(file + i, M_WEIGHTS_BYTES) != ONNXC_MISALIGNED_WEIGHTS;
    }
    printf("%d mistakes\\n", bad);
    return bad;
}
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang", "tcc"])
def test_every_misuse_has_a_status(compiler: str, tool: Tool, tmp_path: Path) -> None:
    """No weights, misaligned ones, another size, and any byte changed."""
    written(tmp_path, "file")
    (tmp_path / "main.c").write_text(PROGRAM, encoding="ascii")
    options = SANITIZED if compiler == "gcc" else ["-std=c99", "-O1"]
    run([tool(compiler), *options, "main.c", "m.c", "-o", "program"], tmp_path)
    assert run(["sh", "-c", "./program < m.bin"], tmp_path) == "0 mistakes\n"


def test_the_checksum_is_that_of_zlib(tmp_path: Path) -> None:
    content = file_of(written(tmp_path, "file"))
    assert f"0x{zlib.crc32(content[ALIGNMENT:]):08x}" in (tmp_path / "m.c").read_text()


USE = """
#include "m.h"
#include <stdio.h>

#ifdef M_WEIGHTS_BYTES
#include "bytes.h"
#define WEIGHTS (const void *)bytes.of,
#else
#define WEIGHTS
#endif

int main(void)
{
    const float x[5] = {1, 1, 1, 1, 1};
    float y[5];
    static m_workspace workspace;
    int status = (int)m_run(x, y, WEIGHTS &workspace);

    printf("%d %g %g\\n", status, (double)y[0], (double)y[4]);
    return 0;
}
"""


def use(folder: Path) -> None:
    """A program that runs the model; where the weights are given, with those of bytes.h."""
    content = (folder / "m.bin").read_bytes()
    (folder / "use.c").write_text(USE, encoding="ascii")
    (folder / "bytes.h").write_text(
        "static const struct { unsigned char of[M_WEIGHTS_BYTES]; }"
        " __attribute__((aligned(64))) bytes = {{" + ", ".join(map(str, content)) + "}};\n",
        encoding="ascii",
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("machine", ["aarch64", "riscv64"])
def test_other_machines(machine: str, form: str, tool: Tool, tmp_path: Path) -> None:
    written(tmp_path, form)
    use(tmp_path)
    files = [tmp_path / "use.c", tmp_path / "m.c"]
    assert run_on(machine, "little-endian", files, tool, tmp_path) == "0 0 4\n"


def message(compiler: str, folder: Path, *options: str) -> str:
    """What the compiler says of m.c, which it must refuse."""
    with pytest.raises(AssertionError) as raised:
        run([compiler, *options, "-c", "m.c", "-o", "m.o"], folder)
    return str(raised.value)


@pytest.mark.parametrize("form", FORMS)
def test_big_endian_machines_are_refused(form: str, tool: Tool, tmp_path: Path) -> None:
    written(tmp_path, form)
    found = message(tool("s390x-linux-gnu-gcc"), tmp_path)
    assert "the constants of m are for little-endian targets" in found


def test_tcc_cannot_include_files(tool: Tool, tmp_path: Path) -> None:
    written(tmp_path, "incbin")
    assert "this compiler has no .incbin" in message(tool("tcc"), tmp_path)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_another_size_does_not_build(
    compiler: str, change: int, tool: Tool, tmp_path: Path
) -> None:
    written(tmp_path, "incbin")
    path = tmp_path / "m.bin"
    path.write_bytes(path.read_bytes().ljust(1000, b"\0")[: path.stat().st_size + change])
    wanted = {"gcc": "has not the size of the constants of m", "clang": "invalid number of bytes"}
    assert wanted[compiler] in message(tool(compiler), tmp_path)


@pytest.mark.parametrize("command", ["gcc -O0", "gcc -O2 -flto", "clang -O2 -fPIE -pie"])
def test_a_file_in_another_place(command: str, tool: Tool, tmp_path: Path) -> None:
    """That of another model, of the same size, shows when it runs."""
    written(tmp_path, "incbin")
    use(tmp_path)
    (tmp_path / "place").mkdir()
    moved = (tmp_path / "m.bin").rename(tmp_path / "place" / "w.bin")
    compiler, *options = command.split()
    options += ['-DM_WEIGHTS_PATH="place/w.bin"', "use.c", "m.c", "-o", "program"]
    run([tool(compiler), *options], tmp_path)
    assert run([tmp_path / "program"], tmp_path) == "0 0 4\n"
    content = bytearray(moved.read_bytes())
    content[20] ^= 1
    moved.write_bytes(content)
    run([tool(compiler), *options], tmp_path)
    assert run([tmp_path / "program"], tmp_path).startswith("64 ")


def test_two_models_in_one_program(tool: Tool, tmp_path: Path) -> None:
    for name in ("one", "two"):
        compiled = compile_model(affine(), name=name, weights="incbin")
        (tmp_path / f"{name}.c").write_text(compiled.c_source, encoding="ascii")
        (tmp_path / f"{name}.h").write_text(compiled.header, encoding="ascii")
        (tmp_path / f"{name}.bin").write_bytes(file_of(compiled))
    text = '#include "one.h"\n#include "two.h"\nint main(void) { return 0; }\n'
    (tmp_path / "main.c").write_text(text, encoding="ascii")
    run([tool("gcc"), "main.c", "one.c", "two.c", "-o", "program"], tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_saved_files_can_be_verified(form: str, tmp_path: Path) -> None:
    """`verify --source` finds the weights beside the C, and tells of those of another model.

    Those in a file are checked before the run; those that the assembler included by the run.
    """
    from onnxc.verify import verify_model

    proto = affine()
    onnx.save(proto, tmp_path / "affine.onnx")
    onnxc.compile(proto, name="m", weights=form).save(tmp_path / "m.c")
    assert {path.name for path in tmp_path.iterdir()} == {"affine.onnx", "m.c", "m.h", "m.bin"}
    source = tmp_path / "m.c"
    result = verify_model(tmp_path / "affine.onnx", c_source=source, against="reference")
    assert not result.differs
    (tmp_path / "m.bin").write_bytes(bytes((tmp_path / "m.bin").stat().st_size))
    if form == "file":
        with pytest.raises(onnxc.OnnxcError, match=r"m\.bin"):
            verify_model(tmp_path / "affine.onnx", c_source=source, against="reference")
        return
    result = verify_model(tmp_path / "affine.onnx", c_source=source, against="reference")
    notes = {comparison.difference.note for comparison in result.comparisons}
    assert result.differs
    assert notes == {"the run returned status 64 (ONNXC_WEIGHTS_MISMATCH)"}
