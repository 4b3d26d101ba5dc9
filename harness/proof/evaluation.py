"""What the rules of operations get: the algebra, and what an operation of a graph says about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.lazy import tf
from harness.proof.algebra import Algebra
from harness.proof.inference import inferred_shapes
from harness.proof.sizes import Size, Unprovable
from harness.proof.terms import BITS, FLOATS, SUM, Form, Map, Poly

#: Attributes that say nothing about what is computed from arguments whose shapes are known.
_NO_MATTER = frozenset(
    "output_shapes shape element_shape Tshape Tidx Tperm Tlen Tpaddings Tmultiples Index use_cudnn_on_gpu container "
    "shared_name grad_a grad_b validate_shape parallel_iterations".split()
)
#: In the place of an unknown number of rows where TensorFlow infers a shape.
_STAND_IN = 6


@dataclass(frozen=True, slots=True)
class Ref:
    """A variable. Those with one ``start`` begin with equal values."""

    key: Any
    start: Any = field(default=None, compare=False)
    shape: tuple[Any, ...] | None = field(default=None, compare=False)
    dtype: str = field(default="float32", compare=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """A value of unknown shape, about which nothing can be said; so is what is computed from it."""

    why: str


@dataclass(frozen=True, slots=True)
class Undefined(Lost):
    """What a branch that is not taken hands to its gradient: nobody reads it, so it may be anything."""


@dataclass(frozen=True, slots=True)
class Chosen(Lost):
    """One of two values, by a condition; only within a branch with that condition it is known which."""

    condition: Any
    then: Any
    otherwise: Any


@dataclass(frozen=True, slots=True)
class Boxed:
    """Values that a branch hands to its gradient."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """How rows pass through an operation.

    ``rows`` gives the maps (see :class:`harness.proof.terms.Form`) for the arguments that are kept and the number of
    the output. ``parts`` are the arguments, of those that are kept, that it is linear in, each by itself. The
    arguments ``only_shape`` say nothing but the shape of the result. ``total``: it is defined for all real arguments.
    ``shape`` gives the shape of an output where it depends on an unknown number of rows in another way.
    """

    rows: Callable[[Any, Sequence[Poly], int], Sequence[Map]]
    parts: tuple[int, ...] = ()
    only_shape: tuple[int, ...] = ()
    total: bool = False
    shape: Callable[[Evaluation, Any, Sequence[Poly]], Sequence[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An element-wise operation with broadcasting, linear in the arguments ``parts``, each by itself."""

    parts: tuple[int, ...] = ()
    total: bool = False


#: Makes the results of an operation from the evaluation, the operation and its arguments.
Rewrite = Callable[..., Any]
#: What is known about an operation type.
Entry = Rule | Elementwise | Rewrite


