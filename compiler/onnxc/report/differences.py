"""What changed from one version of an operator to the next, and whether models can break on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import onnx
from onnx.defs import OpSchema

FormalParameter: TypeAlias = OpSchema.FormalParameter

# A formal parameter may become what stands further to the right without harm to any model.
_FREEDOM: Final = {
    OpSchema.FormalParameterOption.Single: 0,
    OpSchema.FormalParameterOption.Optional: 1,
    OpSchema.FormalParameterOption.Variadic: 2,
}


@dataclass(frozen=True)
class Change:
    """One line of the differences.

    change    added, removed or changed
    details   what of it changed
    breaking  whether a model that the old version allows may be invalid or mean something else
    """

    change: str
    name: str
    details: tuple[str, ...] = ()
    breaking: bool = False

    def __str__(self) -> str:
        details = f": {'; '.join(self.details)}" if self.details else ""
        return f"{self.change} '{self.name}'{details}"


def differences(old: OpSchema, new: OpSchema) -> dict[str, list[Change]]:
    """The changes under the headings of an operator page; a heading without changes is left out."""
    found = {
        "Type constraints": list(_constraints(old, new)),
        "Attributes": list(_attributes(old, new)),
        "Inputs": list(_formals(old, new, old.inputs, new.inputs)),
        "Outputs": list(_formals(old, new, old.outputs, new.outputs)),
        "Support": [Change("changed", "deprecated", ("no -> yes",), breaking=True)]
        if new.deprecated and not old.deprecated
        else [],
    }
    return {heading: changes for heading, changes in found.items() if changes}


def allowed_types(schema: OpSchema, formal: FormalParameter) -> set[str]:
    """The types of an input or output; one that has no type variable states its type itself."""
    return next(
        (
            set(constraint.allowed_type_strs)
            for constraint in schema.type_constraints
            if constraint.type_param_str == formal.type_str
        ),
        {formal.type_str},
    )


def _constraints(old: OpSchema, new: OpSchema) -> Iterator[Change]:
    before = {c.type_param_str: set(c.allowed_type_strs) for c in old.type_constraints}
    after = {c.type_param_str: set(c.allowed_type_strs) for c in new.type_constraints}
    renamed = _renamed(old, new, before.keys(), after.keys())
    narrowed = {one.type_str for one, other in _pairs(old, new) if _lost(old, one, new, other)}
    for name, types in before.items():
        new_name = renamed.get(name, name)
        if new_name not in after:
            # Whether that takes a type from an input or output is said there.
            yield Change("removed", name)
            continue
        added, removed = after[new_name] - types, types - after[new_name]
        details = [f"renamed to '{new_name}'"] if new_name != name else []
        details += [f"added types: {sorted(added)}"] if added else []
        details += [f"removed types: {sorted(removed)}"] if removed else []
        if details:
            # A name may stand for something else than before: what counts is who uses it.
            yield Change("changed", name, tuple(details), bool(removed) and name in narrowed)
    for name in sorted(after.keys() - before.keys() - set(renamed.values())):
        yield Change("added", name)


def _renamed(
    old: OpSchema, new: OpSchema, before: Iterable[str], after: Iterable[str]
) -> dict[str, str]:
    """Old type variables that went, each with the new one that stands in the same place."""
    gone, come = set(before) - set(after), set(after) - set(before)
    renamed: dict[str, str] = {}
    for one, other in _pairs(old, new):
        if one.type_str in gone - renamed.keys() and other.type_str in come:
            renamed[one.type_str] = other.type_str
            come.remove(other.type_str)
    return renamed


def _pairs(old: OpSchema, new: OpSchema) -> Iterator[tuple[FormalParameter, FormalParameter]]:
    """The inputs and outputs that both have, by position: that is how nodes name them."""
    yield from zip(old.inputs, new.inputs, strict=False)
    yield from zip(old.outputs, new.outputs, strict=False)


def _lost(old: OpSchema, one: FormalParameter, new: OpSchema, other: FormalParameter) -> set[str]:
    return allowed_types(old, one) - allowed_types(new, other)


def _attributes(old: OpSchema, new: OpSchema) -> Iterator[Change]:
    for name, attribute in sorted(old.attributes.items()):
        if name not in new.attributes:
            yield Change("removed", name, breaking=True)
        elif details := _attribute_details(attribute, new.attributes[name]):
            eased = [detail == "required -> optional" for detail in details]
            yield Change("changed", name, details, not all(eased))
    for name in sorted(new.attributes.keys() - old.attributes.keys()):
        required = new.attributes[name].required
        yield Change("added", name, ("required",) if required else (), required)


def _attribute_details(old: OpSchema.Attribute, new: OpSchema.Attribute) -> tuple[str, ...]:
    pairs = (
        ("", *("required" if a.required else "optional" for a in (old, new))),
        ("type ", *(kind(a) for a in (old, new))),
        ("default ", *(str(default(a)) for a in (old, new))),
    )
    return tuple(f"{what}{before} -> {after}" for what, before, after in pairs if before != after)


def _formals(
    old: OpSchema,
    new: OpSchema,
    before: Sequence[FormalParameter],
    after: Sequence[FormalParameter],
) -> Iterator[Change]:
    for one, other in zip(before, after, strict=False):
        lost = _lost(old, one, new, other)
        stricter = _FREEDOM[other.option] < _FREEDOM[one.option]
        details = [f"renamed to '{other.name}'"] if other.name != one.name else []
        if other.option != one.option:
            details.append(f"{option(one)} -> {option(other)}")
        if lost and one.type_str != other.type_str:
            details.append(f"removed types: {sorted(lost)}")
        if details:
            yield Change("changed", one.name, tuple(details), stricter or bool(lost))
    for formal in before[len(after) :]:
        yield Change("removed", formal.name, breaking=True)
    for formal in after[len(before) :]:
        required = formal.option == OpSchema.FormalParameterOption.Single
        yield Change("added", formal.name, (option(formal),), required)


def option(formal: FormalParameter) -> str:
    """required, optional or variadic."""
    word = _word(formal.option)
    return "required" if word == "single" else word


def kind(attribute: OpSchema.Attribute) -> str:
    """The attribute's type as ONNX spells it: int, floats, string, graph ..."""
    return _word(attribute.type)


def _word(member: OpSchema.FormalParameterOption | OpSchema.AttrType) -> str:
    """The name of an enumeration's member, in lower case."""
    return str(member).rpartition(".")[2].lower()


def default(attribute: OpSchema.Attribute) -> Any:
    """The attribute's default as a plain value, None where it has none."""
    if attribute.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    return plain(onnx.helper.get_attribute_value(attribute.default_value))


def plain(value: Any) -> Any:
    """An attribute's value in numbers, strings and lists."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return str(value)
