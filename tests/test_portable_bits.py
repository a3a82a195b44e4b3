"""--portable-bits: float results have the same bits with every compiler and on every processor.

The four tiny networks of ../shared/bench, where it is there, an LSTM, and a network of every kind
of kernel, whose outputs a program prints as hashes of their bits.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

import onnxc
from onnxc.compiled import CompiledModel
from onnxc.emit import module
from onnxc.pipeline import Compiled, compile_model
from tests.command_line import onnxc as command
from tests.conftest import ROOT
from tests.kernels.variants import require_processor
from tests.models import STRICT, float_network
from tests.test_memory_plans import builder
from tests.toolchains import CORES, STRICT_COMPILERS, Core, Tool, run, run_on, run_on_core

TINY: Final = {"autoencoder": "ad", "dscnn": "dscnn", "mobilenet": "mobilenet", "resnet": "resnet8"}
"""Names, and the functions of ../shared/bench/build_models.py."""
FLAGS: Final = {
    "s390x": "-fexcess-precision=fast",
    "aarch64": "",
    "riscv64": "",
    "i686": "-msse2 -mfpmath=sse",
}
"""What gcc -std=c99 needs on a machine so that floats are computed as floats."""
ORDERS: Final = {"s390x": "big-endian"}
OWN: Final = ("lstm", "mixed")
HOST: Final = ["gcc -O2", "clang -O3", "tcc"]
LEVELS: Final = [
    *(f"{compiler} -std=c99 -O{level}" for compiler in ("gcc", "clang") for level in range(4)),
    "gcc -O3 -march=native -ffp-contract=fast",
    "clang -O3 -march=native",
]
"""For the networks of OWN alone, which compile sooner."""
ALONE: Final = {"-march=x86-64": "sse2", "-march=x86-64 -mavx2 -mfma": "avx2"}
"""Flags that without dispatch leave one variant, and what it needs of the processor."""
FUSED: Final = re.compile(r"\bv?f(?:n?m(?:add|sub|la|ls)|ma)\w*")
"""The instructions of x86-64, Arm and RISC-V that round a product and its sum once."""
MAIN: Final = """
static void run_{name}(void)
{{
    static float x[{inputs}], y[{outputs}];
    uint32_t state = 1, hash = 2166136261u;
    int status;

    for (int n = 0; n < {inputs}; n++) {{
        state = state * 1664525u + 1013904223u;
        x[n] = (float)((int32_t)(state >> 16) - 32768) / 16384.0f;
    }}
    status = (int){name}_run_static(x, y);
    for (int n = 0; n < {outputs}; n++) {{
        uint32_t bits;

        memcpy(&bits, y + n, sizeof bits);
        hash = (hash ^ bits) * 16777619u;
    }}
    printf("{name} %d %08lx\\n", status, (unsigned long)hash);
}}
"""


def mixed() -> ModelProto:
    """Convolutions of each kind, whose sums tuned kernels and plain loops add up, functions of
    every element, means, products of two run-time operands, and narrow products.
    """
    random = np.random.default_rng(0)
    constants: dict[str, NDArray[Any]] = {}
    nodes: list[NodeProto] = []

    def node(operator: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def weight(*shape: int) -> str:
        name = f"w{len(constants)}"
        constants[name] = random.standard_normal(shape) / math.prod(shape[1:]) ** 0.5
        return name

    def conv(x: str, *shape: int, **attributes: Any) -> str:
        return node("Conv", x, weight(*shape), weight(shape[0]), **attributes)

    around = {"pads": [1, 1, 1, 1]}
    x = node("Tanh", conv("x", 12, 3, 3, 3, **around, strides=[2, 2]))
    x = node("Add", x, conv(x, 12, 12, 3, 3, **around))
    spread = {"pads": [2, 2, 2, 2], "dilations": [2, 2], "group": 12}
    x = node("Erf", node("Mul", x, conv(x, 12, 1, 3, 3, **spread)))
    x = node("Softplus", conv(x, 20, 12, 1, 1))
    rows = node("Reshape", x, "rows")
    scores = node("MatMul", node("Transpose", rows, perm=[1, 0]), rows)
    x = node("MatMul", rows, node("Softmax", scores, axis=-1))
    x = node("ReduceMean", x, "last", keepdims=0)
    x = node("Exp", node("Gemm", node("Unsqueeze", x, "first"), weight(20, 30), weight(30)))
    x = node("Gemm", node("Log", node("Add", x, "one")), weight(30, 7), weight(7))
    nodes.append(helper.make_node("Softmax", [x], ["y"], axis=1))
    constants["one"] = np.ones(1)
    network = float_network(nodes, {"x": (1, 3, 18, 14)}, (1, 7), constants)
    for name, values in {"rows": [20, 63], "last": [1], "first": [0]}.items():
        network.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return network


def lstm() -> ModelProto:
    """8 times, 12 inputs and 20 hidden units, which no vector divides."""
    random = np.random.default_rng(0)
    shapes = {"w": (1, 80, 12), "r": (1, 80, 20), "b": (1, 160)}
    constants = {name: random.standard_normal(shape) * 0.3 for name, shape in shapes.items()}
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=20)
    return float_network([node], {"x": (8, 1, 12)}, (8, 1, 1, 20), constants)


@dataclass(frozen=True)
class Sources:
    """A folder with NAME.c and NAME.h of every network, and main.c that runs `names` of them."""

    folder: Path
    names: list[str]

    @property
    def files(self) -> list[Path]:
        return [*self.models, self.folder / "main.c"]

    @property
    def models(self) -> list[Path]:
        return [self.folder / f"{name}.c" for name in self.names]

    @property
    def without_dispatch(self) -> list[str]:
        return [f"-D{name.upper()}_NO_DISPATCH" for name in self.names]


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | ModelProto]:
    found: dict[str, Path | ModelProto] = {"lstm": lstm(), "mixed": mixed()}
    bench = ROOT.parent / "shared" / "bench" / "build_models.py"
    if not bench.exists():
        return found
    with pytest.MonkeyPatch.context() as patch:
        script = builder(bench, patch)
        for name, function in TINY.items():
            folder = tmp_path_factory.mktemp(name)
            patch.setattr(script, "OUT", str(folder))
            getattr(script, function)()
            (found[name],) = folder.glob("*.onnx")
    return found


def written(networks: Mapping[str, Path | ModelProto], folder: Path, target: str) -> Sources:
    functions = []
    for name, source in networks.items():
        compiled = compile_model(source, name=name, target=target, portable_bits=True)
        (folder / f"{name}.h").write_text(compiled.header, encoding="ascii")
        with (folder / f"{name}.c").open("w", encoding="ascii") as stream:
            compiled.write_c(stream)
        sizes = {"inputs": compiled.inputs, "outputs": compiled.outputs}
        counts = {key: math.prod(ports[0].shape) for key, ports in sizes.items()}
        functions.append(MAIN.format(name=name, **counts))
    includes = "".join(f'#include "{name}.h"\n' for name in networks)
    calls = "".join(f"    run_{name}();\n" for name in networks)
    text = f"#include <stdio.h>\n#include <string.h>\n{includes}{''.join(functions)}"
    text += f"\nint main(void)\n{{\n{calls}    return 0;\n}}\n"
    (folder / "main.c").write_text(text, encoding="ascii")
    return Sources(folder, [*networks])


@pytest.fixture(scope="module")
def sources(
    networks: Mapping[str, Path | ModelProto], tmp_path_factory: pytest.TempPathFactory
) -> Sources:
    """For any target."""
    return written(networks, tmp_path_factory.mktemp("generic"), "generic")


@pytest.fixture(scope="module")
def own_sources(
    networks: Mapping[str, Path | ModelProto], tmp_path_factory: pytest.TempPathFactory
) -> Sources:
    """Of the networks of OWN."""
    few = {name: networks[name] for name in OWN}
    return written(few, tmp_path_factory.mktemp("own"), "generic")


@pytest.fixture(scope="module")
def small_sources(
    networks: Mapping[str, Path | ModelProto], tmp_path_factory: pytest.TempPathFactory
) -> Sources:
    """For microcontrollers."""
    return written(networks, tmp_path_factory.mktemp("cortex"), "cortex-m4")


def printed(compiler: str, sources: Sources, tool: Tool, folder: Path) -> str:
    name, *options = shlex.split(compiler)
    run([tool(name), *options, *sources.files, "-lm", "-o", "program"], folder)
    return run([folder / "program"], folder)


@pytest.fixture(scope="module")
def expected(sources: Sources, tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What plain C prints: no optimisation, no vectors."""
    options = ["-std=c99 -O0 -march=x86-64 -U__SSE2__", *sources.without_dispatch]
    text = printed(f"gcc {' '.join(options)}", sources, tool, tmp_path_factory.mktemp("plain"))
    assert re.findall(r"^(\w+) 0 ", text, re.MULTILINE) == sources.names
    return text


