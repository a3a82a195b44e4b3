"""lower: the graph's operators become loops; the one pass that knows both sides.

Each operator's function composes lazy tensors. The one decision here is which value gets a buffer:
outputs do, and what would grow too large as one expression or be computed again by its readers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import onnx_ir as ir

from onnxc.dtypes import BOOL, INT64, UINT8
from onnxc.expression import (
    Apply,
    Axis,
    Buffer,
    Checked,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    along,
    apply,
    literal,
    load,
)
from onnxc.kernel import Loops, Origin, Program, Step, pending, relocate, with_origins
from onnxc.names import comment_text
from onnxc.op import OPSET, REGISTRY, call, schema_at
from onnxc.passes.data_sizes import MAXIMUM
from onnxc.passes.notes import FOLDED, NO_CODE
from onnxc.passes.provenance import number_of
from onnxc.passes.rejoining import rejoins
from onnxc.tensor import EXPENSIVE, Sized, Tensor, checks_of_all, compute, full, of_buffer
from onnxc.traversal import walk
from onnxc.values import element_type_of, placeholder, shape_text, static_shape

NODE_LIMIT: Final = 64
BUFFER_LIMIT: Final = 8
"""An expression of more distinct nodes, or over more buffers, gets a buffer."""
SMALL: Final = 24
FEW: Final = 4
"""A value of no more nodes and buffers leaves room in one expression for what reads it."""
REPEAT_LIMIT: Final = 8
"""A value of more nodes that several ONNX nodes read gets a buffer rather than be repeated."""


def lower(model: ir.Model, *, plain: bool = False) -> Program:
    """The program of a graph whose types, shapes and constants are known.

    With `plain` every value that a node computes gets a buffer of its own: nothing is fused.
    """
    return _Lowering(model.graph, plain).program()


class _Lowering:
    """`realized` are the values that some buffer holds; `sizes` bounds nodes and buffers;
    `products` says in which values a sum of products takes part.

    `constants` are tensors by the identity of their constant; `aliases` the values that others are
    only another name of, `views` the nodes whose results are the memory of an operand; `shapes` has
    the actual shapes of those whose size the data decides, `actual` the buffers that outputs have
    for them. Of the steps that operators asked for, `prepared` has each with its origins, `emitted`
    those that are in the program; `simple` are steps of one sum of products at most, like all that
    fill what they read; `places` are buffers that others stand for, `held` what those without a
    name hold.
    """

    def __init__(self, graph: ir.Graph, plain: bool) -> None:
        self.graph = graph
        self.plain = plain
        self.positions = {node: n for n, node in enumerate(graph)}
        self.origins: dict[ir.Node, Origin] = {}
        self.tensors: dict[ir.Value, Tensor] = {}
        self.constants: dict[int, Tensor] = {}
        self.aliases: dict[ir.Value, ir.Value] = {}
        self.views: set[ir.Node] = set()
        self.shapes: dict[ir.Value, Tensor] = {}
        self.actual: dict[Buffer, Buffer] = {}
        self.realized: set[ir.Value] = set()
        self.sizes: dict[Expr, tuple[int, int, bool]] = {}
        self.products: dict[Expr, bool] = {}
        self.simple: set[Step] = set()
        self.prepared: dict[Step, Step] = {}
        self.emitted: set[Step] = set()
        self.places: dict[Buffer, Buffer] = {}
        self.held: dict[Buffer, tuple[str, tuple[int, ...]]] = {}
        self.steps: list[Step] = []

    def program(self) -> Program:
        inputs = [_interface(value, "input") for value in self.graph.inputs]
        outputs = [_interface(value, "output") for value in self.graph.outputs]
        for value, buffer in zip(self.graph.inputs, inputs, strict=True):
            self.tensors[value] = _of_input(buffer)
        pending = list(zip(self.graph.outputs, outputs, strict=True))
        self.actual = {b: _shape_buffer(b) for value, b in pending if value.meta.get(MAXIMUM)}
        first = dict(reversed(pending))
        for node in self.graph:
            if not _is_constant(node):
                self._node(node, first)
        for value, buffer in pending:
            if value not in self.realized or first[value] is not buffer:
                self._store_output(value, buffer)
        steps, notes = tuple(self.steps), self._notes()
        program = Program(tuple(inputs), tuple(outputs), steps, notes, self.actual)
        views = frozenset(map(self._origin, self.views))
        gone = (node for node, _ in self.graph.meta["gone"])
        known = frozenset(map(self._origin, filter(_is_constant, (*self.graph, *gone))))
        return replace(program, held=self.held, views=views, known=known)

    def _node(self, node: ir.Node, outputs: dict[ir.Value, Buffer]) -> None:
        places: list[tuple[ir.Value, Buffer]] = []
        inputs, results = self._called(node)
        for value, result in results:
            if isinstance(result, Sized):
                self.shapes[value] = result.shape
            tensor = result.tensor if isinstance(result, Sized) else result
            self.tensors[value] = tensor
            steps = list(pending(_storing(tensor), done=self.prepared))
            writes = Counter(buffer for step in steps for buffer in step.writes())
            for step in steps:
                unchanged = isinstance(step, Loops) and writes[step.out] == 1
                self.prepared[step] = self._prepared(step, node, inputs, value, unchanged)
            for source, operand in zip(node.inputs, inputs, strict=True):
                if source is not None and operand is tensor:
                    self.aliases[value] = self.aliases.get(source, source)
            if tensor.buffer is not None and steps and value not in outputs:
                self.realized.add(value)  # its steps have this node's name, its readers need not
                self.held.setdefault(tensor.buffer, (value.name or "", tensor.shape))
            if value in outputs:
                places.append((value, outputs[value]))
            elif self.plain or self._needs_buffer(value, tensor):
                places.append((value, self._buffer_for(value)))
        now = [self.tensors[value] for value in node.inputs if value in self.tensors]
        if all(_is_view(self.tensors[value], [*inputs, *now]) for value, _ in results):
            self.views.add(node)
        for value, buffer in places:  # all of them before the step that fills several
            self._take_over(buffer, self.tensors[value])
            if buffer in self.actual:
                self._take_over(self.actual[buffer], self.shapes[value])
        for value, buffer in places:
            self._realize(value, buffer)

    def _called(
        self, node: ir.Node
    ) -> tuple[list[Tensor | None], list[tuple[ir.Value, Tensor | Sized]]]:
        """The operands and what the operator makes of them.

        A tuned kernel computes one sum of products an element, and what follows it. So where an
        element takes several such sums, all operands with one but the last made get a buffer; that
        too where the operator folds what it reads.
        """
        operands = dict.fromkeys(value for value in node.inputs if value is not None)
        products = [v for v in operands if v in self.tensors and self._is_product(v)]
        products.sort(key=lambda value: self._position(value.producer()))
        while True:
            inputs = [None if value is None else self._tensor(value) for value in node.inputs]
            results = list(call(REGISTRY[node.domain, node.op_type], node, inputs))
            if not products or all(self._is_simple(result) for _, result in results):
                return inputs, results
            self._realize(products[0], self._buffer_for(products.pop(0)))

    def _is_simple(self, result: Tensor | Sized) -> bool:
        """Whether each kernel that computes it has one sum of products at most, and folds none."""
        last = _storing(result.tensor if isinstance(result, Sized) else result)
        before = [*pending(last, done=self.simple)]
        if not all(_has_one_product(step) for step in (*before, last)):
            return False
        self.simple.update(before)
        return True

    def _position(self, node: ir.Node | None) -> int:
        return -1 if node is None else self.positions[node]

    def _buffer_for(self, value: ir.Value) -> Buffer:
        tensor = self.tensors[value]
        return Buffer(value.name or "", tensor.shape, tensor.dtype, "workspace")

    def _is_product(self, value: ir.Value) -> bool:
        """Whether a sum of products takes part in each element."""
        root = self.tensors[value].value
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [o for o in node.operands() if o not in self.products]
            stack += missing
            if not missing:
                parts = (self.products[operand] for operand in node.operands())
                self.products[stack.pop()] = _is_sum_of_products(node) or any(parts)
        return self.products[root]

    def _prepared(
        self,
        step: Step,
        node: ir.Node,
        inputs: list[Tensor | None],
        value: ir.Value,
        unchanged: bool,
    ) -> Step:
        """A step that an operator asked for, as the work of the nodes that it computes.

        One that stores one of `inputs`, and whose buffer no other step changes afterwards
        (`unchanged`), gives that value a buffer, for its other readers too.
        """
        for source, operand in zip(node.inputs, inputs if unchanged else [], strict=False):
            if source is None or operand is None or source in self.realized:
                continue
            if isinstance(step, Loops) and _stores(step, operand) and not operand.buffer:
                origins = self._computed_by(source)
                shape, dtype = operand.shape, operand.dtype
                self.places[step.out] = Buffer(source.name or "", shape, dtype, "workspace")
                self.tensors[source] = of_buffer(step.out)
                self.realized.add(source)
                return with_origins(replace(step, role=""), origins)
        return with_origins(step, self._stored_by(step, node, inputs) or self._computed_by(value))

    def _stored_by(
        self, step: Step, node: ir.Node, inputs: list[Tensor | None]
    ) -> tuple[Origin, ...]:
        """Of a step that stores just one operand of the node: what computes that, and the node."""
        if not isinstance(step, Loops):
            return ()
        for source, operand in zip(node.inputs, inputs, strict=False):
            if source is not None and operand is not None and step.value is operand.value:
                return (*self._computed_by(source), self._origin(node))
        return ()

    def _tensor(self, value: ir.Value) -> Tensor:
        """A constant that several names have is one tensor, so that it is written once."""
        if value not in self.tensors:
            key = id(value.const_value)
            if key not in self.constants:
                self.constants[key] = placeholder(value)
            self.tensors[value] = self.constants[key]
        return self.tensors[value]

    def _needs_buffer(self, value: ir.Value, tensor: Tensor) -> bool:
        nodes, buffers, costly = self._size(tensor.value)
        if nodes > NODE_LIMIT or buffers > BUFFER_LIMIT:
            return True
        if _is_quantised(tensor.value) and self._is_product(value):
            return True
        readers = {use.node for use in value.uses()}
        if costly and any(_repeats(reader, value, tensor) for reader in readers):
            return True
        if len(readers) == 1 or not (costly or nodes > REPEAT_LIMIT):
            return False
        small = nodes <= SMALL and buffers <= FEW
        return not (small and rejoins(value, self.positions.__getitem__))

    def _size(self, root: Expr) -> tuple[int, int, bool]:
        """Upper bounds of the distinct nodes and buffers, exact where large; if any is costly."""
        if root not in self.sizes:
            inner = (root.value,) if isinstance(root, Fold | Guard) else ()
            parts = [self.sizes.get(operand) for operand in {*root.operands(), *inner}]
            known = [part for part in parts if part is not None]
            nodes = 1 + sum(part[0] for part in known)
            buffers = isinstance(root, Load) + sum(part[1] for part in known)
            costly = _is_costly(root) or any(part[2] for part in known)
            if len(known) < len(parts) or nodes > NODE_LIMIT or buffers > BUFFER_LIMIT:
                reached = list(walk(root))
                nodes = len(reached)
                buffers = len({node.buffer for node in reached if isinstance(node, Load)})
                costly = any(map(_is_costly, reached))
            self.sizes[root] = nodes, buffers, costly
        return self.sizes[root]

    def _realize(self, value: ir.Value, buffer: Buffer) -> None:
        self._store_output(value, buffer)
        self.realized.add(value)
        self.aliases.pop(value, None)
        if not buffer.packed:
            self.tensors[value] = of_buffer(buffer)

    def _store_output(self, value: ir.Value, buffer: Buffer) -> None:
        """Fills the buffer, and that of its actual shape."""
        origins = self._computed_by(value)
        self._store(buffer, self._tensor(value), origins)
        if buffer in self.actual:
            self._store(self.actual[buffer], self.shapes[value], origins)
            self.shapes[value] = of_buffer(self.actual[buffer])

    def _store(self, out: Buffer, tensor: Tensor, origins: tuple[Origin, ...]) -> None:
        if tensor.elements == 0:
            self._store_checks(tensor, origins)
            return
        taken = self._take_over(out, tensor)
        self._emit(*pending(_storing(tensor), done=self.emitted))
        if taken:
            return
        source = tensor.buffer
        if not out.packed:
            where = tuple(along(axis) for axis in tensor.axes)
            self._emit(Loops(out, where, tensor.axes, tensor.value, origins))
            return
        if source is None:
            source = Buffer("", tensor.shape, tensor.dtype, "workspace")
            self._store(source, tensor, origins)
            origins = ()
        self._emit(*_pack(out, source, origins))

    def _store_checks(self, tensor: Tensor, origins: tuple[Origin, ...]) -> None:
        """Of a tensor without elements: what it reports all the same, as one bool."""
        if checks := checks_of_all(tensor):
            value: Expr = literal(BOOL, True)
            for check in checks:
                value = Checked(BOOL, value, check.condition, check.code)
            self._store(Buffer("", (), BOOL, "workspace"), full((), value), origins)

    def _take_over(self, out: Buffer, tensor: Tensor) -> bool:
        """Whether the steps that are to fill the tensor's buffer fill `out` instead of a copy."""
        source = tensor.buffer
        if source is None or not source.made_by or out.packed:
            return False
        if source not in self.places and not any(s in self.emitted for s in source.made_by):
            self.places[source] = out
        return self.places.get(source) is out

    def _emit(self, *steps: Step) -> None:
        for step in steps:
            if step in self.emitted:
                continue
            self.emitted.add(step)
            self.steps.append(relocate(self.prepared.get(step, step), self.places))

    def _computed_by(self, value: ir.Value) -> tuple[Origin, ...]:
        """The nodes between the buffers that exist and `value`, in the order of the graph.

        What only gives a value another name is left out, but for the node that made `value`.
        """
        found: set[ir.Node] = set()
        stack = [value]
        while stack:
            current = stack.pop()
            node = current.producer()
            if node is None or node in found or current in self.realized:
                continue
            found.add(node)
            if current.const_value is None:
                stack.extend(self.aliases.get(v, v) for v in node.inputs if v is not None)
        return tuple(self._origin(node) for node in sorted(found, key=self.positions.__getitem__))

    def _origin(self, node: ir.Node) -> Origin:
        if node not in self.origins:
            self.origins[node] = _origin_of(node)
        return self.origins[node]

    def _notes(self) -> tuple[tuple[Origin, str], ...]:
        """What became of the nodes that no kernel names."""
        named = {origin for step in self.steps for origin in step.origins}
        notes = [
            (origin, FOLDED if _is_constant(node) else NO_CODE)
            for node in self.graph
            if (origin := self._origin(node)) not in named
        ]
        gone: list[tuple[ir.Node, str]] = self.graph.meta["gone"]
        return tuple(notes + [(self._origin(node), fact) for node, fact in gone])


