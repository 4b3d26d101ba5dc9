"""Steps that keep memory, each beside a step that does nearly the same and keeps none, or only warms up."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

Step = Callable[[int], object]
HISTORY: list[Any] = []


@dataclass(frozen=True)
class Pair:
    """``leak`` and ``twin`` make a step that works on a device; ``line`` is in the line that keeps memory."""

    name: str
    leak: Callable[[str], Step]
    twin: Callable[[str], Step]
    line: str


class Trainer:
    """A training step with an optimizer and a metric, and a log that is the caller's affair."""

    def __init__(self, device: str) -> None:
        with tf.device(device):
            self.weights = tf.Variable(tf.ones([64, 64]))
            self.x = tf.ones([64, 64])
        self.log: dict[str, list[Any]] = {"loss": []}
        self.optimizer = tf.keras.optimizers.Adam()
        self.metric = tf.keras.metrics.Mean()

    @tf.function  # type: ignore[untyped-decorator]
    def step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, self.weights) ** 2)
        self.optimizer.apply_gradients([(tape.gradient(loss, self.weights) * 1e-6, self.weights)])
        self.metric.update_state(loss)
        return loss


def _ones(device: str, *shape: int) -> Any:
    with tf.device(device):
        return tf.ones(shape)


def _closure(device: str) -> Step:
    kept, x = [], _ones(device, 64)

    def step(_: int) -> None:
        kept.append(x + 1)  # closure

    return step


def _ring(device: str) -> Step:
    kept: deque[Any] = deque(maxlen=5)
    x = _ones(device, 64)
    return lambda _: kept.append(x + 1)


def _attribute(device: str) -> Step:
    trainer = Trainer(device)
    return lambda _: trainer.log["loss"].append(trainer.step(trainer.x))


def _floats(device: str) -> Step:
    trainer = Trainer(device)
    return lambda _: trainer.log["loss"].append(float(trainer.step(trainer.x)))


def _global(device: str) -> Step:
    x = _ones(device, 64)
    return lambda _: HISTORY.append(x + 1)


def _cleared(device: str) -> Step:
    log, x = [], _ones(device, 64)

    def step(number: int) -> None:
        log.append(x + 1)
        if number % 5 == 4:
            log.clear()

    return step


def _python_number(device: str) -> Step:
    x = _ones(device, 64)
    scaled = tf.function(lambda x, rate: x * rate)
    return lambda number: scaled(x, 1.0 / (number + 1))


def _tensor_rate(device: str) -> Step:
    trainer = Trainer(device)

    def step(number: int) -> None:
        trainer.optimizer.learning_rate = 0.1 / (number + 1)
        trainer.step(trainer.x)

    return step


def _shapes(device: str) -> Step:
    cache: dict[int, Any] = {}

    def step(number: int) -> None:
        cache[number] = _ones(device, number + 1)

    return step


def _four_shapes(device: str) -> Step:
    doubled = tf.function(lambda x: x * 2)
    cache: dict[int, Any] = {}

    def step(number: int) -> None:
        cache[number % 4] = doubled(_ones(device, number % 4 + 1))

    return step


def _iterators(_: str) -> Step:
    iterators = []
    dataset = tf.data.Dataset.range(100).batch(2)

    def step(_: int) -> None:
        iterators.append(iter(dataset))
        next(iterators[-1])

    return step


def _iterator_each(_: str) -> Step:
    dataset = tf.data.Dataset.range(100).batch(2)
    return lambda _: next(iter(dataset))


def _tensor_array(device: str) -> Step:
    arrays = [tf.TensorArray(tf.float32, 0, dynamic_size=True, clear_after_read=False)]

    def step(number: int) -> None:
        arrays[0] = arrays[0].write(number, _ones(device, 64))

    return step


def _array_in_graph(device: str) -> Step:
    x = _ones(device, 64)

    @tf.function  # type: ignore[untyped-decorator]
    def stacked(x: Any) -> Any:
        array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        for index in tf.range(5):
            array = array.write(index, x)
        return array.stack()

    return lambda _: stacked(x)


def _joined(device: str) -> Step:
    state = {"all": _ones(device, 64)}

    def step(_: int) -> None:
        with tf.device(device):
            state["all"] = tf.concat([state["all"], tf.ones([256])], 0)

    return step


def _last_batch(device: str) -> Step:
    state, random = {}, np.random.default_rng(0)

    def step(_: int) -> None:
        state["batch"] = _ones(device, int(random.integers(1, 500)))

    return step


def _variable(device: str) -> Step:
    with tf.device(device):
        longer = tf.Variable(tf.zeros([64]), shape=tf.TensorShape(None), name="longer")

    def step(_: int) -> None:
        with tf.device(device):
            longer.assign(tf.concat([longer, tf.ones([64])], 0))

    return step


def _assigned(device: str) -> Step:
    with tf.device(device):
        same = tf.Variable(tf.zeros([64]))
    return lambda _: same.assign(_ones(device, 64))


