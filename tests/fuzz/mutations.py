"""Changes a model as a hostile or broken exporter could: any field, any value, any structure.

Every choice comes from one random.Random, so that a seed is a model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs

HOSTILE_TEXTS: Final = (
    "",
    " ",
    "*/ int injected; /*",
    "*/",
    "/*",
    "//",
    "a\nint injected;\n",
    "\r\n#error injected\n",
    "??/\nint injected;",
    "??=error injected",
    "\\",
    "a\\\n",
    '"; int injected; "',
    "'",
    '"',
    "%s%n%d",
    "{{ 7*7 }}{% raw %}{# x #}",
    "{{ ''.__class__ }}",
    "\0",
    "a\0b",
    "\x1b[31m",
    "\x7f\x01\x08",
    "größe",
    "日本語",
    "\u202e\u2028\ufeff",
    "\U0001f642",
    "x" * 3000,
    "../x",
    "/etc/passwd",
    "int",
    "__FILE__",
    "ONNXC_OK",
    "workspace",
    "0",
    "-1",
    "?",
)
SMALL: Final = tuple(range(-3, 10))
INTEGERS: Final[tuple[int, ...]] = (
    *SMALL,
    *(sign * 2**bits + step for bits in (5, 8, 12, 16, 20, 24, 31, 32, 40, 62, 63)
      for sign in (1, -1) for step in (-1, 0, 1)),
)  # fmt: skip
FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, 3e9, 1e300, math.inf, -math.inf, math.nan)
BYTES: Final = (b"", b"\0", b"\xff\xfe", b"*/\n", b"linear", b"NOTSET", b"SAME_UPPER", b"a,b->")
LOCATIONS: Final = (
    "w.bin",
    "deep/w.bin",
    "deep/../w.bin",
    "../outside.bin",
    "link.bin",
    "linked/outside.bin",
    "loop.bin",
    "pipe.bin",
    "deep",
    "/etc/passwd",
    "/proc/self/maps",
    "gone.bin",
    "w.bin\0",
    "",
)
"""Of external data, for a folder as external_folder makes it; what is sound holds FILE_BYTES."""
FILE_BYTES: Final = 4096

_Field = FieldDescriptor
_INTEGER_BITS: Final = {
    _Field.TYPE_INT32: (-(2**31), 2**31 - 1),
    _Field.TYPE_INT64: (-(2**63), 2**63 - 1),
    _Field.TYPE_UINT64: (0, 2**64 - 1),
}
_OPERATORS: Final = sorted({schema.name for schema in defs.get_all_schemas()})
_DOMAINS: Final = ("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "ai.onnx.training", "nowhere")
_NAMED_VALUES: Final = ("input", "output", "name", "dim_param", "ref_attr_name", "tensor_name")


def mutated(model: ModelProto, donor: ModelProto, random: Random) -> ModelProto:
    """A copy with some changes, often one, seldom many; parts may come from `donor`."""
    result = ModelProto()
    result.CopyFrom(model)
    for _ in range(1 + int(min(7.0, random.expovariate(1.5)))):
        change = random.choices(_CHANGES, _WEIGHTS)[0]
        change(result, donor, random)
    return result


def flipped(data: bytes, random: Random) -> bytes:
    """The bytes with a few of them changed, left out, repeated or cut off."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        position = random.randrange(len(changed) + 1)
        size = random.choice((1, 1, 2, 8, 64))
        kind = random.randrange(5)
        if kind == 0:
            changed[position : position + size] = random.randbytes(size)
        elif kind == 1:
            del changed[position : position + size]
        elif kind == 2:
            changed[position:position] = changed[position : position + size]
        elif kind == 3 and position < len(changed):
            changed[position] ^= 1 << random.randrange(8)
        elif kind == 4 and random.random() < 0.2:
            del changed[position:]
    return bytes(changed)


def _messages(message: Message) -> Iterator[Message]:
    """A message and all in it."""
    pending = [message]
    while pending:
        here = pending.pop()
        yield here
        for field, value in here.ListFields():
            if field.type == field.TYPE_MESSAGE:
                pending.extend(value if field.is_repeated else (value,))


def _strings(model: ModelProto) -> list[str]:
    found: dict[str, None] = {}
    for message in _messages(model):
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING:
                found.update(dict.fromkeys(value if field.is_repeated else (value,)))
    return list(found)


