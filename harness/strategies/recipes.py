"""Recipes for drawing a step of each kind: the values that it can take, and the step on one of them.

TensorFlow 2.21 has CPU kernels and gradients of every step here in all four float types. What is left out:

- integers: TensorFlow has no kernels for roots, exponentials and logarithms of integers (activations but relu and abs,
  normalisations, logsumexp), nor for int64 convolutions and mean pools; its integer mean is rounded. An int32
  convolution has a kernel on CPUs only. GPUs have no MatMul of integers: give ``dtypes=FLOATS`` there.
- bfloat16: activations for which GPUs have no kernel.
- float16 and bfloat16: steps with a kink where generic values often meet (maxima of nearly equal numbers, relu near
  0). With 8 or 11 bits a neighbour is close, and a value that rounds the other way would turn a gradient on or off.
  Exact programs have no rounding, so there they are in.
- batches of 0 rows: maximum pools and convolutions (``Step.needs_rows``), whose oneDNN kernels abort or fail on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product
from math import prod

from hypothesis import strategies as st

from harness.strategies.dtypes import is_float
from harness.strategies.sketch import SIZES, Sketch
from harness.strategies.steps.control import CONDITIONS, LOOPS, Branch, Loop
from harness.strategies.steps.features import (
    COMBINATIONS,
    EXACT_ACTIVATIONS,
    NORMALISATIONS,
    REDUCTIONS,
    SMOOTH_ACTIVATIONS,
    Activation,
    Combine,
    Normalise,
    Reduce,
    Reshape,
    Select,
    Transpose,
)
from harness.strategies.steps.lookup import Argmax, Embed, Gather, Pick, Remap, Slice
from harness.strategies.steps.products import Bias, Conv1d, Conv2d, Dense, Einsum, Gain, Pool, convolved
from harness.strategies.steps.step import Step, Value

_WIDE = ("float32", "float64")
#: Kinds that only float types have, and no exact program: their inner arithmetic is not integer arithmetic.
FLOAT_KINDS = (Normalise.KIND, Conv1d.KIND, Conv2d.KIND)
#: Kinds of which a GPU has no kernel for integers.
NO_INTEGERS_ON_GPUS = (Einsum.KIND,)
#: Activations of which a GPU has no kernel for bfloat16.
NO_BFLOAT16_ON_GPUS = ("softplus", "softsign")
#: Kinds that a program is not generated with when its function is a ``tf.function``. TensorFlow 2.21 cannot place two
#: copies of such a function on two devices of one graph ("Cannot colocate nodes"): constraints inside (on the shape in
#: the gradient of a gather, on a loop over a variable) name the same op in each copy.
UNPLACEABLE_WHEN_TRACED = (Gather.KIND, Pick.KIND, Embed.KIND, Loop.KIND)
#: Above this, saturating functions are flat, and their gradients mostly rounding errors.
_SATURATES = 8.0


@dataclass(frozen=True)
class Recipe:
    """``draw`` makes the step on a value that ``fits``, or ``None``; ``weight`` is how often it is drawn."""

    draw: Callable[[Sketch, str], Step | None]
    fits: Callable[[Sketch, Value], bool]
    weight: int
    #: Whether it takes integers that count from 0 instead of numbers of the program's type.
    indices: bool

    def operands(self, sketch: Sketch) -> list[str]:
        """The values that the step can take, the newest first."""
        return sketch.indices() if self.indices else sketch.values(lambda value: self.fits(sketch, value))


#: Recipes by kind of step, the simplest kinds first.
RECIPES: dict[str, Recipe] = {}
_Draw = Callable[[Sketch, str], "Step | None"]


def _recipe(
    kind: type[Step],
    fits: Callable[[Sketch, Value], bool] = lambda _, value: bool(value.shape),
    weight: int = 1,
    *,
    indices: bool = False,
) -> Callable[[_Draw], _Draw]:
    def add(draw: _Draw) -> _Draw:
        RECIPES[kind.KIND] = Recipe(draw, fits, weight, indices)
        return draw

    return add


def activations(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The activations of programs of that type."""
    if exact or not is_float(dtype):
        return EXACT_ACTIVATIONS
    if dtype in _WIDE:
        return (*SMOOTH_ACTIVATIONS, *EXACT_ACTIVATIONS)
    left_out = NO_BFLOAT16_ON_GPUS if dtype == "bfloat16" else ()
    return tuple(fn for fn in SMOOTH_ACTIVATIONS if fn not in left_out)


def _activations(sketch: Sketch, value: Value) -> list[str]:
    known = activations(sketch.dtype, exact=sketch.exact)
    calm = value.bound <= _SATURATES
    return [fn for fn in known if fn in EXACT_ACTIVATIONS or (calm and (value.shape or not fn.endswith("softmax")))]


