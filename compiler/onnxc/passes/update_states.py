"""States of a loop that its body may overwrite itself, so that nothing is copied at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnxc.expression import Buffer
from onnxc.kernel import Branch, Program, Repeat, Step, every_step, relocate
from onnxc.passes.in_place import overwritable


def update_states(program: Program) -> Program:
    """The program with every state that can be computed in place, in nested programs too."""
    if not any(isinstance(step, Repeat) for step in every_step(program)):
        return program
    return _updated(program, _users(program))


def _users(program: Program) -> Counter[Buffer]:
    """How many steps, those of nested programs too, use each buffer themselves."""
    return Counter(b for step in every_step(program) for b in _used(step) if b is not None)


def _used(step: Step) -> set[Buffer | None]:
    """What a step uses, not counting the programs inside of it."""
    match step:
        case Branch():
            return {step.condition}
        case Repeat():
            pairs = (buffer for pair in step.carried for buffer in pair)
            return {step.count, step.condition, step.counter, *pairs}
    return {*step.reads(), *step.writes()}


def _updated(program: Program, users: Mapping[Buffer, int]) -> Program:
    steps: list[Step] = []
    for step in program.steps:
        match step:
            case Branch():
                then, otherwise = (_updated(part, users) for part in (step.then, step.otherwise))
                steps.append(replace(step, then=then, otherwise=otherwise))
            case Repeat():
                steps.append(_in_place(replace(step, body=_updated(step.body, users)), users))
            case _:
                steps.append(step)
    return program if steps == [*program.steps] else replace(program, steps=tuple(steps))


def _in_place(repeat: Repeat, users: Mapping[Buffer, int]) -> Repeat:
    """Where nothing outside of the body uses what a state becomes, the body stores to the state."""
    inside = _users(repeat.body)
    for state, value in repeat.carried:
        only = [other for _, other in repeat.carried].count(value) == 1
        if only and users[value] == 1 + inside[value] and _may_overwrite(repeat.body, state, value):
            steps = tuple(_relocated(repeat.body, value, state))
            carried = tuple(pair for pair in repeat.carried if pair[0] is not state)
            repeat = replace(repeat, body=replace(repeat.body, steps=steps), carried=carried)
    return repeat


def _relocated(body: Program, value: Buffer, state: Buffer) -> Iterator[Step]:
    for step in body.steps:
        yield relocate(step, {value: state})


def _may_overwrite(body: Program, state: Buffer, value: Buffer) -> bool:
    """Whether no step of the body needs the state once the first has stored part of the value."""
    alike = state.dtype is value.dtype and state.bytes == value.bytes
    if not alike or {state.kind, value.kind} != {"workspace"}:
        return False
    stored = False
    for step in body.steps:
        begins = not stored and value in step.writes()
        if state in step.writes():
            return False
        if state in step.reads() and (stored or (begins and state not in overwritable(step))):
            return False
        stored = stored or begins
    return stored