def _picked(model: ModelProto, random: Random) -> Message:
    """A message of the model; a rare kind as often as a frequent one."""
    kinds: dict[str, list[Message]] = {}
    for message in _messages(model):
        kinds.setdefault(message.DESCRIPTOR.name, []).append(message)
    return random.choice(kinds[random.choice(sorted(kinds))])


def _change_field(model: ModelProto, donor: ModelProto, random: Random) -> None:
    """Sets, changes or clears any field of any message."""
    message = _picked(model, random)
    present = [field for field, _ in message.ListFields()]
    fields = present if present and random.random() < 0.7 else list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = random.choice(fields)
    if field.is_repeated:
        _change_list(message, field, model, donor, random)
    elif random.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == field.TYPE_MESSAGE:
        _replace(getattr(message, field.name), model, donor, random)
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), model, random))


def _change_list(
    message: Message, field: FieldDescriptor, model: ModelProto, donor: ModelProto, random: Random
) -> None:
    values = getattr(message, field.name)
    kind = random.choice(("remove", "again", "swap", "change", "change", "add", "clear", "many"))
    at = random.randrange(len(values)) if values else -1
    if kind == "clear" and random.random() < 0.3:
        del values[:]
    elif kind == "remove" and values:
        del values[at]
    elif kind == "again" and values:
        values.append(values[at])
    elif kind == "many" and values and len(values) < 100:
        values.extend([values[at]] * random.choice((3, 40)))
    elif kind == "swap" and len(values) > 1:
        other = random.randrange(len(values))
        items = list(values)
        items[at], items[other] = items[other], items[at]
        del values[:]
        values.extend(items)
    elif field.type == field.TYPE_MESSAGE:
        _replace(values[at] if values and kind == "change" else values.add(), model, donor, random)
    elif values and kind == "change":
        values[at] = _scalar(field, values[at], model, random)
    else:
        values.append(_scalar(field, values[at] if values else None, model, random))


def _replace(message: Message, model: ModelProto, donor: ModelProto, random: Random) -> None:
    """Another message of the same kind, of the model itself or of the donor."""
    source = random.choice((model, donor))
    found = [m for m in _messages(source) if m.DESCRIPTOR is message.DESCRIPTOR]
    if found:
        copy = type(message)()
        copy.CopyFrom(random.choice(found))
        message.CopyFrom(copy)


def _scalar(field: FieldDescriptor, value: Any, model: ModelProto, random: Random) -> Any:
    if field.type == field.TYPE_STRING:
        return _text(field, value, model, random)
    if field.type == field.TYPE_BYTES:
        return _bytes(value or b"", random)
    if field.type == field.TYPE_ENUM:
        return random.choice(field.enum_type.values).number
    if field.type in _INTEGER_BITS:
        low, high = _INTEGER_BITS[field.type]
        return min(max(_integer(value or 0, random), low), high)
    return random.choice(FLOATS)


def _integer(value: int, random: Random) -> int:
    kind = random.randrange(4)
    if kind == 0:
        return value + random.choice((-1, 1))
    if kind == 1:
        return -value
    return random.choice(INTEGERS if kind == 2 else SMALL)


def _within(number: int) -> int:
    """The nearest 64-bit integer."""
    return min(max(number, -(2**63)), 2**63 - 1)


def _text(field: FieldDescriptor, value: Any, model: ModelProto, random: Random) -> str:
    if field.name == "op_type" and random.random() < 0.8:
        return random.choice(_OPERATORS)
    if field.name == "domain" and random.random() < 0.8:
        return random.choice(_DOMAINS)
    if field.name in _NAMED_VALUES and random.random() < 0.7:
        return random.choice(_strings(model) or [""])
    return random.choice(HOSTILE_TEXTS)


