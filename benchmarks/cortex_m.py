"""The tiny networks on a Cortex-M4: bytes of code, constants and RAM, instructions per inference.

    python benchmarks/cortex_m.py [--markdown] [--keep FOLDER] [--kernels] [dscnn ...]

Each network is compiled twice with --target cortex-m4, for speed and built with -O2, and for size
and built with -Os, and runs in QEMU (mps2-an386). Its outputs are compared with those of the same
model on the host. Instructions are counted exactly, by a plugin of QEMU; they are no cycles. A
column "onnx2c" is what that compiler's C takes, built with -Os. The exit status is 1 where a result
is wrong or a figure passes its limit: .text at -Os twice onnx2c's, .rodata 1.02 times, RAM once;
for speed two instructions for each multiplication of a network of convolutions. --kernels prints
instead what each kernel takes, and how much that is for each of its multiply-accumulates.

Needs arm-none-eabi-gcc, picolibc and qemu-system-arm, and says so where they are missing.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx

import harness
import onnxc
from network_models import NETWORKS, Network, model_file, random_inputs
from onnxc import library
from onnxc.emit.profile import kernel_label
from onnxc.kernel_numbers import numbered
from onnxc.pipeline import Compiled, compile_model
from onnxc.report import work

if TYPE_CHECKING:
    from numpy.typing import NDArray

GCC, SIZE, QEMU = "arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm"
COMPILE: Final = shlex.split(
    "--specs=picolibc.specs -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -std=c99 "
    "-ffunction-sections -fdata-sections"
)
LINK: Final = shlex.split(
    "--crt0=hosted --oslib=semihost -Wl,--gc-sections -T picolibc.ld -Wl,--defsym=__flash=0 "
    "-Wl,--defsym=__flash_size=4M -Wl,--defsym=__ram=0x20000000 -Wl,--defsym=__ram_size=3M "
    "-Wl,--defsym=__stack_size=8k"
)
MARKS: Final = {"begun": 0x20300000, "ended": 0x20310000}
"""Addresses in RAM that nothing else uses: a store to the byte of a kernel tells the plugin."""
EMULATE: Final = shlex.split(
    "-M mps2-an386 -nographic -monitor none -serial none -chardev stdio,id=console "
    "-semihosting-config enable=on,target=native,chardev=console"
)
PLUGIN: Final = Path(__file__).parents[1] / "examples" / "cortex_m" / "count_instructions.c"
GOALS: Final = {"speed": "-O2", "size": "-Os"}
TOLERANCE: Final = 1e-4
"""Of the largest value of an output."""
MOST_PER_PRODUCT: Final = 2.0
PATIENCE: Final = 120.0
"""Seconds that one run may take."""


@dataclass(frozen=True)
class Peer:
    """Bytes that onnx2c's C of a network takes."""

    text: int
    rodata: int
    ram: int


PEERS: Final = {
    "mobilenetv1": Peer(3_652, 843_392, 294_912),
    "resnet8": Peer(2_224, 310_848, 196_608),
    "dscnn": Peer(1_016, 90_432, 64_000),
    "autoencoder": Peer(548, 1_063_456, 1_024),
}


@dataclass(frozen=True)
class Result:
    """What a network takes; bytes, and instructions of one inference."""

    network: str
    goal: str
    text: int
    rodata: int
    ram: int
    instructions: int
    products: int
    has_convolutions: bool
    error: float

    @property
    def per_product(self) -> float:
        return self.instructions / self.products

    @property
    def problems(self) -> list[str]:
        """What is wrong or passes its limit."""
        peer = PEERS[self.network]
        found = []
        if not self.error <= TOLERANCE:
            found.append(f"the outputs differ by {self.error:.1e}")
        if self.goal == "size" and self.text > 2 * peer.text:
            found.append(f".text {self.text:,} of {2 * peer.text:,}")
        if self.rodata > 1.02 * peer.rodata:
            found.append(f".rodata {self.rodata:,} of {1.02 * peer.rodata:,.0f}")
        if self.ram > peer.ram:
            found.append(f"RAM {self.ram:,} of {peer.ram:,}")
        quick = self.goal != "speed" or not self.has_convolutions
        if not quick and self.per_product > MOST_PER_PRODUCT:
            found.append(f"{self.per_product:.2f} instructions a multiplication")
        return found


