"""The kernels for processors without vectors as C: each layer's own, or shared between layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from onnxc.emit.integer_product import integer_lines
from onnxc.emit.text import render
from onnxc.emit.vectors import vector_lines
from onnxc.kernel import Micro
from onnxc.target import Variant
from onnxc.tuned import shared_integers
from onnxc.tuned.scalar_depthwise import Sliding
from onnxc.tuned.scalar_shared import MOST_TAPS, PIXELS, SINGLE, Shared
from onnxc.tuned.scalar_windows import PANEL, Windows
from onnxc.tuned.shared_integers import SharedIntegers

CALLED: Final = {
    "row": ("named", "row"),
    "windows": ("named", "taps", "tile", "filter", "windows"),
}
"""Of each function that layers call, those of kernels/shared_windows.c.j2 that it is made of."""


def _windows(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    p: Windows = step.parameters

    def value(pixel: int, lane: int) -> str:
        row, column = (f"p + {pixel}" if pixel else "p"), (f"n + {lane}" if lane else "n")
        return _finished(step, function, f"sum_{pixel}_{lane}", p.moves, row, column)

    return _own("windows", step, function, comment, value)


def _integers(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    p: Windows = step.parameters

    def value(pixel: int, lane: int) -> str:
        row, column = (f"p + {pixel}" if pixel else "p"), (f"n + {lane}" if lane else "n")
        return _finished(step, function, f"sum_{pixel}_{lane}", p.moves, row, column)

    kernel = render(
        "kernels/windows_scalar.c.j2",
        p=p,
        name=function,
        comment=comment,
        parameters=_parameters(step),
        value=value,
    )
    return _finish_integers(step, function, p.types[-1]) + kernel


def _shared_integers(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    p: SharedIntegers = step.parameters
    kernel = render(
        "kernels/shared_integers.c.j2",
        p=p,
        name=function,
        comment=comment,
        pixels=shared_integers.PIXELS,
        chunk=shared_integers.CHUNK,
        parameters=_parameters(step),
        value=_finished(step, function, "sums[j * chunk + q]", p.moves, "p + j", "n + q"),
    )
    return kernel if p.finished else _finish_integers(step, function, p.result) + kernel


def _finish_integers(step: Micro, function: str, result: str) -> str:
    """The function that makes bytes of a sum."""
    names = _addends(step)
    return render(
        "kernels/finish_integers.c.j2",
        function=function,
        result=result,
        addends=names,
        epilogue=integer_lines(step, dict(zip(step.addends, names, strict=True))),
    )


def _depthwise(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    p: Sliding = step.parameters
    pixel = "(y - out) / pixel"
    value = _finished(step, function, "sum", p.moves, pixel, "c")
    return _own("depthwise", step, function, comment, value)


def _own(kind: str, step: Micro, function: str, comment: Sequence[str], value: Any) -> str:
    """The functions of one layer: what becomes of a sum, and the sums."""
    kernel = render(
        f"kernels/{kind}_scalar.c.j2",
        p=step.parameters,
        name=function,
        comment=comment,
        parameters=_parameters(step),
        value=value,
    )
    return _finish(step, function) + kernel


def _finish(step: Micro, function: str) -> str:
    """Nothing where a sum is stored as it is."""
    if step.epilogue is step.total:
        return ""
    names = _addends(step)
    lines = vector_lines(step.epilogue, step.total, dict(zip(step.addends, names, strict=True)))
    return render("kernels/finish_scalar.c.j2", function=function, addends=names, epilogue=lines)


def _finished(
    step: Micro,
    function: str,
    total: str,
    moves: Sequence[tuple[int, int]],
    pixel: str,
    lane: str,
) -> str:
    """What is stored for a sum, whose pixel and lane are C expressions."""
    if step.epilogue is step.total:
        return total
    arguments = [total]
    for name, (across, along) in zip(_addends(step), moves, strict=True):
        terms = [f"({pixel}) * {across}"] if across else []
        terms += [lane] if along else []
        arguments.append(f"{name}[{' + '.join(terms) or '0'}]")
    return f"{function}_finish({', '.join(arguments)})"


def _shared(step: Micro, function: str, comment: Sequence[str], _variant: Variant) -> str:
    """A function that has the sums computed and then applies the epilogue to what is stored."""
    p: Shared = step.parameters
    names = _addends(step)
    loads = {load: f"{name}[i]" for load, name in zip(step.addends, names, strict=True)}
    zeros = [] if p.function == "row" else ["zeros"]
    return render(
        "kernels/shared_scalar.c.j2",
        function=function,
        comment=comment,
        core=f"onnxc_{p.function}",
        arguments=["x", "w", *zeros, "layer"],
        addends=names,
        epilogue=vector_lines(step.epilogue, step.total, loads),
    )


def shared_texts(steps: Sequence[Micro]) -> list[str]:
    """The functions that layers share, each once, before what calls it."""
    found = [step.parameters for step in steps]
    shared = [p for p in found if isinstance(p, Shared)]
    integers = [p for p in found if isinstance(p, SharedIntegers)]
    names = dict.fromkeys(part for called in shared for part in CALLED[called.function])
    if integers:
        names = dict.fromkeys(["named", *names])
    tables = [p.numbers for p in shared] + [p.numbers for p in integers]
    values = {
        **{"pixels": PIXELS, "panel": PANEL, "most_taps": MOST_TAPS, "single": SINGLE},
        "numbers": max(tables, key=len, default=()),  # the longer begins as the shorter does
    }
    texts = [render("kernels/shared_windows.c.j2", function=name, **values) for name in names]
    for source in dict.fromkeys(p.source for p in integers):
        texts += _sums([p for p in integers if p.source == source])
    return texts


def _sums(layers: Sequence[SharedIntegers]) -> list[str]:
    """What layers share that read one type of bytes."""
    dense = any(not p.depthwise for p in layers)
    depthwise = any(p.depthwise for p in layers)
    finished = any(p.finished for p in layers)
    wanted = {"tile": dense, "filter": depthwise, "sums": True, "layer": finished}
    return [
        render(
            "kernels/integer_sums.c.j2",
            function=function,
            source=layers[0].source,
            dense=dense,
            depthwise=depthwise,
            panel=shared_integers.LANES,
            chunk=shared_integers.CHUNK,
            most_taps=shared_integers.MOST_TAPS,
        )
        for function, is_wanted in wanted.items()
        if is_wanted
    ]


def _parameters(step: Micro) -> str:
    return "".join(f"const float *restrict {name}, " for name in _addends(step))


def _addends(step: Micro) -> list[str]:
    return [f"e{n}" for n in range(len(step.addends))]


RENDERERS: Final[dict[str, Callable[..., str]]] = {
    "integers_scalar": _integers,
    "windows_scalar": _windows,
    "depthwise_scalar": _depthwise,
    "shared_integers": _shared_integers,
    "shared_scalar": _shared,
}
