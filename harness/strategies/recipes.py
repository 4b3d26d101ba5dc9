"""Recipes for drawing a step of each kind: the values that it can take, and the step on one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product
from math import prod

from harness.strategies import support
from harness.strategies.sketch import SIZES, Sketch
from harness.strategies.steps import (
    Activation,
    Bias,
    Combine,
    Conv1d,
    Conv2d,
    Dense,
    Gain,
    Normalise,
    Pool,
    Reduce,
    Reshape,
    Step,
    Transpose,
)
from harness.strategies.steps.convolution import convolved
from harness.strategies.steps.features import NORMALISATIONS
from harness.strategies.steps.pointwise import EXACT_ACTIVATIONS
from harness.strategies.value import Value


@dataclass(frozen=True)
class Recipe:
    """``operands`` lists the values that a step can take, and ``draw`` makes the step on one, or ``None``.

    ``weight`` makes steps that are rarely possible more likely.
    """

    operands: Callable[[Sketch], list[str]]
    draw: Callable[[Sketch, str], Step | None]
    weight: int = 1


#: Above this, saturating functions are flat, and their gradients mostly rounding errors.
_SATURATES = 8.0


def _featured(sketch: Sketch) -> list[str]:
    return sketch.values(lambda value: len(value.shape) >= 1)


def _of_rank(rank: int) -> Callable[[Sketch], list[str]]:
    return lambda sketch: sketch.values(lambda value: len(value.shape) == rank)


def _activations(sketch: Sketch, value: Value) -> list[str]:
    known = support.activations(sketch.dtype, exact=sketch.exact)
    calm = value.bound <= _SATURATES
    return [fn for fn in known if fn in EXACT_ACTIVATIONS or (calm and (value.shape or not fn.endswith("softmax")))]


def _activation(sketch: Sketch, x: str) -> Step:
    return Activation(x, sketch.choose(_activations(sketch, sketch.types[x])))


def _bias(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    axes = sketch.choose(range(1, len(shape) + 1))
    b = sketch.parameter(shape[-axes:], "bias")
    return Bias(x, b, fused=axes == 1 and sketch.maybe())


def _gain(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    axes = sketch.choose(range(1, len(shape) + 1))
    return Gain(x, sketch.parameter(shape[-axes:], "gain"))


def _dense(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    inner = shape[-1]
    known = sketch.parameters(lambda w: len(w.shape) == 2 and inner in w.shape)
    if known and sketch.maybe():
        w = sketch.choose(known)
        return Dense(x, w, transposed=sketch.types[w].shape[0] != inner)
    outer, transposed = sketch.size(*shape), sketch.maybe()
    return Dense(x, sketch.parameter((outer, inner) if transposed else (inner, outer), "weight"), transposed)


def _combine(sketch: Sketch, x: str) -> Step | None:
    how = sketch.choose(support.combinations(sketch.dtype, exact=sketch.exact))
    shape = sketch.types[x].shape
    if how == "concat":
        if not shape:
            return None
        known = sketch.values(lambda value: len(value.shape) == len(shape) and value.shape[:-1] == shape[:-1])
        return Combine(how, x, sketch.choose(known))
    if how == "mul" and sketch.maybe():
        return Combine(how, x, x)
    y = sketch.partner(shape, x)
    return None if y is None else Combine(how, x, y)


def _reductions(sketch: Sketch, value: Value) -> list[str]:
    known = support.reductions(sketch.dtype, exact=sketch.exact)
    return [how for how in known if how == "max" or not value.levelled]


def _reduce(sketch: Sketch, x: str) -> Step:
    value = sketch.types[x]
    return Reduce(x, sketch.choose(_reductions(sketch, value)), sketch.choose(range(len(value.shape))))


def shapes_of(size: int, rows: int) -> list[tuple[int, ...]]:
    """All shapes of 1 to 3 axes with ``size`` elements, in which all sizes differ and none is ``rows``."""
    allowed = [length for length in SIZES if size % length == 0 and length != rows]
    shapes: list[tuple[int, ...]] = [(size,)] if size != rows else []
    for rank in (2, 3):
        shapes += [shape for shape in permutations(allowed, rank) if prod(shape) == size]
    return shapes


def _reshape_targets(sketch: Sketch, value: Value) -> list[tuple[int, ...]]:
    return [shape for shape in shapes_of(value.size, sketch.rows) if shape != value.shape]


def _reshape(sketch: Sketch, x: str) -> Step:
    return Reshape(x, sketch.choose(_reshape_targets(sketch, sketch.types[x])))


def _transpose(sketch: Sketch, x: str) -> Step:
    axes = range(len(sketch.types[x].shape))
    return Transpose(x, sketch.choose([order for order in permutations(axes) if order != tuple(axes)]))


def _normalise(sketch: Sketch, x: str) -> Step:
    # Two features minus their mean are opposite numbers, which normalisation reduces to their sign.
    known = NORMALISATIONS if sketch.types[x].shape[-1] > 2 else NORMALISATIONS[1:]
    how = sketch.choose(known)
    return Normalise(x, how, 0.01) if sketch.dtype in ("float32", "float64") else Normalise(x, how, 0.1)


def _convolution(sketch: Sketch, x: str) -> Step | None:
    """A convolution over all axes except the last, whose result is not square."""
    *lengths, channels = sketch.types[x].shape
    options = []
    for widths in product(*(range(2, min(3, length) + 1) for length in lengths)):
        for stride, padding in product((1, 2), ("SAME", "VALID")):
            over = convolved(lengths, widths, stride, padding)
            if min(over) >= 2 and len({*over, sketch.rows}) > len(over):
                options.append((widths, over, stride, padding))
    if not options:
        return None
    widths, over, stride, padding = sketch.choose(options)
    k = sketch.parameter((*widths, channels, sketch.size(*over, channels)), "weight")
    return (Conv1d if len(lengths) == 1 else Conv2d)(x, k, stride, padding)


def _pool(sketch: Sketch, x: str) -> Step:
    return Pool(x, sketch.choose(support.pools(sketch.dtype, exact=sketch.exact)))


#: Recipes by kind of step.
RECIPES = {
    Activation.KIND: Recipe(lambda s: s.values(lambda v: bool(_activations(s, v))), _activation),
    Bias.KIND: Recipe(_featured, _bias),
    Gain.KIND: Recipe(_featured, _gain),
    Dense.KIND: Recipe(_featured, _dense, weight=3),
    Combine.KIND: Recipe(lambda s: s.values(), _combine, weight=2),
    Reduce.KIND: Recipe(lambda s: s.values(lambda v: bool(v.shape and _reductions(s, v))), _reduce, weight=2),
    Reshape.KIND: Recipe(lambda s: s.values(lambda v: bool(_reshape_targets(s, v))), _reshape),
    Transpose.KIND: Recipe(lambda s: s.values(lambda v: len(v.shape) >= 2), _transpose),
    Normalise.KIND: Recipe(_featured, _normalise, weight=2),
    Conv1d.KIND: Recipe(_of_rank(2), _convolution, weight=5),
    Conv2d.KIND: Recipe(_of_rank(3), _convolution, weight=7),
    Pool.KIND: Recipe(lambda s: s.values(lambda v: len(v.shape) == 2 and v.shape[0] >= 4), _pool, weight=7),
}
