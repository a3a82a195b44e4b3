"""Sums of products over labelled dimensions: MatMul, Gemm and Einsum are one function of those."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Final

from onnxc.centred import centred
from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.expression import Apply, Const, Expr, Index, Load, fold
from onnxc.op import op
from onnxc.ops.checks import broadcasts_to
from onnxc.tensor import Tensor, compute, elementwise, zero
from onnxc.traversal import walk

Labels = tuple[str, ...]

STORED_FROM: Final = 8
"""Uses of an element from which it is stored: tuned kernels read nothing but plain loads."""


@dataclass(frozen=True)
class Term:
    """A tensor with a label for each dimension; a label that occurs twice takes the diagonal."""

    tensor: Tensor
    labels: Labels


@op("MatMul")
def matmul(A: Tensor, B: Tensor) -> Tensor:
    return matrix_product(A, B)


@op("Gemm")
def gemm(
    A: Tensor, B: Tensor, C: Tensor | None, *, alpha: float, beta: float, transA: int, transB: int
) -> Tensor:
    terms = [Term(A, ("k", "m") if transA else ("m", "k"))]
    terms += [Term(B, ("n", "k") if transB else ("k", "n"))]
    _check_same_length("k", terms)
    product = _scaled(contract(terms, ("m", "n")), "alpha", alpha)
    if C is None:
        return product
    if not broadcasts_to(C.shape, product.shape):
        fact = f"C of shape {list(C.shape)} does not broadcast to {list(product.shape)}"
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST, fact, "its dimensions must be those of the product, or 1"
        )
    addend = operand(_scaled(C, "beta", beta), product.elements // max(1, C.elements))
    return elementwise(lambda a, c: a + c, product, addend)


@op("Einsum")
def einsum(*Inputs: Tensor, equation: str) -> Tensor:
    """More than two operands are contracted in pairs, the cheapest first."""
    terms, output = _parsed(equation, Inputs)
    while len(terms) > 2:
        terms = _pair_contracted(terms, output)
    return contract(terms, output)


def matrix_product(A: Tensor, B: Tensor) -> Tensor:
    """numpy.matmul, in the type of the elements; an operand of one dimension loses it."""
    if A.rank == 0 or B.rank == 0:
        raise RefusalError(Kind.OPERAND_RANK, "an operand is a scalar", "multiply with Mul")
    batch = _numbered(max(A.rank, B.rank) - 2)
    left = ("k",) if A.rank == 1 else (*_last(batch, A.rank - 2), "m", "k")
    right = ("k",) if B.rank == 1 else (*_last(batch, B.rank - 2), "k", "n")
    terms = [Term(A, left), Term(B, right)]
    _check_same_length("k", terms)
    kept = [label for label in ("m", "n") if label in left + right]
    return contract(terms, (*batch, *kept))


def contract(terms: Sequence[Term], output: Labels) -> Tensor:
    """For each point of `output`: the sum over all other labels of the product of the terms.

    A dimension of 1 broadcasts to what other terms say of its label. Raises RefusalError where they
    disagree.
    """
    extents = _extents(terms)
    summed = tuple(dict.fromkeys(n for term in terms for n in term.labels if n not in output))
    lengths = tuple(extents[label] for label in summed)
    everything = math.prod(extents.values())
    tensors = [
        operand(term.tensor, everything // max(1, math.prod(extents[n] for n in {*term.labels})))
        for term in terms
    ]

    def element(*indices: Index) -> Expr:
        outer = dict(zip(output, indices, strict=True))

        def product(*inner: Index) -> Expr:
            at = outer | dict(zip(summed, inner, strict=True))
            factors = [
                tensor[_indices(term, tensor, at)]
                for term, tensor in zip(terms, tensors, strict=True)
            ]
            return reduce(mul, factors)

        if len(terms) == 1:
            return total(lengths, product, terms[0].tensor)
        return sum_of_products(lengths, product, terms[0].tensor)

    return compute(tuple(extents[label] for label in output), element)


def sum_of_products(
    extents: Sequence[int], product: Callable[..., Expr], like: Tensor, hint: str = "contraction"
) -> Expr:
    """`product` of one index an extent, summed; zero of `like`'s type where there is none.

    The last extent over 1 is that of the innermost loop.
    """
    if 0 in extents:
        return zero(like.dtype)
    long = [n for n, extent in enumerate(extents) if extent != 1]

    def value(*indices: Index) -> Expr:
        given = dict(zip(long, indices, strict=True))
        return product(*(given.get(n, Index()) for n in range(len(extents))))

    return fold("sum", [extents[n] for n in long], value, hint)


def total(extents: Sequence[int], value: Callable[..., Expr], like: Tensor) -> Expr:
    """As sum_of_products, of what is no product: a long sum carries its rounding errors."""
    return sum_of_products(extents, value, like, "")


def operand(tensor: Tensor, uses: int, role: str = "") -> Tensor:
    """The tensor for a reader that takes each element `uses` times.

    Stored where it is costly to repeat; small floats too, whose conversion to float is no plain
    load. 8-bit numbers less their zero point stay as they are: integer products read those.
    """
    if uses <= 1 or centred(tensor.value):
        return tensor
    if uses >= STORED_FROM and not isinstance(tensor.value, Load | Const):
        return tensor.stored(role)
    converts = any(
        isinstance(node, Apply) and any(arg.dtype.kind in ("half", "bits") for arg in node.args)
        for node in walk(tensor.value)
    )
    return tensor.stored(role) if converts else tensor.shared(role)


def _indices(term: Term, tensor: Tensor, at: Mapping[str, Index]) -> list[Index]:
    pairs = zip(term.labels, tensor.shape, strict=True)
    return [Index() if extent == 1 else at[label] for label, extent in pairs]


def _extents(terms: Iterable[Term]) -> dict[str, int]:
    """The extent of each label, in the order of first use."""
    found: dict[str, int] = {}
    for term in terms:
        for label, extent in zip(term.labels, term.tensor.shape, strict=True):
            before = found.get(label, 1)
            if 1 not in (before, extent) and before != extent:
                raise RefusalError(
                    Kind.INNER_DIMENSIONS,
                    f"a dimension is {before} in one operand, {extent} in another",
                )
            found[label] = extent if before == 1 else before
    return found


def _check_same_length(label: str, terms: Sequence[Term]) -> None:
    lengths = [term.tensor.shape[term.labels.index(label)] for term in terms]
    if len(set(lengths)) > 1:
        raise RefusalError(
            Kind.INNER_DIMENSIONS, f"the inner dimensions are {lengths[0]} and {lengths[1]}"
        )


def _scaled(tensor: Tensor, name: str, factor: float) -> Tensor:
    if factor == 1:
        return tensor
    if tensor.dtype.kind == "float":
        return elementwise(lambda value: value * factor, tensor)
    if not float(factor).is_integer():
        fact = f"{name} is {factor:g}, and the elements are integers"
        raise RefusalError(Kind.ATTRIBUTE_VALUE, fact, "give a whole number")
    number = int(factor) % 2**tensor.dtype.bits  # integers wrap
    if tensor.dtype.kind == "signed" and number >= 2 ** (tensor.dtype.bits - 1):
        number -= 2**tensor.dtype.bits
    return elementwise(lambda value: value * number, tensor)


def _numbered(count: int) -> Labels:
    """Labels of the dimensions that "..." or a batch stands for: the last is always the same."""
    return tuple(f".{n}" for n in reversed(range(count)))


def _last(labels: Labels, count: int) -> Labels:
    return labels[len(labels) - count :]


def _parsed(equation: str, tensors: Sequence[Tensor]) -> tuple[list[Term], Labels]:
    """The operands with their labels, and the labels of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(tensors):
        raise RefusalError(
            Kind.EINSUM_EQUATION, f"'{equation}' has {len(texts)} terms for {len(tensors)} operands"
        )
    pairs = zip(texts, tensors, strict=True)
    terms = [Term(tensor, _labels(text, tensor.rank, equation)) for text, tensor in pairs]
    used = [label for term in terms for label in term.labels]
    wide = max((term.labels for term in terms), key=_ellipsis_rank)
    ellipsis = _numbered(_ellipsis_rank(wide))
    if not arrow:
        once = sorted(label for label in set(used) if used.count(label) == 1 and label[0] != ".")
        return terms, (*ellipsis, *once)
    output = _labels(right, len(_letters(right)) + len(ellipsis) * ("..." in right), equation)
    if len(set(output)) < len(output) or not set(output) <= set(used):
        fact = f"the result of '{equation}' repeats a letter, or has one that no operand has"
        raise RefusalError(Kind.EINSUM_EQUATION, fact)
    return terms, output


