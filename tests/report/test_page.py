"""The page of a report as text: valid, closed in itself, and names in it are text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import jsonschema
import pytest
from justhtml import Element, JustHTML

from onnxc.report.html.document import TABLES, page
from onnxc.report.html.functions import texts
from onnxc.report.schema import schema
from onnxc.report.text import printable
from onnxc.resources import template_text
from tests.report.sample_facts import HOSTILE, facts

SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "hostile": {"names": HOSTILE, "quantized": True},
    "one kernel": {"kernels": 1},
    "no times": {"timed": False, "compared": False},
    "many kernels": {"kernels": 100},
}
POINTS: Final = ("for", "aria-labelledby", "aria-describedby", "aria-controls")
"""Attributes that name other elements by their ids."""
WORST_CONTRAST: Final = 4.5
"""Of text, by level AA of the accessibility guidelines (WCAG 2)."""


@pytest.fixture(params=list(SAMPLES))
def sample(request: pytest.FixtureRequest) -> dict[str, Any]:
    return facts(**SAMPLES[request.param])


def test_the_samples_have_the_form_of_a_report(sample: dict[str, Any]) -> None:
    jsonschema.validate(sample, schema())


def parsed(text: str) -> JustHTML:
    """Raises at the first thing that the standard calls an error."""
    return JustHTML(text, strict=True, sanitize=False)


def elements(text: str) -> list[Element]:
    return [found for found in parsed(text).query("*") if isinstance(found, Element)]


def attributes(found: Element) -> dict[str, str]:
    return {name: value or "" for name, value in found.attrs.items()}


def test_html_is_valid(sample: dict[str, Any]) -> None:
    parsed(page(sample))


def test_ids_are_unique_and_links_lead_to_them(sample: dict[str, Any]) -> None:
    found = [attributes(element) for element in elements(page(sample))]
    ids = [each["id"] for each in found if "id" in each]
    assert len(ids) == len(set(ids))
    links = {each["href"] for each in found if "href" in each}
    assert {link[0] for link in links} == {"#"}
    named = {name for each in found for point in POINTS for name in each.get(point, "").split()}
    assert {link[1:] for link in links} | named <= set(ids)


def test_kernels_nodes_tensors_and_functions_have_places(sample: dict[str, Any]) -> None:
    ids = {element.attrs.get("id") for element in elements(page(sample))}
    expected = {f"function-{number}" for number in range(len(sample["functions"]))}
    for kind in ("kernel", "node", "tensor"):
        expected |= {f"{kind}-{entry['number']}" for entry in sample[f"{kind}s"]}
    assert expected <= ids


def test_names_are_text() -> None:
    """Names full of HTML make the same elements with the same attributes as harmless ones."""

    def shape(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for element in elements(page(facts(names=names, quantized=True))):
            yield (element.name, *attributes(element))

    harmless = tuple(f"name{number}" for number in range(len(HOSTILE)))
    assert list(shape(HOSTILE)) == list(shape(harmless))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_shown_as_it_is(name: str) -> None:
    """But what is invisible, or would change the order of the text, which is shown as an escape."""
    heading = parsed(page(facts(names=[name]))).query_one("h1")
    assert isinstance(heading, Element)
    assert heading.to_text() == f"{' '.join(printable(name).split())}.onnx"


def test_the_policy_allows_the_style_and_the_script_alone(sample: dict[str, Any]) -> None:
    text = page(sample)
    found = elements(text)
    (policy,) = (
        element.attrs["content"]
        for element in found
        if element.attrs.get("http-equiv") == "Content-Security-Policy"
    )
    style, script = (
        f"'sha256-{base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode()}'"
        for raw in (between(text, "<style>", "</style>"), between(text, "<script>", "</script>"))
    )
    assert policy == (
        f"default-src 'none'; style-src {style}; script-src {script};"
        " base-uri 'none'; form-action 'none'"
    )
    kinds = [element.attrs.get("type") for element in found if element.name == "script"]
    assert kinds == ["application/json", None]
    names = {name for element in found for name in element.attrs}
    assert not [name for name in names if name.startswith("on") or name in ("style", "src")]


def between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


def test_the_script_finds_the_facts_in_the_page(sample: dict[str, Any]) -> None:
    """All of them, but the text of the C functions, which the page has once already."""
    island = between(page(sample), '<script type="application/json" id="facts">', "</script>")
    assert not set("<>&") & set(island)
    found = json.loads(island)
    for name in TABLES:
        rows = found[name]["rows"]
        found[name] = [dict(zip(found[name]["fields"], row, strict=True)) for row in rows]
    functions = [{k: v for k, v in each.items() if k != "c"} for each in sample["functions"]]
    assert found == json.loads(json.dumps(sample | {"functions": functions}))


def test_the_generator_is_named_near_the_start() -> None:
    assert '<meta name="generator" content="onnxc 0.1.0">' in page(facts())[:200]


def test_a_section_without_anything_to_say_is_left_out() -> None:
    """As those of the kernels, of a model that only hands on its inputs."""
    idle = facts() | {"kernels": [], "functions": [], "nodes": [], "tensors": [], "not_integer": []}
    idle["accuracy"] = None
    idle["memory"] = {"live": [], "peak": {"kernel": None, "bytes": 0, "tensors": []}}
    idle["summary"] |= {"workspace_bytes": 0, "macs": 0, "macs_by_arithmetic": {}}
    ids = {element.attrs.get("id") for element in elements(page(idle))}
    assert {"glance", "summary"} <= ids
    assert not {"kernels", "functions", "ways", "tensors"} & ids


def test_the_answers_at_the_top() -> None:
    """The peak with two tensors, the slowest kernel, the budget, and what is no integer."""
    found = parsed(page(facts(quantized=True))).query_one("#glance")
    assert isinstance(found, Element)
    said = " ".join(found.to_text().split())
    assert "Its peak is at 1 conv_relu_1 , where 2 tensors are live, 16,384 bytes (16 KiB)" in said
    assert "As much is live at kernels 2 , 3 , 4 . The two are /layer2/out" in said
    assert "No plan of these kernels could need less." in said
    assert "1 conv_relu_1 takes most: 40 % of the time of all kernels, 400 µs of 1.00 ms." in said
    assert "A whole run takes 1.05 ms." in said
    assert "It reaches 35 % of what the machine allows" in said
    assert "Why not more: few channels: vectors are not full." in said
    assert "It fits into 64 KiB" in said
    assert "Flash for code and constants: cortex-m4 57 KiB, fits" in said
    assert "1 kernel of the quantised model computes in float: 5" in said
    assert "5 kernels with integer sums rescale them in float32, 10,240 results in all" in said


def glance(found: dict[str, Any]) -> str:
    element = parsed(page(found)).query_one("#glance")
    assert isinstance(element, Element)
    return " ".join(element.to_text().split())


def test_targets_whose_kernels_need_another_workspace_are_named() -> None:
    found = facts()
    found["sections"][0]["bss"] = 12_288
    assert "could need less. The kernels for cortex-m4 need 12 KiB instead." in glance(found)
    assert "The kernels for" not in glance(facts())


def test_what_exceeds_the_budget_by_itself_is_named() -> None:
    found = facts()
    found["summary"]["inputs_bytes"] = 108 * 1024
    found["sections"][0]["rodata"] = 65_536
    said = glance(found)
    assert "The inputs alone exceed 64 KiB" in said
    assert "cortex-m4 68.2 KiB, does not fit" in said


def test_a_tensor_with_padding_is_told_as_such() -> None:
    found = facts()
    found["tensors"][2] |= {"layout": "channels last, padded to 18 x 18 x 8", "writers": [0, 5]}
    said = glance(found)
    assert "(float[1, 8, 16, 16], 8 KiB with padding, made by 0 conv_relu_0 and 5 conv" in said


def test_the_kernels_say_where_their_times_are_from() -> None:
    section = parsed(page(facts())).query_one("#kernels")
    assert isinstance(section, Element)
    said = " ".join(section.to_text().split())
    assert "Times are of a run on a made-up processor, built by gcc 12.2 with -std=c99 -O2" in said


def test_a_kernel_that_rescales_integer_sums_is_marked() -> None:
    rows = parsed(page(facts(quantized=True))).query("#kernels tbody")
    marked = [element.to_text().count("rescaled in float32") for element in rows]
    assert marked == [1, 1, 1, 1, 1, 0]


def test_beside_a_plain_form_the_others_are_named() -> None:
    section = parsed(page(facts(kernels=1))).query_one("#functions")
    assert isinstance(section, Element)
    assert "This is the plain form. The C has others for avx512" in section.to_text()


def test_without_times_the_page_says_why() -> None:
    text = page(facts(timed=False))
    assert text.count("no C compiler was found") >= 2


@pytest.mark.parametrize("what", ["times", "accuracy", "stack", "machine"])
def test_what_is_not_known_is_said_with_its_reason(what: str) -> None:
    found = facts(timed=what != "times")
    if what == "machine":
        found["times"]["machine"] = {"reason": "it is <too> busy"}
        for kernel in found["kernels"]:
            kernel["time"] |= {"limit_ns": None, "of_limit": None, "bound_by": "", "reason": ""}
    else:
        (found["summary"] if what == "stack" else found)[what] = {"reason": "it is <too> busy"}
    assert "it is &lt;too&gt; busy" in page(found)


def test_of_too_much_c_the_shortest_functions_are_shown() -> None:
    shown = texts(["a < b ? a : b;", "", "/* c */", "0;"], most=9)
    assert shown == [None, None, "<i>/* c */</i>", "0;"]


def colours(scheme: str) -> dict[str, str]:
    """The custom properties of the light or of the dark scheme."""
    style = template_text("report/frame.css")
    assert style is not None
    light, dark = (found[1] for found in re.finditer(r":root \{(.*?)\}", style, re.DOTALL))
    text = light if scheme == "light" else light + dark
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", text))


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "panel", "mark"])
@pytest.mark.parametrize("text", ["ink", "soft", "link"])
def test_text_can_be_read(text: str, ground: str, scheme: str) -> None:
    of = colours(scheme)
    assert contrast(of[text], of[ground]) >= WORST_CONTRAST
