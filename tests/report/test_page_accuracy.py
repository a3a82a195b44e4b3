"""The errors of a report's page, as numbers."""

from __future__ import annotations

from onnxc.report.html import accuracy as section
from tests.report.drawn_facts import accuracy, facts


def _drawing() -> section.Drawing:
    found = section.drawing(facts(accuracy=accuracy()))
    assert found is not None
    return found


def test_without_a_reference_there_is_nothing() -> None:
    assert section.values(facts()) == {"accuracy": None, "reason": ""}


def test_where_nothing_could_run_the_reason_is_told() -> None:
    found = section.values(facts(accuracy={"reason": "no C compiler was found"}))
    assert found == {"accuracy": None, "reason": "no C compiler was found"}


def test_without_a_reference_that_runs_it_says_so() -> None:
    none = accuracy() | {"reference": "", "outputs": [], "tensors": [], "first": ""}
    assert section.accuracy(facts(accuracy=none)).sentence == (
        "Nothing was compared: no reference could run this model."
    )


def test_the_sentence_names_the_first_that_differs() -> None:
    assert section.accuracy(facts(accuracy=accuracy())).sentence == (
        "Compared with ONNX Runtime 1.32, on random inputs: 1 of 1 output differs."
        " The first value to differ is small."
    )


def test_a_mark_is_at_its_kernel_and_its_power_of_ten() -> None:
    marks = [(mark.x, mark.y, mark.level) for mark in _drawing().marks]
    assert marks == [
        ("12.5%", "97%", "exact"),
        ("37.5%", "86%", "close"),  # 1e-7 at the lower end of the decades
        ("62.5%", "22%", "differs"),  # 1e-3: one of five decades below the upper end
    ]


def test_decades_are_lines_from_the_least_to_the_largest_error() -> None:
    lines = [(decade.text, decade.y) for decade in _drawing().decades]
    assert lines == [
        ("exact", "97%"),
        ("1e-7", "86%"),
        ("1e-6", "70%"),
        ("1e-5", "54%"),
        ("1e-4", "38%"),
        ("1e-3", "22%"),
        ("1e-2", "6%"),
    ]


def test_the_first_that_differs_has_a_line() -> None:
    assert _drawing().first == "62.5%"


def test_what_is_not_finite_lies_above_all_decades() -> None:
    changed = accuracy()
    changed["tensors"][2]["max_scaled_error"] = "inf"
    found = section.drawing(facts(accuracy=changed))
    assert found is not None
    assert (found.marks[2].y, found.decades[-1].text) == ("2%", "not finite")


def test_a_mark_tells_the_error_of_floats_and_of_integers() -> None:
    assert (
        _drawing().marks[2].title
        == "small: 0.001 of its scale, 9,000 ulp, by kernel 2 gemm_2: differs"
    )
    changed = accuracy()
    changed["tensors"][2] |= {"max_scaled_error": None, "max_ulp_error": None, "max_abs_error": 1}
    found = section.drawing(facts(accuracy=changed))
    assert found is not None
    assert found.marks[2].title == "small: off by 1, by kernel 2 gemm_2: differs"


def test_the_largest_errors_come_first_and_exact_values_do_not() -> None:
    worst = section.accuracy(facts(accuracy=accuracy())).worst
    assert [(kernel, line.verdict) for kernel, _, line in worst] == [(2, "DIFFERS"), (1, "ok")]
    assert worst[0][2].errors == ("0.001", "0.001", "0.001", "9,000")


def test_only_outputs_that_were_compared_have_errors() -> None:
    changed = accuracy()
    changed["outputs"][0]["verdict"] = "not compared"
    line = section.accuracy(facts(accuracy=changed)).outputs[0]
    assert line.errors == ("-", "-", "-", "-")


def test_without_values_between_the_kernels_there_is_no_drawing() -> None:
    assert section.drawing(facts(accuracy=accuracy() | {"tensors": []})) is None
