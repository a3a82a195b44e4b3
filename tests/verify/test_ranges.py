"""Integer inputs that index are drawn from what the model has."""

import onnx
import pytest

from onnxc.verify import verify_model
from onnxc.verify.source import subject


def ranges(text: str) -> dict[str, tuple[float, float]]:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return dict(subject(model, None, {}, {}).ranges)


def embedding(nodes: str) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (int64[1, 7] ids, float[300, 4] table) => (float[1, 7, 4] y) {{ {nodes} }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Gather(table, ids)",
        "i = Cast<to = 6>(ids) y = Gather(table, i)",
        "i = Identity(ids) y = Gather<axis = 0>(table, i)",
    ],
)
def test_an_index_has_the_range_of_its_dimension(nodes: str) -> None:
    assert dict(subject(embedding(nodes), None, {}, {}).ranges) == {"ids": (0, 299)}


def test_the_smallest_dimension_counts() -> None:
    found = ranges(
        """m (int32[5] i, float[9, 4] a, float[4, 20] b) => (float[5, 4] y) {
            p = Gather(a, i)
            q = Gather<axis = 1>(b, i)
            t = Transpose<perm = [1, 0]>(q)
            y = Add(p, t)
        }"""
    )
    assert found == {"i": (0, 8)}


def test_other_integers_have_none() -> None:
    assert ranges("m (int64[5] a, float[9, 4] b) => (int64[5] y) { y = Abs(a) }") == {}


def test_an_embedding_verifies_without_given_inputs() -> None:
    result = verify_model(embedding("y = Gather(table, ids)"), against="both")
    assert result.passed, result.to_json()
    assert not result.skipped


def test_without_a_range_smaller_integers_are_tried() -> None:
    """The index is computed, so that the model does not show its range."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (int64[3] i, float[4] a) => (float[3] y) { j = Mul(i, i) y = Gather(a, j) }"""
    result = verify_model(onnx.parser.parse_model(text))
    assert result.passed, result.to_json()
    assert {comparison.inputs for comparison in result.comparisons} == {
        "random",
        "special",
        "repeated",
    }
