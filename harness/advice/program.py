"""What ``build`` returned, as a program that can run in several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.advice.built import ACCEPTED, Built
from harness.advice.script import Facts, Source
from harness.errors import InvalidTarget
from harness.judgement.diagnosis.observed import observe
from harness.judgement.tolerance import coarsest_epsilon
from harness.lazy import tf
from harness.plural import plural


@dataclass(frozen=True)
class Example:
    """A program with an example batch. ``parts`` is what ``build`` returned, with the batch that the user asks for.

    ``arrays`` are the arguments of one step: of a model ``x`` and ``y``, of a function its inputs.
    """

    parts: tuple[Any, ...]
    model: Any
    arrays: tuple[Any, ...]
    variables: tuple[Any, ...]
    rows: int | None
    #: Whether the model has no variables until it is called; here it was called.
    unbuilt: bool = False


#: Options of Keras layers that draw random numbers; with 0 they draw none.
_NOISE = ("rate", "dropout", "recurrent_dropout", "stddev")
#: Words for a step of each kind.
STEPS = {"training": "a training step", "forward": "a forward pass", "function": "a call of the function"}


def example_of(built: Built, rows: int | None = None) -> Example:
    """Take what ``build`` returned. A model that has to be called to be built is called with ``rows``, or with all."""
    if built.model is not None:
        arrays, unbuilt = (built.x, built.y), not built.model.built
        if unbuilt:
            built.model(tf.nest.map_structure(lambda each: each[:rows] if _is_dense(each) else each, built.x))
        variables = tuple(built.model.variables)
        return Example((built.model, *arrays), built.model, arrays, variables, _rows(arrays[:1]), unbuilt)
    inputs, variables = tuple(built.inputs), tuple(built.variables)
    return Example((built.fn, inputs, *((variables,) if variables else ())), None, inputs, variables, _rows(inputs))


def _rows(arrays: Sequence[Any]) -> int | None:
    sizes = {int(each.shape[0]) for each in tf.nest.flatten(arrays) if len(getattr(each, "shape", ()))}
    return sizes.pop() if len(sizes) == 1 else None


def facts_of(example: Example, source: Source, spec: str, batch: int | None) -> Facts:
    """Collect what the scripts need. Raise InvalidTarget for a model that no script here can train."""
    rows = example.rows if batch is None else batch
    if batch is not None and (others := [each for each in tf.nest.flatten(example.arrays) if not _is_dense(each)]):
        wrong = f"returned a {type(others[0]).__name__}, of which no batch of {plural(batch, 'row')} can be made"
        raise InvalidTarget(source.name, wrong, ACCEPTED)
    facts = Facts(source, spec, "function", rows, batch=batch)
    model = example.model
    facts = replace(facts, unbuilt=example.unbuilt)
    if model is None:
        return replace(facts, with_variables=bool(example.variables))
    loss = getattr(model, "loss", None)
    if not getattr(model, "compiled", False) or loss is None:
        return replace(facts, step="forward")
    if wrong := _untrainable(example, loss):
        raise InvalidTarget(source.name, wrong, ACCEPTED)
    is_loss = isinstance(loss, tf.keras.losses.Loss)
    optimizer = model.optimizer
    scaled = hasattr(optimizer, "inner_optimizer") or bool(getattr(optimizer, "loss_scale_factor", None))
    return replace(
        facts,
        step="training",
        loss="model.loss.call" if is_loss else "model.loss" if callable(loss) else "keras.losses.get(model.loss)",
        total="tf.reduce_sum" if getattr(loss, "reduction", None) == "sum" else "tf.reduce_mean",
        added=bool(model.losses),
        scaled=scaled,
        joint=scaled or getattr(optimizer, "global_clipnorm", None) is not None,
    )


def _is_dense(array: Any) -> bool:
    """Whether it is an array of one shape, and not ragged or sparse; or ``None``."""
    return array is None or hasattr(array, "__array__")


def _untrainable(example: Example, loss: Any) -> str:
    model = example.model
    if example.arrays[1] is None:
        return "the model is compiled with a loss, but y is None"
    if type(model).train_step is not tf.keras.Model.train_step:
        return "the model has a train_step of its own; return (fn, inputs, variables), where fn is the step"
    if not isinstance(loss, (str, tf.keras.losses.Loss)) and not callable(loss):
        return (
            f"the model has several losses ({type(loss).__name__}); return (fn, inputs, variables), where fn is a step"
        )
    return ""


@contextmanager
def without_noise(model: Any) -> Iterator[tuple[str, ...]]:
    """Turn off dropout and noise in the layers of a Keras model; yields the names of the layers."""
    found = turn_off_noise(model)
    try:
        yield tuple(dict.fromkeys(layer.name for layer, _, _ in found))
    finally:
        for layer, option, value in found:
            setattr(layer, option, value)


def turn_off_noise(model: Any) -> list[tuple[Any, str, float]]:
    """Turn off dropout and noise; returns the layers with the name and the value of each option before."""
    found = [
        (layer, option, value)
        for layer in (() if model is None else model._flatten_layers(include_self=False))
        if getattr(layer, "seed_generator", None) is not None
        for option in _NOISE
        if isinstance(value := getattr(layer, option, None), float) and value
    ]
    for layer, option, _ in found:
        setattr(layer, option, 0.0)
    return found


def draws(run: Callable[[], Any]) -> str:
    """Name what draws other random numbers in each of two runs of a program; empty if nothing does.

    Numbers from a fixed seed are the same in every way to run it.
    """
    one, other = (observe(lambda: (run(), None), ())[0] for _ in range(2))
    if not one.random:
        return ""
    same = len(one.drawn) == len(other.drawn) == sum(one.random.values())
    if same and all(np.array_equal(*pair) for pair in zip(one.drawn, other.drawn, strict=True)):
        return ""
    kind, layer, place = next(iter(one.random))
    return f"layer {layer}" if layer else f"{kind} ({place})" if place else kind


def coarsest_of(step: Any, arguments: Sequence[Any]) -> float:
    """The epsilon of the coarsest dtype that a ``tf.function`` computes in; of mixed precision that of 16 bits."""
    graph = step.get_concrete_function(*arguments).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    numbers = {node.attr["T"].type for node in nodes} - {0}
    return coarsest_epsilon(tf.dtypes.as_dtype(number).name for number in numbers)
