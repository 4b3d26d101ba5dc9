"""Wrong device: a layer of a tower that leaves the tower's scope in one of many ways (P19 to P22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import add_up, on_each, sample, shares, uneven
from harness.faults.slips import Towers, slip
from harness.lazy import tf


def _second(t: Towers, hidden: Any) -> Any:
    return tf.nn.softplus(tf.matmul(hidden, tf.matmul(t.w, t.w, transpose_a=True)))


def _elsewhere(within: Callable[[Devices, str, Callable[[Any], Any], Any], Any]) -> Callable[[Devices], Case]:
    """``within(devices, place, layer, hidden)`` computes the second layer; ``place`` is wrong, or the tower's."""

    def program(t: Towers, x: Any, wrong: bool) -> Any:
        def tower(part: Any, name: str) -> Any:
            place = t.names[0] if wrong else name
            return within(t.devices, place, lambda hidden: _second(t, hidden), t.model(part))

        parts = tf.split(x, shares(x.shape[0], t.count))
        return tf.concat(on_each(t.names, tower, parts, t.names), axis=0)

    return slip(
        lambda t, x: _second(t, t.model(x)),
        lambda t, x: program(t, x, wrong=True),
        lambda t, x: program(t, x, wrong=False),
        "op-placement",
        rows=uneven,
    )


def _in_scope(_: Devices, place: str, layer: Callable[[Any], Any], hidden: Any) -> Any:
    with tf.device(place):
        return layer(hidden)


def _in_a_function(_: Devices, place: str, layer: Callable[[Any], Any], hidden: Any) -> Any:
    @tf.function  # type: ignore[untyped-decorator]
    def inner(value: Any) -> Any:
        with tf.device(place):
            return layer(value)

    return inner(hidden)


def _in_a_loop(_: Devices, place: str, layer: Callable[[Any], Any], hidden: Any) -> Any:
    def body(number: Any, value: Any) -> Any:
        with tf.device(place):
            return number + 1, layer(value)

    return tf.while_loop(lambda number, _: number < 1, body, (0, hidden))[1]


def _in_a_case(_: Devices, place: str, layer: Callable[[Any], Any], hidden: Any) -> Any:
    def usual() -> Any:
        with tf.device(place):
            return layer(hidden)

    return tf.switch_case(tf.cast(tf.shape(hidden)[0] < 0, tf.int32), [usual, lambda: hidden])


def _scope_reset(t: Towers, x: Any, wrong: bool) -> Any:
    def tower(part: Any, name: str) -> Any:
        hidden = t.model(part)
        with tf.device(None if wrong else name):
            return _second(t, hidden)

    parts = tf.split(x, shares(x.shape[0], t.count))
    return tf.concat(on_each(t.names, tower, parts, t.names), axis=0)


def _both(t: Towers, x: Any) -> Any:
    return _second(t, t.model(x))


def _all_but_one(devices: Devices) -> Case:
    t = Towers(devices)

    def on(names: tuple[str, ...], x: Any) -> Any:
        return tf.concat(on_each(names, t.model, tf.split(x, shares(x.shape[0], len(names)))), axis=0)

    inputs = {"x": sample(uneven(len(devices)), 3)}
    short, full = devices.names[:-1], devices.names
    return Case(lambda x: on(short, x), lambda x: on(full, x), t.model, inputs, kinds("unused-device"))


def _step(t: Towers, x: Any) -> Any:
    return t.step(x)


def _last_gradient_late(t: Towers, x: Any, *, late: bool) -> Any:
    steps = []
    for index, (name, part) in enumerate(zip(t.names, tf.split(x, t.count), strict=True)):
        with tf.device(name), tf.GradientTape() as tape:
            loss = t.loss(part)
        with tf.device(None if late and index == t.count - 1 else name):
            steps.append([loss, *tape.gradient(loss, [t.w, t.b])])
    loss, *gradients = [each / t.count for each in add_up(steps)]
    return loss, gradients


_WORDS = "(not the shard's|outside of its device scope)"

FAULTS = (
    Fault("P19-in-a-function", "another device in a tf.function", "public code", _elsewhere(_in_a_function), _WORDS),
    Fault("P19-in-a-loop", "another device in a while_loop", "public code", _elsewhere(_in_a_loop), _WORDS),
    Fault("P19-in-a-case", "another device in a switch_case", "public code", _elsewhere(_in_a_case), _WORDS),
    Fault("P19-in-a-helper", "another device in a helper function", "public code", _elsewhere(_in_scope), _WORDS),
    Fault(
        "P20-scope-reset",
        "tf.device(None) in a helper function",
        "public code",
        slip(
            _both,
            lambda t, x: _scope_reset(t, x, wrong=True),
            lambda t, x: _scope_reset(t, x, wrong=False),
            "op-placement",
        ),
        _WORDS,
    ),
    Fault("P21-all-but-one", "the last device idles", "public code", _all_but_one, "no op of the program ran on"),
    Fault(
        "P22-last-gradient-late",
        "the gradient of one tower taken after its scope",
        "tensorflow 54460",
        slip(
            _step,
            lambda t, x: _last_gradient_late(t, x, late=True),
            lambda t, x: _last_gradient_late(t, x, late=False),
            "gradient-placement",
        ),
        "backward ops are not on the devices of their forward ops",
    ),
)
