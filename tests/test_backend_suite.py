"""ONNX's backend tests through ONNX's own runner, and the same models said in other ways.

Each test either passes at the runner's tolerance or its model is refused with the reason in
unsupported_backend_tests.tsv. A variant gives the same C or the same answers, or is refused with
the reason in refused_variants.tsv.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pytest

from onnxc.compiled import CompiledModel
from onnxc.dtypes import numpy_dtype
from onnxc.errors import ModelError
from onnxc.pipeline import Compiled, compile_model, evaluate_model
from onnxc.verify.compare import Tolerance, compare
from tests.backend_suite import (
    LIGHT,
    VARIANTS,
    Array,
    Example,
    as_bytes,
    example,
    names,
    reason_of,
    refused_variants,
    runner_tests,
    unsupported,
)

# ONNX's expected values here are further from the exact ones than onnxc's, and than the runner
# tolerates: an inverse transform in float leaves 1.9e-7 where there is 0, and a function body in
# float16 rounds at every node. The greatest difference that is let pass, and why.
LESS_EXACT = {
    "test_dft_inverse": 2e-6,
    "test_dft_inverse_opset19": 2e-6,
    "test_attention_4d_causal_fp16_expanded": 5e-4,
}
NAMES = names()
UNSUPPORTED = unsupported()
SUPPORTED = [name for name in NAMES if name not in UNSUPPORTED]
REFUSED_VARIANTS = refused_variants()
# The light models would need minutes as plain loops, and in numpy more memory than there is.
FORMS = [
    (name, form)
    for name in SUPPORTED
    for form in (*VARIANTS, *(() if name in LIGHT else ("plain", "in_numpy")))
]

pytestmark = pytest.mark.usefixtures("strict_c")


@pytest.fixture(scope="module", autouse=True)
def light_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where the runner writes the arrays of the light models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("light")))
        yield


def test_the_lists_are_complete() -> None:
    assert sorted(runner_tests()) == NAMES
    assert len(NAMES) == 2036
    assert list(UNSUPPORTED) == [name for name in NAMES if name in UNSUPPORTED]
    possible = [(name, variant) for name in SUPPORTED for variant in VARIANTS]
    assert list(REFUSED_VARIANTS) == [pair for pair in possible if pair in REFUSED_VARIANTS]


@pytest.mark.parametrize("name", [name for name in SUPPORTED if name not in LESS_EXACT])
def test_onnx(name: str) -> None:
    runner_tests()[name].debug()


@pytest.mark.parametrize("name", LESS_EXACT)
def test_onnx_whose_data_is_less_exact(name: str) -> None:
    """It fails at the runner's tolerance, and is near for all that."""
    with pytest.raises(AssertionError):
        runner_tests()[name].debug()
    (found,), (wanted,) = answers(fused(name), example(name)), example(name).outputs
    np.testing.assert_allclose(found, wanted, rtol=0, atol=LESS_EXACT[name])


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_onnx_refused(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        runner_tests()[name].debug()
    assert reason_of(caught.value) == UNSUPPORTED[name]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_form(name: str, form: str) -> None:
    """The forms of a model come one after the other and share what the cache below holds."""
    if form == "plain":
        check_plain(name)
    elif form == "in_numpy":
        check_in_numpy(name)
    else:
        check_variant(name, form)


def check_variant(name: str, variant: str) -> None:
    """The same C, else the same answers."""
    model, dims = VARIANTS[variant](example(name).model)
    if (name, variant) in REFUSED_VARIANTS:
        with pytest.raises(ModelError) as caught:
            compile_model(model, dims=dims)
        assert reason_of(caught.value) == REFUSED_VARIANTS[name, variant]
        return
    compiled = compile_model(model, dims=dims)
    if text(compiled) != text(fused(name)):
        assert name not in LESS_EXACT
        example(name).assert_close(answers(compiled, example(name)))


def check_plain(name: str) -> None:
    """Every value in plain loops gives what the fused build gives."""
    plain = compile_model(example(name).model, plain=True)
    if text(plain) != text(fused(name)):
        found, wanted = (answers(compiled, example(name)) for compiled in (plain, fused(name)))
        assert_agree(fused(name), found, wanted)


def check_in_numpy(name: str) -> None:
    """The kernel IR in numpy gives what its C gives."""
    original = example(name)
    inputs = {key: as_bytes(array) for key, array in given(fused(name), original).items()}
    found = list(evaluate_model(original.model, inputs).values())
    assert_agree(fused(name), found, answers(fused(name), original))


@lru_cache(maxsize=4)
def fused(name: str) -> Compiled:
    return compile_model(example(name).model)


def given(compiled: Compiled, original: Example) -> dict[str, Array]:
    names = [value.name for value in compiled.inputs]
    return dict(zip(names, original.inputs, strict=True))


def answers(compiled: Compiled, original: Example) -> list[Array]:
    """What the C makes of the test's inputs."""
    return list(CompiledModel(compiled).run(given(compiled, original)).values())


def text(compiled: Compiled) -> str:
    """The C without the hash of its header, which has the options in it."""
    return re.sub(r"(?<=_INTERFACE != )0x[0-9a-f]+u", "", compiled.c_source)


def assert_agree(compiled: Compiled, found: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Within the tolerances of onnxc.verify, which are stricter than the runner's."""
    for output, got, expected in zip(compiled.outputs, found, wanted, strict=True):
        difference = compare(got, expected, output.dtype, Tolerance())
        assert difference.passed, f"{output.name}: {difference}"
        assert got.dtype == expected.dtype in (numpy_dtype(output.dtype), object)