def output_of(command: Sequence[str | Path]) -> tuple[str, str]:
    """Standard output and error. Raises UnavailableError where the command fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise harness.UnavailableError(str(error)) from None
    if done.returncode:
        raise harness.UnavailableError(f"{command[0]} failed: {done.stderr[-500:]}")
    return done.stdout, done.stderr


def missing() -> str:
    """Why nothing can be measured here; "" where it can."""
    tools = [tool for tool in (GCC, SIZE, QEMU, "gcc") if shutil.which(tool) is None]
    if tools:
        return f"{', '.join(tools)} not found (gcc-arm-none-eabi, qemu-system-arm)"
    try:
        output_of([GCC, "--specs=picolibc.specs", "-E", "-x", "c", "/dev/null"])
    except harness.UnavailableError:
        return "no picolibc (picolibc-arm-none-eabi)"
    return ""


def measured(network: Network, goal: str, options: argparse.Namespace, folder: Path) -> Result:
    """Compiles, builds and runs one network; what is written stays in `folder`."""
    path = model_file(network, options.models)
    compiled = compile_model(path, name="network", target="cortex-m4", optimize=goal)
    inputs = random_inputs(path)
    built = build(compiled, inputs, GOALS[goal], folder)
    text, rodata = (section_bytes(built, name) for name in (".text", ".rodata"))
    once, twice = (run(folder, GOALS[goal], calls) for calls in (1, 2))
    right = onnxc.compile(path).run(inputs)
    expected = np.concatenate([right[output.name].ravel() for output in compiled.outputs])
    if once[0].shape != expected.shape:
        raise harness.UnavailableError(f"it printed {once[0].size} of {expected.size} values")
    products, has_convolutions = products_of(path)
    return Result(
        network.name,
        goal,
        text,
        rodata,
        compiled.workspace_size,
        twice[1] - once[1],
        products,
        has_convolutions,
        float(np.abs(once[0] - expected).max() / np.abs(expected).max()),
    )


@dataclass(frozen=True)
class KernelCount:
    """Instructions of a kernel in one inference, with its call."""

    network: str
    goal: str
    label: str
    instructions: int
    products: int

    def row(self) -> list[str]:
        each = f"{self.instructions / self.products:.2f}" if self.products else ""
        name = f"{self.network}, {self.goal}: {self.label}"
        return [name, f"{self.instructions:,}", f"{self.products:,}", each]


def kernels(
    network: Network, goal: str, options: argparse.Namespace, folder: Path
) -> list[KernelCount]:
    """What each kernel takes, in the order of the calls; last what is in between."""
    path = model_file(network, options.models)
    compiled = compile_model(path, name="network", target="cortex-m4", optimize=goal, profile=True)
    marks = "".join(
        f"#define NETWORK_KERNEL_{mark}(k) (kernels_{name}[k] = 0)\n"
        for mark, name in (("BEGIN", "begun"), ("END", "ended"))
    )
    declared = "extern volatile uint8_t kernels_begun[], kernels_ended[];\n"
    (folder / "marks.h").write_text(f"#include <stdint.h>\n{declared}{marks}", encoding="ascii")
    hooks = ["-include", str(folder / "marks.h")]
    build(compiled, random_inputs(path), GOALS[goal], folder, hooks)
    counts = {}
    once, twice = (run(folder, GOALS[goal], calls, marked=calls == 1) for calls in (1, 2))
    for line in once[2].splitlines():
        if line.startswith("kernel "):
            number, _, told = line.removeprefix("kernel ").partition(": ")
            counts[int(number)] = int(told.split()[0])
    steps = {number: step for step, number in numbered(compiled.program).items()}
    found = [(kernel_label(steps[n]), counts[n], work.products(steps[n]).total()) for n in counts]
    between = twice[1] - once[1] - sum(counts.values())
    return [
        KernelCount(network.name, goal, *facts) for facts in (*found, ("between them", between, 0))
    ]


def build(
    compiled: Compiled,
    inputs: dict[str, NDArray[Any]],
    level: str,
    folder: Path,
    hooks: Sequence[str] = (),
) -> Path:
    """The object file of the model; writes the program that runs it, too."""
    with (folder / "network.c").open("w", encoding="ascii") as stream:
        compiled.write_c(stream, "network.h")
    (folder / "network.h").write_text(compiled.header, encoding="ascii")
    (folder / "main.c").write_text(program(compiled, inputs), encoding="ascii")
    built = folder / "network.o"
    flags = [*COMPILE, level, "-DNETWORK_NO_STATIC_WORKSPACE", *hooks]
    output_of([GCC, *flags, "-c", folder / "network.c", "-o", built])
    return built


def program(compiled: Compiled, inputs: dict[str, NDArray[Any]]) -> str:
    """C that calls the model CALLS times and prints the bits of every output."""
    lines = ['#include "network.h"', "#include <stdio.h>", "#include <string.h>", ""]
    for given in compiled.inputs:
        words = np.ascontiguousarray(inputs[given.name]).ravel().view(np.uint32)
        values = ",\n".join(f"0x{word:08x}u" for word in words)
        lines.append(
            f"static const union {{ uint32_t bits[{words.size}]; float values[{words.size}]; }}"
        )
        lines.append(f"    {given.c_name} = {{{{{values}}}}};")
    sizes = {made.c_name: int(np.prod(made.shape)) for made in compiled.outputs}
    lines += [f"static float {name}[{size}];" for name, size in sizes.items()]
    arguments = [*(f"{given.c_name}.values" for given in compiled.inputs), *sizes]
    lines += [
        "static network_workspace workspace;",
        "",
        "int main(void)",
        "{",
        "    uint32_t bits;",
    ]
    call = f"network_run({', '.join(arguments)}, &workspace)"
    lines += [
        "    for (int n = 0; n < CALLS; n++) {",
        f"        if ({call})",
        "            return 1;",
    ]
    lines.append("    }")
    for name, size in sizes.items():
        lines.append(f"    for (int n = 0; n < {size}; n++) {{")
        lines.append(f"        memcpy(&bits, {name} + n, sizeof bits);")
        lines += ['        printf("%08lx\\n", (unsigned long)bits);', "    }"]
    return "\n".join([*lines, "    return 0;", "}", ""])


def section_bytes(built: Path, section: str) -> int:
    """Of all sections of an object file whose names begin so."""
    listing, _ = output_of([SIZE, "-A", built])
    rows = (line.split() for line in listing.splitlines() if line.startswith(section))
    return sum(int(row[1]) for row in rows)


def run(
    folder: Path, level: str, calls: int, *, marked: bool = False
) -> tuple[NDArray[Any], int, str]:
    """The outputs of the model, how many instructions the whole program takes, all that is told.

    marked  whether the plugin looks at the stores to MARKS
    """
    image, plugin = folder / f"{calls}.elf", folder / "count_instructions.so"
    if not plugin.exists():
        output_of(["gcc", "-shared", "-fPIC", "-O2", "-fvisibility=hidden", PLUGIN, "-o", plugin])
    parts = [folder / "main.c", folder / "network.o"]
    places = [f"-Wl,--defsym=kernels_{name}={address}" for name, address in MARKS.items()]
    output_of([GCC, *COMPILE, level, f"-DCALLS={calls}", *parts, *LINK, *places, "-o", image])
    looks = "".join(f",{name}={address}" for name, address in MARKS.items()) if marked else ""
    command = [QEMU, *EMULATE, "-plugin", f"file={plugin}{looks}", "-kernel", str(image)]
    printed, told = output_of(command)
    bits = np.array([int(word, 16) for word in printed.split()], np.uint32)
    return bits.view(np.float32), int(told.rpartition("instructions=")[2]), told


def products_of(path: Path) -> tuple[int, bool]:
    """Multiplications of the convolutions and Gemms of a model, and whether it has the former."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True).graph
    told = (*graph.value_info, *graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in told}
    weights = {tensor.name: tensor.dims for tensor in graph.initializer}
    count, kinds = 0, set()
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            outputs, weight = int(np.prod(shapes[node.output[0]])), weights[node.input[1]]
            count += outputs * int(np.prod(weight)) // weight[0]
            kinds.add(node.op_type)
    return count, "Conv" in kinds


