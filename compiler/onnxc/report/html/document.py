"""The page of a report: one HTML file that needs nothing else, made from the report's JSON alone.

A section is a template below templates/report/ with a function that gives what the template asks
for. Style and script are one text each, put together from the parts of the frame and of the
sections; the page's policy names their hashes, so nothing else runs, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final

import jinja2
from markupsafe import Markup

from onnxc.report.html import (
    accuracy,
    budget,
    functions,
    glance,
    integers,
    kernels,
    memory,
    summary,
    tensors,
    ways,
)
from onnxc.report.html.look import Look
from onnxc.report.html.text import FILTERS
from onnxc.report.text import printable
from onnxc.resources import template_text

Facts = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading.

    name    of its template, style and script below templates/report/, and its id in the page
    title   its heading, and its link in the navigation
    values  what its template asks for besides `facts` and `look`; None where there is nothing
            to say and the section is left out
    scripts names of other scripts, of functions that its own calls
    """

    name: str
    title: str
    values: Callable[[Facts], dict[str, Any] | None]
    scripts: tuple[str, ...] = ()


SECTIONS: Final[tuple[Section, ...]] = (
    Section("glance", "At a glance", glance.values),
    Section("summary", "Summary", summary.values),
    Section("memory", "Memory map", memory.values),
    Section("kernels", "Kernels", kernels.values),
    Section("ways", "Where each node went", ways.values, ("ways_model", "ways_detail")),
    Section("tensors", "Tensors", tensors.values),
    Section("integers", "Integer and float", integers.values),
    Section("budget", "What fits", budget.values),
    Section("accuracy", "Accuracy", accuracy.values),
    Section("functions", "C functions", functions.values),
)


def page(facts: Facts) -> str:
    """The HTML of a report's JSON, as report.schema.json describes it."""
    environment = _environment()
    values = [(section, section.values(facts)) for section in SECTIONS]
    shown = [(section, found) for section, found in values if found is not None]
    shared: dict[str, Any] = {"facts": facts, "look": Look(facts)}
    shared["shown"] = {section.name for section, _ in shown}
    bodies: list[tuple[Section, Markup]] = []
    for section, found in shown:
        template = environment.get_template(f"report/{section.name}.html.j2")
        # The template escaped what it was given: its result is HTML.
        bodies.append((section, Markup(template.render(shared | found))))
    style, script = _style(), _script()
    return environment.get_template("report/page.html.j2").render(
        shared,
        sections=bodies,
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
        island=Markup(_island(facts)),
    )


def _printed(value: object) -> object:
    """What a template shows: control characters of names as escapes, HTML as it is."""
    return printable(value) if type(value) is str else value


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        autoescape=True,
        finalize=_printed,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    return environment


@cache
def _style() -> str:
    """The frame's style, then what each section adds."""
    names = ("frame", *(section.name for section in SECTIONS))
    return "\n" + "\n".join(_texts(names, "css"))


@cache
def _script() -> str:
    """The frame's script, then each section's in a block of its own, which sees the frame's."""
    (frame,) = _texts(["frame"], "js")
    parts = ("".join(_texts([*each.scripts, each.name], "js")) for each in SECTIONS)
    blocks = "".join(f"{{\n{text}}}\n" for text in parts if text)
    return f'\n(() => {{\n"use strict";\n{frame}{blocks}}})();\n'


def _texts(names: Iterable[str], kind: str) -> list[str]:
    """Of the files of these names that there are."""
    found = [template_text(f"report/{name}.{kind}") for name in names]
    return [text for text in found if text is not None]


def _hash(text: str) -> str:
    """As a Content-Security-Policy names a text that may be style or script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


TABLES: Final = ("kernels", "functions", "tensors", "nodes")
"""Lists of the facts whose entries have the same fields: without their names, half as long."""


def _island(facts: Facts) -> str:
    """The facts for the script, as JSON that no HTML parser can end early.

    Without the text of the C functions, which the page has already. An entry of TABLES is an object
    of the names of its fields and of the values of each row.
    """
    tables = {name: _table(facts[name], without="c") for name in TABLES}
    text = json.dumps(facts | tables, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(entries: list[Facts], without: str) -> dict[str, list[Any]]:
    fields = [name for name in dict.fromkeys(chain.from_iterable(entries)) if name != without]
    return {"fields": fields, "rows": [[entry.get(name) for name in fields] for entry in entries]}