@_recipe(Activation, lambda sketch, value: bool(_activations(sketch, value)))
def _activation(sketch: Sketch, x: str) -> Step:
    return Activation(x, sketch.choose(_activations(sketch, sketch.types[x])))


@_recipe(Bias)
def _bias(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    axes = sketch.choose(range(1, len(shape) + 1))
    b = sketch.parameter(shape[-axes:], "bias")
    return Bias(x, b, fused=axes == 1 and sketch.maybe())


@_recipe(Gain)
def _gain(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    axes = sketch.choose(range(1, len(shape) + 1))
    return Gain(x, sketch.parameter(shape[-axes:], "gain"))


@_recipe(Dense, weight=3)
def _dense(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    inner = shape[-1]
    known = sketch.parameters(lambda w: len(w.shape) == 2 and inner in w.shape)
    if known and sketch.maybe():
        w = sketch.choose(known)
        return Dense(x, w, transposed=sketch.types[w].shape[0] != inner)
    outer, transposed = sketch.size(*shape), sketch.maybe()
    return Dense(x, sketch.parameter((outer, inner) if transposed else (inner, outer), "weight"), transposed)


def combinations(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The ways in which programs of that type combine two values."""
    kinks = exact or not is_float(dtype) or dtype in _WIDE
    return tuple(how for how in COMBINATIONS if kinks or how != "maximum")


@_recipe(Combine, lambda _sketch, _value: True, weight=2)
def _combine(sketch: Sketch, x: str) -> Step | None:
    how = sketch.choose(combinations(sketch.dtype, exact=sketch.exact))
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


def reductions(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The reductions of programs of that type."""
    if not is_float(dtype):
        return ("sum", "max")
    if exact:
        return ("sum",)
    return REDUCTIONS if dtype in _WIDE else ("sum", "mean", "logsumexp")


def _reductions(sketch: Sketch, value: Value) -> list[str]:
    known = reductions(sketch.dtype, exact=sketch.exact)
    return [how for how in known if how == "max" or not value.levelled]


@_recipe(Reduce, lambda sketch, value: bool(value.shape and _reductions(sketch, value)), weight=2)
def _reduce(sketch: Sketch, x: str) -> Step:
    value = sketch.types[x]
    return Reduce(x, sketch.choose(_reductions(sketch, value)), sketch.choose(range(len(value.shape))))


def _reshape_targets(sketch: Sketch, value: Value) -> list[tuple[int, ...]]:
    """All other shapes of 1 to 3 axes with as many elements, whose sizes differ from one another and the batch's."""
    allowed = [length for length in SIZES if value.size % length == 0 and length != sketch.rows]
    shapes: list[tuple[int, ...]] = [(value.size,)] if value.size != sketch.rows else []
    for rank in (2, 3):
        shapes += [shape for shape in permutations(allowed, rank) if prod(shape) == value.size]
    return [shape for shape in shapes if shape != value.shape]


@_recipe(Reshape, lambda sketch, value: bool(_reshape_targets(sketch, value)))
def _reshape(sketch: Sketch, x: str) -> Step:
    return Reshape(x, sketch.choose(_reshape_targets(sketch, sketch.types[x])))


@_recipe(Transpose, lambda _, value: len(value.shape) >= 2)
def _transpose(sketch: Sketch, x: str) -> Step:
    axes = range(len(sketch.types[x].shape))
    return Transpose(x, sketch.choose([order for order in permutations(axes) if order != tuple(axes)]))


@_recipe(Slice, lambda _, value: bool(value.shape) and value.shape[-1] >= 3)
def _slice(sketch: Sketch, x: str) -> Step:
    last = sketch.types[x].shape[-1]
    size = sketch.choose(range(2, last))
    return Slice(x, sketch.choose(range(last - size + 1)), size)


@_recipe(Gather)
def _gather(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    count = sketch.size(*shape[:-1])
    return Gather(x, tuple(sketch.draw(st.lists(st.integers(0, shape[-1] - 1), min_size=count, max_size=count))))


@_recipe(Normalise, weight=2)
def _normalise(sketch: Sketch, x: str) -> Step:
    # Two features minus their mean are opposite numbers, which normalisation reduces to their sign.
    known = NORMALISATIONS if sketch.types[x].shape[-1] > 2 else NORMALISATIONS[1:]
    return Normalise(x, sketch.choose(known), 0.01 if sketch.dtype in _WIDE else 0.1)


@_recipe(Einsum, lambda _, value: 1 <= len(value.shape) <= 3, weight=3)
def _einsum(sketch: Sketch, x: str) -> Step | None:
    shape = sketch.types[x].shape
    letters = "ijk"[: len(shape)]
    weighted = [f"b{letters},{letters[-1]}o->b{letters[:-1]}o", f"b{letters},o{letters[-1]}->bo{letters[:-1]}"]
    if len(shape) >= 2:
        weighted.append(f"b{letters},{letters}o->bo")
    rowwise = [f"b{letters},b{letters}->b{letters[1:]}"]
    if len(shape) == 1:
        rowwise.append("bi,bj->bij")
    equation = sketch.choose([*weighted, *rowwise])
    if equation in weighted:
        text = equation.partition(",")[2].partition("->")[0]
        sizes = dict(zip(letters, shape, strict=True)) | {"o": sketch.size(*shape)}
        return Einsum(equation, x, sketch.parameter(tuple(sizes[letter] for letter in text), "weight"))
    if equation == "bi,bj->bij":
        others = sketch.values(lambda value: len(value.shape) == 1 and value.shape != shape)
        return Einsum(equation, x, sketch.choose(others)) if others else None
    y = sketch.partner(shape)
    return None if y is None else Einsum(equation, x, y)


@_recipe(Conv2d, lambda _, value: len(value.shape) == 3, weight=7)
@_recipe(Conv1d, lambda _, value: len(value.shape) == 2, weight=5)
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


def pools(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The pools of programs of that type."""
    if exact or not is_float(dtype):
        return ("max",)
    return ("max", "avg") if dtype in _WIDE else ("avg",)


@_recipe(Pool, lambda _, value: len(value.shape) == 2 and value.shape[0] >= 4, weight=7)
def _pool(sketch: Sketch, x: str) -> Step:
    return Pool(x, sketch.choose(pools(sketch.dtype, exact=sketch.exact)))


@_recipe(Select, lambda _sketch, _value: True)
def _select(sketch: Sketch, x: str) -> Step | None:
    shape = sketch.types[x].shape
    known = [
        name
        for name, value in sketch.types.items()
        if value.batched and value.stable and name != x and shape[: len(value.shape)] == value.shape
    ]
    if known and (not sketch.room() or sketch.maybe()):
        on = sketch.choose(known)
    elif sketch.room() and len(shape) >= sketch.axis:
        on = sketch.argument(shape[: sketch.choose(range(sketch.axis, len(shape) + 1))], "bool")
    else:
        return None
    return Select(on, x, sketch.partner(shape, x, on) if sketch.maybe() else None)


@_recipe(Pick)
def _pick(sketch: Sketch, x: str) -> Step | None:
    ids = sketch.index(sketch.types[x].shape[0])
    return None if ids is None else Pick(x, ids)


@_recipe(Embed, lambda _sketch, _value: True, weight=2)
def _embed(sketch: Sketch, _x: str) -> Step | None:
    ids = sketch.index(sketch.size())
    if ids is None:
        return None
    below = sketch.types[ids].below or 0
    tables = sketch.parameters(lambda value: len(value.shape) == 2 and value.shape[0] >= below)
    if tables and sketch.maybe():
        return Embed(ids, sketch.choose(tables))
    rows = max(below, 2)
    return Embed(ids, sketch.parameter((rows, *sketch.shape(sketch.choose([1, 2]))), "table"))


@_recipe(Remap, weight=8, indices=True)
def _remap(sketch: Sketch, ids: str) -> Step:
    return Remap(ids, sketch.choose([2, 3]), sketch.choose([0, 1, 2]), sketch.size())


# With 8 or 11 bits the two largest values are often equal or neighbours.
@_recipe(Argmax, lambda s, v: v.stable and bool(v.shape) and (s.exact or s.dtype not in ("float16", "bfloat16")), 3)
def _argmax(_sketch: Sketch, x: str) -> Step:
    return Argmax(x)


@_recipe(Branch)
def _branch(sketch: Sketch, x: str) -> Step:
    last = sketch.types[x].shape[-1:]
    return Branch(sketch.choose(CONDITIONS), x, sketch.parameter(last, "bias"), sketch.parameter(last, "bias"))


@_recipe(Loop)
def _loop(sketch: Sketch, x: str) -> Step | None:
    how = sketch.choose(LOOPS)
    last = sketch.types[x].shape[-1]
    ids = sketch.index(sketch.size()) if how == "rows" else None
    if how == "rows" and ids is None:
        return None
    trips = sketch.choose([1, 2, 3])
    if sketch.exact or not is_float(sketch.dtype) or not sketch.maybe():
        return Loop(how, x, sketch.parameter((last,), "bias"), trips, ids=ids)
    inner = sketch.size(last)
    w, v = sketch.parameter((last, inner), "weight"), sketch.parameter((inner, last), "weight")
    return Loop(how, x, w, trips, v, ids)


#: Names of the kinds of steps.
KINDS = tuple(RECIPES)


def kinds(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The kinds of steps in programs of that type."""
    left_out: tuple[str, ...] = () if is_float(dtype) and not exact else FLOAT_KINDS
    if not is_float(dtype):
        left_out += NO_INTEGERS_ON_GPUS
    return tuple(kind for kind in KINDS if kind not in left_out)
