"""What the newest form of an operator says differently, where the schemas do not tell.

RULES is the whole list: for each operator, rules for the versions before some other. They say what
an old version meant in words of the newest; where that has none they raise RefusalError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import onnx
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.passes.legacy_broadcast import align, align_channels, equal_shapes, gemm_bias
from onnxc.passes.legacy_resize import drop_empty, resize_10, upsample
from onnxc.passes.rewriting import Rewriting

HINTS: Final = frozenset({"consumed_inputs"})
"""Attributes that never had a meaning: they said which inputs a runtime may overwrite."""


@dataclass(frozen=True)
class Rule:
    """For versions older than `before`.

    handles   the attributes that it takes care of; it finds their own version's defaults filled in
    becomes   the operator that the node is afterwards, where that is another
    """

    before: int
    apply: Callable[[Rewriting], None]
    handles: frozenset[str] = frozenset()
    becomes: str = ""


def _flatten(r: Rewriting) -> None:
    """Softmax and its kin took all dimensions from `axis` on as one."""
    shape = r.shape(0)
    axis = int(r.take("axis"))
    start = axis + len(shape) if axis < 0 else axis
    if not 0 <= start < len(shape):
        raise RefusalError(
            Kind.AXIS_OUT_OF_RANGE, f"axis {axis} is not in an input of {len(shape)} dimensions"
        )
    extended = [d for d in range(start, len(shape)) if shape[d] != 1]
    if len(extended) <= 1:
        r.set(axis=extended[0] if extended else start)
        return
    rows, columns = math.prod(shape[:start]), math.prod(shape[start:])
    r.set_input(0, r.reshaped(0, (rows, columns)))
    r.set(axis=-1)
    r.finish(0, "Reshape", [r.constant(shape, "shape")], allowzero=1)


def _batch_normalization(r: Rewriting) -> None:
    """The number of outputs told training from inference; before 7 `is_test` did as well."""
    outputs = r.node.outputs
    training = any(value.name for value in outputs[1:])
    if r.schema.since_version < 7 and bool(r.take("is_test")) == training:
        asked = "the statistics of training are" if training else "no result of training is"
        fact = f"is_test is {int(training)}, but {asked} among the outputs"
        raise RefusalError(Kind.TRAINING_MODE, fact, f"set is_test to {int(not training)}")
    for value in outputs[3:]:
        if value.uses() or value.is_graph_output():
            fact = f"output {r.schema.outputs[value.index() or 0].name} is not supported"
            raise RefusalError(Kind.TRAINING_MODE, fact, "newer versions do not have it")
    r.node.resize_outputs(min(len(outputs), 3))
    r.set(training_mode=int(training))
    if r.schema.since_version < 9 and not r.take("spatial"):
        _per_activation(r)


def _per_activation(r: Rewriting) -> None:
    """Statistics of each element of an example: as many channels as these are."""
    batch, *rest = r.shape(0)
    channels = math.prod(rest)
    whole = r.constant((batch, *rest), "shape")
    r.set_input(0, r.reshaped(0, (batch, channels)))
    for position in range(1, 5):
        if r.shape(position) != (channels,):
            r.set_input(position, r.reshaped(position, (channels,)))
    r.finish(0, "Reshape", [whole], allowzero=1)
    for position, value in enumerate(r.node.outputs[1:], 1):
        if value.name:
            r.finish(position, "Reshape", [r.constant(rest, f"{position}/shape")], allowzero=1)


def _dropout(r: Rewriting) -> None:
    """`is_test` told training from inference; the mask was of the data's type."""
    if r.schema.since_version < 7 and not r.take("is_test"):
        raise RefusalError(
            Kind.TRAINING_MODE, "is_test is 0, so that it drops at random", "set is_test to 1"
        )
    if len(r.node.outputs) > 1 and r.node.outputs[1].name:
        r.finish(1, "Cast", to=r.dtype(0).code)


def _pad(r: Rewriting) -> None:
    value, paddings = r.take("value"), r.take("paddings")
    mode = r.node.attributes.get("mode")
    if mode is None or mode.value == "constant":
        r.set_input(2, r.constant(value, "constant_value", r.dtype(0)))
    if paddings is not None:
        r.set_input(1, r.constant(paddings, "pads"))


def _top_k(r: Rewriting) -> None:
    r.set_input(1, r.constant([r.take("k")], "K"))