@pytest.mark.parametrize("compiler", HOST)
def test_compilers(
    compiler: str, sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    """The processor's best vectors, but for tcc, which has none."""
    assert printed(compiler, sources, tool, tmp_path) == expected


@pytest.mark.parametrize("compiler", LEVELS)
def test_levels(
    compiler: str, own_sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    lines = [line for line in expected.splitlines() if line.split()[0] in OWN]
    assert printed(compiler, own_sources, tool, tmp_path).splitlines() == lines


@pytest.mark.parametrize("flags", ALONE)
def test_vectors_of_fewer_lanes(
    flags: str, sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    require_processor(ALONE[flags])
    options = " ".join([flags, *sources.without_dispatch])
    assert printed(f"gcc -O2 {options}", sources, tool, tmp_path) == expected


@pytest.mark.parametrize("machine", FLAGS)
def test_machines(
    machine: str, sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    order = ORDERS.get(machine, "little-endian")
    options = [*shlex.split(FLAGS[machine]), "-lm"]
    assert run_on(machine, order, sources.files, tool, tmp_path, *options) == expected


@pytest.mark.parametrize("core", CORES, ids=str)
def test_microcontrollers(
    core: Core, small_sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    """Without and with instructions for floats; the C for them has kernels of its own."""
    far = '__attribute__((section(".far")))'
    places = [f"-D{name.upper()}_CONST_ATTR={far}" for name in small_sources.names]
    options = [*(places if core.far else []), "-lm"]
    assert run_on_core(core, small_sources.files, tool, tmp_path, *options) == expected


def test_the_target_makes_no_difference(
    small_sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    assert printed("gcc -O1", small_sources, tool, tmp_path) == expected


@pytest.mark.parametrize("compiler", STRICT_COMPILERS)
def test_no_warning(compiler: str, own_sources: Sources, tool: Tool, tmp_path: Path) -> None:
    name, *options = compiler.split()
    run([tool(name), *options, *STRICT, "-O1", "-c", *own_sources.models], tmp_path)


@pytest.mark.parametrize(
    "compiler",
    [
        "gcc -O2 -march=x86-64-v3 -ffp-contract=fast",
        "clang -O2 -march=x86-64-v3",
        "aarch64-linux-gnu-gcc -O2 -ffp-contract=fast",
        "riscv64-linux-gnu-gcc -O2",
    ],
)
def test_no_product_is_fused(
    compiler: str, own_sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    """Whatever the flags say, in the variants for processors that can do it too."""
    name, *options = compiler.split()
    run([tool(name), *options, "-S", *own_sources.models], tmp_path)
    for listing in tmp_path.glob("*.s"):
        assert not FUSED.findall(listing.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("compiler", "remedy"),
    [
        ("gcc -O2 -ffast-math", "build without"),
        ("gcc -O2 -fassociative-math -fno-signed-zeros -fno-trapping-math", "build without"),
        ("clang -O2 -ffast-math", "build without"),
        ("i686-linux-gnu-gcc -std=c99", "-msse2 -mfpmath=sse"),
        ("s390x-linux-gnu-gcc -std=c99", "-fexcess-precision=fast"),
    ],
)
def test_flags_that_change_bits_are_refused(
    compiler: str, remedy: str, own_sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    name, *options = compiler.split()
    words = [tool(name), *options, "-fsyntax-only", str(own_sources.models[0]), "2>&1 || true"]
    assert remedy in run(["sh", "-c", " ".join(words)], tmp_path)


@pytest.mark.parametrize("make", [mixed, lstm])
def test_the_values_are_those_without_it(make: Callable[[], ModelProto]) -> None:
    source = make()
    value = source.graph.input[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    portable, default = (
        CompiledModel(compile_model(source, portable_bits=choice)).run({"x": x})["y"]
        for choice in (True, False)
    )
    np.testing.assert_allclose(portable, default, rtol=1e-4, atol=1e-6)


def table() -> Compiled:
    """A model with a constant that is written as an image of bytes by default."""
    values = np.arange(5000, dtype=np.float32)
    node = helper.make_node("Add", ["x", "c"], ["y"])
    return compile_model(
        float_network([node], {"x": (5000,)}, (5000,), {"c": values}), portable_bits=True
    )


def test_constants_have_no_order_of_bytes() -> None:
    text = table().c_source
    assert "bytes[" not in text
    assert "0x459c3800u" in text  # 4999
    assert "__ORDER_LITTLE_ENDIAN__" not in text


def test_large_models_are_for_little_endian_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many numbers would take compilers minutes."""
    monkeypatch.setattr(module, "MOST_BITS", 19_999)
    assert "for little-endian targets" in table().c_source


def test_the_banner_says_so(tmp_path: Path) -> None:
    onnx.save(lstm(), tmp_path / "m.onnx")
    command("m.onnx", "--portable-bits", cwd=tmp_path)
    assert "Options: --portable-bits." in (tmp_path / "m.h").read_text(encoding="ascii")


def test_python_has_it_too() -> None:
    assert "portable" not in onnxc.compile(lstm()).c_source
    assert "build with -msse2" in onnxc.compile(lstm(), portable_bits=True).c_source