def row(result: Result) -> list[str]:
    peer = PEERS[result.network]
    return [
        f"{result.network}, {result.goal}",
        f"{result.text:,}",
        f"{peer.text:,}",
        f"{result.rodata:,}",
        f"{peer.rodata:,}",
        f"{result.ram:,}",
        f"{peer.ram:,}",
        f"{result.instructions:,}",
        f"{result.per_product:.2f}",
        f"{result.error:.1e}",
        "over" if result.problems else "ok",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = {network.name: network for network in NETWORKS if network.name in PEERS}
    parser.add_argument("networks", nargs="*", help=f"default: {' '.join(known)}")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--models", type=Path, help="folder of the models; default: a cache")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave all files there")
    parser.add_argument("--kernels", action="store_true", help="print what each kernel takes")
    options = parser.parse_args()
    options.models = options.models or library.cache_directory() / "benchmarks"
    if unknown := [name for name in options.networks if name not in known]:
        parser.error(f"no network {', '.join(unknown)}; there are {', '.join(known)}")
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    results, counts, failed = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.networks or known:
            for goal in GOALS:
                folder = (options.keep or Path(scratch)) / f"{name}_{goal}"
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    if options.kernels:
                        counts += kernels(known[name], goal, options, folder)
                    else:
                        results.append(measured(known[name], goal, options, folder))
                except harness.UnavailableError as error:
                    failed.append(f"{name}, {goal}: {error}")
    if options.kernels:
        head = ["kernel", "instructions", "multiply-accumulates", "each"]
        rows = [head, *(count.row() for count in counts)]
        harness.show("Cortex-M4F, gcc, by kernel", rows, markdown=options.markdown)
        print("\n".join(failed))
        return 1 if failed else 0
    own = ("bytes of .text", ".rodata", "RAM")
    head = [column for name in own for column in (name, "onnx2c")]
    rows = [["network", *head, "instructions", "a product", "error", ""], *map(row, results)]
    harness.show("Cortex-M4F, gcc: -O2 for speed, -Os for size", rows, markdown=options.markdown)
    lines = [f"{r.network}, {r.goal}: {problem}" for r in results for problem in r.problems]
    print("\n".join([*lines, *failed]))
    return 1 if lines or failed else 0


if __name__ == "__main__":
    sys.exit(main())
