"""For each kind of fault something that provokes it: a model, a command line, a call from Python.

A provocation runs in an empty folder of its own and raises an OnnxcError, or is a command line,
whose messages go to standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import ModelProto, TensorProto

import onnxc
from onnxc import cli, library, pipeline
from onnxc.compiled import CompiledModel
from onnxc.diagnostics import Kind
from onnxc.op import Operator
from tests.malformed import parse, sound, sparse_tensor, with_initializer

Provocation = Callable[[pytest.MonkeyPatch], object]

EQUAL: Final = "g (float[2] x, float[2] y) => (bool[2] z) { z = Equal(x, y) }"
OPEN: Final = (
    "g (float[batch, 3] x, int64 k) => (float[n, 3] y) { y = Identity(x) z = Identity(k) }"
)
GATHER: Final = "g (float[2] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }"


def refused(text: str, /, dims: Mapping[str, int] | None = None, **fix: Any) -> Provocation:
    """Compiling a model in ONNX's text form."""
    return lambda _: onnxc.compile(parse(text), dims=dims, fix=fix)


def node(text: str, inputs: str, outputs: str = "float[M] y") -> Provocation:
    """Compiling a model of nodes between inputs and outputs."""
    return refused(f"g ({inputs}) => ({outputs}) {{ [n] {text} }}")


def changed(change: Callable[[ModelProto], object]) -> Provocation:
    """Compiling a sound model that was changed."""

    def run(_: pytest.MonkeyPatch) -> None:
        model = sound()
        change(model)
        onnxc.compile(model)

    return run


def contents(data: bytes) -> Provocation:
    """Compiling a file of these bytes."""

    def run(_: pytest.MonkeyPatch) -> int:
        Path("m.onnx").write_bytes(data)
        return cli.main(["m.onnx"])

    return run


def words(*arguments: str, text: str = EQUAL, **environment: str) -> Provocation:
    """A command line in a folder with the model m.onnx."""

    def run(patch: pytest.MonkeyPatch) -> int:
        onnx.save(parse(text), "m.onnx")
        for name, value in environment.items():
            patch.setenv(name, value)
        return cli.main(list(arguments))

    return run


def raising(error: BaseException) -> Provocation:
    """A compilation in which something unexpected happens."""

    def fail(*_: object, **__: object) -> None:
        raise error

    def run(patch: pytest.MonkeyPatch) -> int:
        patch.setattr(pipeline, "compile_model", fail)
        patch.delenv("ONNXC_DEBUG", raising=False)
        return words("m.onnx")(patch) == 0

    return run


def external(location: str) -> Provocation:
    def run(_: pytest.MonkeyPatch) -> int:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        onnx.save(with_initializer(tensor), "m.onnx")
        return cli.main(["m.onnx"])

    return run


def large_file(_: pytest.MonkeyPatch) -> int:
    with Path("m.onnx").open("wb") as file:
        file.truncate(2**31)  # takes no room on the disk
    return cli.main(["m.onnx"])


def nested(levels: int) -> str:
    """Functions of which each calls the next one in a graph inside its own."""
    functions = [
        f'<domain: "f", opset_import: ["": 21, "f": 1]> F{n} (c) => (y) {{ y = If(c)'
        f" <then_branch = t () => (u) {{ u = f.F{n + 1}(c) }}> }}"
        for n in range(levels)
    ]
    return functions_of(functions, levels, "bool")


def functions_of(functions: Sequence[str], last: int, kind: str) -> str:
    """A model that calls the first of them; the last one does nothing."""
    header = '<ir_version: 10, opset_import: ["": 21, "f": 1]>'
    own = f'<domain: "f", opset_import: ["": 21]> F{last} (x) => (y) {{ y = Identity(x) }}'
    main = f"{header} g ({kind} x) => ({kind} y) {{ y = f.F0(x) }}"
    return "\n".join([main, *functions, own])


def unrepresentable(patch: pytest.MonkeyPatch) -> None:
    """There is no such model known."""

    def fail(_: object) -> None:
        raise ValueError("what is it?")

    patch.setattr(ir, "from_proto", fail)
    onnxc.compile(sound())


