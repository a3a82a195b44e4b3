"""Integer products as C: the words of templates/vector_integers.c.j2, and the kernels in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxc.dtypes import FLOAT
from onnxc.emit.text import render
from onnxc.emit.vectors import vector_lines
from onnxc.expression import Const, Fold, Load
from onnxc.kernel import Micro
from onnxc.target import Variant
from onnxc.tuned.integer_depthwise import IntegerDepthwise, tile_of
from onnxc.tuned.integer_finish import finish_of, float_of
from onnxc.tuned.integer_product import (
    VECTORS,
    Epilogue,
    IntegerProduct,
    epilogue_of,
    is_wide,
    rows_of,
)

WORDS: Final = (
    *("dot4", "dot2", "load", "store", "total", "load_part", "load_bytes", "load_signed"),
    *("pair_bytes", "pair_signed", "store_bytes", "quantised", "rounded"),
)
"""Those of the words that not every kernel calls."""
CALLS: Final = {"pair_bytes": "load_bytes", "pair_signed": "load_signed"}
"""What words call."""


def integer_words(lanes: int, variant: Variant, kernels: str) -> str:
    """The words that `kernels` call, for `lanes` of a variant; 0 stands for plain C."""
    used = [word for word in WORDS if f"onnxc_vu_{word}{variant.suffix}(" in kernels]
    if not used:
        return ""
    used += [CALLS[word] for word in used if word in CALLS]
    dots = lanes > 0 and "onnxc_vu_dot4_fast" in kernels
    dot = f"{variant.attribute},{variant.dot}" if dots else ""
    return render("vector_integers.c.j2", lanes=lanes, dot=dot, used=used)


def integer_product_text(
    step: Micro, function: str, comment: Sequence[str], variant: Variant
) -> str:
    """The functions of a kernel; two forms of it where some processors of a variant have more."""
    p: IntegerProduct = step.parameters
    forms: list[dict[str, Any]] = []
    if variant.dot:
        columns = rows_of(p, variant, dot=True)
        fast = {"suffix": "_fast", "tuned": "ONNXC_TUNED_DOT", "dot": "vu_dot4_fast"}
        forms.append({**fast, "columns": columns})
    columns = rows_of(p, variant, dot=False)
    forms.append({"suffix": "", "tuned": "TUNED", "dot": "vu_dot4", "columns": columns})
    names = [f"e{n}" for n in range(len(step.addends))]
    place = f"out + c * {p.result[2]} + q * LANES"
    lines = _epilogue(step, "sum[c][q]", "[q]", place)
    walks = zip(names, step.addends, p.addends, strict=True)
    return render(
        "kernels/integer_product.c.j2",
        function=function,
        comment=comment,
        p=p,
        lanes=variant.lanes,
        forms=forms,
        single=p.last % (VECTORS * variant.lanes) != 0,
        x_type="int8_t" if p.signed[0] else "uint8_t",
        w_type="uint8_t" if p.placed and not p.signed[1] else "int8_t",
        za=p.zero.buffer.dtype.c_type if p.zero.buffer else "",
        zb=p.panel_zero.buffer.dtype.c_type if p.placed and p.panel_zero.buffer else "",
        out_type=step.twin.out.dtype.c_type,
        addends=[(name, load.dtype.c_type, *walk) for name, load, walk in walks],
        loads=[
            _loaded(*pair, "q * LANES", p.width)
            for pair in zip(names, step.addends, p.addends, strict=True)
        ],
        epilogue=[] if step.epilogue is step.total else ["if (n <= 0)", "    break;", *lines],
        test=f'__builtin_cpu_supports("{variant.dot}")',
    )


def _loaded(
    name: str, load: Load, walk: tuple[int, int], lane: str, width: int
) -> tuple[str, str, str]:
    """The declaration of what a tile reads of a load, the text for whole vectors and for a part."""
    kind = "vf" if load.dtype is FLOAT else "vu"
    declaration = f"{kind} of_{name}"
    if walk[1]:
        place = f"{name} + {lane}"
        none = "vf_set(0.0f)" if kind == "vf" else "vu_set(0u)"
        part = f"n > 0 ? {kind}_load_part({place}, n) : {none}"
        if is_wide(load, width):
            part = f"{kind}_load({place})"
        return declaration, f"{kind}_load({place})", part
    scalar = f"{kind}_set({'(uint32_t)' if kind == 'vu' else ''}{name}[0])"
    return declaration, scalar, scalar


def _epilogue(step: Micro, total: str, at: str, place: str) -> list[str]:
    """What stores `n` lanes of a vector at a place; `at` follows the names of the loads."""
    fold = step.total
    assert isinstance(fold, Fold)
    found = epilogue_of(step.epilogue, fold)
    assert found is not None
    loads = {load: f"of_e{n}{at}" for n, load in enumerate(step.addends)}
    lines: list[str] = []
    if isinstance(found.bias, Const):
        bias = int.from_bytes(found.bias.raw, "little")
        lines.append(f"{total} += vu_set({bias}u);")
    elif isinstance(found.bias, Load):
        lines.append(f"{total} += {loads[found.bias]};")
    if found.quotient is None or found.number is None:
        whole, part = f"vu_store({place}, {total})", f"memcpy({place}, &{total}, (size_t)n * 4)"
    else:
        lines.append(f"vf v = vf_of_integers((vm){total});")
        if found.target is not None:
            lines += _bytes(found, loads)
            return [*lines, f"vu_store_bytes({place}, bytes, n);"]
        lines += vector_lines(found.quotient, found.number, loads)
        whole, part = f"vf_store({place}, v)", f"vf_store_part({place}, v, n)"
    return [*lines, "if (n >= LANES)", f"    {whole};", "else", f"    {part};"]


def integer_lines(step: Micro, loads: Mapping[Load, str]) -> list[str]:
    """What makes the bytes, vu, of one sum, the integer `sum`; what is added to it is there."""
    fold = step.total
    assert isinstance(fold, Fold)
    found = epilogue_of(step.epilogue, fold)
    assert found is not None
    return ["vf v = vf_of_integers(sum);", *_bytes(found, loads)]


def _bytes(found: Epilogue, loads: Mapping[Load, str]) -> list[str]:
    """What makes them of `v`, the number."""
    assert found.target is not None
    assert found.zero is not None
    assert found.quotient is not None
    assert found.number is not None
    zero, finish = int(float_of(found.zero)), finish_of(found)
    if finish is not None:
        lines = vector_lines(finish.ratio, found.number, loads)
        text = f"vu_rounded(v, {finish.least}, {finish.most}, {zero})"
    else:
        lines = vector_lines(found.quotient, found.number, loads)
        least = -128 if found.target.kind == "signed" else 0
        text = f"vu_quantised(v, {zero}, {least}, {least + 255})"
    return [*lines, f"const vu bytes = {text};"]


def integer_depthwise_text(
    step: Micro, function: str, comment: Sequence[str], variant: Variant
) -> str:
    p: IntegerDepthwise = step.parameters
    names = [f"e{n}" for n in range(len(step.addends))]
    walks = list(zip(names, step.addends, p.addends, strict=True))
    tile, word = tile_of(p, variant), "signed" if p.signed else "bytes"
    advance = p.result[2] * p.pixels
    place = "to" + (f" + p * {advance}" if tile.rows > 1 else "")
    return render(
        "kernels/integer_depthwise.c.j2",
        function=function,
        comment=comment,
        p=p,
        tile=tile,
        lanes=variant.lanes,
        x_type="int8_t" if p.signed else "uint8_t",
        load=f"vu_load_{word}",
        pair=f"vu_pair_{word}",
        out_type=step.twin.out.dtype.c_type,
        addends=[(name, load.dtype.c_type) for name, load, _ in walks],
        loads=[_loaded(name, load, (0, lane), "k", p.width) for name, load, lane in walks],
        epilogue=_epilogue(step, "sum[p]", "", place),
    )
