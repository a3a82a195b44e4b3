"""How far the model's results are from a reference, output by output and tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxc.errors import CrashError, ToolError
from onnxc.passes.fix import Fix
from onnxc.verify import Verification, verify_model
from onnxc.verify.run import Tell

if TYPE_CHECKING:
    import onnx

ERRORS: Final = ("max_abs_error", "max_rel_error", "max_scaled_error", "max_ulp_error")


def measure(
    source: Path | onnx.ModelProto,
    found: Mapping[str, Any],
    dims: Mapping[str, int],
    fix: Mapping[str, Fix],
    *,
    target: str,
    optimize: str,
    portable_bits: bool,
    inputs: Path | None = None,
    against: str = "auto",
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """The "accuracy" of the facts `found` of a model, by running it; a reason where nothing runs.

    Raises what verify_model does for wrong inputs.
    """
    try:
        result = verify_model(
            source,
            dims=dims,
            fix=fix,
            target=target,
            optimize=optimize,
            portable_bits=portable_bits,
            inputs=inputs,
            against=against,
            seed=seed,
            per_node=True,
            tell=tell,
        )
    except (ToolError, CrashError) as error:
        return {"reason": str(error)}
    return facts(result, found)


def facts(result: Verification, found: Mapping[str, Any]) -> dict[str, Any]:
    """What a verification says of the tensors and outputs of a report's facts."""
    plain = result.to_json()
    used = [entry["title"] for entry in plain["references"] if entry["used"]]
    unused = [
        f"{e['title'] or e['name']}: {e['reason']}" for e in plain["references"] if e["reason"]
    ]
    nodes = plain["nodes"]
    labels = dict.fromkeys(entry["inputs"] for entry in plain["comparisons"])
    return {
        "reference": " and ".join(used),
        "unused": unused,
        "inputs": f"{', '.join(labels)} inputs" if labels else "",
        "outputs": [_entry(entry, entry["output"]) for entry in plain["comparisons"]],
        "tensors_inputs": nodes["inputs"] if nodes else "",
        "tensors": _tensors(nodes["list"] if nodes else [], found),
        "first": nodes["first"] if nodes else "",
    }


def _entry(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One comparison; errors are numbers, "inf" or null where the type has none."""
    return {
        "name": name,
        "dtype": entry["dtype"],
        "shape": entry["shape"],
        "reference": entry["reference"],
        "inputs": entry.get("inputs", ""),
        "verdict": entry["verdict"],
        **{error: entry["difference"][error] for error in ERRORS},
        "note": entry["note"],
    }


def _tensors(
    entries: Sequence[Mapping[str, Any]], found: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Each with the number of its tensor, its kernel and its nodes."""
    by_name = {tensor["name"]: tensor for tensor in reversed(found["tensors"])}
    rows = []
    for entry in entries:
        tensor = by_name.get(entry["value"], {})
        place = {
            "tensor": tensor.get("number"),
            "kernel": tensor.get("producer"),
            "nodes": tensor.get("nodes", []),
        }
        rows.append(_entry(entry, entry["value"]) | place)
    return rows
