"""A planned program to one .c and one .h."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from onnxc.emit.contracted import may_contract, work
from onnxc.emit.generated import Module
from onnxc.emit.interface import Banner, Port, header, signature
from onnxc.emit.literals import Constant, constant
from onnxc.emit.loops import Kernel, Parameter, kernel_of
from onnxc.emit.profile import listed_kernels
from onnxc.emit.rows import rows_kernel
from onnxc.emit.text import (
    buffer_text,
    comment,
    explained,
    function_name,
    listed,
    named_by_role,
    node_text,
    render,
    render_routine,
    wrapped,
)
from onnxc.emit.tuned import kernel_text, operand_buffers, sections
from onnxc.emit.views import BranchView, Call, Note, RepeatView, Tap, TapView
from onnxc.emit.weights import Weights, local_names, weights
from onnxc.expression import Buffer
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows, Step
from onnxc.kernel_numbers import numbered
from onnxc.names import Names, unique_names
from onnxc.passes.keep_borders import stores_nothing
from onnxc.resources import runtime_functions, runtime_text
from onnxc.routines import ROUTINES
from onnxc.target import TARGETS

VARIANTS_FROM: Final = 2048
"""Elements from which plain loops are built for every variant of the target."""
MOST_BITS: Final = 16 << 20
"""Bytes of constants up to which they are for any order of bytes, where bits are to be portable.

Compilers need half a second for each million: those of more are for little-endian targets.
"""
INCLUDES: Final = {
    "string.h": re.compile(r"\bmem(cpy|set|move|cmp)\("),
    "math.h": re.compile(r"\b(isnan|isinf|signbit|INFINITY|NAN|sqrtf?|fmodf?)\b"),
}
"""What a routine's text shows to need."""
COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
LIBM: Final = re.compile(r"\b(sqrtf?|fmodf?)\(")
STRUCTS: Final = re.compile(r"\bonnxc_(string|complex64|complex128)\b")
OWN_LOCALS: Final = ("arena", "over")
"""Variables of the run function, besides those that no name of a model ever becomes."""


def emit(
    program: Program,
    banner: Banner,
    weights_form: str = "inline",
    taps: Mapping[Step, Sequence[Tap]] | None = None,
    *,
    profile: bool = False,
) -> Module:
    """The module of a program that plan_memory has planned; output.WEIGHTS has the forms.

    taps     what the run function copies after which step; nothing else of the text depends on it
    profile  whether hooks stand around the calls of kernels
    """
    return _Emission(program, banner, weights_form, taps or {}, profile=profile).module()


