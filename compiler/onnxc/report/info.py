"""What `onnxc info` says of a model, whether or not onnxc can compile it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from onnxc import op, pipeline
from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem
from onnxc.passes import bind, load, propose
from onnxc.passes.check_node import is_supported
from onnxc.passes.fix import Fix, fix_inputs
from onnxc.report import quantized, stack, summary
from onnxc.report.kernels import kernels_of
from onnxc.report.text import columns, count, printable, some
from onnxc.values import type_text


def gather(
    path: Path,
    dims: Mapping[str, int],
    fix: Mapping[str, Fix] | None = None,
    *,
    target: str = "generic",
    optimize: str = "speed",
    portable_bits: bool = False,
) -> dict[str, Any]:
    """Everything there is to say, in plain JSON values.

    Raises ModelError where the file is no valid model, UsageError for a wrong path, `dims` or
    `fix`; what onnxc does not support is part of the answer.
    """
    model = load.load(path)
    bind.bind_dims(model, dims)
    fix_inputs(model, fix or {})
    given = propose.Options(dict(dims), dict(fix or {}))
    open_dims = bind.open_dims(model)
    unsupported = _unsupported(model)
    compiled, problems, added = None, [], None
    if open_dims:
        added = propose.proposed(path, dims, fix or {})
        left = propose.remaining(path, given.and_(added))
        unsupported = unsupported if left else []
        problems = _told_apart(left)
    else:
        try:
            compiled = pipeline.compile_model(
                path,
                dims=dims,
                fix=fix,
                target=target,
                optimize=optimize,
                portable_bits=portable_bits,
            )
            unsupported = []
        except ModelError as error:
            problems = _told_apart(error.problems)
    graph = model.graph
    return {
        "model": str(path),
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": v for domain, v in graph.opset_imports.items()},
        "nodes": sum(1 for _ in graph.all_nodes()),
        "inputs": [_value(value) for value in graph.inputs if not value.is_initializer()],
        "outputs": _outputs(graph, compiled),
        "open_dims": [
            {"input": dim.input, "axis": dim.axis, "name": dim.name} for dim in open_dims
        ],
        "dim_options": [bind.options({key: n}) for key, n in (added.dims if added else {}).items()],
        "command": _command(path, given.and_(added)),
        "summary": compiled and _summary(compiled),
        "int8_as_float": quantized.in_float(compiled.program) if compiled else [],
        "unsupported": unsupported,
        "problems": problems,
    }


def _summary(compiled: pipeline.Compiled) -> dict[str, Any]:
    """As the report has it."""
    found = summary.summary(compiled, kernels_of(compiled.program))
    return {**found, "stack": stack.measure(compiled)}


def _value(value: ir.Value) -> dict[str, Any]:
    dims = None if value.shape is None else [_dim(dim) for dim in value.shape]
    return {"name": value.name, "type": type_text(value.type), "shape": dims}


def _outputs(graph: ir.Graph, compiled: pipeline.Compiled | None) -> list[dict[str, Any]]:
    """As the model declares them, with the shapes that came out where it compiles.

    "maximum" is said where the data decides the size within that shape.
    """
    declared = [_value(value) for value in graph.outputs]
    if compiled is None:
        return declared
    pairs = zip(declared, compiled.outputs, strict=True)
    return [
        value | {"shape": [*output.shape]} | ({"maximum": True} if output.actual else {})
        for value, output in pairs
    ]


def _dim(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _command(path: Path, options: propose.Options) -> str:
    """What compiles the model: with what was given, and with what is proposed."""
    words = ("onnxc", shlex.quote(str(path)), options.on_command_line())
    return " ".join(filter(None, words))


_COUNTED: Final = (Kind.OPERATOR_NOT_SUPPORTED, Kind.UNKNOWN_OPERATOR, Kind.CUSTOM_DOMAIN)
"""Problems that the list of unsupported operators tells of."""


def _told_apart(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [_problem(problem) for problem in problems if problem.kind not in _COUNTED]


def _problem(problem: Problem) -> dict[str, str]:
    return {
        "code": problem.code,
        "where": problem.where,
        "fact": problem.fact,
        "operands": problem.operands,
        "remedy": problem.remedy,
    }


def _unsupported(model: ir.Model) -> list[dict[str, Any]]:
    """Operators that onnxc does not have, with the number of their nodes, most frequent first."""
    counts = Counter(
        (node.domain, node.op_type, _since_version(node))
        for node in model.graph.all_nodes()
        if not is_supported(node.domain, node.op_type)
    )
    return [
        {"domain": domain or "ai.onnx", "operator": name, "version": version, "count": number}
        for (domain, name, version), number in counts.most_common()
    ]


def _since_version(node: ir.Node) -> int | None:
    """The version of the operator, not of the opset; None where the model does not say."""
    schema = op.schema_at(node.domain, node.op_type, node.version or 0)
    return node.version if schema is None else schema.since_version


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The answer for people."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in found["opsets"].items())
    nodes = count(found["nodes"], "node")
    yield printable(f"{found['model']}: IR version {found['ir_version']}, {opsets}; {nodes}")
    for side in ("inputs", "outputs"):
        yield f"{side}:"
        yield from columns([_value_cells(value) for value in found[side]])
    if found["open_dims"]:
        yield "open dims:"
        yield from columns(_open_dim_cells(found["open_dims"]))
        refused = found["unsupported"] or found["problems"]
        lead = "once what is below is solved" if refused else "compile with"
        yield printable(f"  {lead}: {found['command']}")
    if found["summary"] is None:
        yield "memory: not known before the model compiles"
    else:
        yield from summary.lines(found["summary"])
    yield from _int8_lines(found)
    yield from _unsupported_lines(found)


def _value_cells(value: Mapping[str, Any]) -> list[str]:
    if not value["type"].startswith("tensor("):
        return [printable(value["name"]), f"no tensor ({printable(value['type'])})"]
    if value["shape"] is None:
        shape = " of unknown shape"
    else:
        shape = f"[{', '.join('?' if dim is None else str(dim) for dim in value['shape'])}]"
    if value.get("maximum"):
        shape = f" of at most {shape}"
    short = re.sub(r"tensor\((\w+)\)", r"\1", value["type"])
    return [printable(value["name"]), printable(short + shape)]


def _open_dim_cells(dims: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A row for each dimension: its name, and the axes that have it."""
    places: dict[object, list[str]] = {}
    for dim in dims:
        place = f"axis {dim['axis']} of {dim['input']!r}"
        places.setdefault(dim["name"] or place, []).append(place)
    for key, axes in places.items():
        name = "(unnamed)" if key == axes[0] else str(key)
        yield [printable(name), printable(", ".join(axes))]