def doubling(levels: int) -> str:
    """Functions of which each calls the next one twice."""
    functions = [
        f'<domain: "f", opset_import: ["": 21, "f": 1]> '
        f"F{n} (x) => (y) {{ a = f.F{n + 1}(x) y = f.F{n + 1}(a) }}"
        for n in range(levels)
    ]
    return functions_of(functions, levels, "float")


def function(body: str, call: str = "y = f.F(x)") -> Provocation:
    header = '<ir_version: 10, opset_import: ["": 21, "f": 1]>'
    own = '<domain: "f", opset_import: ["": 21, "f": 1]>'
    return refused(
        f"{header} g (float x) => (float y) {{ {call} }} {own} F (x) => (y) {{ {body} }}"
    )


def sparse(model: ModelProto) -> None:
    model.graph.sparse_initializer.append(sparse_tensor([2, 1], [2], [4], [1.0, 2.0]))


def part_not_supported(patch: pytest.MonkeyPatch) -> None:
    """No operator is without one of its attributes at present.

    A property goes before what an instance has cached.
    """
    patch.setattr(Operator, "attributes", property(lambda _: frozenset[str]()))
    node("y = Elu <alpha = 0.5> (x)", "float[2] x")(patch)


def compiled(text: str = EQUAL) -> CompiledModel:
    return onnxc.compile(parse(text))


def overlapping(_: pytest.MonkeyPatch) -> None:
    array = np.zeros(2, np.float32)
    compiled("g (float[2] x) => (float[2] y) { y = Neg(x) }").bind({"x": array}, {"y": array})


def out_of_range(_: pytest.MonkeyPatch) -> None:
    compiled(GATHER).run({"x": np.zeros(2, np.float32), "i": np.array([2], np.int64)})


def rewritten(body: str) -> Provocation:
    """Verifying C whose text was replaced."""

    def run(patch: pytest.MonkeyPatch) -> int:
        words("m.onnx", "-q")(patch)
        Path("m.c").write_text(f'#include "m.h"\n{body}\n')
        return cli.main(["verify", "m.onnx", "--source", "m.c", "--against", "reference"])

    return run


CRASHING: Final = """#include <stdlib.h>
onnxc_status m_run(const float x[2], const float y[2], uint8_t z[2], m_workspace *workspace)
{
    abort();
}"""


def other_header(patch: pytest.MonkeyPatch) -> object:
    words("m.onnx", "-q")(patch)
    Path("m.h").write_text("int main(void);\n")
    return cli.main(["verify", "m.onnx", "--source", "m.c"])


def other_weights(patch: pytest.MonkeyPatch) -> object:
    weights = "m (float[64] x) => (float[64] y) <float[64] w = {%s}> { y = Add(x, w) }"
    text = weights % ", ".join(map(str, range(64)))
    words("m.onnx", "-q", "--weights", "file", text=text)(patch)
    data = bytearray(Path("m.bin").read_bytes())
    data[-1] ^= 1
    Path("m.bin").write_bytes(data)
    return cli.main(["verify", "m.onnx", "--source", "m.c"])


def source_that_changes(patch: pytest.MonkeyPatch) -> object:
    numbers = iter(range(100))
    patch.setattr(library, "_digests", lambda _: (str(next(numbers)),))
    patch.setattr(library, "_load", lambda *_: None)
    return words("verify", "m.onnx")(patch)


def foreign_file(patch: pytest.MonkeyPatch) -> object:
    Path("m.c").write_text("int main(void) { return 0; }\n")
    return words("m.onnx")(patch)


def full_disk(patch: pytest.MonkeyPatch) -> object:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        patch.setattr("sys.stdout", full)
        status = words("ops", "Equal")(patch)
        patch.undo()
    return status


def cache_in_a_file(patch: pytest.MonkeyPatch) -> object:
    Path("file").write_text("")
    return words("verify", "m.onnx", ONNXC_CACHE_DIR="file")(patch)


def on_node(text: str, *inputs: str) -> Provocation:
    return node(text, ", ".join(inputs))


