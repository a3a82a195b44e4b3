"""The mathematical functions of runtime_c/: special values, and the errors their comments state.

The bound of a function is read from its comment. The C is built with and without contraction of
a * b + c, each function in a loop over an array, which the compiler may vectorise. For float the
reference is numpy in double, whose own error is below 2^-26 ulp; else mpmath with 200 bits.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc import library
from onnxc.resources import runtime_functions, runtime_text
from tests.models import STRICT
from tests.runtime.math_inputs import double_inputs, dtype, float_inputs, worst_multiples
from tests.toolchains import Tool, run

Array = NDArray[Any]

INF, NAN = math.inf, math.nan
EXACT: Final = ("floor", "ceil", "trunc", "round", "sqrt")
BINARY: Final = ("pow", "mod", "max", "min")
OF_TWO: Final = (*BINARY, "far_quotient", "mod_near")
KINDS: Final = ("float", "double")
ODD: Final = (
    *("expm1", "log1p", "sinh", "tanh", "asinh", "atanh", "erf"),
    *("sin", "tan", "asin", "atan"),
)
UNLIMITED: Final = ("log", "log1p", "asinh", "acosh", "atan", "sin", "cos", "tan", "softplus")
C_ONLY: Final = ("-std=c99", "-Wmissing-prototypes", "-Wstrict-prototypes")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy at infinities


def softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.tolist()])


@dataclass(frozen=True)
class Reference:
    """A function in numpy's double and in mpmath."""

    numpy: Callable[[Array], Array]
    mpmath: Callable[[Any], Any]


REFERENCES: Final = {
    "exp": Reference(np.exp, mpmath.exp),
    "expm1": Reference(np.expm1, mpmath.expm1),
    "log": Reference(np.log, mpmath.log),
    "log1p": Reference(np.log1p, mpmath.log1p),
    "softplus": Reference(softplus, lambda x: mpmath.log1p(mpmath.exp(x))),
    "sigmoid": Reference(sigmoid, lambda x: 1 / (1 + mpmath.exp(-x))),
    "sinh": Reference(np.sinh, mpmath.sinh),
    "cosh": Reference(np.cosh, mpmath.cosh),
    "tanh": Reference(np.tanh, mpmath.tanh),
    "asinh": Reference(np.arcsinh, mpmath.asinh),
    "acosh": Reference(np.arccosh, mpmath.acosh),
    "atanh": Reference(np.arctanh, mpmath.atanh),
    "erf": Reference(erf, mpmath.erf),
    "sin": Reference(np.sin, mpmath.sin),
    "cos": Reference(np.cos, mpmath.cos),
    "tan": Reference(np.tan, mpmath.tan),
    "asin": Reference(np.arcsin, mpmath.asin),
    "acos": Reference(np.arccos, mpmath.acos),
    "atan": Reference(np.arctan, mpmath.atan),
}
FUNCTIONS: Final = (*REFERENCES, *EXACT, *BINARY)
NEAR: Final = ("sin", "cos", "tan", "mod")
"""Functions with a fast form in float, for inputs that are not far."""
FAST: Final = ("far_angle", "far_quotient", *(f"{name}_near" for name in NEAR))
EVERY: Final = (*itertools.product(KINDS, FUNCTIONS), *(("float", name) for name in FAST))


def c_source() -> str:
    """Every function, and void apply_FUNCTION_TYPE(...), a loop over arrays of n elements."""
    names = [f"onnxc_{name}_{kind}" for kind, name in EVERY]
    loops = []
    for kind, name in EVERY:
        call = f"({kind})onnxc_{name}_{kind}({'x[i], y[i]' if name in OF_TWO else 'x[i]'})"
        prototype = declaration(name, kind)
        body = f"    for (int64_t i = 0; i < n; i++)\n        result[i] = {call};\n"
        loops.append(f"{prototype};\n{prototype}\n{{\n{body}}}\n")
    includes = "#include <math.h>\n#include <stdint.h>\n"
    return "\n".join([includes, *runtime_text(names), *loops])