def _split(r: Rewriting) -> None:
    """Without `split` the parts are equal; today the last may be smaller."""
    axis = r.node.attributes.get("axis")
    if axis is None and r.schema.since_version < 2:
        raise RefusalError(
            Kind.ATTRIBUTE_MISSING, "attribute axis is missing", "version 1 has no default for it"
        )
    if "split" in r.node.attributes or r.input(1) is not None:
        return
    shape, parts = r.shape(0), len(r.node.outputs)
    position = 0 if axis is None else int(axis.value)
    if not -len(shape) <= position < len(shape):
        raise RefusalError(
            Kind.AXIS_OUT_OF_RANGE, f"axis {position} is not in an input of {len(shape)} dimensions"
        )
    if shape[position] % parts:
        fact = f"{shape[position]} elements on axis {position} are no {parts} equal parts"
        raise RefusalError(Kind.SPLIT_SIZES, fact, "give split")
    r.set(num_outputs=parts)


def _group_normalization(r: Rewriting) -> None:
    """Scale and bias had one element a group; now one a channel."""
    (_, channels, *_), groups = r.shape(0), int(r.node.attributes["num_groups"].value)
    if groups < 1 or channels % groups:
        raise RefusalError(
            Kind.CHANNELS_AND_GROUPS, f"{channels} channels are no {groups} groups of one size"
        )
    for position in (1, 2):
        if r.shape(position) != (groups,):
            name = r.schema.inputs[position].name
            raise RefusalError(
                Kind.OPERAND_SHAPE, f"{name} has shape {list(r.shape(position))}, not [{groups}]"
            )
        if channels > groups:
            r.set_input(position, _repeated(r, position, groups, channels // groups))


def _repeated(r: Rewriting, position: int, groups: int, times: int) -> ir.Value:
    name = r.schema.inputs[position].name
    target = r.constant((groups, times), f"{name}/wide")
    wide = r.add("Expand", [r.reshaped(position, (groups, 1)), target], f"{name}/Expand")
    flat = r.constant((groups * times,), f"{name}/flat")
    return r.add("Reshape", [wide, flat], f"{name}/channels", allowzero=1)


def _grid_sample(r: Rewriting) -> None:
    old = r.take("mode")
    r.set(mode={"bilinear": "linear", "bicubic": "cubic"}.get(old, old))


def _sequence_output(r: Rewriting) -> None:
    """It let a runtime leave out Y, which the outputs that have a name tell as well."""
    r.take("output_sequence")


def _gru_direction(r: Rewriting) -> None:
    direction = r.take("direction")
    r.set(direction="forward" if direction == "foward" else direction)


def _cast(r: Rewriting) -> None:
    """The type was a name."""
    name = r.take("to")
    try:
        r.set(to=onnx.TensorProto.DataType.Value(name))
    except ValueError:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"to is {name!r}, which is no element type"
        ) from None


def _exponent(r: Rewriting) -> None:
    """The exponent of a norm was a float."""
    p = float(r.take("p"))
    if not p.is_integer():
        raise RefusalError(
            Kind.OLD_VERSION, f"attribute p is {p}", "newer versions take integers only"
        )
    r.set(p=int(p))


def _in_double(r: Rewriting) -> None:
    """Of integers it was taken too; today there is none of them."""
    dtype = r.dtype(0)
    if dtype.kind in ("signed", "unsigned"):
        r.set_input(0, r.add("Cast", [r.needed(0)], "double", to=onnx.TensorProto.DOUBLE))
        r.finish(0, "Cast", to=dtype.code)


def _concat(r: Rewriting) -> None:
    if "axis" not in r.node.attributes:
        r.set(axis=1)


def _tile(r: Rewriting) -> None:
    """It repeated along one axis."""
    rank = len(r.shape(0))
    tiles, axis = (int(r.known(n, name).reshape(-1)[0]) for n, name in ((1, "tiles"), (2, "axis")))
    if not -rank <= axis < rank:
        raise RefusalError(
            Kind.AXIS_OUT_OF_RANGE, f"axis {axis} is not in an input of {rank} dimensions"
        )
    repeats = [1] * rank
    repeats[axis] = tiles
    r.set_inputs(r.needed(0), r.constant(repeats, "repeats"))


def _one_hot(r: Rewriting) -> None:
    """An index below 0 was out of range: it becomes `depth`, which is so today."""
    if r.dtype(0).kind == "unsigned":
        return
    int64 = onnx.TensorProto.INT64
    indices = r.add("Cast", [r.needed(0)], "indices", to=int64)
    depth = r.add("Cast", [r.needed(1)], "depth", to=int64)
    depth = r.add("Reshape", [depth, r.constant((), "shape")], "scalar")
    below = r.add("Less", [indices, r.constant(0, "zero")])
    r.set_input(0, r.add("Where", [below, depth, indices]))


def _roi_align(r: Rewriting) -> None:
    r.set(coordinate_transformation_mode="output_half_pixel")


def _scatter(r: Rewriting) -> None:
    r.rename("ScatterElements")


def _one_scale(r: Rewriting) -> None:
    """Scale and zero point were of the whole tensor."""
    for position in (1, 2):
        if r.input(position) is None:
            continue
        shape = r.shape(position)
        if math.prod(shape) != 1:
            fact = f"{r.schema.inputs[position].name} has shape {list(shape)}, not one element"
            raise RefusalError(Kind.OLD_VERSION, fact, "re-export with opset 13 or newer")
        if shape:
            r.set_input(position, r.reshaped(position, ()))


def _scan(r: Rewriting) -> None:
    raise RefusalError(
        Kind.OLD_VERSION, "the batched form of version 8 is not supported", "re-export with opset 9"
    )


def _rules(*names: str, rule: Rule) -> dict[str, tuple[Rule, ...]]:
    return dict.fromkeys(names, (rule,))


_BROADCAST: Final = Rule(7, align, frozenset({"axis", "broadcast"}))

RULES: Final[dict[str, tuple[Rule, ...]]] = {
    **_rules("Add", "Sub", "Mul", "Div", "Pow", rule=_BROADCAST),
    **_rules("And", "Or", "Xor", "Equal", "Less", "Greater", rule=_BROADCAST),
    **_rules("Sum", "Max", "Min", "Mean", rule=Rule(8, equal_shapes)),
    **_rules("PRelu", rule=Rule(7, align_channels)),
    **_rules("Gemm", rule=Rule(7, gemm_bias, frozenset({"broadcast"}))),
    **_rules("Softmax", "LogSoftmax", "Hardmax", rule=Rule(13, _flatten, frozenset({"axis"}))),
    **_rules(
        "BatchNormalization",
        rule=Rule(14, _batch_normalization, frozenset({"is_test", "spatial"})),
    ),
    **_rules("Dropout", rule=Rule(10, _dropout, frozenset({"is_test"}))),
    **_rules("Pad", rule=Rule(11, _pad, frozenset({"paddings", "value"}))),
    **_rules("TopK", rule=Rule(10, _top_k, frozenset({"k"}))),
    **_rules("Split", rule=Rule(18, _split)),
    **_rules("GroupNormalization", rule=Rule(21, _group_normalization)),
    **_rules("GridSample", rule=Rule(20, _grid_sample, frozenset({"mode"}))),
    **_rules("RNN", "LSTM", rule=Rule(7, _sequence_output, frozenset({"output_sequence"}))),
    "GRU": (
        Rule(7, _sequence_output, frozenset({"output_sequence"})),
        Rule(3, _gru_direction, frozenset({"direction"})),
    ),
    **_rules("Cast", rule=Rule(6, _cast, frozenset({"to"}))),
    **_rules("LpPool", "GlobalLpPool", rule=Rule(2, _exponent, frozenset({"p"}))),
    **_rules("ReduceLogSum", "ReduceLogSumExp", rule=Rule(28, _in_double)),
    **_rules("Erf", rule=Rule(13, _in_double)),
    **_rules("Concat", rule=Rule(4, _concat)),
    **_rules("Tile", rule=Rule(6, _tile)),
    **_rules("OneHot", rule=Rule(11, _one_hot)),
    **_rules("RoiAlign", rule=Rule(16, _roi_align)),
    **_rules(
        "Upsample",
        rule=Rule(
            11,
            upsample,
            frozenset({"mode", "scales", "height_scale", "width_scale"}),
            becomes="Resize",
        ),
    ),
    "Resize": (Rule(11, resize_10, frozenset({"mode"})), Rule(19, drop_empty)),
    **_rules("Scatter", rule=Rule(12, _scatter, becomes="ScatterElements")),
    **_rules("QuantizeLinear", "DequantizeLinear", rule=Rule(13, _one_scale)),
    **_rules("Scan", rule=Rule(9, _scan)),
}
