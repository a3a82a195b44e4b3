"""Names and texts are data: whatever they are, the C differs in identifiers and comments only."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from onnxc.pipeline import compile_model
from tests.fuzz.c_tokens import difference
from tests.fuzz.mutations import HOSTILE_TEXTS
from tests.fuzz.oracle import judged_c
from tests.fuzz.renaming import renamed
from tests.fuzz.seed_models import compiling_seeds
from tests.malformed import parse

TEXT = '*/ int injected; \\\n??/\n" {{ x }}{% raw %} %s%n \x1b größe'
FUNCTION = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
g (float[N] x) => (float[N] y) { [call] y = local.f <scale = 2.0> (x) }
<domain: "local", opset_import: ["": 21]> f <scale> (a) => (b)
{ s = Constant <value_float: float = @scale> () [times] b = Mul (a, s) }"""
BRANCHES = """g (float[3] x) => (float[3] y) <bool c = {1}> {
    y = If (c) < then_branch = t () => (float[3] p) { p = Neg (x) },
                 else_branch = e () => (float[3] q) { q = Abs (x) } >
}"""


class Renaming:
    """One name for each other name; the `style` gives it from a number."""

    def __init__(self, style: Callable[[int], str]) -> None:
        self._style = style
        self._names: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return self._names.setdefault(name, self._style(len(self._names)))


def plain(number: int) -> str:
    return f"plain_{number}_name"


def hostile(number: int) -> str:
    """Distinct; with the text that hurts at the start and at the end."""
    first = HOSTILE_TEXTS[number % len(HOSTILE_TEXTS)][:100]
    last = HOSTILE_TEXTS[number * 7 % len(HOSTILE_TEXTS)][:100]
    return f"{first}{number}{last}"


def difference_by_names(model: onnx.ModelProto, gcc: str | None, **options: object) -> str:
    dims = {"N": 3} if options.get("open") else {}
    texts = []
    for style, text in ((plain, "plain"), (hostile, TEXT)):
        rename = Renaming(style)
        changed = renamed(model, rename, text)
        compiled = compile_model(changed, name="m", dims={rename(k): n for k, n in dims.items()})
        texts.append((compiled.header, compiled.c_source))
    (plain_header, plain_c), (header, source) = texts
    found = judged_c(header, source, gcc)
    assert not found.fault, found
    return difference(plain_header, header) or difference(plain_c, source)


def test_names_of_every_kind_of_model() -> None:
    """Every thirtieth model that compiles."""
    for model in compiling_seeds()[::30]:
        assert difference_by_names(model, None) == "", model.graph.name


@pytest.mark.parametrize("text", [FUNCTION, BRANCHES], ids=["function", "branches"])
def test_names_of_functions_branches_and_dimensions(text: str, tool: Callable[[str], str]) -> None:
    assert difference_by_names(parse(text), tool("gcc"), open=text is FUNCTION) == ""


def test_a_difference_is_seen() -> None:
    """In tokens, in what an identifier becomes, and in the text of a string."""
    text = 'int a(int b) { return b + 1; } /* x */ const char *c = "d";\n'
    assert difference(text, text.replace("b", "e").replace("x", "y")) == ""
    assert difference(text, text.replace("1", "2")) == "1 is 2"
    assert difference(text, text.replace("return b", "return a")) == "b is b and a"
    assert difference(text, text.replace("b + 1", "b + 1 + b")) == "20 tokens and 22"
    assert difference(text, text.replace('"d"', '"e"')) == '"d" is "e"'
