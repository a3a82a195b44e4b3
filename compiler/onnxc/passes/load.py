"""load: a model file or message becomes an onnx_ir graph that later passes can rely on.

Everything is checked on the protobuf first, since the libraries stop at the first problem, or
repair in silence what they do not like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir
from google.protobuf.message import Message

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem
from onnxc.op import OPSET
from onnxc.passes.check_node import operator_problems
from onnxc.passes.provenance import number_nodes
from onnxc.protobuf.external import map_external
from onnxc.protobuf.functions import Key, Library, opset_versions
from onnxc.protobuf.inline import inline_functions
from onnxc.protobuf.sparse import Densifier
from onnxc.protobuf.structure import Inspector
from onnxc.protobuf.where import Place, standard_domain
from onnxc.protobuf.wire import MAX_DEPTH, file_folder, read_model, too_deep

OLDEST_IR: Final = 3
"""Before it, models named no opset."""


def load(source: Path | onnx.ModelProto) -> ir.Model:
    """One flat graph, sound in names, order and data.

    Model-local functions are inlined, sparse constants dense, external data mapped; an input with
    an initializer is an initializer only. Every node, also those in subgraphs, has `version`, the
    opset of its own domain ("" for ai.onnx). A message is not changed. Names that are not UTF-8
    get backslash escapes.

    Raises UsageError where there is no such file, ModelError with every problem of the model.
    """
    if isinstance(source, onnx.ModelProto):
        folder, model = None, onnx.ModelProto()
        model.CopyFrom(source)
    else:
        folder, model = file_folder(source), read_model(source)
    _decode_names(model, 1)
    problems: list[Problem] = []
    places = _check(model, folder, problems)
    if problems:
        raise ModelError([*problems, *_operator_problems(model, *places)])
    return _converted(model, places)


def _operator_problems(
    model: onnx.ModelProto, library: Library, places: Mapping[Key | None, Place]
) -> Iterator[Problem]:
    """Of a graph that no later pass will see: at least which ai.onnx operators would not do."""
    place = places[None]
    version = place.opsets.get("", 0)
    for position, node in enumerate(model.graph.node if version >= 1 else ()):
        own = node.op_type and standard_domain(node.domain) == ""
        if own and library.get(node) is None:
            where = place.node(node, position)
            yield from operator_problems("", node.op_type, version, where)


def _check(
    model: onnx.ModelProto, folder: Path | None, problems: list[Problem]
) -> tuple[Library, Mapping[Key | None, Place]]:
    """Checks the model and settles its constants; the places hold the opsets of every body."""
    problems.extend(_header_problems(model))
    opsets = opset_versions(model.opset_import, "model", OPSET, problems)
    places: dict[Key | None, Place] = {None: Place("", opsets)}
    library = Library(model, problems)
    inspector = Inspector(library, Densifier(folder), problems)
    if model.HasField("graph"):
        inspector.check_model(model.graph, places[None])
    for key, function in library.functions.items():
        own = opset_versions(function.proto.opset_import, function.label, OPSET, problems)
        places[key] = Place(f"{function.label} ", {**opsets, **own})
        inspector.check_function(function, places[key])
    return library, places


def _header_problems(model: onnx.ModelProto) -> list[Problem]:
    found: list[Problem] = []
    newest = onnx.IR_VERSION
    if not model.HasField("ir_version"):
        found.append(
            Problem(Kind.INCOMPLETE_MODEL, "model", "has no ir_version", "re-export the model")
        )
    elif model.ir_version > newest:
        fact = f"IR version {model.ir_version} is newer than {newest}, the newest that onnxc reads"
        remedy = "update onnxc, or re-export with an older IR version"
        found.append(Problem(Kind.IR_VERSION, "model", fact, remedy))
    elif model.ir_version < OLDEST_IR:
        fact = f"IR version {model.ir_version} is older than {OLDEST_IR}"
        found.append(Problem(Kind.IR_VERSION, "model", fact, "re-export the model"))
    if not model.HasField("graph"):
        found.append(Problem(Kind.INCOMPLETE_MODEL, "model", "has no graph", "re-export the model"))
    elif not model.graph.output:
        remedy = "name its results as graph outputs"
        found.append(
            Problem(
                Kind.NO_OUTPUTS, "model", "has no outputs, so there is nothing to compute", remedy
            )
        )
    if not model.opset_import:
        found.append(
            Problem(Kind.INCOMPLETE_MODEL, "model", "has no opset import", "re-export the model")
        )
    return found


def _decode_names(message: Message, depth: int) -> None:
    """Gives text that is not UTF-8, which protobuf returns as bytes, backslash escapes."""
    if depth > MAX_DEPTH:
        raise ModelError([too_deep()])
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            _decode_field(message, field.name, value)
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                _decode_names(inner, depth + 1)


def _decode_field(message: Message, name: str, value: object) -> None:
    if isinstance(value, bytes):
        setattr(message, name, value.decode(errors="backslashreplace"))
    elif not isinstance(value, str):
        texts = getattr(message, name)
        if any(isinstance(text, bytes) for text in texts):
            texts[:] = [
                text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
                for text in texts
            ]


def _converted(
    model: onnx.ModelProto, checked: tuple[Library, Mapping[Key | None, Place]]
) -> ir.Model:
    library, places = checked
    versions = inline_functions(model, library, places)
    del model.opset_import[:]
    for domain, version in places[None].opsets.items():
        model.opset_import.add(domain=domain, version=version)
    try:
        converted = ir.from_proto(model)
    except (ir.serde.SerdeError, NotImplementedError, ValueError) as error:
        raise ModelError(
            [
                Problem(
                    Kind.NOT_REPRESENTABLE, "model", f"onnx_ir cannot represent it: {_root(error)}"
                )
            ]
        ) from None
    for node, opset in zip(converted.graph.all_nodes(), versions, strict=True):
        node.version = opset
    number_nodes(converted)
    map_external(converted)
    return converted


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
