"""Where a Keras model can be cut into stages, and where that is best."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from harness.lazy import tf

#: A chain of more layers is cut between groups of them, whose times are measured.
_MOST_GROUPS = 24


def cut_by_time(
    model: Any, value: Any, stages: int, device: str, seconds: Callable[[Callable[[], Any]], float], *, training: bool
) -> tuple[int, ...]:
    """Return the numbers in ``model.layers`` at which the stages begin, and the number of layers.

    ``seconds`` measures or predicts a run of some layers on ``device``, with their gradients in training; ``value`` is
    a batch. Raise ValueError where the model cannot be cut.
    """
    if not getattr(model, "inputs", None):
        raise ValueError("the model is neither Sequential nor functional")
    layers = list(model.layers)
    first = sum(isinstance(layer, tf.keras.layers.InputLayer) for layer in layers)
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise ValueError("the model has several inputs or outputs")
    places = [first + place for place in places_to_cut(layers[first:])]
    if not places:
        raise ValueError("nowhere in the model does one tensor go from some layers to all others")
    ends = (first, *places[:: -(-len(places) // (_MOST_GROUPS - 1))], len(layers))
    costs = []
    with tf.device(device):
        for begin, end in itertools.pairwise(ends):
            part = tf.keras.Model(layers[begin].input, layers[end - 1].output)
            costs.append(seconds(_run_of(part, value, training=training)))
            value = part(value, training=False)
    return tuple(ends[place] for place in best_cut(costs, stages))


def places_to_cut(layers: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of the layers at which a chain can be cut: one tensor goes from those before to those after.

    Raise ValueError if a layer is used several times.
    """
    for layer in layers:
        try:
            _ = layer.input, layer.output
        except (AttributeError, ValueError) as error:
            raise ValueError(f"layer {layer.name} is not called exactly once") from error
    inputs = [[id(each) for each in tf.nest.flatten(layer.input)] for layer in layers]
    outputs = [[id(each) for each in tf.nest.flatten(layer.output)] for layer in layers]
    found = []
    for place in range(1, len(layers)):
        before = {each for output in outputs[:place] for each in output} | set(inputs[0])
        crossing = {each for needed in inputs[place:] for each in needed if each in before}
        own = outputs[place - 1]
        if len(own) == 1 and crossing == set(own) and inputs[place] == own:
            found.append(place)
    return tuple(found)


def best_cut(costs: Sequence[float], stages: int) -> tuple[int, ...]:
    """Return where to cut: the numbers of the layers at which the stages begin, and the number of layers at the end.

    The largest cost of a stage is the smallest possible, by dynamic programming over the layers. Among equal cuts the
    earlier stages are longer. There are ``stages`` stages, or fewer where the chain has fewer places to cut.

    Args:
        costs: the cost of each layer, such as its seconds; 0 or more.
        stages: how many stages are wanted; 1 or more.
    """
    count = len(costs)
    ends = range(1, count + 1)
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    #: By the end of the last stage: the largest cost so far, and where the stages begin.
    reached: dict[int, tuple[float, tuple[int, ...]]] = {end: (sums[end], (0,)) for end in ends}
    for _ in range(min(stages, len(ends)) - 1):
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        for end in ends:
            tries = [
                (max(worst, sums[end] - sums[begin]), (*begins, begin))
                for begin, (worst, begins) in reached.items()
                if begin < end
            ]
            if tries:
                longer[end] = min(tries, key=lambda each: (each[0], tuple(-begin for begin in each[1])))
        reached = longer
    return (*reached[count][1], count)


def _run_of(part: Any, value: Any, *, training: bool) -> Callable[[], Any]:
    """A run of some layers, with their gradients in training."""

    @tf.function  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = part(x, training=training)
        return tape.gradient(result, [x, *part.trainable_variables]) if training else result

    given = tf.convert_to_tensor(value)
    return lambda: run(given)
