"""Copies a traced graph with one operation changed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from harness._tensorflow import graph_of_function
from harness.proof.graph import in_order
from harness.proof.programs import Traced

#: Attributes of operations that name functions, and those that change nothing but names.
_LEFT_ALONE = (
    "_",
    "container",
    "shared_name",
    "message",
    "branches",
    "f",
    "cond",
    "body",
    "then_branch",
    "else_branch",
)
_REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min", "All", "Any")
#: Operations that a mutant does not change: arguments, and what only has to be there.
_FIXED = ("Placeholder", "NoOp", "Assert")
Path = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """An operation: the names of the calls that lead to it, and their attributes, and its own name."""

    path: Path
    op: Any


def places(graph: Any, path: Path = ()) -> Iterator[Place]:
    """All operations of a graph and of the functions that it calls."""
    for op in in_order(graph):
        if op.type not in _FIXED:
            yield Place((*path, op.name), op)
        for attribute, name in _functions(op):
            yield from places(graph_of_function(op.graph, name), (*path, op.name, attribute))


def _functions(op: Any) -> Iterator[tuple[str, str]]:
    for attribute in ("f", "cond", "body", "then_branch", "else_branch"):
        if attribute in op.node_def.attr and op.node_def.attr[attribute].HasField("func"):
            yield attribute, op.node_def.attr[attribute].func.name


@dataclass
class Copier:
    """Builds a graph again, with one operation changed."""

    place: Place
    kind: str
    drawn: random.Random
    #: Whether the upstream gradients are placeholders, as for a proof, or given.
    upstream: Sequence[Any] | None = None
    changed: str = ""
    placeholders: dict[str, tuple[int, str]] = field(default_factory=dict)

    def graph(
        self, graph: Any, given: Sequence[Any], path: Path = (), old: dict[str, tuple[int, str]] | None = None
    ) -> list[Any]:
        """The results of the graph for these arguments, with the operation changed if it is on this path."""
        env = {tensor.name: value for tensor, value in zip(graph.inputs, given, strict=True)}
        made: dict[str, Any] = {}
        names: dict[str, str] = {}
        for op in in_order(graph):
            if op.outputs and op.outputs[0].name in env:
                continue
            if op.type == "Placeholder":
                # Of an upstream gradient.
                number, of = (old or {})[op.name]
                like = env[of]
                new = tf.raw_ops.Placeholder(dtype=like.dtype, shape=like.shape, name=op.name)
                self.placeholders[new.op.name] = number, names[of]
                results = [new]
                if self.upstream is not None:
                    rows = np.random.default_rng(len(self.placeholders)).uniform(-1, 1, (64, 64, 64))
                    results = [_seed(like, rows)]
            else:
                results = self._op(op, [env[tensor.name] for tensor in op.inputs], env, made, (*path, op.name))
            for tensor, value in zip(op.outputs, results, strict=True):
                env[tensor.name] = value
                names[tensor.name] = value.name
        return [env[tensor.name] for tensor in graph.outputs]

    def _op(self, op: Any, args: list[Any], env: dict[str, Any], made: dict[str, Any], path: Path) -> list[Any]:
        node = copy.deepcopy(op.node_def)
        graph = tf.compat.v1.get_default_graph()
        chosen = path == self.place.path
        for attribute, name in _functions(op):
            inner = graph_of_function(op.graph, name)
            if self.place.path[: len(path) + 1] == (*path, attribute):
                body = self._body(inner, (*path, attribute))
                body.add_to_graph(graph)
                node.attr[attribute].func.name = body.function_def.signature.name
            else:
                graph._add_function_recursive(op.graph._get_function(name))
        if op.type in ("Case", "StatelessCase"):
            for each in op.node_def.attr["branches"].list.func:
                graph._add_function_recursive(op.graph._get_function(each.name))
        if chosen:
            args = self._before(op, node, args, env)
        if op.type in _REDUCTIONS and args[0].shape.rank is not None:
            many = args[1].shape.num_elements()
            if many is not None and many > args[0].shape.rank:
                raise ValueError("more axes than there are, which ends the process of TensorFlow")
        waits = [made[each.name] for each in op.control_inputs if each.name in made]
        with tf.control_dependencies(waits):
            new = graph.create_op(
                op.type, args, [t.dtype.base_dtype for t in op.outputs], attrs=dict(node.attr), name=op.name
            )
        made[op.name] = new
        for one, other in zip(new.outputs, op.outputs, strict=True):
            if one.dtype == tf.resource:
                one._handle_data = getattr(other, "_handle_data", None)
        results = list(new.outputs)
        if chosen and self.kind in ("scale", "negate", "shift", "zero", "roll"):
            if not results or not (results[0].dtype.is_floating or results[0].dtype.is_integer):
                raise ValueError("nothing to change")
            results[0] = self._after(results[0])
            self.changed = f"{self.kind} of {op.type}"
        return results

    def _body(self, inner: Any, path: Path) -> Any:
        def body(*given: Any) -> Any:
            for one, other in zip(given, inner.inputs, strict=True):
                if one.dtype == tf.resource:
                    one._handle_data = getattr(other, "_handle_data", None)
            return self.graph(inner, given, path)

        return _graph_of(body, [tf.TensorSpec(t.shape, t.dtype) for t in inner.inputs])

    def _after(self, x: Any) -> Any:
        if self.kind == "scale":
            return x * tf.cast(2, x.dtype)
        if self.kind == "negate":
            return -x
        if self.kind == "shift":
            return x + tf.cast(1, x.dtype)
        if self.kind == "zero":
            return x * tf.cast(0, x.dtype)
        return tf.roll(x, 1, 0) if x.shape.rank else x * tf.cast(3, x.dtype)

    def _before(self, op: Any, node: Any, args: list[Any], env: dict[str, Any]) -> list[Any]:
        if self.kind == "rewire":
            at = self.drawn.randrange(len(args))
            alike = [
                y
                for y in env.values()
                if y.dtype == args[at].dtype and y.shape.rank == args[at].shape.rank and y is not args[at]
            ]
            fitting = (
                [y for y in alike if y.shape.as_list() == args[at].shape.as_list()] if args[at].shape.rank else alike
            )
            args = [*args[:at], self.drawn.choice(fitting or alike), *args[at + 1 :]]
            self.changed = f"rewire of argument {at} of {op.type}"
        elif self.kind == "swap":
            at = self.drawn.randrange(len(args) - 1)
            args = [*args[:at], args[at + 1], args[at], *args[at + 2 :]]
            self.changed = f"swap of arguments {at} and {at + 1} of {op.type}"
        elif self.kind == "constant":
            if op.type != "Const":
                raise ValueError("no constant")
            value = np.array(tf.make_ndarray(node.attr["value"].tensor))
            at = self.drawn.randrange(value.size)
            flat = value.reshape(-1)
            before = flat[at]
            flat[at] = _other(before, self.drawn)
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(flat.reshape(value.shape), value.dtype))
            self.changed = f"{before} to {flat[at]} in Const {op.name}"
        elif self.kind == "attribute":
            names = [name for name in sorted(node.attr) if can_change(name, node.attr[name])]
            name = self.drawn.choice(names)
            before = str(node.attr[name]).strip()
            _change(node.attr[name], self.drawn)
            self.changed = f"{name}: {before} to {str(node.attr[name]).strip()} of {op.type}".replace("\n", " ")
        return args


def _seed(like: Any, rows: Any) -> Any:
    """An upstream gradient, of the shape of a result that may be of an unknown size."""
    size = tf.size(like)
    numbers = tf.constant(rows.reshape(-1), like.dtype)
    return tf.stop_gradient(tf.reshape(tf.gather(numbers, tf.range(size) % numbers.shape[0]), tf.shape(like)))


def can_change(name: str, value: Any) -> bool:
    if name.startswith(_LEFT_ALONE[0]) or name in _LEFT_ALONE:
        return False
    kind = value.WhichOneof("value")
    if kind == "list":
        return bool(value.list.i or value.list.f or value.list.b)
    return kind in ("b", "i", "f") or (kind == "s" and value.s in _OTHERS)


_OTHERS = {b"SAME": b"VALID", b"VALID": b"SAME", b"NHWC": b"NCHW", b"NCHW": b"NHWC"}


def _other(number: Any, drawn: random.Random) -> Any:
    if isinstance(number, (bool, np.bool_)):
        return not number
    if isinstance(number, (int, np.integer)):
        return number + drawn.choice([-1, 1, 2])
    return number + drawn.choice([0.5, -2.0, 3.0])


def _change(value: Any, drawn: random.Random) -> None:
    kind = value.WhichOneof("value")
    if kind == "list":
        of = next(each for each in (value.list.i, value.list.f, value.list.b) if each)
        at = drawn.randrange(len(of))
        of[at] = _other(of[at], drawn)
    elif kind == "s":
        value.s = _OTHERS[value.s]
    else:
        setattr(value, kind, _other(getattr(value, kind), drawn))


def _graph_of(fn: Callable[..., Any], specs: Sequence[Any]) -> Any:
    fn.autograph_info__ = None  # type: ignore[attr-defined]
    return tf.function(fn).get_concrete_function(*specs)


@dataclass
class Mutant:
    """The graph of a program with one operation changed."""

    original: Traced
    place: Place
    kind: str
    seed: int
    changed: str = ""

    def proved(self) -> Traced:
        """For a proof."""
        copier, made = self._made(None)
        self.changed = copier.changed
        return Traced(made.graph, self.original.names, copier.placeholders)

    def run(self) -> Callable[..., list[Any]]:
        """To be run, with upstream gradients given."""
        copier, made = self._made(())
        if copier.changed != self.changed:
            raise RuntimeError(f"changed {copier.changed}, not {self.changed}")
        return made  # type: ignore[no-any-return]

    def _made(self, upstream: Any) -> tuple[Copier, Any]:
        graph = self.original.graph
        copier = Copier(self.place, self.kind, random.Random(self.seed), upstream)
        outside = {inner.name: outer for outer, inner in graph.captures}

        def program(*given: Any) -> list[Any]:
            rows = iter(given)
            own = tf.compat.v1.get_default_graph()
            args = [own.capture(outside[t.name]) if t.name in outside else next(rows) for t in graph.inputs]
            return [tf.identity(each) for each in copier.graph(graph, args, old=self.original.placeholders)]

        specs = [tf.TensorSpec(t.shape, t.dtype) for t in graph.inputs if t.name not in outside]
        return copier, _graph_of(program, specs)


#: No operation is changed.
NOWHERE = Place((), None)
