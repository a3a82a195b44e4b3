"""What mutation.py changes, the tests that must notice, and the changes that mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Group:
    """`mutated` below compiler/onnxc, `tests` below tests; `left_out` is pytest's -k."""

    mutated: tuple[str, ...]
    tests: tuple[str, ...]
    left_out: str = ""


def _passes(*names: str) -> tuple[str, ...]:
    return tuple(f"passes/{name}.py" for name in names)


MEANINGLESS: Final = (
    # An argument that reveals a fault of onnxc: where there is none, both are of one length.
    (r",?\s*strict=(True|False|None)", ""),
    # Of the name of a buffer without one only its truth counts.
    (r'\bBuffer\((""|None),', "Buffer("),
)
"""(pattern, what stands for it): mutants whose text is the same by them are equivalent."""

AT_IMPORT: Final = frozenset({("passes/upgrade_rules.py", "_rules")})
"""Functions that run when their module is imported, which is before any mutant is put in place."""

GROUPS: Final[Mapping[str, Group]] = {
    "planner": Group(
        (
            *_passes("plan_memory", "offsets", "offset_search", "blocks", "order_steps"),
            *_passes("liveness", "in_place", "update_states"),
            "check_plan.py",
            "check_rows.py",
        ),
        (
            "passes/test_blocks.py",
            "passes/test_liveness.py",
            "passes/test_plan_memory.py",
            "passes/test_offsets.py",
            "passes/test_order_steps.py",
            "passes/test_in_place.py",
            "passes/test_update_states.py",
            "passes/test_fuse_rows.py",
            "kernels/test_check.py",
            "kernels/test_check_plan.py",
            "kernels/test_check_rows.py",
        ),
        "not (in_c or same_bits)",  # which build many libraries
    ),
    "passes": Group(
        (
            *_passes("simplify", "fold_batch_normalization", "lower", "rejoining", "layout"),
            *_passes("join_dimensions", "unflatten", "dequantised", "multiply_integers"),
            *_passes("hold_floats", "fold_across", "placement", "notes"),
            *_passes("channels_second", "choose", "choose_windows", "fuse_bands", "split_axes"),
            *_passes("merge_axes", "widen_rows", "fuse_rows", "keep_borders"),
        ),
        (
            "passes/test_channels_second.py",
            "passes/test_choose.py",
            "passes/test_choose_windows.py",
            "passes/test_fold_across.py",
            "passes/test_fold_batch_normalization.py",
            "passes/test_fuse_bands.py",
            "passes/test_fuse_rows.py",
            "passes/test_hold_floats.py",
            "passes/test_join_dimensions.py",
            "passes/test_keep_borders.py",
            "passes/test_layout.py",
            "passes/test_lower.py",
            "passes/test_merge_axes.py",
            "passes/test_multiply_integers.py",
            "passes/test_rejoining.py",
            "passes/test_simplify.py",
            "passes/test_split_axes.py",
            "passes/test_widen_rows.py",
        ),
        # Those that build many libraries, or run thousands of nodes.
        "not (in_c or same_bits or register_file or the_c_agrees or thousands or twice_the_work)",
    ),
    "front": Group(
        (
            *_passes("load", "bind", "branch", "check_node", "expand_function", "fix", "fold_cost"),
            *_passes("implied_shape", "infer", "inference", "upgrade", "upgrade_rules"),
            *_passes("check_graph", "data_sizes", "fixable", "legacy_broadcast", "legacy_resize"),
            *_passes("naming", "propose", "provenance", "rewriting", "taken_for_granted"),
        ),
        (
            "test_malformed.py",
            "test_diagnostics.py",
            "test_proposals.py",
            "fuzz/test_found.py",
            "passes/test_bind.py",
            "passes/test_branch.py",
            "passes/test_check_graph.py",
            "passes/test_expand_function.py",
            "passes/test_fix.py",
            "passes/test_fixable.py",
            "passes/test_fold_cost.py",
            "passes/test_implied_shape.py",
            "passes/test_infer.py",
            "passes/test_inference.py",
            "passes/test_infer_sizes.py",
            "passes/test_load.py",
            "passes/test_propose.py",
            "passes/test_provenance.py",
            "passes/test_taken_for_granted.py",
            "passes/test_upgrade.py",
            "passes/test_upgrade_names.py",
            "passes/test_upgrade_refusals.py",
            "passes/test_upgrade_rules.py",
            "passes/test_upgrade_schemas.py",
        ),
        "not (in_c or command_line or nine_in_ten)",  # other processes know of no mutant
    ),
}
