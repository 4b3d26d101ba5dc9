"""Wrong device: a scope that ends too late (P12: split or concat on a tower) or too early (P14: work on the host)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import add_up, on_each, sample, uneven
from harness.faults.slips import Towers, slip
from harness.lazy import tf


def _rows(results: list[Any]) -> Any:
    return tf.concat(results, axis=0)


def _late(
    tower: Callable[[Towers, Any], Any], join: Callable[[list[Any]], Any], last: Callable[[list[Any], Any], Any]
) -> Callable[[Devices], Case]:
    """The results so far are joined in the scope of each tower; ``last`` makes the output of all and what is joined."""

    def faulty(t: Towers, x: Any) -> Any:
        results: list[Any] = []
        joined = None
        for name, part in t.shards(x):
            with tf.device(name):
                results.append(tower(t, part))
                joined = join(results)
        return last(results, joined)

    def right(t: Towers, x: Any) -> Any:
        results = t.each(partial(tower, t), x)
        return last(results, join(results))

    return slip(tower, faulty, right, "op-placement", rows=uneven)


def _joined(_: list[Any], joined: Any) -> Any:
    return joined


def _summed_step(t: Towers, x: Any) -> Any:
    loss, gradients = t.step(x, lambda part: tf.reduce_sum(t.losses(part)))
    return [loss, *gradients]


def _two_outputs(t: Towers, x: Any) -> Any:
    hidden = t.model(x)
    return {"rows": hidden, "best": tf.argmax(hidden, axis=1)}


def _joined_by_key(key: str, results: list[Any]) -> Any:
    return _rows([result[key] for result in results])


def _scaled(t: Towers, x: Any, scale: Any) -> Any:
    return t.model(x) * scale


def _split_in_the_last_scope(t: Towers, x: Any, scale: Any) -> Any:
    """The second input is split in a scope that was meant for something else."""
    parts = t.split(x)
    with tf.device(t.names[-1]):
        scales = t.split(scale)
    return _rows(on_each(t.names, partial(_scaled, t), parts, scales))


def _early(first: Callable[[Towers, Any], Any], last: Callable[[Towers, Any], Any]) -> Callable[[Devices], Case]:
    """``last`` of the result of ``first`` stands outside the tower's scope."""

    def tower(t: Towers, x: Any) -> Any:
        return last(t, first(t, x))

    def faulty(t: Towers, x: Any) -> Any:
        results = []
        for name, part in t.shards(x):
            with tf.device(name):
                hidden = first(t, part)
            results.append(last(t, hidden))
        return _rows(results)

    return slip(tower, faulty, lambda t, x: t.joined(partial(tower, t), x), "op-placement", rows=uneven)


def _after_a_function(devices: Devices) -> Case:
    """The model is a ``tf.function``; the op after it stands outside the scope."""
    compiled = tf.function(Towers(devices).model)
    return _early(lambda _, x: compiled(x), lambda _, hidden: tf.nn.softmax(hidden))(devices)


def _mean_square(hidden: Any) -> Any:
    return tf.reduce_mean(tf.square(hidden))


def _loss_outside(t: Towers, x: Any) -> Any:
    """The towers end before their loss. The host may compute the weighted sum of the losses, not the losses."""
    total = 0.0
    for name, part in t.shards(x):
        with tf.device(name):
            hidden = t.model(part)
        total += _mean_square(hidden) * part.shape[0]
    return total / x.shape[0]


FAULTS = (
    Fault(
        "P12-concat-in-the-loop",
        "concat in the last tower's scope",
        "public code",
        _late(Towers.model, _rows, _joined),
        "joined inside the scope of one.*Concat",
    ),
    Fault(
        "P12-split-in-a-scope",
        "split in the last tower's scope",
        "public code",
        slip(
            _scaled,
            _split_in_the_last_scope,
            lambda t, x, scale: t.joined(partial(_scaled, t), x, scale),
            "op-placement",
            inputs=lambda count: {"x": sample(uneven(count), 3), "scale": sample(uneven(count), 1, seed=9)},
        ),
        "is split inside the scope of one.*Split",
    ),
    Fault(
        "P12-losses-in-the-loop",
        "sums in the last tower's scope",
        "public code",
        _late(_summed_step, add_up, _joined),
        "joined inside the scope of one.*AddN",
    ),
    Fault(
        "P12-one-of-two-outputs",
        "one of two outputs joined in the last tower's scope",
        "public code",
        _late(
            _two_outputs,
            partial(_joined_by_key, "rows"),
            lambda results, rows: {"rows": rows, "best": _joined_by_key("best", results)},
        ),
        "joined inside the scope of one.*Concat",
    ),
    Fault(
        "P14-activation",
        "an activation outside of the scope",
        "public code",
        _early(lambda t, x: tf.matmul(x, t.w), lambda t, hidden: tf.nn.softplus(hidden + t.b)),
        "outside of the shard's device scope.*Softplus",
    ),
    Fault(
        "P14-after-a-function",
        "an op outside of the scope, after a nested function",
        "public code",
        _after_a_function,
        "outside of the shard's device scope.*Softmax",
    ),
    Fault(
        "P14-loss",
        "the loss outside of the scope",
        "public code",
        slip(
            lambda t, x: _mean_square(t.model(x)),
            _loss_outside,
            lambda t, x: t.weighted(lambda part: _mean_square(t.model(part)), x),
            "op-placement",
            rows=uneven,
        ),
        "outside of the shard's device scope.*Square",
    ),
)