def _ellipsis_rank(labels: Labels) -> int:
    return sum(label[0] == "." for label in labels)


def _letters(text: str) -> str:
    return text.replace("...", "", 1)


def _labels(text: str, rank: int, equation: str) -> Labels:
    """Of one term, for a tensor of `rank` dimensions."""
    letters = _letters(text)
    hidden = rank - len(letters)
    if not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise RefusalError(
            Kind.EINSUM_EQUATION, f"'{equation}' is no equation of letters, commas, '...' and '->'"
        )
    if hidden < 0 or (hidden > 0 and "..." not in text):
        fact = f"the term '{text}' of '{equation}' has {len(letters)} letters"
        raise RefusalError(Kind.EINSUM_EQUATION, f"{fact} for {rank} dimensions")
    before, _, after = text.partition("...")
    return (*before, *_numbered(hidden), *after)


def _pair_contracted(terms: list[Term], output: Labels) -> list[Term]:
    """The terms with the two whose product takes the fewest multiplications as one, stored."""
    pairs = [(i, j) for j in range(len(terms)) for i in range(j)]

    def work(pair: tuple[int, int]) -> int:
        return math.prod(_extents([terms[n] for n in pair]).values())

    chosen = min(pairs, key=work)
    rest = [term for n, term in enumerate(terms) if n not in chosen]
    needed = {*output, *(label for term in rest for label in term.labels)}
    both = [terms[n] for n in chosen]
    kept = tuple(label for label in _extents(both) if label in needed)
    product = contract(both, kept).stored("the product of two operands")
    return [Term(product, kept), *rest]