LARGE: Final = (
    "g (float[16384, 16384] x) => (float[N, M] y)"
    " { a = Softmax(x) b = Transpose(a) y = Softmax(b) }"
)
HUGE: Final = (
    "g (float[N] x) => (float[K] y) { a = Transpose(x) b = Softmax(a) c = Softmax(b)"
    " y = Softmax(c) }"
)

FILES: Final[dict[Kind, Provocation]] = {
    Kind.INTERNAL_ERROR: raising(KeyError("x")),
    Kind.OUT_OF_MEMORY: raising(MemoryError()),
    Kind.NO_SUCH_FILE: words("n.onnx"),
    Kind.UNREADABLE_FILE: words("compile", "."),
    Kind.EMPTY_FILE: contents(b""),
    Kind.NOT_A_MODEL: contents(b"int main(void);\n"),
    Kind.DAMAGED_FILE: contents(sound().SerializeToString()[:-3]),
    Kind.FILE_TOO_LARGE: large_file,
    Kind.GIT_LFS_POINTER: contents(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
    Kind.INCOMPLETE_MODEL: changed(lambda model: model.ClearField("ir_version")),
    Kind.IR_VERSION: changed(lambda model: setattr(model, "ir_version", 2)),
    Kind.OPSET_VERSION: changed(lambda model: setattr(model.opset_import[0], "version", 99)),
    Kind.OPSET_MISSING: on_node("y = other.Foo(x)", "float x"),
    Kind.NESTING_TOO_DEEP: refused(nested(40)),
    Kind.NOT_REPRESENTABLE: unrepresentable,
    Kind.EXTERNAL_DATA: external("w.bin"),
    Kind.EXTERNAL_DATA_OUTSIDE: external("../w.bin"),
    Kind.TENSOR_DATA: lambda _: onnxc.compile(
        with_initializer(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2]))
    ),
    Kind.SPARSE_TENSOR: changed(sparse),
    Kind.FUNCTION_DEFINITION: function("y = f.F(x)"),
    Kind.FUNCTION_CALL: function("y = Neg(x)", "y = f.F(x, x)"),
    Kind.FUNCTIONS_TOO_LARGE: refused(doubling(21)),
    Kind.ATTRIBUTE_ENCODING: changed(lambda model: model.graph.node[0].attribute.add(name="a")),
}

GRAPHS: Final[dict[Kind, Provocation]] = {
    Kind.NO_OUTPUTS: changed(lambda model: model.graph.ClearField("output")),
    Kind.NAME_MISSING: changed(lambda model: model.graph.output.add()),
    Kind.NAME_TAKEN: refused("g (float x) => (float y) { y = Neg(x) y = Abs(x) }"),
    Kind.VALUE_UNDEFINED: on_node("y = Neg(image)", "float images"),
    Kind.NODES_UNSORTED: refused("g (float x) => (float y) { y = Neg(a) a = Abs(x) }"),
    Kind.CYCLE: refused("g (float x) => (float y) { a = Add(x, y) y = Neg(a) }"),
    Kind.OUTPUT_UNMADE: refused("g (float x) => (float z) { y = Neg(x) }"),
    Kind.DECLARATION_CONFLICT: refused("g (float[2] x) => (float[3] x) {}"),
    Kind.TYPE_MISSING: changed(lambda model: model.graph.input[0].ClearField("type")),
    Kind.NEGATIVE_DIMENSION: changed(
        lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -2)
    ),
    Kind.TENSOR_TOO_LARGE: on_node("y = Neg(x)", f"float[{2**40}, {2**40}] x"),
    Kind.RANK_TOO_LARGE: on_node("y = Neg(x)", f"float[{', '.join('1' * 65)}] x"),
    Kind.NOT_A_TENSOR: node("y = Identity(x)", "seq(float[2]) x", "seq(float[2]) y"),
    Kind.ELEMENT_TYPE: changed(
        lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 77)
    ),
}

MS: Final = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>'
ML: Final = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 5]>'
NEW: Final = '<ir_version: 11, opset_import: ["": 26]>'
OLD: Final = '<ir_version: 10, opset_import: ["": 6]>'

