"""Small models that take every way through the generated C: types, shapes, constants, names."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

TYPES: list[int] = list(range(TensorProto.FLOAT, TensorProto.INT2 + 1))
EQUAL_TYPES: list[int] = [
    *(TensorProto.BOOL, TensorProto.STRING, TensorProto.FLOAT, TensorProto.DOUBLE),
    *(TensorProto.FLOAT16, TensorProto.BFLOAT16),
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
]
# Of the types that do not hold all of 0 to 15: the first number that they lack.
LIMITS: dict[int, int] = {TensorProto.INT2: 2, TensorProto.UINT2: 4, TensorProto.INT4: 8}
BROADCASTS: list[tuple[list[int], list[int]]] = [
    ([], []),
    ([4], []),
    ([], [2, 3]),
    ([2, 3], [2, 3]),
    ([2, 3], [3]),
    ([2, 3], [2, 1]),
    ([3, 1, 5], [4, 1]),
    ([1, 1, 1], [4]),
    ([0, 3], [3]),
    ([2, 0], [2, 0]),
    ([2, 1, 3, 1, 2, 1, 1, 2], [1, 3, 1, 2, 2, 1, 5, 1]),
    ([2, 1, 2, 1, 2, 1, 2, 1, 2, 1], [2, 1, 1, 1, 2, 1, 1, 1, 2]),
]
STRINGS = [b"", b"a", b"a\0b", "\u00e9".encode(), b'"\\??/*/%\n', b"\x7f\x80\xff1"]
# The model whose constants are bytes in the order of a little-endian machine.
LARGE_CONSTANTS = "large_constants"
# Empty names are not names in ONNX; this one stands for bytes that are not UTF-8.
NOT_UTF8 = "not_utf8"
ODD_NAMES = [
    *("x.1", "x_1", "X_1", "int", "class", "NULL", "errno", "index", "I", "linux", "INT8_MAX"),
    *("uint_least16_t", "_Bool", "__FILE__", "workspace", "status", "onnxc_status"),
    *("odd_names", "odd_names_run", "ODD_NAMES_WORKSPACE_BYTES", "ODD_NAMES_INPUT_X_1_RANK"),
    *("3", "größe", "日本語", "a b\tc", "*/", "/*", "a*", "/", "??/", "\\", "line\nbreak", '"%d"'),
    *("i", "i0", "x", "k" * 1024, "k" * 1023 + "j", NOT_UTF8),
]


def tensor(name: str, code: int, shape: Sequence[int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def model(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    constants: Sequence[TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "*/ graph \\", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def equal(pairs: Sequence[tuple[int, list[int], list[int]]]) -> onnx.ModelProto:
    """One Equal for each pair: type, shape of A, shape of B."""
    nodes, inputs, outputs = [], [], []
    for i, (code, a, b) in enumerate(pairs):
        nodes.append(helper.make_node("Equal", [f"a{i}", f"b{i}"], [f"c{i}"]))
        inputs += [tensor(f"a{i}", code, a), tensor(f"b{i}", code, b)]
        shape = np.broadcast_shapes(tuple(a), tuple(b))
        outputs.append(tensor(f"c{i}", TensorProto.BOOL, shape))
    return model(nodes, inputs, outputs)


def identity_and_size() -> onnx.ModelProto:
    """Of every type an odd number of elements, so that the last packed byte is not full."""
    nodes, inputs, outputs = [], [], []
    for code in TYPES:
        name = TensorProto.DataType.Name(code).lower()
        nodes.append(helper.make_node("Identity", [f"in_{name}"], [f"out_{name}"]))
        nodes.append(helper.make_node("Size", [f"out_{name}"], [f"size_{name}"]))
        inputs.append(tensor(f"in_{name}", code, [7, 1]))
        outputs.append(tensor(f"out_{name}", code, [7, 1]))
        outputs.append(tensor(f"size_{name}", TensorProto.INT64, []))
    return model(nodes, inputs, outputs)


def of_type(code: int, count: int, name: str) -> TensorProto:
    """A constant of `count` elements with many different values."""
    numbers = np.arange(count)
    if code == TensorProto.STRING:
        data = [STRINGS[i % len(STRINGS)] for i in numbers]
        return TensorProto(name=name, data_type=code, dims=[count], string_data=data)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
    values = (numbers % LIMITS.get(code, 16)).astype(dtype)
    if dtype == np.float32 and count > 4:
        values[:4] = np.array([0x80000000, 0x7FC12345, 1, 0xFF800000], np.uint32).view(np.float32)
    if dtype == ml_dtypes.bfloat16 and count > 4:
        values[:2] = np.array([0x8000, 0x7FC1], np.uint16).view(ml_dtypes.bfloat16)
    return numpy_helper.from_array(values, name)


def constants(sizes: Sequence[tuple[int, int]]) -> onnx.ModelProto:
    """Initializers as outputs: type and number of elements of each."""
    data = [of_type(code, n, f"c{i}") for i, (code, n) in enumerate(sizes)]
    outputs = [tensor(f"c{i}", code, [n]) for i, (code, n) in enumerate(sizes)]
    return model([], [], outputs, data)


def compared_constants() -> onnx.ModelProto:
    nodes, inputs, outputs, data = [], [], [], []
    for i, code in enumerate(EQUAL_TYPES):
        nodes.append(helper.make_node("Equal", [f"x{i}", f"w{i}"], [f"c{i}"]))
        inputs.append(tensor(f"x{i}", code, [3, 7]))
        outputs.append(tensor(f"c{i}", TensorProto.BOOL, [3, 7]))
        data.append(of_type(code, 7, f"w{i}"))
    return model(nodes, inputs, outputs, data)


def graph_forms() -> onnx.ModelProto:
    """Input as output, one tensor as two outputs, one input twice, one not used, chains."""
    nodes = [
        helper.make_node("Equal", ["x", "x"], ["same"]),
        helper.make_node("Equal", ["x", "y"], ["rows"]),
        helper.make_node("Identity", ["rows"], ["rows2"], name="*/"),
        helper.make_node("Equal", ["rows2", "b"], ["chain"], name="??/"),
        helper.make_node("Equal", ["chain", "b3"], ["longer"], name="line\nbreak"),
        helper.make_node("Equal", ["longer", "rows"], ["longest"], name="back\\"),
        helper.make_node("Size", ["longest"], ["count"]),
        helper.make_node("Identity", ["x"], ["x2"]),
        helper.make_node("Identity", ["x2"], ["x3"]),
    ]
    boolean, real = TensorProto.BOOL, TensorProto.FLOAT
    inputs = [tensor("x", real, [4, 3]), tensor("y", real, [3]), tensor("unused", real, [2])]
    inputs += [tensor("b", boolean, [4, 1]), tensor("b3", boolean, [5, 4, 3])]
    outputs = [tensor("x", real, [4, 3]), tensor("x2", real, [4, 3]), tensor("x3", real, [4, 3])]
    outputs += [tensor(name, boolean, [4, 3]) for name in ("same", "rows", "rows2")]
    outputs += [tensor("longest", boolean, [5, 4, 3]), tensor("count", TensorProto.INT64, [])]
    return model(nodes, inputs, outputs)


def long_chain() -> onnx.ModelProto:
    """Too long for one expression, so that it needs the workspace."""
    shapes = [[2, 1, 5], [4, 1], [1], [2, 4, 5], [5]]
    nodes, value = [], "x0"
    inputs = [tensor("x0", TensorProto.BOOL, [3, 1, 1, 1])]
    for i in range(1, 100):
        nodes.append(helper.make_node("Equal", [value, f"x{i}"], [f"c{i}"]))
        inputs.append(tensor(f"x{i}", TensorProto.BOOL, shapes[i % 5]))
        value = f"c{i}"
    return model(nodes, inputs, [tensor(value, TensorProto.BOOL, [3, 2, 4, 5])])


def odd_names() -> onnx.ModelProto:
    """Inputs, outputs, nodes and the tensors between them, all with odd names."""
    nodes, inputs, outputs = [], [], []
    for name, result in zip(ODD_NAMES, reversed(ODD_NAMES), strict=True):
        between, result = f"{name}=", f"{result}!"
        nodes.append(helper.make_node("Equal", [name, name], [between], name=name))
        nodes.append(helper.make_node("Identity", [between], [result], name=result))
        inputs.append(tensor(name, TensorProto.FLOAT, [2]))
        outputs.append(tensor(result, TensorProto.BOOL, [2]))
    return model(nodes, inputs, outputs)


def models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """The stem of the file, and the model."""
    by_shape: list[tuple[int, list[int], list[int]]] = []
    by_shape += [(TensorProto.FLOAT, a, b) for a, b in BROADCASTS]
    by_shape += [(TensorProto.STRING, a, b) for a, b in BROADCASTS[:9]]
    yield "equal_shapes", equal(by_shape)
    yield "equal_types", equal([(code, [5, 1, 3], [2, 1]) for code in EQUAL_TYPES])
    yield "equal_flat", equal([(code, [33], [33]) for code in EQUAL_TYPES])
    yield "identity_and_size", identity_and_size()
    yield "constants", constants([*((code, 7) for code in TYPES), (TensorProto.FLOAT, 0)])
    yield LARGE_CONSTANTS, constants([(code, 5001) for code in TYPES])
    yield "compared_constants", compared_constants()
    yield "graph_forms", graph_forms()
    yield "long_chain", long_chain()
    yield "odd_names", odd_names()
    yield "foo", equal([(TensorProto.FLOAT, [3, 1, 5], [4, 1])])
    yield "foo_run", equal([(TensorProto.INT32, [2, 3], [3])])
    yield "NULL", equal([(TensorProto.DOUBLE, [3], [])])


def write_models(folder: Path) -> list[Path]:
    """All models as files, in order."""
    paths = []
    for stem, proto in models():
        path = folder / f"{stem}.onnx"
        raw = proto.SerializeToString(deterministic=True)
        path.write_bytes(raw.replace(NOT_UTF8.encode(), b"\xff\xfe\x80\xc3\xed\xa0\xf5!"))
        paths.append(path)
    return paths
