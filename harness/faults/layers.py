"""Wrong device: a layer of a tower that leaves the tower's scope in one of many ways (P19 to P22)."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness.faults.fault import Fault
from harness.faults.samples import add_up, on_each, shares, uneven
from harness.faults.slips import Towers, elsewhere, second, slip
from harness.lazy import tf


def _in_a_helper(t: Towers, x: Any, place: str | None) -> Any:
    hidden = t.model(x)
    with tf.device(place):
        return second(t, hidden)


def _in_a_function(t: Towers, x: Any, place: str | None) -> Any:
    @tf.function  # type: ignore[untyped-decorator]
    def inner(hidden: Any) -> Any:
        with tf.device(place):
            return second(t, hidden)

    return inner(t.model(x))


def _in_a_loop(t: Towers, x: Any, place: str | None) -> Any:
    def body(number: Any, value: Any) -> Any:
        with tf.device(place):
            return number + 1, second(t, value)

    return tf.while_loop(lambda number, _: number < 1, body, (0, t.model(x)))[1]


def _in_a_case(t: Towers, x: Any, place: str | None) -> Any:
    hidden = t.model(x)

    def usual() -> Any:
        with tf.device(place):
            return second(t, hidden)

    return tf.switch_case(tf.cast(tf.shape(hidden)[0] < 0, tf.int32), [usual, lambda: hidden])


def _all_but_one(t: Towers, x: Any) -> Any:
    names = t.names[:-1]
    return tf.concat(on_each(names, t.model, tf.split(x, shares(x.shape[0], len(names)))), axis=0)


def _last_gradient_late(t: Towers, x: Any, *, late: bool) -> Any:
    steps = []
    for index, (name, part) in enumerate(t.shards(x)):
        with tf.device(name), tf.GradientTape() as tape:
            loss = t.loss(part)
        with tf.device(None if late and index == t.count - 1 else name):
            steps.append([loss, *tape.gradient(loss, [t.w, t.b])])
    loss, *gradients = [each / t.count for each in add_up(steps)]
    return loss, gradients


_WORDS = "(not the shard's|outside of the shard's device scope)"

FAULTS = (
    Fault(
        "P19-in-a-function",
        "a layer on the wrong device, in a tf.function",
        "public code",
        elsewhere(_in_a_function),
        _WORDS,
    ),
    Fault(
        "P19-in-a-loop", "a layer on the wrong device, in a while_loop", "public code", elsewhere(_in_a_loop), _WORDS
    ),
    Fault(
        "P19-in-a-case", "a layer on the wrong device, in a switch_case", "public code", elsewhere(_in_a_case), _WORDS
    ),
    Fault(
        "P19-in-a-helper",
        "a layer on the wrong device, in a helper function",
        "public code",
        elsewhere(_in_a_helper),
        _WORDS,
    ),
    Fault(
        "P20-scope-reset",
        "tf.device(None) in a helper function",
        "public code",
        elsewhere(_in_a_helper, lambda *_: None),
        _WORDS,
    ),
    Fault(
        "P21-all-but-one",
        "the last device idles",
        "public code",
        slip(Towers.model, _all_but_one, Towers.joined_model, "unused-device", rows=uneven),
        "no op of the program ran on",
    ),
    Fault(
        "P22-last-gradient-late",
        "the gradient of one tower taken after its scope has ended",
        "tensorflow 54460",
        slip(
            Towers.step,
            partial(_last_gradient_late, late=True),
            partial(_last_gradient_late, late=False),
            "gradient-placement",
        ),
        "backward ops are not on the devices of their forward ops",
    ),
)
