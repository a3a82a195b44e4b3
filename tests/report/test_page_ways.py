"""Where the nodes went, as a report's page says it."""

from __future__ import annotations

from typing import Any

from onnxc.report.html import ways
from tests.report.drawn_facts import facts, kernel, node


def test_the_sentence_counts_fates_and_kernels() -> None:
    assert ways.ways(facts()).sentence == (
        "5 nodes became 4 kernels: 3 with kernels of their own, 1 fused, 1 aliased. 1 more kernel:"
        " 1 is a further part of a node."
    )


def test_kernels_beyond_those_of_nodes_are_named() -> None:
    changed = facts()
    for number, kind in ((4, "border"), (5, "border"), (6, "loops"), (7, "winograd")):
        nodes = [0] if kind == "winograd" else []
        changed["kernels"].append(kernel(number, "more", kind=kind, nodes=nodes))
    assert ways.ways(changed).sentence == (
        "5 nodes became 8 kernels: 3 with kernels of their own, 1 fused, 1 aliased. 5 more kernels:"
        " 2 fill padding, 1 copies, 2 are further parts of nodes."
    )


def test_each_fate_has_a_letter_of_its_own() -> None:
    letters = [fate.letter for fate in ways.FATES]
    assert len({*letters}) == len(letters)


def test_a_fate_that_is_new_has_a_style_and_a_letter_all_the_same() -> None:
    changed = facts()
    changed["nodes"][0]["fate"] = "unrolled"
    last = ways.fates_of(changed)[-1]
    assert (last.name, last.letter, last.style, last.number) == ("unrolled", "U", "other", 1)


def test_a_way_leads_to_each_of_its_kernels() -> None:
    found = ways.ways(facts()).ways
    assert found[4].kernels == ((2, "gemm_2"), (3, "softmax_3"))
    assert found[3].kernels == ()
    assert found[3].fate.name == "aliased"


def test_a_node_without_a_name_goes_by_its_first_output() -> None:
    found = ways.ways(facts()).ways
    assert [way.name for way in found[2:]] == ["/soft", "v3", "/fc"]


def _order(*nodes: dict[str, Any]) -> tuple[int, ...]:
    return ways.order_of_run(facts(nodes=[*nodes]))


def test_nodes_are_put_in_the_order_of_their_kernels() -> None:
    assert _order(
        node(0, "Relu-14", "", inputs=["v1"], kernels=[3]),
        node(1, "Conv-11", "", inputs=["x"], kernels=[1, 2]),
        node(2, "Add-14", "", kernels=[1]),
    ) == (1, 2, 0)


def test_a_node_without_a_kernel_stands_before_the_first_that_needs_it() -> None:
    assert _order(
        node(0, "Constant-13", "", fate="folded", kernels=[]),
        node(1, "Cast-13", "", inputs=["v0"], fate="folded", kernels=[]),
        node(2, "Conv-11", "", kernels=[0]),
        node(3, "Add-14", "", inputs=["v2", "v1"], kernels=[1]),
    ) == (2, 0, 1, 3)


def test_one_that_nothing_needs_stands_after_what_it_reads() -> None:
    assert _order(
        node(0, "Conv-11", "", kernels=[0]),
        node(1, "Relu-14", "", inputs=["v0"], kernels=[1]),
        node(2, "Shape-13", "", inputs=["v0"], fate="dropped", kernels=[]),
    ) == (0, 2, 1)


def test_a_model_without_nodes_has_no_such_section() -> None:
    assert ways.values(facts(nodes=[])) is None