def _bytes(value: bytes, random: Random) -> bytes:
    """Often of the same size, as raw data must be; in words of 8 bytes where it may hold those."""
    kind = random.randrange(4)
    if kind == 0 and value and len(value) % 8 == 0:
        at = random.randrange(len(value) // 8) * 8
        number = _within(random.choice(INTEGERS))
        return value[:at] + struct.pack("<q", number) + value[at + 8 :]
    if kind == 1:
        return random.choice(BYTES)
    if kind == 2 and value:
        at = random.randrange(len(value))
        return value[:at] + random.randbytes(1) + value[at + 1 :]
    return random.randbytes(len(value)) if len(value) < 10_000 else value


# Changes that a random field would seldom hit on.


def _graphs(model: ModelProto) -> list[GraphProto]:
    return [message for message in _messages(model) if isinstance(message, GraphProto)]


def _change_operator(model: ModelProto, donor: ModelProto, random: Random) -> None:
    nodes = [message for message in _messages(model) if isinstance(message, NodeProto)]
    if nodes:
        random.choice(nodes).op_type = random.choice(_OPERATORS)


def _change_opset(model: ModelProto, donor: ModelProto, random: Random) -> None:
    if model.opset_import:
        random.choice(model.opset_import).version = random.randint(1, 28)


def _change_type(model: ModelProto, donor: ModelProto, random: Random) -> None:
    """Of one declaration, of all, or of a constant."""
    code = random.choice(TensorProto.DataType.values())
    tensors: list[Any] = [
        m for m in _messages(model) if isinstance(m, onnx.TypeProto.Tensor | TensorProto)
    ]
    some = tensors if random.random() < 0.3 else random.sample(tensors, min(1, len(tensors)))
    for chosen in some:
        setattr(chosen, "data_type" if isinstance(chosen, TensorProto) else "elem_type", code)


def _change_dims(model: ModelProto, donor: ModelProto, random: Random) -> None:
    """Of declarations: open, named, zero, huge, fewer or more."""
    shapes = [m for m in _messages(model) if isinstance(m, onnx.TensorShapeProto)]
    if not shapes:
        return
    dims = random.choice(shapes).dim
    if not dims or random.random() < 0.15:
        dims.add(dim_value=random.choice(SMALL))
        return
    dim = random.choice(dims)
    kind = random.randrange(4)
    if kind == 0:
        dim.dim_param = random.choice(("N", "N", "M", *HOSTILE_TEXTS))
    elif kind == 1:
        dim.Clear()
    else:
        dim.dim_value = _within(_integer(dim.dim_value, random))


def _to_external(model: ModelProto, donor: ModelProto, random: Random) -> None:
    tensors = [m for m in _messages(model) if isinstance(m, TensorProto)]
    if not tensors:
        return
    tensor = random.choice(tensors)
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    sound = random.random() < 0.5
    location = LOCATIONS[random.randrange(2)] if sound else random.choice(LOCATIONS)
    tensor.external_data.add(key="location", value=location)
    if random.random() < 0.5:
        tensor.external_data.add(key="offset", value=str(random.choice((0, 64, 4095, *INTEGERS))))
    if random.random() < 0.3:
        tensor.external_data.add(key="length", value=str(random.choice(INTEGERS)))


def _to_sparse(model: ModelProto, donor: ModelProto, random: Random) -> None:
    for graph in _graphs(model):
        if graph.initializer:
            tensor = graph.initializer.pop(random.randrange(len(graph.initializer)))
            sparse = graph.sparse_initializer.add(dims=tensor.dims)
            sparse.values.CopyFrom(tensor)
            elements = min(math.prod(abs(dim) for dim in tensor.dims), 1000)
            sparse.values.dims[:] = [elements]
            sparse.indices.data_type = TensorProto.INT64
            sparse.indices.dims.append(elements)
            sparse.indices.int64_data.extend(range(elements))
            if random.random() < 0.5:
                sparse.dims[:] = [_integer(d, random) % 2**40 for d in sparse.dims] or [1]
            return


def _to_run_time(model: ModelProto, donor: ModelProto, random: Random) -> None:
    """A constant becomes an input: operands that operators mostly find known."""
    graph = model.graph
    if graph.initializer:
        tensor = graph.initializer.pop(random.randrange(len(graph.initializer)))
        if all(info.name != tensor.name for info in graph.input):
            info = graph.input.add(name=tensor.name)
            info.type.tensor_type.elem_type = tensor.data_type
            for dim in tensor.dims:
                info.type.tensor_type.shape.dim.add(dim_value=max(-(2**63), dim))


def _to_constant(model: ModelProto, donor: ModelProto, random: Random) -> None:
    """An input becomes a constant, of a few values that hurt: shapes, axes, indices."""
    graph = model.graph
    if not graph.input:
        return
    info = random.choice(graph.input)
    tensor = info.type.tensor_type
    dims = [dim.dim_value for dim in tensor.shape.dim]
    elements = math.prod(dims)
    if not 0 <= elements <= 1000:
        return
    constant = graph.initializer.add(name=info.name, data_type=tensor.elem_type, dims=dims)
    numbers = [random.choice(SMALL) for _ in range(elements)]
    if tensor.elem_type == TensorProto.INT64:
        constant.int64_data.extend(_within(_integer(n, random)) for n in numbers)
    elif tensor.elem_type in (TensorProto.FLOAT, TensorProto.COMPLEX64):
        constant.float_data.extend(random.choice(FLOATS[:8]) for _ in numbers)
    elif tensor.elem_type == TensorProto.DOUBLE:
        constant.double_data.extend(random.choice(FLOATS) for _ in numbers)
    elif tensor.elem_type == TensorProto.STRING:
        constant.string_data.extend(random.choice(BYTES) for _ in numbers)
    else:
        constant.int32_data.extend(n % 2 for n in numbers)


def _into_branch(model: ModelProto, donor: ModelProto, random: Random) -> None:
    """The graph becomes a body of If or Loop, or a function that is called once or twice."""
    graph = model.graph
    outputs = [info.name for info in graph.output]
    inner = [node for node in graph.node if node.op_type]
    if not outputs or not inner:
        return
    if random.random() < 0.5:
        function = model.functions.add(name="f", domain="local")
        function.opset_import.extend(model.opset_import)
        function.input.extend(info.name for info in graph.input)
        function.output.extend(outputs)
        function.node.extend(graph.node)
        call = NodeProto(op_type="f", domain="local", input=function.input, output=outputs)
        model.opset_import.add(domain="local", version=1)
    else:
        kind = random.choice(("If", "Loop", "Scan"))
        call = NodeProto(op_type=kind, input=["condition"] if kind == "If" else ["", ""])
        call.output.extend(outputs)
        for name in ("then_branch", "else_branch") if kind == "If" else ("body",):
            attribute = call.attribute.add(name=name, type=AttributeProto.GRAPH)
            attribute.g.node.extend(graph.node)
            attribute.g.output.extend(graph.output)
            attribute.g.name = random.choice(HOSTILE_TEXTS)
        condition = graph.input.add(name="condition")
        condition.type.tensor_type.elem_type = TensorProto.BOOL
        condition.type.tensor_type.shape.SetInParent()
    del graph.node[:]
    graph.node.append(call)


def _graft(model: ModelProto, donor: ModelProto, random: Random) -> None:
    """The donor's graph behind the model's own, its first input from one of the model's values."""
    taken = {name for node in model.graph.node for name in node.output}
    taken |= {info.name for info in (*model.graph.input, *model.graph.initializer)}
    own = sorted(taken)
    new: dict[str, str] = {}
    nodes = list(donor.graph.node)[:50]

    def named(name: str) -> str:
        if name and name not in new:
            new[name] = f"{name}'" if name in taken else name
        return new.get(name, "")

    first = donor.graph.input[0].name if donor.graph.input else ""
    for info in donor.graph.input:
        if info.name == first and own:
            new[first] = random.choice(own)
        else:
            model.graph.input.add().CopyFrom(info)
            model.graph.input[-1].name = named(info.name)
    for tensor in donor.graph.initializer:
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = named(tensor.name)
    for node in nodes:
        model.graph.node.add().CopyFrom(node)
        model.graph.node[-1].input[:] = [named(name) for name in node.input]
        model.graph.node[-1].output[:] = [named(name) for name in node.output]
    for info in donor.graph.output:
        model.graph.output.add(name=named(info.name))


Change = Callable[[ModelProto, ModelProto, Random], None]
_TABLE: Final[Sequence[tuple[Change, float]]] = (
    (_change_field, 10),
    (_change_operator, 2),
    (_change_opset, 1),
    (_change_type, 2),
    (_change_dims, 3),
    (_to_external, 0.5),
    (_to_sparse, 0.5),
    (_to_run_time, 1),
    (_to_constant, 2),
    (_into_branch, 0.7),
    (_graft, 1),
)
_CHANGES: Final = [change for change, _ in _TABLE]
_WEIGHTS: Final = [weight for _, weight in _TABLE]