class _Emission:
    def __init__(
        self,
        program: Program,
        banner: Banner,
        weights_form: str,
        taps: Mapping[Step, Sequence[Tap]],
        *,
        profile: bool,
    ) -> None:
        self.program = program
        self.taps = taps
        self.numbers = numbered(program) if profile else None
        self.calls: dict[Step, str] = {}
        self.weights_form = weights_form
        self.target = program.target or TARGETS["generic"]
        self.banner = banner
        buffers = [*program.inputs, *program.outputs]
        own = (*OWN_LOCALS, *local_names(weights_form, banner.name))
        names = unique_names([b.name for b in buffers], own, banner.name)
        self.names = Names([*names, *own], banner.name)
        self.ports = tuple(
            port
            for buffer, c_name in zip(buffers, names, strict=True)
            for port in self.ports_of(buffer, c_name)
        )
        self.pointers: dict[Buffer, str] = {port.buffer: port.c_name for port in self.ports}
        self.constants: dict[Buffer, Constant] = {}
        self.functions: dict[Kernel, str] = {}
        self.routines: dict[object, tuple[str, bool]] = {}
        constants = sum(buffer.bytes for buffer in program.reads() if buffer.data is not None)
        self.any_byte_order = self.target.portable and constants <= MOST_BITS
        self.each = False
        self.contracted: list[str] = []
        self.tuned: dict[str, tuple[Micro, str, list[str]]] = {}
        self.texts: list[str] = []
        self.runtime: set[str] = set()
        self.exact: set[str] = set()
        self.includes: set[str] = set()
        self.checked = False

    def ports_of(self, buffer: Buffer, c_name: str) -> list[Port]:
        """The parameter of an input or output, and that of its actual shape where it has one."""
        model, shape = self.banner.name, self.program.actual.get(buffer)
        if shape is None:
            return [Port(buffer, c_name, buffer.kind, model)]
        name = self.names.add(f"{c_name}_shape")
        own = Port(buffer, c_name, buffer.kind, model, sized_by=name)
        return [own, Port(shape, name, shape.kind, model, shape_of=c_name)]

    def module(self) -> Module:
        program, banner = self.program, self.banner
        roles = named_by_role(program)
        for buffer in program.offsets:
            self.pointers[buffer] = self.names.add(buffer.name or roles.get(buffer, "part"))
        notes = [Note(comment([f"{node_text(origin)}: {fact}"])) for origin, fact in program.notes]
        steps = [*notes, *self.tapped(program.steps)]
        tuned = self.tuned_text()
        constants = tuple(self.constants.values())
        inline = [c for c in constants if c.form != "outside"]
        outside = weights(banner.name, self.weights_form, constants)
        if outside:
            self.includes.add("string.h")
        kernels = None if self.numbers is None else listed_kernels(self.numbers, self.calls)
        text, interface_hash = header(
            program, banner, self.ports, constants, self.types(), outside, kernels
        )
        if self.checked:
            self.runtime.add("onnxc_first")
            self.exact.add("onnxc_first")
        runtime, fused = self.runtime_texts()
        code = COMMENT.sub("", "".join((*runtime, *fused)))
        self.includes |= {"float.h"} if self.target.portable else set()
        self.includes |= {name for name, used in INCLUDES.items() if used.search(code)}
        values = {
            **vars(banner),
            "libm": sorted({*LIBM.findall(code)}),
            "NAME": banner.name.upper(),
            "interface_hash": interface_hash,
            "workspace_size": program.workspace_size,
            "includes": sorted(self.includes),
            "full_rows": any(c.has_full_rows for c in constants),
            "byte_order": any(
                c.form in ("image", "outside") and c.buffer.dtype.size > 1 for c in constants
            ),
            "runtime": runtime,
            "fused": fused,
            "portable": self.target.portable,
            "profile": self.numbers is not None,
            "dispatch": self.dispatch_text(),
            "constants": [
                {"declaration": c.declaration, "text": buffer_text(c.buffer)} for c in inline
            ],
        }
        body = self.body(steps, tuned, outside)
        return Module(banner.name, text, body, constants, self.ports, outside, values, self.calls)

    def runtime_texts(self) -> tuple[list[str], list[str]]:
        """The functions of the runtime, those last that no kernel wants without fused products."""
        every, exact = runtime_text(self.runtime), runtime_text(self.exact)
        if not self.contracted:
            exact = every
        fused = [text for text in every if text not in exact]
        if not self.each:
            return exact, fused
        inlined = ("static inline ", "static ONNXC_INLINE ")
        return [t.replace(*inlined) for t in exact], [t.replace(*inlined) for t in fused]

    def types(self) -> set[str]:
        """The element types of every buffer, and those that only the kernels' text names."""
        named = (name for text in self.texts for name in STRUCTS.findall(text))
        buffers = (*self.pointers, *self.constants)
        return {*named, *(buffer.dtype.name for buffer in buffers)}

    def body(self, steps: list[Any], tuned: str, outside: Weights | None) -> str:
        name, size = self.banner.name, self.program.workspace_size
        used = {buffer for step in self.program.steps for buffer in (*step.reads(), *step.writes())}
        unused = [port.c_name for port in self.ports if port.buffer not in used]
        return render(
            "body.c.j2",
            name=name,
            NAME=name.upper(),
            functions=self.texts,
            contracted=self.contracted,
            tuned=tuned,
            dispatches=self.each or (bool(tuned) and self.target.dispatches),
            compares_floats=any(kernel.compares_floats for kernel in self.functions),
            run=signature(self.banner, self.ports, "run", weights=outside, workspace=True),
            run_static=signature(
                self.banner, self.ports, "run_static", weights=outside, workspace=False
            ),
            weights=outside,
            workspace_size=size,
            alignment=self.program.alignment,
            pointers=[
                (buffer.dtype.c_type, self.pointers[buffer], offset, buffer_text(buffer))
                for buffer, offset in self.program.offsets.items()
            ],
            checked=self.checked,
            unused=[*unused, *([] if size else ["workspace"])],
            steps=steps,
            forwarded="".join(f"{port.c_name}, " for port in self.ports)
            + ("weights, " if outside and outside.given else ""),
        )

    def tuned_text(self) -> str:
        if not self.tuned:
            return ""
        text = render(
            "tuned.c.j2",
            dispatches=self.target.dispatches,
            contracts=not self.target.portable,
            sections=sections([*self.tuned.values()], self.target),
        )
        self.need(text)
        return text

    def dispatch_text(self) -> str:
        if not self.tuned and not self.each:
            return ""
        values = {"NAME": self.banner.name.upper(), "target": self.target, "loops": self.each}
        return render("dispatch.c.j2", **values)

    def need(self, text: str) -> set[str]:
        """What some text calls of the runtime, which it is given, and of the C library."""
        called = set(re.findall(r"onnxc_\w+", text)) & runtime_functions().keys()
        self.runtime |= called
        code = COMMENT.sub("", text)
        self.includes |= {name for name, used in INCLUDES.items() if used.search(code)}
        return called

    def tapped(self, steps: Sequence[Step]) -> list[Any]:
        """The steps of the run function itself, with what is copied after each."""
        views: list[Any] = []
        for step in steps:
            views += self.steps([step])
            views += [
                TapView(
                    f"memcpy(onnxc_taps + {t.offset}, {self.pointer(t.buffer)}, {t.buffer.bytes})"
                )
                for t in self.taps.get(step, ())
            ]
        return views

    def steps(self, steps: Sequence[Step]) -> list[Any]:
        return [self.view(step) for step in steps if not stores_nothing(step)]

    def view(self, step: Step) -> Any:
        """As the template takes it; of a call its function is kept, and it gets its number."""
        view = self.step(step)
        if not isinstance(view, Call):
            return view
        self.calls[step] = view.function
        return view if self.numbers is None else replace(view, number=self.numbers[step])

    def step(self, step: Step) -> Any:
        match step:
            case Loops() | Rows():
                return self.call(step)
            case Micro():
                return self.call_tuned(step)
            case Routine():
                return self.call_routine(step)
            case Branch(condition, then, otherwise):
                test = f"{self.pointer(condition)}[0] != 0"
                return BranchView(test, self.steps(then.steps), self.steps(otherwise.steps))
            case Repeat():
                return self.repeat(step)

    def repeat(self, step: Repeat) -> RepeatView:
        variable = self.names.add("round")
        tests = []
        if step.count is not None:
            tests.append(f"{variable} < {self.number(step.count)}")
        if step.condition is not None:
            tests.append(f"{self.pointer(step.condition)}[0] != 0")
        self.includes.add("string.h")
        return RepeatView(
            variable,
            " && ".join(tests),
            "" if step.counter is None else self.pointer(step.counter),
            self.steps(step.body.steps),
            [self.copied(state, value) for state, value in step.carried if state.elements],
        )

    def number(self, buffer: Buffer) -> str:
        """The one integer that a buffer holds."""
        return f"{self.pointer(buffer)}[0]" if buffer.data is None else str(buffer.data.item())

    def copied(self, state: Buffer, value: Buffer) -> tuple[str, str, str]:
        target = self.pointer(state)
        count = state.bytes if state.packed else state.elements
        return target, self.pointer(value), f"{count} * sizeof *{target}"

    def call(self, step: Loops | Rows) -> Call:
        places = self.program.offsets
        kernel, arguments = (
            rows_kernel(step, places)
            if isinstance(step, Rows)
            else kernel_of(step, places, vectors=self.in_variants(step))
        )
        if kernel not in self.functions:
            function = self.names.add(function_name(step, self.kernels()))
            self.functions[kernel] = function
            self.texts.append(self.function(step, kernel, function, arguments))
        self.checked |= kernel.checked
        name = self.functions[kernel]
        if self.in_variants(step):
            self.each = True
            name = f"ONNXC_VARIANT({name})"
        text = f"{name}({', '.join(map(self.pointer, arguments))})"
        return Call(text, kernel.checked, comment(listed(step)))

    def call_tuned(self, step: Micro) -> Call:
        """Kernels of the same text for the base are one, in every variant."""
        key = kernel_text(step, "kernel", [], self.target.variants[-1])
        if key not in self.tuned:
            function = self.names.add(function_name(step, self.kernels()))
            self.tuned[key] = (step, function, comment(explained(step, [])))
        function = self.tuned[key][1]
        name = f"ONNXC_VARIANT({function})" if self.target.dispatches else function
        pointers = list(map(self.pointer, operand_buffers(step)))
        starts = step.starts or (0,) * len(pointers)
        arguments = [f"{p} + {s}" if s else p for p, s in zip(pointers, starts, strict=True)]
        text = f"{name}({', '.join(arguments)})"
        return Call(text, checked=False, comment=comment(listed(step)))

    def kernels(self) -> int:
        """How many functions there are."""
        return len(self.functions) + len(self.routines) + len(self.tuned)

    def call_routine(self, step: Routine) -> Call:
        kind = ROUTINES[step.name]
        names = (*kind.inputs[: len(step.inputs)], *kind.outputs, *kind.scratch)
        buffers = (*step.inputs, *step.outputs, *step.scratch)
        shown = dict(zip(names, buffers, strict=True))
        key = (step.name, step.parameters, *((b.dtype, b.shape) for b in buffers))
        each = kind.vectors and self.dispatches(step.outputs[0].elements)
        if key not in self.routines:
            function = self.names.add(f"{step.name}_{self.kernels()}")
            written = {*step.outputs, *step.scratch}
            given = (Parameter(n, b.dtype.c_type, b in written) for n, b in shown.items())
            parameters = ", ".join(map(_declared, given))
            values = {**shown, **dict(step.parameters), "function": function, "each": each}
            body, functions = render_routine(f"kernels/{step.name}.c.j2", **values)
            checked = "flags" in body
            text = render(
                "kernels/routine.c.j2",
                function=function,
                parameters=parameters,
                comment=comment(explained(step, [])),
                checked=checked,
                body=body,
                each=each,
            )
            if each:
                text += f"\n{_each(function, parameters, ', '.join(names), checked=checked)}\n"
            self.exact |= self.need(functions + body)
            self.texts.append(f"{functions}\n{text}" if functions else text)
            self.routines[key] = function, checked
        function, checked = self.routines[key]
        self.checked |= checked
        self.each |= each
        called = f"ONNXC_VARIANT({function})" if each else function
        call = f"{called}({', '.join(map(self.pointer, buffers))})"
        return Call(call, checked, comment(listed(step)))

    def function(
        self, step: Loops | Rows, kernel: Kernel, function: str, arguments: Sequence[Buffer]
    ) -> str:
        fuses = may_contract(step) and not self.target.portable
        self.runtime |= kernel.functions
        self.exact |= frozenset() if fuses else kernel.functions
        if kernel.needs_string_h:
            self.includes.add("string.h")
        if kernel.needs_math_h:
            self.includes.add("math.h")
        copy = [f"copy {buffer_text(arguments[0])} -> {buffer_text(step.writes()[0])}"]
        parameters = ", ".join(map(_declared, kernel.parameters))
        each = self.in_variants(step)
        text = render(
            "kernels/loops.c.j2",
            kernel=kernel,
            function=function,
            parameters=parameters,
            comment=comment(explained(step, copy)),
            each=each,
        )
        if each:
            names = ", ".join(parameter.name for parameter in kernel.parameters)
            functions = _each(function, parameters, names, checked=kernel.checked)
            if fuses:
                self.contracted.append(functions)
            else:
                text = f"{text}\n{functions}\n"
        return text

    def in_variants(self, step: Loops | Rows) -> bool:
        """Whether a kernel of plain loops is worth a function for each variant of the target."""
        return self.dispatches(work(step))

    def dispatches(self, elements: int) -> bool:
        """Whether so much work is."""
        known = self.program.target is not None and self.target.dispatches
        return known and elements >= VARIANTS_FROM

    def pointer(self, buffer: Buffer) -> str:
        if buffer.data is None:
            return self.pointers[buffer]
        if buffer not in self.constants:
            name = self.names.add(f"w_{buffer.name or 'value'}")
            outside = self.weights_form != "inline"
            ordered = self.any_byte_order
            self.constants[buffer] = constant(buffer, name, outside=outside, any_order=ordered)
        found = self.constants[buffer]
        return found.place


def _each(function: str, parameters: str, names: str, *, checked: bool) -> str:
    """The functions of a kernel that there is one of for each variant of the target."""
    kind = "onnxc_status, return" if checked else "void,"
    return wrapped(f"ONNXC_EACH({kind}, {function}, ({parameters}), ({names}))")


def _declared(parameter: Parameter) -> str:
    const = "" if parameter.written else "const "
    return f"{const}{parameter.c_type} *restrict {parameter.name}"
