"""Other engines, each as a function from a model and its inputs to a candidate.

An engine that is not installed, or cannot run the model, raises UnavailableError with the reason.
All run in this process, with one thread; what an engine computes in threads of its own counts too.
README.md says how to install them. Only what takes float tensors.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx

import generated
import harness

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE_IMAGES: Final = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""What onnx2tf downloads for its checks of networks on images, unless the file is there."""

Engine = Callable[[Path, harness.Arrays], harness.Candidate]


def openvino(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    ov = _module("openvino")
    settings = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = ov.Core().compile_model(str(model), "CPU", settings)
    request = compiled.create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))
    results = _outputs(model)
    for name, room in results.items():
        request.set_tensor(name, ov.Tensor(room, shared_memory=True))
    return _candidate(request.infer, lambda: results, inputs)


def litert(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    """Google's LiteRT with XNNPACK, on a conversion of the model by onnx2tf."""
    module = _module("ai_edge_litert.interpreter")
    interpreter = module.Interpreter(str(_tflite(model)), num_threads=1)
    interpreter.allocate_tensors()
    for told, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.set_tensor(told["index"], _transposed(array, tuple(told["shape"])))

    def outputs() -> dict[str, NDArray[Any]]:
        """In the order of the model, with the channels where it has them."""
        found = [interpreter.get_tensor(o["index"]) for o in interpreter.get_output_details()]
        return {
            name: array if array.shape == room.shape else np.moveaxis(array, -1, 1)
            for (name, room), array in zip(_outputs(model).items(), found, strict=True)
        }

    return _candidate(interpreter.invoke, outputs, inputs)


def ncnn(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    """Converted by pnnx, which drops the first dimension and guesses where it is not 1."""
    module = _module("ncnn")
    if any(array.shape[0] != 1 for array in inputs.values()):
        raise harness.UnavailableError("an input whose first dimension is not 1")
    with _converted(model, lambda copy: [_program("pnnx"), copy, "fp16=0"]) as folder:
        net = module.Net()
        net.opt.num_threads = 1
        for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
            setattr(net.opt, f"use_{name}", False)
        for path, load in ((".param", net.load_param), (".bin", net.load_model)):
            if load(str(folder / f"model.ncnn{path}")):
                raise harness.UnavailableError("ncnn cannot load what pnnx made")
    names = _outputs(model)
    mats = [module.Mat(np.ascontiguousarray(array[0])) for array in inputs.values()]
    found: list[Any] = []

    def call() -> None:
        with net.create_extractor() as extractor:
            for name, mat in zip(net.input_names(), mats, strict=True):
                extractor.input(name, mat)
            found[:] = [extractor.extract(name)[1] for name in net.output_names()]

    def outputs() -> dict[str, NDArray[Any]]:
        pairs = zip(names.items(), found, strict=True)
        return {name: np.array(mat).reshape(room.shape) for (name, room), mat in pairs}

    return _candidate(call, outputs, (mats, inputs))


def mnn(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    """Inputs are copied at every call: a session writes over them."""
    module, tools = _module("MNN"), _module("_tools")
    with _converted(model) as folder:
        path = str(folder / "model.mnn")
        words = ["-f", "ONNX", "--modelFile", str(folder / "model.onnx"), "--MNNModel", path]
        tools.mnnconvert(["", *words, "--bizCode", "x"])
        if not Path(path).exists():
            raise harness.UnavailableError("MNN cannot convert the model")
        interpreter = module.Interpreter(path)
    session = interpreter.createSession({"numThread": 1, "backend": "CPU", "precision": "high"})

    def tensor(array: NDArray[Any]) -> Any:
        return module.Tensor(
            array.shape, module.Halide_Type_Float, array, module.Tensor_DimensionType_Caffe
        )

    read = [
        (interpreter.getSessionInput(session, name), tensor(array))
        for name, array in inputs.items()
    ]
    rooms = _outputs(model)
    written = {name: interpreter.getSessionOutput(session, name) for name in rooms}

    def call() -> None:
        for to, here in read:
            to.copyFrom(here)
        interpreter.runSession(session)

    def outputs() -> dict[str, NDArray[Any]]:
        found = {}
        for name, room in rooms.items():
            copy = tensor(room)
            written[name].copyToHostTensor(copy)
            found[name] = copy.getNumpyData().reshape(room.shape).copy()
        return found

    return _candidate(call, outputs, inputs)


def tract(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    module = _module("tract")
    runnable = module.onnx().load(str(model)).into_model().into_runnable()
    read = [module.Tensor.from_numpy(array) for array in inputs.values()]
    found: list[Any] = []

    def call() -> None:
        found[:] = runnable.run(read)

    def outputs() -> dict[str, NDArray[Any]]:
        return dict(zip(_outputs(model), (value.to_numpy() for value in found), strict=True))

    return _candidate(call, outputs, inputs)


def iree(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    runtime = _module("iree.runtime")
    _module("iree.compiler")
    options = ["device=local", "local-target-device-backends=llvm-cpu"]
    words = [f"--iree-hal-{'' if o.startswith('l') else 'target-'}{o}" for o in options]
    with _converted(
        model,
        lambda copy: [_program("iree-import-onnx"), copy, "-o", "model.mlir"],
        lambda _: [
            *(_program("iree-compile"), "model.mlir", *words, "--iree-llvmcpu-target-cpu=host"),
            *("--iree-opt-level=O3", "-o", "model.vmfb"),
        ],
    ) as folder:
        config = runtime.Config("local-sync")
        content = (folder / "model.vmfb").read_bytes()
    module = runtime.VmModule.copy_buffer(config.vm_instance, content)
    context = runtime.SystemContext(config=config)
    context.add_vm_module(module)
    (name,) = [n for n in module.function_names if not n.startswith("__") and "$" not in n]
    function = context.modules[module.name][name]
    read = [runtime.asdevicearray(config.device, array) for array in inputs.values()]
    found: list[Any] = []

    def call() -> None:
        found[:] = [function(*read)]

    def outputs() -> dict[str, NDArray[Any]]:
        values = found[0] if isinstance(found[0], tuple) else (found[0],)
        return dict(zip(_outputs(model), (np.asarray(value) for value in values), strict=True))

    return _candidate(call, outputs, read)


def tvm(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    """Without tuning, which takes hours."""
    os.environ["TVM_NUM_THREADS"] = "1"
    module = _module("tvm")
    relax = _module("tvm.relax")
    frontend = _module("tvm.relax.frontend.onnx")
    graph = relax.get_pipeline("zero")(frontend.from_onnx(onnx.load(model)))
    target = module.target.Target.from_device("cpu")
    function = relax.VirtualMachine(module.compile(graph, target), module.cpu())["main"]
    read = [module.runtime.tensor(array) for array in inputs.values()]
    found: list[Any] = []

    def call() -> None:
        found[:] = [function(*read)]

    def outputs() -> dict[str, NDArray[Any]]:
        values = [found[0]] if hasattr(found[0], "numpy") else found[0]
        return dict(zip(_outputs(model), (value.numpy() for value in values), strict=True))

    return _candidate(call, outputs, read)


def emx(model: Path, inputs: harness.Arrays) -> harness.Candidate:
    """emx-onnx-cgen's C, its weights in a file, built as onnxc's is: with -O3 alone."""
    _module("emx_onnx_cgen")
    words = [sys.executable, "-m", "emx_onnx_cgen", "compile"]
    results = _outputs(model)
    memories = [*inputs.values(), *results.values()]
    with _converted(model, lambda copy: [*words, copy, "model.c"]) as folder:
        call = f"model({', '.join(f'at[{n}]' for n in range(len(memories)))})"
        loop = generated.write_loop(folder, "model.c", call)
        command = [*generated.compiler(), *shlex.split(generated.PLAIN)]
        library = generated.loaded(folder, command, [loop])
        weights = folder / "model.bin"
        if weights.exists() and not library.model_load(str(weights).encode()) & 1:
            raise harness.UnavailableError("emx-onnx-cgen's code cannot read its own weights")
    run = generated.timed_loop(library, [array.ctypes.data for array in memories])
    return harness.Candidate(run, lambda: results, memories)


ENGINES: Final[dict[str, Engine]] = {
    "openvino": openvino,
    "litert": litert,
    "ncnn": ncnn,
    "mnn": mnn,
    "tract": tract,
    "iree": iree,
    "tvm": tvm,
    "emx": emx,
}


def candidate(name: str, model: Path, inputs: harness.Arrays) -> harness.Candidate:
    """Of one engine, by its name. Raises UnavailableError."""
    try:
        return ENGINES[name](model, inputs)
    except harness.UnavailableError:
        raise
    except Exception as error:  # each engine has its own, some several
        text = str(error).strip().splitlines()
        raise harness.UnavailableError(
            f"{type(error).__name__}: {text[0][:200] if text else ''}"
        ) from None


def _candidate(
    call: harness.Call, outputs: Callable[[], dict[str, NDArray[Any]]], kept: object
) -> harness.Candidate:
    return harness.Candidate(harness.looped(call, time.process_time_ns), outputs, kept)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise harness.UnavailableError(f"not installed ({error})") from None


def _program(name: str) -> str:
    """A program that a package brings, on the path or beside this Python's own."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise harness.UnavailableError(f"not installed (no program {name})")
    return found


@contextmanager
def _converted(model: Path, *commands: Callable[[str], Sequence[str]]) -> Iterator[Path]:
    """A folder with a copy of the model, model.onnx, in which the commands have run."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(model, Path(name) / "model.onnx")
        for command in commands:
            _run(command("model.onnx"), Path(name))
        yield Path(name)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise harness.UnavailableError(f"cannot convert the model: {''.join(last)[:200]}")


def _tflite(model: Path) -> Path:
    """The model for LiteRT, beside the model; made where it is missing, which takes a minute."""
    path = model.with_suffix(".tflite")
    if path.exists() and path.stat().st_mtime > model.stat().st_mtime:
        return path
    command = shlex.split(os.environ.get("ONNX2TF", ""))
    if not command:
        raise harness.UnavailableError(f"no {path.name}; set ONNX2TF to the command of onnx2tf")
    images = np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32)
    with _converted(model) as folder:
        np.save(folder / SAMPLE_IMAGES, images)
        _run([*command, "-i", "model.onnx", "-o", "out", "-n"], folder)
        shutil.move(folder / "out" / "model_float32.tflite", path)
    return path


def _transposed(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """As it is where the shape fits, else with channels last."""
    if array.shape == shape:
        return array
    moved = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    if moved.shape != shape:
        raise harness.UnavailableError(f"converted to an input of shape {shape}")
    return moved


def _outputs(model: Path) -> dict[str, NDArray[Any]]:
    """Room for the outputs of a model, by name and in order."""
    rooms = {}
    for told in onnx.load(model, load_external_data=False).graph.output:
        shape = [dim.dim_value for dim in told.type.tensor_type.shape.dim]
        rooms[told.name] = harness.aligned(shape, np.dtype(np.float32))
    return rooms
