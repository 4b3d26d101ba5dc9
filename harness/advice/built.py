"""What ``build`` returns: a Keras model or a function, and an example batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import InvalidTarget
from harness.lazy import tf
from harness.runner.target import Target

ACCEPTED = "where FUNCTION() returns (model, x, y), (fn, inputs) or (fn, inputs, variables)"


@dataclass(frozen=True)
class Built:
    """What ``build`` returned: a ``model`` with ``x`` and ``y``, or ``fn`` with its inputs and variables."""

    model: Any = None
    x: Any = None
    y: Any = None
    fn: Any = None
    inputs: tuple[Any, ...] = ()
    variables: tuple[Any, ...] = ()


def load(target: Target) -> Built:
    """Call the function. Raise InvalidTarget if it returns something else; what it raises passes through."""
    return built_by(target.load(accepted=ACCEPTED), str(target))


def built_by(build: Callable[[], object], target: str) -> Built:
    """The same of a function, which errors name ``target``."""
    made = build()
    if not isinstance(made, (tuple, list)) or len(made) not in (2, 3) or not callable(made[0]):
        raise InvalidTarget(target, f"returned {_described(made)}", ACCEPTED)
    first, *rest = made
    if isinstance(first, tf.keras.Model):
        if len(rest) != 2:
            raise InvalidTarget(target, "returned a model without y", ACCEPTED)
        built = Built(model=first, x=rest[0], y=rest[1])
        named = [("x", built.x), *([] if built.y is None else [("y", built.y)])]
    else:
        inputs, variables = rest[0], rest[1] if len(rest) == 2 else ()
        for name, value in (("inputs", inputs), ("variables", variables)):
            if not isinstance(value, (tuple, list)):
                raise InvalidTarget(target, f"{name} is of type {type(value).__name__}, not a tuple", ACCEPTED)
        if others := [each for each in variables if not hasattr(each, "assign")]:
            kind = type(others[0]).__name__
            raise InvalidTarget(target, f"variables has an object of type {kind}, not a tf.Variable", ACCEPTED)
        built = Built(fn=first, inputs=tuple(inputs), variables=tuple(variables))
        named = [(f"inputs[{number}]", each) for number, each in enumerate(inputs)]
    if wrong := _mismatch(named):
        raise InvalidTarget(target, wrong, ACCEPTED)
    return built


def _mismatch(named: Sequence[tuple[str, Any]]) -> str:
    """Why the arrays are not one batch; empty if they are."""
    rows: dict[str, list[int]] = {}
    for name, value in named:
        for leaf in tf.nest.flatten(value):
            shape = getattr(leaf, "shape", None)
            if shape is None:
                return f"{name} holds an object of type {type(leaf).__name__}, not an array"
            if not len(shape):
                return f"the first axis of all arrays must be the batch, but {name} holds a single number"
            rows.setdefault(name, []).append(int(shape[0]))
    if not rows:
        return "there are no inputs"
    found = {count for counts in rows.values() for count in counts}
    if len(found) > 1:
        each = ", ".join(f"{name} has {' and '.join(map(str, dict.fromkeys(of)))} rows" for name, of in rows.items())
        return f"the first axis of all arrays must be the batch, but {each}"
    return "" if found.pop() else "the batch has 0 rows"


def _described(made: object) -> str:
    if isinstance(made, (tuple, list)):
        kinds = ", ".join(type(each).__name__ for each in made)
        return f"a {type(made).__name__} of ({kinds})"
    return f"an object of type {type(made).__name__}"
