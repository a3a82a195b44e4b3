"""Inputs that are indices, lengths or places are drawn from what the model has."""

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


@pytest.mark.parametrize(
    ("version", "text", "expected"),
    [
        pytest.param(
            14,
            """m (float[5, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r, int32[2] n)
                => (float[5, 1, 2, 4] y) { y = LSTM<hidden_size = 4>(x, w, r, , n) }""",
            (1, 5),
            id="LSTM: lengths of the times",
        ),
        pytest.param(
            10,
            """m (float[4, 6] x, int64[4] n) => (float[4, 6] y) {
                y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, n)
            }""",
            (1, 6),
            id="ReverseSequence",
        ),
        pytest.param(
            13,
            "m (float[8, 3, 5] x, int64[4, 2] n) => (float[4, 5] y) { y = GatherND(x, n) }",
            (0, 2),
            id="GatherND: the smaller of two dimensions",
        ),
        pytest.param(
            13,
            """m (float[2, 3, 5] x, int64[2, 4, 1] n) => (float[2, 4, 5] y) {
                y = GatherND<batch_dims = 1>(x, n)
            }""",
            (0, 2),
            id="GatherND: behind the batch",
        ),
        pytest.param(
            18,
            """m (float[9, 3] x, int64[2, 1] n, float[2, 3] u) => (float[9, 3] y) {
                y = ScatterND(x, n, u)
            }""",
            (0, 8),
            id="ScatterND",
        ),
        pytest.param(
            13,
            """m (float[6, 4] x, int64[6] n) => (float y) { y = SoftmaxCrossEntropyLoss(x, n) }""",
            (0, 3),
            id="SoftmaxCrossEntropyLoss: classes",
        ),
        pytest.param(
            23,
            """m (float[1, 2, 3, 4] x, float[50, 2] c, float[50, 2] s, int64[1, 3] n)
                => (float[1, 2, 3, 4] y) { y = RotaryEmbedding(x, c, s, n) }""",
            (0, 49),
            id="RotaryEmbedding: places of the caches",
        ),
        pytest.param(
            24,
            """m (float[2, 3, 9, 4] x, float[2, 3, 2, 4] u, int64[2] n) => (float[2, 3, 9, 4] y) {
                y = TensorScatter(x, u, n)
            }""",
            (0, 7),
            id="TensorScatter: the update ends inside",
        ),
    ],
)
def test_what_an_operator_takes(version: int, text: str, expected: tuple[int, int]) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {version}]> {text}')
    assert dict(subject(model, None, {}, {}).ranges) == {"n": expected}
    result = verify_model(model)
    assert result.passed, result.to_json()


def test_the_times_of_batches_that_come_first() -> None:
    """Without a run: no engine beside onnxc has this layout with lengths."""
    found = ranges(
        """m (float[2, 7, 3] x, float[1, 12, 3] w, float[1, 12, 4] r, int32[2] n)
            => (float[2, 7, 1, 4] y) { y = GRU<hidden_size = 4, layout = 1>(x, w, r, , n) }"""
    )
    assert found == {"n": (1, 7)}


def test_regions_are_inside_of_the_images() -> None:
    """Those of any float would have samples without number."""
    text = """<ir_version: 8, opset_import: ["" : 16]>
        m (float[3, 2, 8, 6] x, float[5, 4] r, int64[5] n) => (float[5, 2, 1, 1] y) {
            y = RoiAlign<spatial_scale = 0.5>(x, r, n)
        }"""
    model = onnx.parser.parse_model(text)
    assert dict(subject(model, None, {}, {}).ranges) == {"r": (0, 12), "n": (0, 2)}
    result = verify_model(model)
    assert result.passed, result.to_json()


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
