"""Malformed models whose fault is in their functions, or in how they are called."""

from tests.malformed import written

_LOCAL = '<ir_version: 10, opset_import: ["": 21, "f": 1]> g (float x) => (float y)'
_BODY = '<domain: "f", opset_import: ["": 21, "f": 1]>'


def _laughs(depth: int, calls: int) -> str:
    """Functions that each call the one before several times."""
    model = f"{_LOCAL} {{ y = f.F{depth}(x) }} {_BODY} F0 (x) => (y) {{ y = Identity(x) }}"
    for level in range(1, depth + 1):
        chain = " ".join(f"t{n + 1} = f.F{level - 1}(t{n})" for n in range(calls))
        model += f" {_BODY} F{level} (t0) => (t{calls}) {{ {chain} }}"
    return model


FUNCTIONS = (
    written(
        "recursion",
        f"{_LOCAL} {{ y = f.F(x) }} {_BODY} F (x) => (y) {{ y = f.G(x) }}"
        f" {_BODY} G (x) => (y) {{ y = f.F(x) }}",
        "function 'F': calls itself ('F' -> 'G' -> 'F'); ONNX functions cannot be recursive",
    ),
    written(
        "a billion laughs",
        _laughs(depth=30, calls=10),
        "model: function calls expand to more than 10^15 nodes; the limit is 1,000,000; "
        "export without functions",
    ),
    written(
        "calls too deep",
        _laughs(depth=120, calls=1),
        "model: function calls nest 121 deep; the limit is 100",
    ),
    written(
        "a call that does not fit",
        f"{_LOCAL} {{ [c] y, z = f.F<a = 1, b = 2>(x, x) }}"
        f' <domain: "f", opset_import: ["": 21]> F <b> (x) => (y)'
        f" {{ y = LeakyRelu<alpha: float = @b>(x) }}",
        "node 'c' (f.F-1): has 2 inputs, but the function 'F' has 1",
        "node 'c' (f.F-1): has 2 outputs, but the function 'F' has 1",
        "node 'c' (f.F-1): attribute 'a' is not one of the function 'F'",
        "node 'c' (f.F-1): attribute 'b' is INT; the function 'F' uses it as FLOAT",
    ),
    written(
        "a body with problems",
        f"{_LOCAL} {{ y = f.F(x) }} {_BODY} F (x) => (y, z)"
        " { a = Identity(b) y = LeakyRelu<alpha: float = @c>(a) }",
        "function 'F' node #0 (Identity-21): input 'b' is not defined; "
        "no input, initializer or node has that name",
        "function 'F' node #1 (LeakyRelu-16): attribute 'alpha' refers to 'c', "
        "which the function does not declare",
        "function 'F' output 'z': is made by no node",
    ),
    written(
        "a function twice",
        f"{_LOCAL} {{ y = Identity(x) }} {_BODY} F (x) => (y) {{ y = Identity(x) }}"
        f" {_BODY} F (x) => (y) {{ y = Identity(x) }}",
        "function 'F': is defined twice; use an overload",
    ),
    written(
        "an overload that does not exist",
        f"{_LOCAL} {{ y = f.F:other(x) }} {_BODY} F (x) => (y) {{ y = Identity(x) }}",
        "node #0 (f.F-1): the model has no function with the overload 'other'",
    ),
    written(
        "an output that is an input left out",
        f"{_LOCAL} {{ [c] y = f.F() }} {_BODY} F (a) => (a) {{ }}",
        "node 'c': its output 'y' is the input 'a' of the function, which is left out",
    ),
)
