"""Wrong state: variables that are updated too often or rarely, from some rows, or with another rate (S03 on)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import on_each, sample
from harness.faults.slips import Towers, slip, trained
from harness.lazy import tf


def _state(t: Towers) -> list[Any]:
    return [t.total]


def _column_means(x: Any) -> Any:
    return tf.reduce_mean(x, axis=0)


def _once(t: Towers, x: Any, update: Callable[[Towers, Any], Any]) -> Any:
    update(t, _column_means(x))
    return t.joined_model(x)


def _in_each(t: Towers, x: Any, update: Callable[[Towers, Any], Any]) -> Any:
    def tower(part: Any) -> Any:
        update(t, _column_means(part))
        return t.model(part)

    return t.joined(tower, x)


def _of_first(t: Towers, x: Any, update: Callable[[Towers, Any], Any]) -> Any:
    update(t, _column_means(tf.split(x, t.count)[0]))
    return t.joined_model(x)


def _never(t: Towers, x: Any, update: Callable[[Towers, Any], Any]) -> Any:  # noqa: ARG001 - the fault
    return t.joined_model(x)


def _twice(t: Towers, x: Any, update: Callable[[Towers, Any], Any]) -> Any:
    update(t, _column_means(x))
    return _once(t, x, update)


def _single(t: Towers, x: Any, update: Callable[[Towers, Any], Any]) -> Any:
    update(t, _column_means(x))
    return t.model(x)


def _add(t: Towers, means: Any) -> Any:
    return t.total.assign_add(means)


def _move(t: Towers, means: Any) -> Any:
    return t.total.assign(0.9 * t.total + 0.1 * means)


def _set(t: Towers, means: Any) -> Any:
    return t.total.assign(means)


def _count(t: Towers, means: Any) -> Any:
    return t.total.assign_add(tf.ones_like(means))


def _updated(faulty: Callable[..., Any], update: Callable[[Towers, Any], Any]) -> Callable[[Devices], Case]:
    return slip(
        partial(_single, update=update), partial(faulty, update=update), partial(_once, update=update), variables=_state
    )


def _read_late(t: Towers, x: Any) -> Any:
    """The result is computed with the updated variable."""
    t.total.assign_add(_column_means(x))
    return t.model(x) * t.total[0]


def _read_after(t: Towers, x: Any) -> Any:
    t.total.assign_add(_column_means(x))
    return t.joined(lambda part: t.model(part) * t.total[0], x)


def _read_before(t: Towers, x: Any) -> Any:
    """The towers still read the value from before the update."""
    before = tf.identity(t.total)
    t.total.assign_add(_column_means(x))
    return t.joined(lambda part: t.model(part) * before[0], x)


def _train(t: Towers, x: Any, rate: float, *, times: int = 1) -> Any:
    """A step of gradient descent on the host."""
    loss, gradients = t.mean_step(x)
    for _ in range(times):
        for variable, gradient in zip((t.w, t.b), gradients, strict=True):
            variable.assign_sub(rate * gradient)
    return loss


def _train_alone(t: Towers, x: Any) -> Any:
    loss, gradients = t.step(x)
    for variable, gradient in zip((t.w, t.b), gradients, strict=True):
        variable.assign_sub(0.1 * gradient)
    return loss


def _train_right(t: Towers, x: Any) -> Any:
    return _train(t, x, 0.1)


def _rate_times_towers(t: Towers, x: Any) -> Any:
    return _train(t, x, 0.1 * t.count)


def _rate_by_towers(t: Towers, x: Any) -> Any:
    return _train(t, x, 0.1 / t.count)


def _applied_twice(t: Towers, x: Any) -> Any:
    return _train(t, x, 0.1, times=2)


def _one_frozen(t: Towers, x: Any) -> Any:
    loss, (gradient, _) = t.mean_step(x)
    t.w.assign_sub(0.1 * gradient)
    return loss


def _copies(devices: Devices) -> Case:
    """Each device has a copy of the weights; the last one misses the update."""
    start = sample(3, 2, seed=8)
    whole = tf.Variable(start)
    copies = on_each(devices.names, lambda: tf.Variable(start))

    def program(x: Any, updated: int) -> Any:
        change = _column_means(x)[:, tf.newaxis]
        for name, copy in list(zip(devices.names, copies, strict=True))[:updated]:
            with tf.device(name):
                copy.assign_add(tf.identity(change) * tf.ones_like(copy))
        parts = tf.split(x, len(devices))
        return tf.concat(on_each(devices.names, tf.matmul, parts, copies), axis=0)

    def reference(x: Any) -> Any:
        whole.assign_add(_column_means(x)[:, tf.newaxis] * tf.ones_like(whole))
        return tf.matmul(x, whole)

    return Case(
        lambda x: program(x, len(devices) - 1),
        lambda x: program(x, len(devices)),
        reference,
        {"x": sample(2 * len(devices), 3)},
        kinds("value"),
    )


FAULTS = (
    Fault(
        "S03-counted-in-each",
        "a counter that each tower increments",
        "public code",
        _updated(_in_each, _count),
        "(once for each of the <n> shards|<n> times)",
        rule="C204",
    ),
    Fault(
        "S03-added-in-each",
        "a running sum that each tower adds to",
        "public code",
        _updated(_in_each, _add),
        "(once for each of the <n> shards|<n> times)",
        rule="C204",
    ),
    Fault(
        "S04-moved-in-each",
        "a moving average that each tower updates",
        "tensorflow 7439",
        _updated(_in_each, _move),
        "(once for each of the <n> shards|<n> times)",
        rule="C110",
    ),
    Fault(
        "S04-of-the-first",
        "a moving average of the first tower's rows",
        "tensorflow 7439",
        _updated(_of_first, _move),
        "only shard 0|rows of shard 0",
        rule="C110",
    ),
    Fault(
        "S05-last-writer",
        "every tower overwrites what the one before it wrote",
        "public code",
        _updated(_in_each, _set),
        r"only shard \d+|once for each of the <n> shards",
        rule="C110",
    ),
    Fault(
        "S06-never",
        "an update that is never made",
        "public code",
        _updated(_never, _add),
        "(never|not) (updated|made)",
        rule="C204",
    ),
    Fault(
        "S06-twice",
        "an update that is made twice",
        "public code",
        _updated(_twice, _add),
        "(twice|2 times)",
        rule="C204",
    ),
    Fault(
        "S07-read-before",
        "the towers read values from before the update",
        "made up for this list",
        slip(_read_late, _read_before, _read_after, variables=_state),
        "from before their update",
        rule="C210",
    ),
    Fault(
        "S08-rate-times-towers",
        "a learning rate multiplied by the number of towers",
        "public code",
        slip(_train_alone, _rate_times_towers, _train_right, variables=trained),
        "<n> times",
        rule="C110",
    ),
    Fault(
        "S08-rate-by-towers",
        "a learning rate divided by the number of towers",
        "public code",
        slip(_train_alone, _rate_by_towers, _train_right, variables=trained),
        "<n> times|1/<n>",
        rule="C403",
    ),
    Fault(
        "S08-applied-twice",
        "a step that is applied twice",
        "made up for this list",
        slip(_train_alone, _applied_twice, _train_right, variables=trained),
        "(2 times|twice)",
        rule="C204",
    ),
    Fault(
        "S09-frozen",
        "a variable that is not updated",
        "public code",
        slip(_train_alone, _one_frozen, _train_right, variables=trained),
        "bias.*(never|not) updated",
        rule="C204",
    ),
    Fault(
        "S09-copy-missed", "a device's copy misses an update", "public code", _copies, r"shard \d+|copy", rule="C412"
    ),
)
