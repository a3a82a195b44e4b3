"""What holds of the facts of any model: the schema, and that their parts agree with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import onnx

from onnxc.check_plan import check_plan
from onnxc.pipeline import Compiled
from onnxc.report import facts, sections
from onnxc.report.schema import schema

Facts = dict[str, Any]


def facts_of(source: onnx.ModelProto | Path, **options: Any) -> Facts:
    """The facts of a model, which hold together; without asking C compilers."""
    subject = facts.subject(source, **options)
    found = quick(subject)
    check(found, subject.compiled)
    return found


def quick(subject: facts.Subject) -> Facts:
    """The facts but for what C compilers say."""
    asked = sections.measure
    try:
        sections.measure = lambda *_, **__: ([], {"reason": "not asked"})
        return facts.facts(subject)
    finally:
        sections.measure = asked


def check(found: Facts, compiled: Compiled) -> None:
    valid(found)
    for part in ("kernels", "tensors", "nodes"):
        assert [entry["number"] for entry in found[part]] == [*range(len(found[part]))]
    nodes_and_kernels_agree(found)
    tensors_and_kernels_agree(found)
    functions_are_those_of_the_c(found, compiled)
    sums_add_up(found)
    the_peak_is_that_of_the_plan(found, compiled)
    tensors_lie_apart(found)


def valid(found: Facts) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.Draft202012Validator(schema()).validate(found)


def nodes_and_kernels_agree(found: Facts) -> None:
    """A node says which kernels name it, each of its own kernels among them; all say why."""
    named = {(n, k["number"]) for k in found["kernels"] for n in k["nodes"]}
    told = {(n["number"], k) for n in found["nodes"] for k in n["kernels"]}
    assert told >= named
    taken_in = {n["number"] for n in found["nodes"] if n["why"].startswith("part of ")}
    assert {number for number, _ in told - named} <= taken_in
    for node in found["nodes"]:
        assert node["why"]
        if node["fate"] in ("kernel", "fused", "dissolved"):
            assert node["kernels"]
        if node["fate"] == "dropped":
            assert not node["kernels"]
    for kernel in found["kernels"]:
        fates = {found["nodes"][n]["fate"] for n in kernel["nodes"]}
        assert not fates or "kernel" in fates or fates <= {"folded", "aliased"}, kernel


def tensors_and_kernels_agree(found: Facts) -> None:
    for kernel in found["kernels"]:
        for n in kernel["reads"]:
            assert kernel["number"] in found["tensors"][n]["readers"]
        for n in (*kernel["reads"], *kernel["writes"], *kernel["scratch"]):
            if kernel["kind"] == "repeat":
                continue  # what it reads at the end of a trip may not be there at its begin
            tensor = found["tensors"][n]
            assert tensor["first"] <= kernel["number"] <= tensor["last"]
    for tensor in found["tensors"]:
        assert (tensor["offset"] is not None) == (tensor["place"] == "workspace")
        assert tensor["label"]
        if tensor["place"] == "workspace" and tensor["first"] is not None:
            assert tensor["producer"] is not None


def functions_are_those_of_the_c(found: Facts, compiled: Compiled) -> None:
    lines = compiled.module.opening().split("\n")
    users = Counter(k["function"] for k in found["kernels"] if k["function"])
    assert {f["name"]: len(f["kernels"]) for f in found["functions"]} == users
    for function in found["functions"]:
        text = function["c"].split("\n")
        assert lines[function["line"] - 1 :][: len(text)][0] == text[0]
        assert (
            f"{function['name']}(" in function["c"] or f"{function['name']}_body(" in function["c"]
        )
        assert text[-1] == "}"


def sums_add_up(found: Facts) -> None:
    summary = found["summary"]
    assert summary["macs"] == sum(k["macs"] for k in found["kernels"])
    assert summary["macs"] == sum(summary["macs_by_arithmetic"].values())
    placed = [t for t in found["tensors"] if t["place"] == "workspace"]
    assert summary["tensors_bytes"] == sum(t["bytes"] for t in placed)
    assert summary["workspace_bytes"] == max((t["offset"] + t["bytes"] for t in placed), default=0)
    constants = [t["bytes"] for t in found["tensors"] if t["place"] == "constant"]
    assert summary["constants_bytes"] == sum(constants)
    for kernel in found["kernels"]:
        times = kernel["repeats"] or 1
        sizes = {
            "bytes_read": _sizes(found, kernel["reads"], constant=False),
            "bytes_constants": _sizes(found, kernel["reads"], constant=True),
            "bytes_written": _sizes(found, kernel["writes"], constant=False),
        }
        assert all(kernel[name] <= times * most for name, most in sizes.items()), (kernel, sizes)


def _sizes(found: Facts, numbers: list[int], *, constant: bool) -> int:
    tensors = (found["tensors"][n] for n in numbers)
    return sum(t["bytes"] for t in tensors if (t["place"] == "constant") is constant)


def the_peak_is_that_of_the_plan(found: Facts, compiled: Compiled) -> None:
    """Tensors at the peak have the bytes that live there, and once more those that are shared."""
    memory, summary = found["memory"], found["summary"]
    plan = check_plan(compiled.program)
    assert len(memory["live"]) == len(found["kernels"])
    assert memory["peak"]["bytes"] == max(memory["live"], default=0) == plan.bound
    assert plan.bound == summary["workspace_bound_bytes"] <= summary["workspace_bytes"]
    sizes = [found["tensors"][n]["bytes"] for n in memory["peak"]["tensors"]]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == memory["peak"]["bytes"] + memory["peak"]["shared"]
    if plan.bound:
        assert memory["live"][memory["peak"]["kernel"]] == plan.bound


def tensors_lie_apart(found: Facts) -> None:
    """Two tensors at one place are not there at one time, but a result in place of an operand."""
    placed = [t for t in found["tensors"] if t["offset"] is not None and t["first"] is not None]
    for one, other in _overlapping(placed):
        first, second = sorted((one, other), key=lambda t: (t["first"], t["last"]))
        begun = found["kernels"][second["first"]]
        assert first["last"] == second["first"], (first, second)
        assert first["number"] in begun["reads"], (first, second)
        assert second["number"] in begun["writes"], (first, second)


def _overlapping(
    tensors: list[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    ordered = sorted((t for t in tensors if t["bytes"]), key=lambda t: t["offset"])
    for n, one in enumerate(ordered):
        for other in ordered[n + 1 :]:
            if other["offset"] >= one["offset"] + one["bytes"]:
                break
            if one["first"] <= other["last"] and other["first"] <= one["last"]:
                yield one, other