NODES: Final[dict[Kind, Provocation]] = {
    Kind.UNKNOWN_OPERATOR: on_node("y = Reluu(x)", "float[2] x"),
    Kind.CUSTOM_DOMAIN: refused(
        f"{MS} g (float[2] x) => (float[2] y) {{ y = com.microsoft.QuickGelu(x) }}"
    ),
    Kind.OPERATOR_TOO_NEW: refused(f"{OLD} g (float[2] x) => (float[2] y) {{ y = Mish(x) }}"),
    Kind.OPERATOR_DEPRECATED: refused(
        f"{ML} g (float[1, 2] x) => (float[1, 2] y)"
        " { l, y = ai.onnx.ml.TreeEnsembleClassifier(x) }"
    ),
    Kind.OPERAND_COUNT: on_node("y = Neg(x, x)", "float[2] x"),
    Kind.OPERAND_LEFT_OUT: on_node('y = MatMul("", x)', "float[2] x"),
    Kind.UNKNOWN_ATTRIBUTE: on_node("y = Softmax <axes = 1> (x)", "float[2] x"),
    Kind.ATTRIBUTE_TYPE: on_node("y = Softmax <axis = 1.0> (x)", "float[2] x"),
    Kind.ATTRIBUTE_MISSING: on_node("y = Cast(x)", "float[2] x"),
    Kind.OPERAND_TYPE: on_node("y = Sqrt(x)", "int64[2] x"),
    Kind.OPERAND_TYPES_DIFFER: on_node("y = Add(x, k)", "float[2] x", "int64[2] k"),
    Kind.DECLARED_TYPE: node("y = Neg(x)", "float[2] x", "double[2] y"),
    Kind.DECLARED_SHAPE: node("y = Neg(x)", "float[2] x", "float[3] y"),
    Kind.INFERENCE_FAILED: refused(
        f"{NEW} g (float[2] x) => (double[2] y) {{ [n] y = BitCast <to = 11> (x) }}"
    ),
}

