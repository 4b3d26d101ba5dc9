"""The strategy of programs: the number and kinds of steps, the outputs, and the names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from harness.errors import UsageError
from harness.strategies.dtypes import FLOATS, dtype_name
from harness.strategies.program import Program
from harness.strategies.recipes import KINDS, RECIPES, UNPLACEABLE_WHEN_TRACED, activations, kinds as kinds_of
from harness.strategies.sketch import Sketch
from harness.strategies.steps.features import Activation, Combine
from harness.strategies.steps.step import Step, Value

#: Names of arguments, as a function of how many there are before: separate, a tuple, a dict, one and a tuple.
_ARGUMENT_NAMES = (
    ("x", "y", "z", "u"),
    ("xs.0", "xs.1", "xs.2", "xs.3"),
    ("feed.left", "feed.right", "feed.up", "feed.down"),
    ("x", "more.0", "more.1", "more.2"),
)
#: Paths of outputs: a tuple, a dict, a dict with a tuple in it, a tuple with a dict in it.
_OUTPUT_PATHS = (
    ("0", "1", "2", "3"),
    ("main", "second", "third", "fourth"),
    ("main", "rest.0", "rest.1", "rest.2"),
    ("0", "1.left", "1.right", "1.up"),
)

#: Types as often as they are drawn: one program in nine has integers, and so no gradients. int32 is left out:
#: TensorFlow keeps its tensors on the host, so the placement of an int32 program proves nothing.
USUAL_DTYPES = (*FLOATS, *FLOATS, "int64")


def programs(
    *,
    dtypes: Sequence[Any] = USUAL_DTYPES,
    kinds: Sequence[str] = KINDS,
    exact: bool | None = False,
    axes: Sequence[int] = (0, 0, 0, 1),
    min_steps: int = 1,
    max_steps: int = 6,
    min_rows: int = 0,
    max_rows: int = 13,
    traced: bool | None = False,
) -> SearchStrategy[Program]:
    """Generate row-wise programs of 1 to 6 small steps, with their data: see :class:`Program`.

    A program has its own batch size (``rows``, from ``min_rows`` to ``max_rows``, which rarely divides, is sometimes
    smaller than the number of devices, and sometimes 0) and batch ``axis``. No value is square: the batch size and the
    feature sizes all differ. Raise UsageError if an argument is not accepted.

    Args:
        dtypes: the types to draw from; repeat one to draw it more often. On GPUs give the float types, since TensorFlow
            has no integer MatMul there. Integer programs have no gradients, and the placement of int32 ones proves
            nothing.
        kinds: the kinds of steps, from :data:`KINDS`. Those that a type does not support are left out; if none is
            left, the step is an activation.
        exact: whether values and gradients are exact, and so have the same bits in any order of summation; ``None``
            draws it.
        axes: the batch axes to draw from; repeat one to draw it more often.
        min_steps: the fewest steps, before those that no output needs are removed.
        max_steps: the most steps.
        min_rows: the fewest rows.
        max_rows: the most rows.
        traced: whether the program's function is a ``tf.function``; ``None``: one in eight. Programs with the kinds
            :data:`~harness.strategies.recipes.UNPLACEABLE_WHEN_TRACED` never are.
    """
    names = tuple(dtype_name(dtype) for dtype in dtypes)
    if not kinds or not set(kinds) <= set(KINDS):
        raise UsageError(f"kinds={tuple(kinds)!r}; accepted: one or more of {', '.join(KINDS)}")
    if not names or not axes:
        raise UsageError(f"dtypes={dtypes!r}, axes={axes!r}; accepted: at least one of each")
    if not all(axis in (0, 1, -1) for axis in axes):
        raise UsageError(f"axes={tuple(axes)!r}; accepted: 0, 1 and -1")
    if not 0 <= min_rows <= max_rows or not 1 <= min_steps <= max_steps:
        given = f"min_rows={min_rows}, max_rows={max_rows}, min_steps={min_steps}, max_steps={max_steps}"
        raise UsageError(f"{given}; accepted: 0 <= min_rows <= max_rows and 1 <= min_steps <= max_steps")

    @st.composite
    def drawn(draw: DrawFn) -> Program:
        dtype = draw(st.sampled_from(names))
        exactly = draw(st.booleans()) if exact is None else exact
        axis = draw(st.sampled_from(tuple(axes)))
        sketch = Sketch(draw, dtype, axis, draw(st.sampled_from(range(min_rows, max_rows + 1))), exact=exactly)
        sketch.argument(sketch.shape(draw(st.sampled_from([2, 1, 3]))))
        known = [kind for kind in kinds_of(dtype, exact=exactly) if kind in kinds]
        wanted = draw(st.sampled_from(range(min_steps, max_steps + 1)))
        for _ in range(2 * wanted):  # some steps are rejected
            if len(sketch.steps) < wanted:
                _one_step(sketch, known)
        main = next(iter(_outputs(sketch)), "a0")
        if not any(computes(sketch.steps[index]) for index in _needed(sketch, [main])):
            # No step computes, so nothing would prove where the program ran.
            sketch.add(Activation(main, activations(dtype, exact=exactly)[0]))
        return _finish(sketch, sketch.choose([False] * 7 + [True]) if traced is None else traced)

    return drawn()


def _one_step(sketch: Sketch, kinds: Sequence[str]) -> None:
    able = [kind for kind in kinds for _ in range(RECIPES[kind].weight) if RECIPES[kind].operands(sketch)]
    if able:
        recipe = RECIPES[sketch.choose(able)]
        operands = recipe.operands(sketch)
        sketch.add(recipe.draw(sketch, sketch.choose(operands) if sketch.maybe() else operands[0]))


def computes(step: Step) -> bool:
    """Whether the step does arithmetic, which proves where it ran."""
    return step.COMPUTES and not (isinstance(step, Combine) and step.how in ("concat", "stack"))


def _needed(sketch: Sketch, outputs: Sequence[str]) -> list[int]:
    names = set(outputs)
    for index in range(len(sketch.steps) - 1, -1, -1):
        if f"v{index}" in names:
            names.update(sketch.steps[index].reads)
    return [index for index in range(len(sketch.steps)) if f"v{index}" in names]


def _outputs(sketch: Sketch) -> list[str]:
    """Results of steps that can be the main output, the newest first."""
    return [name for name in sketch.values(partial(_fits, sketch)) if name.startswith("v")]


def _fits(sketch: Sketch, value: Value) -> bool:
    """Whether a value has a place for the batch axis."""
    return len(value.shape) >= sketch.axis


def _finish(sketch: Sketch, traced: bool) -> Program:
    draw = sketch.draw
    outputs = _outputs(sketch)[:1]
    values = [(name, value) for name, value in sketch.types.items() if value.batched and _fits(sketch, value)][::-1]
    others = [name for name, value in values if name not in outputs and value.dtype != "bool"]
    if others:
        outputs += draw(st.lists(st.sampled_from(others), max_size=3, unique=True))
    if (sketch.exact or not sketch.differentiable) and not sketch.stays_exact(outputs):
        outputs = outputs[:1]
    paths = draw(st.sampled_from(_OUTPUT_PATHS))[: len(outputs)]
    if len(outputs) == 1 and not sketch.choose([False, False, True]):
        paths = ("",)

    # Unneeded steps are removed, so that a shrunk example shows only the fault. Sometimes unused arguments and
    # variables stay: their gradient is None.
    steps = _needed(sketch, outputs)
    needed = {*outputs, *(name for index in steps for name in sketch.steps[index].reads)}
    spare = sketch.choose([False, False, False, True])
    arguments = [part for part in sketch.arguments if spare or part.name in needed]
    variables = [part for part in sketch.variables if spare or part.name in needed]

    split = draw(st.sampled_from(_ARGUMENT_NAMES))
    batches = [part.name for part in arguments if not part.broadcast]
    wholes = [part.name for part in arguments if part.broadcast]
    names = dict(zip(batches, split, strict=False))
    names |= {old: f"c{index}" for index, old in enumerate(wholes)}
    names |= {part.name: f"w{index}" for index, part in enumerate(variables)}
    names |= {f"v{old}": f"v{new}" for new, old in enumerate(steps)}
    return Program(
        arguments=tuple(_renamed(part, names) for part in arguments),
        variables=tuple(_renamed(part, names) for part in variables),
        steps=tuple(_renamed(sketch.steps[index], names) for index in steps),
        outputs=tuple((path, names[name]) for path, name in zip(paths, outputs, strict=True)),
        dtype=sketch.dtype,
        axis=sketch.axis,
        rows=sketch.rows,
        seed=draw(st.integers(0, 2**16 - 1)),
        exact=sketch.exact,
        traced=traced and not any(sketch.steps[index].KIND in UNPLACEABLE_WHEN_TRACED for index in steps),
    )


def _renamed(part: Any, names: dict[str, str]) -> Any:
    """Return the part with its name and those it reads replaced: no other text in it looks like ``a0`` or ``v0``."""
    texts = {field.name: getattr(part, field.name) for field in fields(part)}
    return replace(part, **{key: names[text] for key, text in texts.items() if isinstance(text, str) and text in names})
