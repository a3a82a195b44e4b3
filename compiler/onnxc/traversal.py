"""Walks over expressions, and the same expressions at other indices or of other loads.

Every walk is iterative and visits a node once; a chain of thousands of nodes needs no stack.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from onnxc.expression import (
    Apply,
    At,
    Axis,
    Buffer,
    Checked,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    along,
    at,
    guard,
)


def walk(*roots: Expr, inner: bool = True) -> Iterator[Expr]:
    """Each node that the roots reach once, operands before what uses them, in a fixed order.

    Without `inner` it does not look inside a Fold, whose value lives on more axes, and a Guard,
    whose value is computed only at some points.
    """
    done: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.operands()))
            if inner and isinstance(node, Fold | Guard):
                stack.append((node.value, False))


def map_indices(
    root: Expr,
    change: Callable[[Index], Index],
    *,
    flat: bool = False,
    loads: Mapping[Load, Expr] | None = None,
    buffers: Mapping[Buffer, Buffer] | None = None,
    folds: Callable[[Fold], Expr] = lambda fold: fold,
    places: Mapping[Buffer, Callable[[tuple[Index, ...]], Expr]] | None = None,
    needless: Container[Guard] = (),
    nodes: Mapping[Expr, Expr] | None = None,
) -> Expr:
    """The expression with `change` applied to the affine part of every index.

    With `flat`, a Load's indices become the one flat index of its buffer. What `loads` maps a Load
    to takes its place as it is; a Load from a buffer in `buffers` is one from the other, of as many
    elements. `folds` changes each Fold once its value is changed. What `places` has of a buffer
    makes the loads from it, of their indices; a Guard in `needless` becomes its value. Any node in
    `nodes` becomes what that says, as it is.
    """
    new: dict[Expr, Expr] = {}

    def changed(index: Index) -> Index:
        out = change(Index(index.const, index.terms))
        for expr, stride in index.dynamic:
            part = new[expr]
            out = (
                out + (part.index if isinstance(part, At) else Index(0, (), ((part, 1),))) * stride
            )
        return out

    def rebuilt(node: Expr) -> Expr:
        if nodes and node in nodes:
            return nodes[node]
        match node:
            case Load() if loads and node in loads:
                return loads[node]
            case At(_, index):
                return at(changed(index))
            case Load(dtype, buffer, indices):
                walks = tuple(changed(index) for index in indices)
                if places and buffer in places:
                    return places[buffer](walks)
                place = (buffers or {}).get(buffer, buffer)
                one = (flat or place.shape != buffer.shape) and len(walks) != 1
                return Load(dtype, place, (buffer.flat(walks),) if one else walks)
            case Apply(dtype, operation, args):
                return Apply(dtype, operation, tuple(new[arg] for arg in args))
            case Fold(dtype, operation, axes, value, hint):
                return folds(Fold(dtype, operation, axes, new[value], hint))
            case Guard() if node in needless:
                return new[node.value]
            case Guard(_, bounds, value, otherwise):
                moved = ((changed(index), extent) for index, extent in bounds)
                return guard(moved, new[value], new[otherwise])
            case Checked(dtype, value, condition, code):
                return Checked(dtype, new[value], new[condition], code)
        return node

    for node in walk(root):
        new[node] = rebuilt(node)
    return new[root]


def axes_read(root: Expr) -> set[Axis]:
    """Every axis that an index of the expression has."""
    found: set[Axis] = set()

    def noted(index: Index) -> Index:
        found.update(axis for axis, _ in index.terms)
        return index

    map_indices(root, noted)
    return found


def replace_loads(root: Expr, loads: Mapping[Load, Expr]) -> Expr:
    """The expression with other values in place of some loads."""
    return map_indices(root, lambda index: index, loads=loads)


def replace_subexpression(root: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with `new` for one of its nodes."""
    return map_indices(root, lambda index: index, nodes={old: new})


def move(index: Index, values: Mapping[Axis, Index]) -> Index:
    """The index with every axis in `values` replaced."""
    if not any(axis in values for axis, _ in index.terms):
        return index
    total = Index(index.const, (), index.dynamic)
    for axis, stride in index.terms:
        total = total + values.get(axis, along(axis)) * stride
    return total


def substitute(root: Expr, values: Mapping[Axis, Index]) -> Expr:
    """The expression at other points: every axis in `values` replaced by its index."""
    return map_indices(root, lambda index: move(index, values)) if values else root


def move_all(index: Index, values: Mapping[Axis, Index]) -> Index:
    """As move, and in the run-time parts of the index too."""
    moved = move(index, values)
    dynamic = tuple((substitute(expr, values), stride) for expr, stride in moved.dynamic)
    return Index(moved.const, moved.terms, dynamic)
