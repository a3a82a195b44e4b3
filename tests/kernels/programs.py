"""Hand-built programs: planned, checked, emitted, built, and run beside evaluate.

Every library is built with the strict list of warnings as errors, and every run finds the workspace
and the outputs full of garbage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc import arrays, library
from onnxc.check import check_program
from onnxc.check_plan import Peak, check_plan
from onnxc.dtypes import BY_NAME, ElementType
from onnxc.emit.interface import Banner
from onnxc.evaluate import Memory
from onnxc.expression import Axis, Buffer, Const, Expr, Index, along, literal, load
from onnxc.kernel import Loops, Program
from onnxc.passes.fuse_rows import fuse_rows
from onnxc.passes.merge_axes import merge_axes
from onnxc.passes.plan_memory import plan_memory
from onnxc.passes.widen_rows import widen_rows
from onnxc.pipeline import Compiled, emit_program
from onnxc.status import Status
from tests.models import STRICT

Array = NDArray[Any]
Values = dict[Buffer, Array]

FLOAT, INT32, INT64, BOOL = (BY_NAME[name] for name in ("float", "int32", "int64", "bool"))
GARBAGE = 0xA5


def buffer(name: str, kind: str, dtype: ElementType, *shape: int) -> Buffer:
    return Buffer(name, shape, dtype, kind)


def constant(array: Array, dtype: ElementType) -> Buffer:
    return Buffer("", array.shape, dtype, "constant", array)


def const(value: Any, dtype: ElementType) -> Const:
    return literal(dtype, value)


def over(out: Buffer, value: Expr, *axes: Axis) -> Loops:
    """out[axes] = value, one axis a dimension."""
    return Loops(out, tuple(map(along, axes)), axes, value)


def copy(out: Buffer, source: Buffer) -> Loops:
    axes = tuple(map(Axis, source.shape))
    return over(out, load(source, map(along, axes)), *axes)


def element(source: Buffer, *numbers: int) -> Expr:
    return load(source, map(Index, numbers))


def planned(program: Program) -> Program:
    """After every program pass but those of tuned kernels, each followed by the checker."""
    for step in (lambda p: p, merge_axes, widen_rows, fuse_rows, plan_memory):
        program = step(program)
        check_program(program)
    check_plan(program)
    return program


def peak(program: Program) -> Peak:
    return check_plan(planned(program))


def evaluated(program: Program, inputs: Mapping[Buffer, Array]) -> tuple[Status, Values]:
    memory = Memory()
    for key, array in inputs.items():
        memory.put(key, array)
    memory.run(program)
    return memory.status, {b: memory.get(b) for b in program.outputs}


@dataclass
class Built:
    """A program as a loaded library."""

    program: Program
    compiled: Compiled
    library: library.Library

    def run(self, inputs: Mapping[Buffer, Array]) -> tuple[Status, Values]:
        compiled, ffi = self.compiled, self.library.ffi
        pairs = zip(compiled.inputs, self.program.inputs, strict=True)
        read = [arrays.to_memory(interface, inputs[b]) for interface, b in pairs]
        written = [arrays.new_memory(interface) for interface in compiled.outputs]
        for memory in written:
            memory.data.reshape(-1).view(np.uint8)[:] = GARBAGE
        alignment = compiled.workspace_alignment
        room = np.full(compiled.workspace_size + alignment, GARBAGE, np.uint8)
        room = room[-arrays.Memory(room).address % alignment :]
        function = getattr(self.library.lib, f"{compiled.name}_run")
        addresses = [memory.address for memory in (*read, *written, arrays.Memory(room))]
        types = ffi.typeof(function).args
        status = function(*(ffi.cast(t, a) for t, a in zip(types, addresses, strict=True)))
        outputs = zip(self.program.outputs, compiled.outputs, written, strict=True)
        return Status(status), {b: _unpacked(i, memory, ffi) for b, i, memory in outputs}


def _unpacked(interface: Any, memory: arrays.Memory, ffi: Any) -> Array:
    array = arrays.from_memory(interface, memory, ffi)
    if interface.dtype.kind != "string":
        return array
    return arrays.object_array([arrays.text_bytes(v) for v in array.reshape(-1)], array.shape)


def emitted(program: Program, name: str = "p") -> Compiled:
    return emit_program(planned(program), Banner(name, "0", "a test", "0BSD", "none"))


def built(program: Program, compiler: str = "cc", flags: Sequence[str] = ()) -> Built:
    compiled = emitted(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", compiler)
        patch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, "-O1", *flags]))
        return Built(compiled.program, compiled, library.build(compiled))


def check_in_c(program: Program, inputs: Mapping[Buffer, Array], compiler: str = "cc") -> Values:
    """The outputs, once the C has given the same status and bits as evaluate."""
    status, outputs = built(program, compiler).run(inputs)
    expected_status, expected = evaluated(program, inputs)
    assert status == expected_status
    for key, array in expected.items():
        assert_same_bits(outputs[key], array)
    return outputs


def assert_same_bits(found: Array, wanted: Array) -> None:
    """Which NaN comes out of an operation is nobody's promise."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if found.dtype.kind in "fc":
        found, wanted = (np.where(np.isnan(a), np.nan, a) for a in (found, wanted))
    if found.dtype.kind == "O":
        assert found.tolist() == wanted.tolist()
    elif found.tobytes() != wanted.tobytes():
        pytest.fail(f"{found} is not\n{wanted}")