OPERATORS: Final[dict[Kind, Provocation]] = {
    Kind.AXIS_OUT_OF_RANGE: on_node(
        "y = LayerNormalization <axis = 5> (x, s)", "float[2, 3] x", "float[3] s"
    ),
    Kind.AXIS_TWICE: refused(
        "g (float[2, 3] x) => (float[M] y) <int64[2] a = {0, 0}> { y = ReduceSum(x, a) }"
    ),
    Kind.SHAPES_DO_NOT_BROADCAST: on_node(
        "y = Gemm(a, b, c)", "float[2, 3] a", "float[3, 4] b", "float[5] c"
    ),
    Kind.ATTRIBUTE_VALUE: on_node('y = Gelu <approximate = "fast"> (x)', "float[2] x"),
    Kind.ATTRIBUTES_CONFLICT: on_node(
        'y = MaxPool <kernel_shape = [2], pads = [1, 1], auto_pad = "SAME_UPPER"> (x)',
        "float[1, 1, 8] x",
    ),
    Kind.OPERAND_RANK: on_node("y = DepthToSpace <blocksize = 2> (x)", "float[4, 2] x"),
    Kind.OPERAND_SHAPE: on_node("y = Concat <axis = 0> (a, b)", "float[2, 3] a", "float[2, 4] b"),
    Kind.ENTRY_COUNT: refused(
        "g (float[2, 3] x) => (float[M, N] y) <int64[3] p = {1, 1, 1}> { y = Pad(x, p) }"
    ),
    Kind.RESHAPE: refused(
        "g (float[2, 3] x) => (float[M] y) <int64[1] s = {4}> { [n] y = Reshape(x, s) }"
    ),
    Kind.CHANNELS_AND_GROUPS: on_node("y = Conv(x, w)", "float[1, 3, 8] x", "float[4, 2, 3] w"),
    Kind.WINDOW_TOO_LARGE: on_node("y = Conv(x, w)", "float[1, 2, 2] x", "float[4, 2, 3] w"),
    Kind.INNER_DIMENSIONS: on_node(
        'y = Einsum <equation = "ij,jk->ik"> (a, b)', "float[2, 3] a", "float[4, 5] b"
    ),
    Kind.EINSUM_EQUATION: on_node('y = Einsum <equation = "ij->i"> (a)', "float[2] a"),
    Kind.PERMUTATION: on_node("y = Transpose <perm = [0, 0]> (x)", "float[2, 3] x"),
    Kind.INDICES_SHAPE: on_node(
        "y = GatherElements <axis = 0> (x, i)", "float[2, 3] x", "int64[2, 4] i"
    ),
    Kind.NO_ELEMENTS: on_node("y = ArgMax <axis = 0, keepdims = 0> (x)", "float[0] x"),
    Kind.BLOCKS: on_node("y = DepthToSpace <blocksize = 2> (x)", "float[1, 3, 2, 2] x"),
    Kind.QUANTIZATION_PARAMETER: on_node(
        "y = DequantizeLinear <axis = 1> (x, s)", "int8[2, 3] x", "float[4] s"
    ),
    Kind.NOT_ONE_ELEMENT: on_node("y = Clip(x, low)", "float[3] x", "float[2] low"),
    Kind.RESULT_SHAPE: node("y = Reshape(x, s)", "float[2, 3] x, int64[2] s", "float[2, 4] y"),
    Kind.NUMBER_OUT_OF_RANGE: refused(
        "g (float[3] x) => (float[M] y) <int64[1] o = {1}, int64[1] z = {0}>"
        ' { [n] y = Slice(x, o, o, "", z) }'
    ),
    Kind.PADS: refused(
        "g (float[0] x) => (float[M] y) <int64[2] p = {1, 1}>"
        ' { [n] y = Pad <mode = "edge"> (x, p) }'
    ),
    Kind.ATTENTION_HEADS: refused(
        f"{NEW} g (float[1, 2, 4] q, float[1, 2, 1] c) => (float[A, B, C] y)"
        " { [n] y = RotaryEmbedding <num_heads = 3> (q, c, c) } "
    ),
    Kind.SPLIT_SIZES: refused(
        "g (float[4] x) => (float[M] y, float[N] z) <int64[2] s = {1, 2}>"
        " { [n] y, z = Split <axis = 0> (x, s) }"
    ),
    Kind.RECURRENT_LAYER: on_node(
        "y = RNN <hidden_size = 5> (x, w, r)",
        "float[2, 1, 3] x",
        "float[1, 4, 3] w",
        "float[1, 4, 4] r",
    ),
}

UNSUPPORTED: Final[dict[Kind, Provocation]] = {
    Kind.OPERATOR_NOT_SUPPORTED: on_node("y = Bernoulli(x)", "float[2] x"),
    Kind.CAST_NOT_SUPPORTED: node("y = Cast <to = 8> (x)", "float[2] x", "string[2] y"),
    Kind.PART_NOT_SUPPORTED: part_not_supported,
    Kind.SHAPE_UNKNOWN: on_node("y = Tile(x, r)", "float[2] x", "int64[1] r"),
    Kind.CONSTANT_REQUIRED: on_node("y = Dropout(x, r, t)", "float[2] x", "float r", "bool t"),
    Kind.SIZE_FROM_DATA: refused("g (float[2] x) => (int64[M] y) { a = NonZero(x) y = Neg(a) }"),
    Kind.OLD_VERSION: refused(
        '<ir_version: 10, opset_import: ["": 10]>'
        " g (int8[2, 3] x, float[3] s) => (float[2, 3] y) { y = DequantizeLinear(x, s) }"
    ),
    Kind.TRAINING_MODE: refused(
        "g (float[2] x) => (float[M] y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }"
    ),
    Kind.TYPE_NOT_SUPPORTED: on_node("y = Unique(x)", "complex64[2] x"),
    Kind.MEMORY_TOO_LARGE: refused(HUGE, {"N": 2**60}),
    Kind.LARGE_WORKSPACE: words("m.onnx", "-q", text=LARGE),
    Kind.RUN_TIME_BRANCH: node(
        "y = If (c) <then_branch = t () => (float u) { u = Neg(x) },"
        " else_branch = e () => (float u) { u = Abs(x) }>",
        "bool c, float x",
    ),
}