def declaration(name: str, kind: str) -> str:
    second = f"const {kind} *y, " if name in OF_TWO else ""
    return f"void apply_{name}_{kind}(const {kind} *x, {second}{kind} *result, int64_t n)"


class Built:
    """The functions in C, called on arrays of float32 or float64."""

    def __init__(self, folder: Path, contract: str, command: str = "cc") -> None:
        header = [f"{declaration(name, kind)};" for kind, name in EVERY]
        (folder / "apply.h").write_text("\n".join(header) + "\n", encoding="ascii")
        (folder / "apply.c").write_text(c_source(), encoding="ascii")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CC", command)
            patch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, f"-ffp-contract={contract}"]))
            self.library = library.build_file(folder / "apply.c")

    def __call__(self, name: str, *arguments: Array) -> Array:
        kind = {4: "float", 8: "double"}[arguments[0].itemsize]
        ffi, result = self.library.ffi, np.empty_like(arguments[0])
        pointers = [
            ffi.from_buffer(f"{kind}[]", np.ascontiguousarray(argument)) for argument in arguments
        ]
        function = getattr(self.library.lib, f"apply_{name}_{kind}")
        function(*pointers, ffi.from_buffer(f"{kind}[]", result), result.size)
        return result


@pytest.fixture(scope="module", params=["off", "fast"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("math"), request.param)


@cache
def bound(name: str, kind: str) -> float:
    """The bound of the comment, in ulp."""
    found = re.search(r"[Aa]t most ([0-9.]+) ulp", runtime_functions()[f"onnxc_{name}_{kind}"])
    assert found is not None, f"onnxc_{name}_{kind} states no bound"
    return float(found[1])


def test_bounds_are_small() -> None:
    for kind in KINDS:
        assert all(bound(name, kind) <= 2.6 for name in (*REFERENCES, "pow"))
        assert all(bound(name, kind) <= 1.5 for name in ("exp", "log"))
    assert bound("pow", "float") <= 1


# What is exact: special values, rounding, remainder, order.

ODD_ZEROS: Final = [(0.0, 0.0), (-0.0, -0.0), (NAN, NAN)]
SPECIAL: Final = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, INF), (-1e4, 0.0)],
    "expm1": [*ODD_ZEROS, (INF, INF), (-INF, -1.0), (1e4, INF), (-1e4, -1.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN),
            (NAN, NAN)],
    "log1p": [*ODD_ZEROS, (-1.0, -INF), (INF, INF), (-INF, NAN), (-2.0, NAN)],
    "softplus": [(INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, 1e4), (-1e4, 0.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (-1e4, 0.0)],
    "sinh": [*ODD_ZEROS, (INF, INF), (-INF, -INF), (1e4, INF), (-1e4, -INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (-1e4, INF)],
    "tanh": [*ODD_ZEROS, (INF, 1.0), (-INF, -1.0), (100.0, 1.0), (-100.0, -1.0)],
    "asinh": [*ODD_ZEROS, (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (INF, INF), (0.5, NAN), (-1.0, NAN), (-INF, NAN), (-1e38, NAN),
              (NAN, NAN)],
    "atanh": [*ODD_ZEROS, (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN), (INF, NAN)],
    "erf": [*ODD_ZEROS, (INF, 1.0), (-INF, -1.0), (10.0, 1.0), (-10.0, -1.0)],
    "sin": [*ODD_ZEROS, (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tan": [*ODD_ZEROS, (INF, NAN), (-INF, NAN)],
    "asin": [*ODD_ZEROS, (1.5, NAN), (-INF, NAN), (INF, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (-1.5, NAN), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "atan": [*ODD_ZEROS, (INF, math.pi / 2), (-INF, -math.pi / 2)],
    "sqrt": [*ODD_ZEROS, (4.0, 2.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "floor": [*ODD_ZEROS, (-0.5, -1.0), (0.5, 0.0), (INF, INF), (-INF, -INF)],
    "ceil": [*ODD_ZEROS, (-0.5, -0.0), (0.5, 1.0), (INF, INF), (-INF, -INF)],
    "trunc": [*ODD_ZEROS, (-0.5, -0.0), (-1.5, -1.0), (INF, INF), (-INF, -INF)],
    "round": [*ODD_ZEROS, (-0.5, -0.0), (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-2.5, -2.0),
              (INF, INF)],
}  # fmt: skip


def assert_same(got: Array, wanted: Array, *arguments: Array) -> None:
    """The same values and signs of zeros; one NaN is as good as another."""
    same = (got == wanted) & (np.signbit(got) == np.signbit(wanted))
    wrong = np.flatnonzero(~(same | (np.isnan(got) & np.isnan(wanted))))
    if wrong.size:
        first = wrong[0]
        values = [float(argument[first]) for argument in arguments]
        pytest.fail(f"{values!r} gives {got[first]!r}, not {wanted[first]!r} ({wrong.size} wrong)")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(built: Built, name: str, kind: str) -> None:
    x, wanted = np.array(SPECIAL[name]).astype(dtype(kind)).T
    assert_same(built(name, x), wanted, x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXACT)
def test_exact(built: Built, name: str, kind: str) -> None:
    x = float_inputs() if kind == "float" else double_inputs(200_000, 20)
    wanted = getattr(np, {"round": "rint"}.get(name, name))(x)
    assert_same(built(name, x), wanted, x)


@pytest.mark.parametrize("kind", KINDS)
def test_mod_is_exact(built: Built, kind: str) -> None:
    x = double_inputs(100_000, 20).astype(dtype(kind))
    y = np.roll(x, 777)
    assert_same(built("mod", x, y), np.fmod(x, y), x, y)


def test_fast_forms_of_angles(built: Built) -> None:
    """The same bits up to 1600, and for NaN."""
    x = float_inputs()
    far = built("far_angle", x) != 0
    assert np.array_equal(far, np.abs(x) >= 1600)
    for name in ("sin", "cos", "tan"):
        assert_same(built(f"{name}_near", x[~far]), built(name, x[~far]), x[~far])


def test_the_fast_form_of_mod(built: Built) -> None:
    """Exact for quotients up to 2^28 and for NaN, that of an infinite divisor too."""
    random = np.random.default_rng(3)
    x = double_inputs(100_000, 20).astype(np.float32)
    y = np.roll(x, 777)
    large = np.ldexp(random.uniform(1, 2, len(y)), random.integers(0, 28, len(y)))
    x, y = np.concatenate([x, (y * large).astype(np.float32)]), np.concatenate([y, y])
    far = built("far_quotient", x, y) != 0
    assert np.array_equal(far, np.abs(x) >= np.abs(y) * np.float32(2**28))
    x, y = x[~far], y[~far]
    assert_same(built("mod_near", x, y), np.fmod(x, y), x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_max_and_min(built: Built, kind: str) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, 1e-40, INF, -INF, NAN], dtype(kind))
    x, y = (part.ravel() for part in np.meshgrid(values, values))
    both_negative, one_negative = np.signbit(x) & np.signbit(y), np.signbit(x) | np.signbit(y)
    zeros = (x == 0) & (y == 0)
    for name, function, negative in [
        ("max", np.maximum, both_negative),
        ("min", np.minimum, one_negative),
    ]:
        wanted = np.where(zeros, np.where(negative, -0.0, 0.0), function(x, y)).astype(x.dtype)
        assert_same(built(name, x, y), wanted, x, y)


def power_cases() -> Iterator[tuple[float, float, float]]:
    """x, y, x^y: every clause of C99, F.9.4.4, then exact powers."""
    for y in (-INF, -3.0, -0.5, -0.0, 0.0, 0.5, 3.0, INF, NAN):
        yield 1.0, y, 1.0
    for x in (-INF, -3.0, -0.0, 0.0, 0.5, INF, NAN):
        yield from ((x, 0.0, 1.0), (x, -0.0, 1.0))
    for y in (-3.0, -1.0, 1.0, 3.0):
        yield from ((0.0, y, INF if y < 0 else 0.0), (-0.0, y, -INF if y < 0 else -0.0))
        yield from ((INF, y, 0.0 if y < 0 else INF), (-INF, y, -0.0 if y < 0 else -INF))
    for y in (-INF, -2.0, -0.5, 0.5, 2.0, 1e30, INF):
        yield from ((0.0, y, INF if y < 0 else 0.0), (-0.0, y, INF if y < 0 else 0.0))
        yield from ((INF, y, 0.0 if y < 0 else INF), (-INF, y, 0.0 if y < 0 else INF))
    for y in (-INF, INF):
        yield -1.0, y, 1.0
        for x in (0.5, -0.5):
            yield x, y, INF if y < 0 else 0.0
        for x in (2.0, -2.0):
            yield x, y, 0.0 if y < 0 else INF
    for x in (-0.5, -1.0, -2.0, -1e-40, -1e38):
        yield from ((x, 0.5, NAN), (x, -2.5, NAN))
    for value in (-INF, -1.0, 0.5, INF, NAN):
        yield from ((NAN, value, NAN), (value, NAN, NAN))
    yield from ((2.0, 10.0, 1024.0), (-2.0, 3.0, -8.0), (2.0, -3.0, 0.125), (9.0, 0.5, 3.0))
    yield from ((10.0, 1e4, INF), (-10.0, 1e4, INF), (10.0, -1e4, 0.0), (-3.0, 9999.0, -INF))


@pytest.mark.parametrize("kind", KINDS)
def test_special_powers(built: Built, kind: str) -> None:
    x, y, wanted = np.array(list(power_cases())).astype(dtype(kind)).T
    assert_same(built("pow", x, y), wanted, x, y)


# Errors.


@cache
def float_reference(name: str) -> Array:
    return REFERENCES[name].numpy(float_inputs().astype(np.float64))


def float_errors(got: Array, wanted: Array) -> Array:
    """In ulp of the wanted doubles; 0 where both are NaN or round to the same infinity."""
    rounded = wanted.astype(np.float32)
    exponent = np.maximum(np.frexp(wanted)[1], -125)
    errors = np.abs(got.astype(np.float64) - wanted) / np.ldexp(1.0, exponent - 24)
    same = (got == rounded) & np.isinf(rounded) | (np.isnan(got) & np.isnan(wanted))
    return np.where(same, 0.0, np.where(np.isfinite(errors), errors, INF))


def double_error(got: float, wanted: Any) -> float:
    """In ulp of the wanted real number; 0 where both are NaN or round to the same infinity."""
    if not isinstance(wanted, mpmath.mpf) or mpmath.isnan(wanted):
        return 0.0 if math.isnan(got) else INF
    if math.isinf(got) or mpmath.isinf(wanted):
        return 0.0 if got == float(wanted) else INF
    exponent = max(mpmath.frexp(wanted)[1], -1021)
    return float(abs(got - wanted) / mpmath.ldexp(1, exponent - 53))


def assert_within(errors: Array, limit: float, *arguments: Array) -> None:
    worst = int(np.argmax(errors))
    values = [float(argument[worst]) for argument in arguments]
    assert errors[worst] <= limit, f"{errors[worst]} ulp at {values!r}"


@pytest.mark.parametrize("name", REFERENCES)
def test_float_errors(built: Built, name: str) -> None:
    x, wanted = float_inputs(), float_reference(name)
    got = built(name, x)
    assert_within(float_errors(got, wanted), bound(name, "float"), x)
    assert not np.any((np.signbit(got) != np.signbit(wanted)) & ~np.isnan(wanted))


@cache
def double_reference(name: str) -> tuple[Array, list[Any]]:
    """Inputs of a function and its values in mpmath."""
    x = double_inputs(2000, 1)
    if name in ("sin", "cos", "tan"):
        x = np.concatenate([x, worst_multiples("double")])
    with mpmath.workprec(200):
        return x, [exact(name, value) for value in x.tolist()]


def exact(name: str, x: float) -> Any:
    """A function of a double in mpmath; NaN where it is no real number."""
    if not math.isfinite(x):
        return mpmath.mpf(float(REFERENCES[name].numpy(np.array([x]))[0]))
    if abs(x) < 1e-30 and name in ODD:  # where the next term is beyond 200 bits
        return mpmath.mpf(x) * (2 / mpmath.sqrt(mpmath.pi) if name == "erf" else 1)
    large = x if name in UNLIMITED else max(min(x, 1e4), -1e4)
    try:
        value = REFERENCES[name].mpmath(mpmath.mpf(large))
    except ValueError:
        return mpmath.nan
    return value if isinstance(value, mpmath.mpf) else mpmath.nan


@pytest.mark.parametrize("name", REFERENCES)
def test_double_errors(built: Built, name: str) -> None:
    x, wanted = double_reference(name)
    got = built(name, x).tolist()
    with mpmath.workprec(200):
        errors = np.array([double_error(*pair) for pair in zip(got, wanted, strict=True)])
    assert_within(errors, bound(name, "double"), x)


def powers(kind: str, count: int) -> tuple[Array, Array]:
    """Positive bases of any exponent and near 1, and exponents that keep the result in range."""
    random = np.random.default_rng(7)
    limits = np.finfo(dtype(kind))
    x = np.exp2(random.uniform(limits.minexp, limits.maxexp, count))
    x[::2] = 1 + random.uniform(-0.5, 0.5, count)[::2] * np.exp2(-random.uniform(0, 20, count)[::2])
    x = x.astype(dtype(kind))
    y = random.uniform(limits.minexp - limits.nmant, limits.maxexp, count) / np.log2(x)
    return x, np.where(np.isfinite(y), y, 1.0).astype(dtype(kind))


def test_float_power_errors(built: Built) -> None:
    x, y = powers("float", 200_000)
    wanted = np.power(x.astype(np.float64), y.astype(np.float64))
    assert_within(float_errors(built("pow", x, y), wanted), bound("pow", "float"), x, y)


def test_double_power_errors(built: Built) -> None:
    x, y = powers("double", 4000)
    got = built("pow", x, y).tolist()
    with mpmath.workprec(200):
        wanted = [
            mpmath.mpf(a) ** mpmath.mpf(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)
        ]
        errors = np.array([double_error(*pair) for pair in zip(got, wanted, strict=True)])
    assert_within(errors, bound("pow", "double"), x, y)


# The C itself.


@pytest.mark.parametrize("command", ["clang", "tcc"])
@pytest.mark.parametrize("built", ["off"], indirect=True)
def test_other_compilers_give_the_same_bits(
    built: Built, command: str, tool: Tool, tmp_path: Path
) -> None:
    other = Built(tmp_path, "off", tool(command))
    x = double_inputs(20_000, 20)
    for kind, name in EVERY:
        first = x.astype(dtype(kind))
        arguments = (first, np.roll(first, 777)) if name in OF_TWO else (first,)
        assert_same(other(name, *arguments), built(name, *arguments), *arguments)


@pytest.mark.parametrize("command", ["g++ -std=c++11", "g++ -std=c++17", "clang++ -std=c++11"])
def test_no_warning_in_cxx(command: str, tool: Tool, tmp_path: Path) -> None:
    name, *options = command.split()
    flags = [flag for flag in STRICT if flag not in C_ONLY]
    (tmp_path / "apply.cpp").write_text(c_source(), encoding="ascii")
    run([tool(name), *options, *flags, "-fsyntax-only", "apply.cpp"], tmp_path)
