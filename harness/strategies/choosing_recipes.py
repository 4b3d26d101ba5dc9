"""Recipes for steps that look something up, contract two values, or branch."""

from __future__ import annotations

from hypothesis import strategies as st

from harness.strategies.dtypes import is_float
from harness.strategies.recipes import Recipe
from harness.strategies.sketch import Sketch
from harness.strategies.steps import Argmax, Branch, Einsum, Embed, Gather, Loop, Pick, Remap, Select, Slice, Step
from harness.strategies.steps.control import CONDITIONS, LOOPS


def _slice(sketch: Sketch, x: str) -> Step:
    last = sketch.types[x].shape[-1]
    size = sketch.choose(range(2, last))
    return Slice(x, sketch.choose(range(last - size + 1)), size)


def _gather(sketch: Sketch, x: str) -> Step:
    shape = sketch.types[x].shape
    count = sketch.size(*shape[:-1])
    return Gather(x, tuple(sketch.draw(st.lists(st.integers(0, shape[-1] - 1), min_size=count, max_size=count))))


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


def _pick(sketch: Sketch, x: str) -> Step | None:
    ids = sketch.index(sketch.types[x].shape[0])
    return None if ids is None else Pick(x, ids)


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


def _remap(sketch: Sketch, ids: str) -> Step:
    return Remap(ids, sketch.choose([2, 3]), sketch.choose([0, 1, 2]), sketch.size())


def _ranked(sketch: Sketch) -> list[str]:
    """Values for an Argmax. With 8 or 11 bits the two largest are often equal or neighbours."""
    coarse = sketch.dtype in ("float16", "bfloat16") and not sketch.exact
    return sketch.values(lambda value: value.stable and bool(value.shape) and not coarse)


def _branch(sketch: Sketch, x: str) -> Step:
    last = sketch.types[x].shape[-1:]
    return Branch(sketch.choose(CONDITIONS), x, sketch.parameter(last, "bias"), sketch.parameter(last, "bias"))


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


#: Recipes by kind of step.
CHOOSING_RECIPES = {
    Slice.KIND: Recipe(lambda s: s.values(lambda v: bool(v.shape) and v.shape[-1] >= 3), _slice),
    Gather.KIND: Recipe(lambda s: s.values(lambda v: bool(v.shape)), _gather),
    Einsum.KIND: Recipe(lambda s: s.values(lambda v: 1 <= len(v.shape) <= 3), _einsum, weight=3),
    Select.KIND: Recipe(lambda s: s.values(), _select),
    Pick.KIND: Recipe(lambda s: s.values(lambda v: bool(v.shape)), _pick),
    Embed.KIND: Recipe(lambda s: s.values(), _embed, weight=2),
    Remap.KIND: Recipe(lambda s: s.indices(), _remap, weight=8),
    Argmax.KIND: Recipe(_ranked, lambda _, x: Argmax(x), weight=3),
    Branch.KIND: Recipe(lambda s: s.values(lambda v: bool(v.shape)), _branch),
    Loop.KIND: Recipe(lambda s: s.values(lambda v: bool(v.shape)), _loop),
}