OPTIONS: Final[dict[Kind, Provocation]] = {
    Kind.OPEN_DIMENSIONS: words("m.onnx", text=OPEN),
    Kind.UNKNOWN_RANK: changed(
        lambda model: model.graph.input[0].type.tensor_type.ClearField("shape")
    ),
    Kind.UNKNOWN_DIMENSION: words("m.onnx", "--dim", "bach=2", "--dim", "n=1", text=OPEN),
    Kind.DIMENSION_CONFLICT: words("m.onnx", "--dim", "x:1=4", "--dim", "batch=1", text=OPEN),
    Kind.DIMENSION_SIZE: words("m.onnx", "--dim", "batch=-1"),
    Kind.DIMENSION_RANGE: words("m.onnx", "--dim", "batch=1..64"),
    Kind.UNKNOWN_INPUT: words("m.onnx", "--fix", "kk=1", text=OPEN),
    Kind.FIX_VALUE: words("m.onnx", "--fix", "k=1,2", "--dim", "batch=1", text=OPEN),
    Kind.FIX_OPEN_SHAPE: words("m.onnx", "--fix", "x=1", text=OPEN),
    Kind.FIX_TYPE: refused("g (string x) => (string y) { y = Identity(x) }", x="a"),
    Kind.FIX_CONFLICT: words("m.onnx", "--fix", "k=1", "--fix", "k=2"),
    Kind.COMMAND_LINE: words("m.onnx", "--frce"),
    Kind.UNKNOWN_VERB: words("verfy"),
    Kind.OPTIONS_CONFLICT: words("m.onnx", "-q", "-v"),
    Kind.OUTPUT_NAME: words("m.onnx", "-o", "m.h"),
    Kind.MODEL_NAME: words("m.onnx", "--name", "int"),
    Kind.LICENSE: words("m.onnx", "--license", "mine!"),
    Kind.UNKNOWN_PASS: words("m.onnx", "--dump-after", "lowr"),
    Kind.UNKNOWN_OPERATOR_PAGE: words("ops", "Equall"),
    Kind.UNKNOWN_CODE: words("explain", "ONNXC9999"),
    Kind.ARGUMENT: lambda _: onnxc.compile(sound(), target="pdp11"),
}

OUTSIDE: Final[dict[Kind, Provocation]] = {
    Kind.NO_COMPILER: words("verify", "m.onnx", CC="no-such-compiler"),
    Kind.COMPILER_FAILED: words("verify", "m.onnx", CC="false"),
    Kind.LIBRARY_UNUSABLE: rewritten("extern int nothing;"),
    Kind.CACHE_FOLDER: cache_in_a_file,
    Kind.CANNOT_WRITE: words("m.onnx", "-o", "no/m.c"),
    Kind.FILE_NOT_OURS: foreign_file,
    Kind.STANDARD_OUTPUT: full_disk,
    Kind.SOURCE_CHANGED: source_that_changes,
    Kind.COMPILER_OPTIONS: words("verify", "m.onnx", ONNXC_CFLAGS="'"),
    Kind.SYSTEM_ERROR: raising(OSError("No space left on device")),
    Kind.INPUT_ARRAYS: lambda _: compiled().run({"x": np.zeros(3, np.float32)}),
    Kind.ARRAYS_OVERLAP: overlapping,
    Kind.RUN_STATUS: out_of_range,
    Kind.CRASH: rewritten(CRASHING),
    Kind.INPUT_FILE: words("verify", "m.onnx", "--inputs", "m.onnx"),
    Kind.WRONG_SOURCE: other_header,
    Kind.WRONG_WEIGHTS: other_weights,
}

PROVOKED: Final[Mapping[Kind, Provocation]] = {
    **FILES,
    **GRAPHS,
    **NODES,
    **OPERATORS,
    **UNSUPPORTED,
    **OPTIONS,
    **OUTSIDE,
}
