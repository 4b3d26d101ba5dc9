"""The parts of a training that replicas do not handle as one device does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.distribute.loops import values_of_loss
from harness.distribute.session import Change, Session
from harness.distribute.training import Data, Training
from harness.judgement.diagnosis.observed import observe
from harness.lazy import tf

#: Options of Keras optimizers that change each replica's gradients before these are added up.
CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")


@dataclass(frozen=True)
class AddedLoss:
    """A layer's own loss: on the first batch, and on each half of it."""

    layer: str
    whole: float
    halves: tuple[float, float]

    @property
    def is_sum(self) -> bool:
        """Whether it is a sum over the rows: the losses of the halves add up to that of the whole."""
        return abs(sum(self.halves) - self.whole) <= 1e-4 * abs(self.whole) and self.whole != 0.0


@dataclass(frozen=True)
class Facts:
    """``scalar_loss``: the loss returns one number for all its rows. ``clipping``: the optimizer's option, such as
    ``clipnorm=1.0``. ``per_replica_statistics``: layers that normalise with the statistics of their replica's rows.
    ``random``: the layers, or else the ops, that draw random numbers. ``coarsest``: the narrowest dtype that a layer
    computes in."""

    loss: str
    scalar_loss: bool
    optimizer: str
    clipping: str
    added: tuple[AddedLoss, ...]
    per_replica_statistics: tuple[str, ...]
    random: tuple[str, ...]
    coarsest: str


def collect_facts(session: Session, data: Data) -> Facts:
    """Inspect a training on one device. Its model is called, and its weights are restored afterwards."""
    made = session.training
    model, optimizer = made.model, made.optimizer
    kept = session.initial()
    x, y = data.batch(0)
    half = -(-len(x) // 2)
    wholes = _added(model, x)
    y = tf.convert_to_tensor(y)
    values = values_of_loss(made.loss, y, model(x, training=True))
    halves = [_added(model, part) if len(part) else {} for part in (x[:half], x[half:])]
    layers = list(_layers(model))
    random = _drawing(lambda: (values_of_loss(made.loss, y, model(x, training=True)), None), layers)
    for variable, value in zip(session.weights.values(), kept, strict=True):
        variable.assign(value)
    clipping = [f"{option}={value:g}" for option in CLIPPING if (value := getattr(optimizer, option, None)) is not None]
    return Facts(
        loss=_name_of_loss(made.loss),
        scalar_loss=values.shape.rank == 0,
        optimizer=type(optimizer).__name__,
        clipping=", ".join(clipping),
        added=tuple(
            AddedLoss(name, whole, (halves[0].get(name, 0.0), halves[1].get(name, 0.0)))
            for name, whole in wholes.items()
        ),
        per_replica_statistics=tuple(layer.name for layer in layers if _normalises_per_replica(layer)),
        random=random,
        coarsest=_coarsest({str(layer.compute_dtype) for layer in layers if layer.weights}),
    )


def without_clipping(training: Training) -> Training:
    """Turn off the clipping of gradients."""
    for option in CLIPPING:
        setattr(training.optimizer, option, None)
    return training


def with_joint_statistics(training: Training) -> Training:
    """Make batch normalisation use the rows of all replicas."""
    for layer in _layers(training.model):
        if _normalises_per_replica(layer):
            layer.synchronized = True
    return training


def with_divided_loss(training: Training) -> Training:
    """Divide the loss by the number of replicas."""

    def divided(y: Any, predicted: Any) -> Any:
        return values_of_loss(training.loss, y, predicted) / tf.distribute.get_strategy().num_replicas_in_sync

    return replace(training, loss=divided)


#: Changes of one thing in the user's training, by the name of that thing.
CHANGES: dict[str, Change] = {
    "clipping": without_clipping,
    "statistics": with_joint_statistics,
    "scalar loss": with_divided_loss,
}


def _layers(model: Any) -> Iterator[Any]:
    yield from model._flatten_layers(include_self=False, recursive=True)


def _normalises_per_replica(layer: Any) -> bool:
    return (
        isinstance(layer, tf.keras.layers.BatchNormalization)
        and bool(layer.trainable)
        and not getattr(layer, "synchronized", False)
    )


def _drawing(run: Callable[[], Any], layers: Sequence[Any]) -> tuple[str, ...]:
    """What draws other random numbers in each of two runs: ``layer drop``, or an op outside of all layers.

    Numbers from a fixed seed are the same on all replicas.
    """
    one, other = (observe(run, ())[0] for _ in range(2))
    if one.error or other.error:
        # It only runs as a graph. Keras gives layers that may draw a seed generator.
        return tuple(f"layer {layer.name}" for layer in layers if getattr(layer, "seed_generator", None) is not None)
    draws = sum(count for (kind, _, _), count in one.random.items() if kind != "RngReadAndSkip")
    same = len(one.drawn) == len(other.drawn) == draws
    if same and all(np.array_equal(*pair) for pair in zip(one.drawn, other.drawn, strict=True)):
        return ()
    names = (f"layer {layer}" if layer else f"{kind} ({place})" for kind, layer, place in one.random)
    return tuple(dict.fromkeys(names))


def _added(model: Any, x: Any) -> dict[str, float]:
    """The loss that each layer itself adds for these rows."""
    model(x, training=True)
    found = {}
    for layer in _layers(model):
        inner = {id(loss) for sub in layer._flatten_layers(include_self=False) for loss in sub.losses}
        own = [loss for loss in layer.losses if id(loss) not in inner]
        if own:
            found[str(layer.name)] = float(sum(float(loss) for loss in own))
    return found


def _name_of_loss(loss: Any) -> str:
    if isinstance(loss, str):
        return loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__))


def _coarsest(dtypes: set[str]) -> str:
    order = ("bfloat16", "float16", "float32", "float64")
    return next((dtype for dtype in order if dtype in dtypes), "float32")