def _storing(tensor: Tensor) -> Loops:
    """The kernel that would store the tensor, to ask what it needs."""
    out = Buffer("", tensor.shape, tensor.dtype, "workspace")
    return Loops(out, tuple(along(axis) for axis in tensor.axes), tensor.axes, tensor.value)


def _is_view(tensor: Tensor, operands: Sequence[Tensor | None]) -> bool:
    """Whether it is one of the operands, or all of the memory of one in the same order."""
    given = [operand for operand in operands if operand is not None]
    buffers = {operand.buffer for operand in given} - {None}
    return tensor in given or tensor.buffer in buffers


def _stores(step: Loops, tensor: Tensor) -> bool:
    """Whether the step stores the tensor, all of it and nothing else."""
    where = tuple(along(axis) for axis in tensor.axes)
    return step.value is tensor.value and step.out.shape == tensor.shape and step.where == where


def _is_costly(node: Expr) -> bool:
    """Whether its value is to be kept rather than computed again."""
    return isinstance(node, Fold) or (isinstance(node, Apply) and node.operation in EXPENSIVE)


def _is_quantised(node: Expr) -> bool:
    """Whether it is of few bits, which is the form to store it in between two kernels."""
    return isinstance(node, Apply) and node.operation == "quantise"


def _is_sum_of_products(node: Expr) -> bool:
    return isinstance(node, Fold) and bool(node.hint)