def _int8_lines(found: Mapping[str, Any]) -> Iterator[str]:
    rows = found["int8_as_float"]
    if rows:
        yield f"int8 executed as float ({count(sum(row['count'] for row in rows), 'node')}):"
        yield from columns([f"{row['count']:>8,} x", row["operator"]] for row in rows)


def _unsupported_lines(found: Mapping[str, Any]) -> Iterator[str]:
    unsupported = found["unsupported"]
    if unsupported:
        nodes = count(sum(row["count"] for row in unsupported), "node")
        yield f"unsupported operators ({nodes}):"
        yield from columns(
            [f"{row['count']:>8,} x", printable(_operator(row))] for row in unsupported
        )
    if found["problems"]:
        yield "problems:"
        yield from (f"  {line}" for line in some([_told(row) for row in found["problems"]]))
    if not unsupported and not found["problems"]:
        yield "unsupported operators: none"


def _told(row: Mapping[str, str]) -> str:
    operands = f" ({row['operands']})" if row["operands"] else ""
    remedy = f"; {row['remedy']}" if row["remedy"] else ""
    return f"{row['code']}: {row['where']}: {row['fact']}{operands}{remedy}"


def _operator(row: Mapping[str, Any]) -> str:
    domain = "" if row["domain"] == "ai.onnx" else f"{row['domain']}."
    version = "" if row["version"] is None else f"-{row['version']}"
    return f"{domain}{row['operator']}{version}"