@dataclass
class Evaluation(ABC):
    """One program over the algebra."""

    alg: Algebra
    #: The values of variables that were assigned.
    state: dict[Ref, Poly] = field(default_factory=dict)
    #: How many loops the evaluation is in, and how many branches that may not be taken.
    level: int = 0
    undecided: int = 0

    @abstractmethod
    def graph(self, graph: Any, given: Sequence[Any]) -> list[Any]:
        """The results of a graph for these arguments."""

    def read(self, ref: Any) -> Poly:
        """The present value of a variable."""
        if not isinstance(ref, Ref):
            raise Unprovable("a resource that is no variable")
        if ref in self.state:
            return self.state[ref]
        if ref.shape is None:
            raise Unprovable("a variable of unknown shape")
        return self.alg.of(self.alg.atom("var", ref.start, (), ref.shape, ref.dtype))

    def fixed(self, p: Any, what: str) -> Any:
        """The value of an argument that has to be a constant."""
        value = self.alg.value(p)
        if value is None:
            raise Unprovable(f"{what} is not constant")
        return value

    def ints(self, p: Any, what: str = "an axis or a size") -> list[Any]:
        """Integers, some of which may depend on the number of rows."""
        found = np.asarray(self.fixed(p, what)).reshape(-1)
        return [each if isinstance(each, Size) else int(each) for each in found]

    def axis(self, p: Any, rank: int) -> int:
        """One axis, counted from the first."""
        (at,) = self.ints(p)
        return axis_of(at, rank)

    def attributes(self, op: Any) -> Any:
        """The attributes that matter to what is computed."""
        kept = ((k, v) for k, v in op.node_def.attr.items() if k[0] != "_" and k not in _NO_MATTER)
        return tuple(sorted((k, v.SerializeToString(deterministic=True)) for k, v in kept))

    def shape(
        self, op: Any, index: int, args: Sequence[Any], maps: Sequence[Map] = (), skip: Sequence[int] = ()
    ) -> Any:
        """The shape of an output. ``maps`` are of the arguments other than those numbered ``skip``."""
        output = op.outputs[index]
        if output.shape.is_fully_defined():
            return tuple(output.shape)
        kept = [arg for at, arg in enumerate(args) if at not in skip]
        rows = [
            (at, axis) for at, arg in enumerate(kept) for axis, size in enumerate(arg.shape) if isinstance(size, Size)
        ]
        led = {(at, axis): to for axes, to in maps for at, axis in enumerate(axes) if axis is not None}
        values = [self.alg.value(arg) for arg in kept if arg.dtype in ("int32", "int64")]
        if any(each not in led for each in rows) or any(v is not None and v.dtype == object for v in values):
            raise Unprovable(f"the shape of {op.type} depends on the number of rows")
        given = [self._sample(arg) for arg in args]
        shape: list[Any] = list(inferred_shapes(op, given)[index] or (None,))
        for axes, to in maps:
            sizes = [kept[at].shape[axis] for at, axis in enumerate(axes) if axis is not None]
            if to != SUM and any(isinstance(size, Size) for size in sizes):
                shape[to] = next(size for size in sizes if isinstance(size, Size))
        if None in shape:
            raise Unprovable(f"the shape of {op.type} is unknown")
        return tuple(shape)

    def _sample(self, arg: Poly) -> Any:
        """A constant, or a shape: (None, shape)."""
        value = self.alg.value(arg) if arg.dtype in ("int32", "int64") else None
        if value is not None and value.dtype == object:
            plain = [each if not isinstance(each, Size) else _STAND_IN for each in value.reshape(-1)]
            value = np.array(plain, arg.dtype).reshape(value.shape)
        shape = tuple(_STAND_IN if isinstance(size, Size) else size for size in arg.shape)
        return value, shape

    def by_rule(self, op: Any, args: Sequence[Poly], rule: Rule, *, known: bool = True) -> list[Any]:
        """The results of an operation by its rule."""
        kept = [arg for at, arg in enumerate(args) if at not in rule.only_shape]
        results: list[Any] = []
        for index, output in enumerate(op.outputs):
            maps, dtype = rule.rows(op, kept, index), output.dtype.base_dtype.name
            # Whole numbers wrap around, and as floats they do not add up to what they were.
            parts = [at for at in rule.parts if kept[at].dtype == dtype or kept[at].dtype not in BITS]
            form = Form(maps, parts, None, rule.total, known)
            try:
                shape = rule.shape(self, op, args) if rule.shape else self.shape(op, index, args, maps, rule.only_shape)
            except Unprovable as error:
                results.append(Lost(str(error)))
                continue
            attrs = (self.attributes(op), index)
            results.append(self.alg.apply(op.type, attrs, kept, shape, dtype, form))
        return results

    def by_elements(self, op: Any, args: Sequence[Poly], rule: Elementwise) -> Poly:
        """The result of an element-wise operation."""
        # Of complex arguments, some have poles, such as tanh.
        total = rule.total and not any(arg.dtype.startswith("complex") for arg in args)
        form = Form((), rule.parts, None, total)
        dtype = op.outputs[0].dtype.base_dtype.name
        return self.alg.elementwise(op.type, self.attributes(op), args, dtype, form)


def axis_of(at: int, rank: int) -> int:
    """An axis, counted from the first. TensorFlow refuses others, though not always before the program runs."""
    if not -rank <= at < rank:
        raise Unprovable(f"axis {at} of {rank}")
    return int(at) % rank


def distinct(axes: Sequence[int]) -> tuple[int, ...]:
    """The axes in order. TensorFlow refuses one that is given twice, when the program runs."""
    if len(set(axes)) < len(axes):
        raise Unprovable(f"an axis twice in {list(axes)}")
    return tuple(sorted(axes))


def is_float(p: Poly) -> bool:
    """Whether the value is of real numbers."""
    return p.dtype in FLOATS


def is_whole(p: Poly) -> bool:
    """Whether the value is of integers."""
    return p.dtype in BITS


def numpy_type(dtype: str) -> Any:
    """NumPy's type for the name of a type."""
    return tf.as_dtype(dtype).as_numpy_dtype
