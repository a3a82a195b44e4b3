"""The tuned kernels: each rendered for every variant of the target."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.emit import scalar
from onnxc.emit.integer_product import (
    integer_depthwise_text,
    integer_product_text,
    integer_words,
)
from onnxc.emit.literals import literal
from onnxc.emit.scalar import shared_texts
from onnxc.emit.text import origin_lines, render, wrapped
from onnxc.emit.vector_functions import vector_functions
from onnxc.emit.vectors import operations_in, vector_lines
from onnxc.expression import Buffer
from onnxc.kernel import Micro
from onnxc.target import Target, Variant
from onnxc.tuned.bands import Bands
from onnxc.tuned.contraction import VECTORS, Contraction, Walk, span_of, stream_of, tile_of
from onnxc.tuned.depthwise import Depthwise, pixels_of
from onnxc.tuned.gemv import Gemv
from onnxc.tuned.geometry import Geometry
from onnxc.tuned.product import FUNCTIONS
from onnxc.tuned.recurrent import Recurrent
from onnxc.tuned.rowwise import Rowwise, vectors_of
from onnxc.tuned.scalar_depthwise import Sliding
from onnxc.tuned.scalar_windows import Windows
from onnxc.tuned.windows_pool import Pool
from onnxc.tuned.windows_pool import pixels_of as windows_of
from onnxc.tuned.winograd import Winograd, height_of

HEAVY: Final = 8
"""Operations of an epilogue from which it is not written out for each sum of a tile."""
WORDS: Final = re.compile(r"\b(v[dfmu](?:_\w+)?|LANES|DOUBLES|UNROLL|PREFETCH|TUNED|INLINE)\b")

CALLED: Final = re.compile(r"\b(\w+)\(")


def in_variant(text: str, variant: Variant, functions: Sequence[str] = ()) -> str:
    """The text with the variant's names of the words and of `functions`."""
    capital = variant.suffix.upper()

    def named(found: re.Match[str]) -> str:
        word = found[1]
        return f"ONNXC_{word}{capital}" if word.isupper() else f"onnxc_{word}{variant.suffix}"

    text = WORDS.sub(named, text)
    for function in functions if variant.suffix else ():
        text = re.sub(rf"\b({function}\w*)(?=\()", rf"\1{variant.suffix}", text)
    return text


def sections(
    steps: Sequence[tuple[Micro, str, Sequence[str]]], target: Target
) -> list[dict[str, Any]]:
    """For templates/tuned.c.j2: of each variant the words and every kernel (step, name, comment).

    The widest variant is the last, so that a reader meets the plainest first.
    """
    found = []
    for variant in reversed(target.variants):
        kernels = [kernel_text(step, name, comment, variant) for step, name, comment in steps]
        shared = shared_texts([step for step, _, _ in steps])
        kernels = [*(in_variant(text, variant) for text in shared), *kernels]
        found.append(section(kernels, variant))
    return found


def section(kernels: Sequence[str], variant: Variant) -> dict[str, Any]:
    """Of one variant, whose names the kernels have."""
    words = [_words(lanes, variant, "".join(kernels)) for lanes in _lane_counts(variant)]
    return {**vars(variant), "words": words, "kernels": kernels}


def _of_doubles(text: str) -> str:
    """A kernel that is written for floats, for doubles."""
    for word, double in (
        (r"vf(_\w+)?", r"vd\1"),
        ("float", "double"),
        ("LANES", "DOUBLES"),
        (r"0\.0f", "0.0"),
    ):
        text = re.sub(rf"\b{word}\b", double, text)
    return text


def _words(lanes: int, variant: Variant, kernels: str) -> str:
    """The types, and the functions that the kernels call or that these call."""
    integers = integer_words(lanes, variant, kernels)
    integers = "\n".join(map(wrapped, in_variant(integers, variant).split("\n")))
    own = render("vector.c.j2", lanes=lanes)
    called = [f for f in FUNCTIONS if re.search(rf"vf_{f}{variant.suffix}\(", kernels)]
    words = f"{own}\n{vector_functions(f for f in called if f' vf_{f}(' not in own)}"
    text = "\n".join(map(wrapped, in_variant(words, variant).split("\n")))
    if re.search(r"\bonnxc_vd_", kernels):
        doubles = render("vector_double.c.j2", lanes=lanes)
        text = "\n".join(map(wrapped, in_variant(doubles, variant).split("\n"))) + "\n" + text
    types, *functions = re.split(r"\n\n(?=/\*|static)", text.rstrip())
    needed, kept = {*CALLED.findall(kernels + integers)}, []
    for function in reversed(functions):
        name = re.search(r"(\w+)\(", function.partition("static")[2].partition("(")[0] + "(")
        if name and name[1] in needed:
            kept.append(function)
            needed.update(CALLED.findall(function))
    return "\n\n".join([types.rstrip(), *reversed(kept)]) + f"\n\n{integers}".rstrip() + "\n"


