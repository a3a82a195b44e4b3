"""The text of the two data packages: the templates and the C headers that outputs inline."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import jinja2


@cache
def template_text(name: str) -> str | None:
    """The template `name`, a path below templates/ with slashes; None where there is none."""
    try:
        return files("onnxc.templates").joinpath(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


_FUNCTION: Final = re.compile(
    r"^(?:/\*(?:[^*]|\*(?!/))*\*/\n)?static inline [^(\n]*\b(\w+)\(.*?^}\n",
    re.MULTILINE | re.DOTALL,
)


@cache
def runtime_functions() -> dict[str, str]:
    """Every function of runtime_c/ by name, with the comment right above it."""
    headers = sorted(entry.name for entry in files("onnxc.runtime_c").iterdir())
    texts = (
        files("onnxc.runtime_c").joinpath(name).read_text(encoding="utf-8")
        for name in headers
        if name.endswith(".h")
    )
    return {found[1]: found[0] for text in texts for found in _FUNCTION.finditer(text)}


def runtime_text(names: Iterable[str]) -> list[str]:
    """The functions `names` and those that they call, callees first."""
    known = runtime_functions()
    found: dict[str, str] = {}

    def add(name: str) -> None:
        if name in known and name not in found:
            for callee in sorted(set(re.findall(r"onnxc_\w+", known[name])) - {name}):
                add(callee)
            found[name] = known[name]

    for name in sorted(names):
        add(name)
    return list(found.values())


@cache
def environment() -> jinja2.Environment:
    """The one Jinja environment; a template is parsed once a process.

    Jinja's own PackageLoader cannot find a package that an editable install maps elsewhere.
    """
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