def _models(_: str) -> Step:
    models = []

    def step(_: int) -> None:
        models.append(tf.keras.layers.Dense(4))
        models[-1](tf.ones([2, 3]))

    return step


def _model(_: str) -> Step:
    model = tf.keras.layers.Dense(4)
    return lambda _: model(tf.ones([2, 3]))


def _default(device: str) -> Step:
    x = _ones(device, 64)

    def step(_: int, seen: list[Any] = []) -> None:  # noqa: B006
        seen.append(x + 1)  # default

    return step


def _lru(device: str) -> Step:
    @functools.lru_cache(maxsize=8)
    def made(number: int) -> Any:
        return _ones(device, 4) + float(number)

    return lambda number: made(number)


def _tapes(device: str) -> Step:
    tapes, x = [], _ones(device, 64)

    def step(_: int) -> None:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.reduce_sum(x * x)
        tape.gradient(y, x)
        tapes.append(tape)

    return step


def _cycle(device: str) -> Step:
    x = _ones(device, 64)

    def step(_: int) -> None:
        itself: dict[str, Any] = {"x": x + 1}
        itself["itself"] = itself

    return step


def _table(_: str) -> Step:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    return lambda number: table.insert(tf.range(10, dtype=tf.int64) + number * 10, tf.ones([10]))


def _same_keys(_: str) -> Step:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    return lambda _: table.insert(tf.range(10, dtype=tf.int64), tf.ones([10]))


def _queue(device: str) -> Step:
    waiting = tf.queue.FIFOQueue(1000, [tf.float32])
    return lambda _: waiting.enqueue(tf.ones([8]))


def _emptied(device: str) -> Step:
    waiting = tf.queue.FIFOQueue(1000, [tf.float32])

    def step(_: int) -> None:
        waiting.enqueue(tf.ones([8]))
        waiting.dequeue()

    return step


class Recorder(tf.keras.layers.Layer):  # type: ignore[misc]
    """A layer that keeps what it computed: all of it, or the last."""

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self.outputs: list[Any] = []
        self.most = most

    def call(self, x: Any) -> Any:
        self.outputs.append(x * 2)  # layer
        while self.most is not None and len(self.outputs) > self.most:
            self.outputs.pop(0)
        return self.outputs[-1]


def _recorded(most: int | None) -> Callable[[str], Step]:
    def made(device: str) -> Step:
        layer, x = Recorder(most), _ones(device, 64)
        return lambda _: layer(x)

    return made


def _callbacks(device: str) -> Step:
    later: dict[int, Any] = {}
    x = _ones(device, 64)

    def step(number: int) -> None:
        later[number] = lambda value=x + 1: value  # callback

    return step


def _last_callback(device: str) -> Step:
    later: dict[str, Any] = {}
    x = _ones(device, 64)

    def step(_: int) -> None:
        later["last"] = lambda value=x + 1: value

    return step


class Link:
    """One of a chain, which keeps those before it."""

    def __init__(self, value: Any, before: Any) -> None:
        self.value, self.before = value, before


def _chained(device: str) -> Step:
    last: Any = None
    x = _ones(device, 64)

    def step(_: int) -> None:
        nonlocal last
        last = Link(x + 1, last)

    return step


def _unchained(device: str) -> Step:
    last: Any = None
    x = _ones(device, 64)

    def step(_: int) -> None:
        nonlocal last
        last = Link(x + 1, None)

    return step


PAIRS = (
    Pair("closure", _closure, _ring, "kept.append(x + 1)  # closure"),
    Pair("attribute", _attribute, _floats, 'trainer.log["loss"].append(trainer.step(trainer.x))'),
    Pair("global", _global, _cleared, "HISTORY.append(x + 1)"),
    Pair("retracing", _python_number, _tensor_rate, "scaled(x, 1.0 / (number + 1))"),
    Pair("cache", _shapes, _four_shapes, "cache[number] = "),
    Pair("iterators", _iterators, _iterator_each, "iterators.append(iter(dataset))"),
    Pair("tensor-array", _tensor_array, _array_in_graph, "arrays[0] = arrays[0].write("),
    Pair("concat", _joined, _last_batch, 'state["all"] = tf.concat('),
    Pair("variable", _variable, _assigned, "longer.assign(tf.concat([longer"),
    Pair("models", _models, _model, "models.append(tf.keras.layers.Dense(4))"),
    Pair("default", _default, _lru, "seen.append(x + 1)  # default"),
    Pair("tapes", _tapes, _cycle, "tapes.append(tape)"),
    Pair("table", _table, _same_keys, "table.insert(tf.range(10, dtype=tf.int64) + number * 10"),
    Pair("queue", _queue, _emptied, "waiting.enqueue(tf.ones([8]))"),
    Pair("layer", _recorded(None), _recorded(2), "self.outputs.append(x * 2)  # layer"),
    Pair("callbacks", _callbacks, _last_callback, "later[number] = lambda value=x + 1: value  # callback"),
    Pair("chain", _chained, _unchained, "'value' of Link"),
)