def _has_one_product(step: Step) -> bool:
    """Or none; and no Fold around it."""
    roots = step.roots() if isinstance(step, Loops) else ()
    folds = [node for node in walk(*roots) if isinstance(node, Fold)]
    sums = [fold for fold in folds if fold.hint]
    nested = any(_is_sum_of_products(node) for fold in folds for node in walk(fold.value))
    return len(sums) <= 1 and not nested


def _repeats(reader: ir.Node | None, value: ir.Value, tensor: Tensor) -> bool:
    """Whether a node may compute an element of what it reads several times.

    Concat does not, though it makes more elements: each goes to one place.
    """
    if reader is None:
        return False
    if reader.op_type == "Concat" and list(reader.inputs).count(value) == 1:
        return False
    shapes = (static_shape(made) or () for made in reader.outputs if made.name)
    return max((math.prod(shape) for shape in shapes), default=0) > tensor.elements


def _is_constant(node: ir.Node) -> bool:
    return all(value.const_value is not None for value in node.outputs if value.name)


def _interface(value: ir.Value, kind: str) -> Buffer:
    shape = static_shape(value)
    assert shape is not None
    assert value.dtype is not None
    return Buffer(value.name or "", shape, element_type_of(value.dtype), kind)


def _shape_buffer(buffer: Buffer) -> Buffer:
    """For the actual shape of an output."""
    return Buffer(f"{buffer.name}_shape", (len(buffer.shape),), INT64, "output")