def _lane_counts(variant: Variant) -> list[int]:
    """The base has two forms where compilers may lack vectors: 0 stands for plain C."""
    if variant.lanes == 1:
        return [0]
    return [variant.lanes] if variant.suffix else [variant.lanes, 0]


def kernel_text(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    """The C functions of one tuned kernel for one variant."""
    text = RENDERERS[step.name](step, function, comment, variant)
    lines = in_variant(text, variant, [function]).split("\n")
    return "\n".join(map(wrapped, lines))  # the variant's names are longer


def tile_texts(step: Micro, target: Target) -> list[str]:
    """What is computed at once, "14 x 32 floats", for each variant of a target where it differs."""
    match step.parameters:
        case Contraction() as parameters:
            widths = [_of_elements(variant, parameters) for variant in target.variants]
            tiles = ((tile_of(parameters, variant), variant) for variant in widths)
            found = [
                f"{tile.rows * tile.columns} x {VECTORS * variant.lanes}" for tile, variant in tiles
            ]
        case Depthwise() as parameters:
            found = [f"{pixels_of(parameters, v)} x {v.lanes}" for v in target.variants]
        case Winograd() as parameters:
            found = [f"{height_of(parameters, v)} x {VECTORS * v.lanes}" for v in target.variants]
        case Rowwise() as parameters:
            found = [f"{vectors_of(parameters, v) * v.lanes}" for v in target.variants]
        case Windows() as parameters:
            found = [f"{parameters.pixels} x {parameters.lanes}"]
        case Sliding() as parameters:
            rows, columns = parameters.kernel
            found = [f"{rows} x {columns}"]
        case Pool() as parameters:
            found = [f"{windows_of(parameters, v)} x {v.lanes}" for v in target.variants]
        case Bands() as parameters:
            return [f"{parameters.band} of {parameters.parts[-1].rows} rows"]
        case _:
            found = []
    unit = "floats" if step.name != "integers_scalar" else "integers"
    if isinstance(step.parameters, Contraction) and step.parameters.dtype is not FLOAT:
        unit = "doubles"
    return [*dict.fromkeys(f"{text} {unit}" for text in found)]


def _contraction(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    parameters: Contraction = step.parameters
    operands = operand_names(step)
    walks = dict(zip(step.addends, parameters.addends, strict=True))
    names = dict(zip(step.addends, operands, strict=True))

    def epilogue(row: int, vectors: int, part: bool) -> list[str]:
        loads = {
            load: _loaded(names[load], walks[load], row, vectors, part) for load in step.addends
        }
        return vector_lines(step.epilogue, step.total, loads)

    variant = _of_elements(variant, parameters)
    tile, kinds = tile_of(parameters, variant), _kinds(parameters.lanes, variant)
    span = span_of(parameters, tile)
    text = render(
        "kernels/contraction.c.j2",
        function=function,
        comment=comment,
        p=parameters,
        tile=tile,
        span=span,
        stream=stream_of(parameters, tile, span, variant.lanes),
        width=kinds[0][0],
        lanes=variant.lanes,
        operands=operands,
        parameters="".join(f"const float *restrict {name}, " for name in operands),
        epilogue=epilogue,
        heavy=operations_in(step.epilogue, step.total) > HEAVY,
        kinds=kinds,
        block_offset=_block_offset(parameters),
    )
    return text if parameters.dtype is FLOAT else _of_doubles(text)


def _of_elements(variant: Variant, parameters: Contraction) -> Variant:
    """With as many lanes as a vector has of the kernel's elements."""
    if parameters.dtype is FLOAT:
        return variant
    return replace(variant, lanes=max(1, variant.lanes // 2))


def _depthwise(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    parameters: Depthwise = step.parameters
    return render(
        "kernels/depthwise.c.j2",
        **_windowed(step, function, comment, parameters.window),
        kernel=parameters.window.kernel,
        strides=parameters.window.strides,
        dilations=parameters.window.dilations,
        lanes=variant.lanes,
        channels=parameters.channels,
        shared=parameters.shared,
        pixels=pixels_of(parameters, variant),
        weights_stay=parameters.weights_stay,
        band=parameters.band,
        counted=parameters.counted,
    )


def _gemv(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    parameters: Gemv = step.parameters
    names = operand_names(step)

    def epilogue(v: str, row: str, column: str, part: str | None) -> list[str]:
        assert v == "v"
        loads = {}
        for load, name, (down, right) in zip(step.addends, names, parameters.steps, strict=True):
            terms = [f"{row} * {down}"] if down else []
            if right:
                live = f", {part}" if part else ""
                word = f"vf_load{'_part' if part else ''}"
                loads[load] = f"{word}({' + '.join([name, *terms, column])}{live})"
            else:
                loads[load] = f"vf_set({name}[{' + '.join(terms) or '0'}])"
        return vector_lines(step.epilogue, step.total, loads)

    sizes = {name: value for name, value in vars(parameters).items() if name != "steps"}
    return render(
        "kernels/gemv.c.j2",
        **sizes | {"bias": "" if parameters.bias is None else names[parameters.bias]},
        function=function,
        comment=comment,
        lanes=variant.lanes,
        ahead=parameters.ahead,
        extra=[(f"const float *restrict {name}", name) for name in names],
        epilogue=epilogue,
    )


def _recurrent(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    parameters: Recurrent = step.parameters
    own: list[tuple[str, list[str]]] = []
    names = []
    for letter, activation in zip("fgh", parameters.functions, strict=False):
        lines = vector_lines(activation.value, activation.x, {})
        plain = re.fullmatch(r"v = (vf_\w+)\(v\);", "".join(lines))
        names.append(plain[1] if plain else f"{function}_{letter}")
        own += [] if plain else [(names[-1], lines)]
    clip = parameters.clip
    values = vars(parameters) | {
        "functions": names,
        "clip": "" if clip is None else literal(FLOAT, np.float32(clip).tobytes()),
    }
    return render(
        "kernels/recurrent.c.j2",
        **values,
        function=function,
        comment=comment,
        lanes=variant.lanes,
        own=own,
    )


def _transpose(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    return render("kernels/transpose.c.j2", function=function, comment=comment, p=step.parameters)


def _byte_transpose(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    values = {"function": function, "comment": comment, "p": step.parameters}
    return render("kernels/byte_transpose.c.j2", **values)


def _padded_rows(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    values = {"function": function, "comment": comment, "p": step.parameters}
    return render("kernels/padded_rows.c.j2", **values)


def _rowwise(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    parameters: Rowwise = step.parameters
    names, loads, calls = operand_names(step), {}, ""
    for load, name, steps in zip(step.addends, names, parameters.addends, strict=True):
        place = f"vf_load({name} + n + q * LANES)" if steps.lane else f"vf_set({name}[0])"
        loads[load] = place
        terms = [f"i{n} * {stride}" for n, stride in enumerate(steps.outer) if stride]
        terms += [str(steps.start)] if steps.start else []
        calls += " + ".join([name, *terms]) + ", "
    return render(
        "kernels/rowwise.c.j2",
        function=function,
        comment=comment,
        p=parameters,
        vectors=vectors_of(parameters, variant),
        parameters="".join(f"const float *restrict {name}, " for name in names),
        calls=calls,
        epilogue=vector_lines(step.epilogue, step.total, loads),
    )


def _winograd(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    parameters: Winograd = step.parameters
    return render(
        "kernels/winograd.c.j2",
        **{name: value for name, value in vars(parameters).items() if name != "window"},
        **_windowed(step, function, comment, parameters.window),
        lanes=variant.lanes,
        vectors=VECTORS,
        height=height_of(parameters, variant),
        prefetch=parameters.prefetch,
    )


def _pool(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    parameters: Pool = step.parameters
    names = operand_names(step)

    def epilogue(window: str) -> list[str]:
        loads = {}
        for load, name, walk in zip(step.addends, names, parameters.addends, strict=True):
            terms = [f"{window} * {walk.column}"] if window and walk.column else []
            if walk.channel:
                loads[load] = f"vf_load({' + '.join([name, *terms, 'n'])})"
            else:
                loads[load] = f"vf_set({name}[{' + '.join(terms) or '0'}])"
        return vector_lines(step.epilogue, step.total, loads)

    return render(
        "kernels/pool_windows.c.j2",
        operands=names,
        epilogue=epilogue,
        function=function,
        comment=comment,
        p=parameters,
        pixels=windows_of(parameters, variant),
        lanes=variant.lanes,
    )


def _bands(step: Micro, function: str, comment: Sequence[str], variant: Variant) -> str:
    """The parts' own functions, and the one that calls them."""
    bands: Bands = step.parameters
    views, names, constants = list[dict[str, Any]](), iter(operand_names(step)), list[str]()
    for number, part in enumerate(bands.parts):
        name, kernel = f"{function}_step{number}", part.kernel
        text = RENDERERS[kernel.name](kernel, name, origin_lines(kernel), variant)
        operands = [next(names) for _ in part.addends]
        own = [f"w{number}" for _ in kernel.inputs[1:]]
        constants += own
        view = {"name": name, "text": text, "constants": own, "operands": operands}
        views.append(view | {"part": part})
    return render(
        "kernels/bands.c.j2",
        function=function,
        comment=comment,
        bands=bands,
        views=views,
        parameters="".join(
            f"const float *restrict {name}, " for name in (*constants, *operand_names(step))
        ),
    )


def _windowed(
    step: Micro, function: str, comment: Sequence[str], window: Geometry
) -> dict[str, Any]:
    """What the templates of convolutions with channels last have in common."""
    names = operand_names(step)

    def epilogue(v: str, row: str, column: str, channel: str, part: str | None) -> list[str]:
        assert v == "v"
        loads = {}
        for load, name, walk in zip(step.addends, names, window.addends, strict=True):
            terms = [f"({row}) * {walk.row}"] if walk.row else []
            terms += [f"({column}) * {walk.column}"] if walk.column else []
            if walk.channel:
                place = " + ".join([name, *terms, channel])
                live = f", {part}" if part else ""
                loads[load] = f"vf_load{'_part' if part else ''}({place}{live})"
            else:
                loads[load] = f"vf_set({name}[{' + '.join(terms) or '0'}])"
        return vector_lines(step.epilogue, step.total, loads)

    return {
        "function": function,
        "comment": comment,
        "rows": window.rows,
        "columns": window.columns,
        "x_pixel": window.x.column,
        "x_row": window.x.row,
        "y_pixel": window.y.column,
        "y_row": window.y.row,
        "extra": [(f"const float *restrict {name}", name) for name in names],
        "epilogue": epilogue,
    }


def operand_buffers(step: Micro) -> list[Buffer]:
    """What the C function is called with."""
    return [*step.inputs, *(load.buffer for load in step.addends), *step.scratch, *step.results]


def operand_names(step: Micro) -> list[str]:
    """Of the epilogue's operands, as parameters of the C function."""
    return [f"e{n}" for n in range(len(step.addends))]


def _loaded(name: str, walk: Walk, row: int, vectors: int, part: bool) -> str:
    terms = [str(row * walk.row)] if row * walk.row else []
    terms += [f"c * {walk.column}"] if walk.column else []
    terms += ["q * LANES"] if walk.lane else []
    if not walk.lane:
        return f"vf_set({name}[{' + '.join(terms) or '0'}])"
    place = " + ".join([name, *terms])
    whole, some = f"vf_load({place})", f"vf_load_part({place}, live)"
    if part and vectors > 1:
        return f"(q < {vectors - 1} ? {whole} : {some})"
    return some if part else whole


def _kinds(lanes: int, variant: Variant) -> list[tuple[int, bool]]:
    """(vectors, whether only a part of the last) of the tiles that cover `lanes` floats.

    The base may be compiled without vectors: it has what either needs.
    """
    kinds = set()
    for width in {variant.lanes, variant.lanes if variant.suffix else 1}:
        whole, rest = divmod(lanes, VECTORS * width)
        kinds |= {(VECTORS, False)} if whole else set()
        kinds |= {(-(-rest // width), rest % width > 0)} if rest else set()
    return sorted(kinds, key=lambda kind: (-kind[0], kind[1]))


def _block_offset(parameters: Contraction) -> str:
    """Where the packed constants of one point of the outer loops begin."""
    strides, stride = [], parameters.block
    for extent in reversed(parameters.outer[: parameters.around]):
        strides.append(stride)
        stride *= extent
    return "".join(f" + i{n} * {size}" for n, size in enumerate(reversed(strides)))


RENDERERS: Final[dict[str, Callable[..., Any]]] = {
    "bands": _bands,
    "byte_transpose": _byte_transpose,
    "contraction": _contraction,
    "depthwise": _depthwise,
    "gemv": _gemv,
    "integer_depthwise": integer_depthwise_text,
    "integer_product": integer_product_text,
    "padded_rows": _padded_rows,
    "pool_windows": _pool,
    "recurrent": _recurrent,
    "rowwise": _rowwise,
    "transpose": _transpose,
    "winograd": _winograd,
    **scalar.RENDERERS,
}