def _of_input(buffer: Buffer) -> Tensor:
    """A bool that comes from outside is true where its byte is not zero."""
    if buffer.dtype.kind == "bool":
        return compute(buffer.shape, lambda *indices: apply("truth", load(buffer, indices)))
    return of_buffer(buffer)


def _pack(out: Buffer, source: Buffer, origins: tuple[Origin, ...]) -> list[Loops]:
    """Loops over whole bytes, then the last byte if it is not full."""
    per_byte, dtype = out.dtype.per_byte, out.dtype
    whole, rest = divmod(out.elements, per_byte)
    steps = []
    if whole:
        axis = Axis(whole)
        flat = [along(axis) * per_byte + n for n in range(per_byte)]
        value = apply("pack", *(load(source, [index]) for index in flat), dtype=UINT8)
        steps.append(Loops(out, (along(axis),), (axis,), value, origins))
    if rest:
        elements: list[Any] = [load(source, [Index(whole * per_byte + n)]) for n in range(rest)]
        elements += [literal(dtype, 0)] * (per_byte - rest)
        value = apply("pack", *elements, dtype=UINT8)
        steps.append(Loops(out, (Index(whole),), (), value, origins, "the last byte"))
    return steps


def _origin_of(node: ir.Node) -> Origin:
    version = node.version or OPSET
    schema = schema_at(node.domain, node.op_type, version)
    since = schema.since_version if schema else version
    reads = ", ".join(map(_shown, filter(None, node.inputs)))
    outputs = [value for value in node.outputs if value.name]
    makes = ", ".join(map(_shown, outputs))
    name = node.name or next((value.name for value in outputs if value.name), "")
    signature = f"{reads} -> {makes}".lstrip()
    return Origin(f"{node.op_type}-{since}", name, signature, number_of(node))


def _shown(value: ir.Value) -> str:
    return f"{comment_text(value.name or '')} {shape_text(value)}"
