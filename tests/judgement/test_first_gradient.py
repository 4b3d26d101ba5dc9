"""Where only gradients differ, the first backward op that differs is named by its forward op and line, or their end."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cause_programs import WEIGHTS

from harness import Devices, Verdict, Verification, colocate_gradients, verify
from harness.judgement.diagnosis.recorded import recording

X = np.random.default_rng(7).normal(size=(8, 3)).astype(np.float32)

Change = Callable[[Any], Any]


@tf.custom_gradient  # type: ignore[untyped-decorator]
def doubled(x: Any) -> Any:
    return tf.identity(x), lambda upstream: upstream * 2.0  # at fault


@tf.custom_gradient  # type: ignore[untyped-decorator]
def clipped(x: Any) -> Any:
    return tf.identity(x), lambda upstream: tf.clip_by_value(upstream, -0.01, 0.01)  # at fault


def half_stopped(x: Any) -> Any:
    return 0.5 * x + 0.5 * tf.stop_gradient(x)  # at fault


def stopped(x: Any) -> Any:
    return tf.stop_gradient(x)  # at fault


def left_the_tape(x: Any) -> Any:
    return 1.0 * tf.constant(x.numpy())  # at fault


def unchanged(x: Any) -> Any:
    return tf.identity(x)


def line_of(fn: Any) -> int:
    source, start = inspect.getsourcelines(inspect.unwrap(fn))
    return start + next(number for number, text in enumerate(source) if "# at fault" in text)


class Towers:
    """A model whose gradients are asked for by verify, in one tape around all towers, or in a tape for each."""

    def __init__(self, devices: Devices, change: Change, wrong: tuple[int, ...]) -> None:
        self.devices, self.change, self.wrong = devices, change, wrong
        self.variables = [tf.Variable(WEIGHTS), tf.Variable(WEIGHTS[:, ::-1].T.copy())]

    def model(self, x: Any, change: Change = unchanged) -> Any:
        hidden = change(tf.matmul(x, self.variables[0]))
        return tf.tanh(tf.matmul(tf.nn.relu(hidden), self.variables[1]))

    def each(self, tower: Callable[[Any, Change], Any], x: Any) -> list[Any]:
        parts = []
        for number, (device, part) in enumerate(zip(self.devices, tf.split(x, 4), strict=True)):
            with tf.device(device.name):
                parts.append(tower(part, self.change if number in self.wrong else unchanged))
        return parts

    def step(self, forward: Callable[[], Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(forward()))
        return loss, tape.gradient(loss, self.variables, unconnected_gradients="zero")

    def with_verify(self) -> tuple[Any, Any, list[Any]]:
        return lambda x: tf.concat(self.each(self.model, x), 0), self.model, self.variables

    def one_tape(self) -> tuple[Any, Any, list[Any]]:
        def joined(x: Any) -> Any:
            return self.step(lambda: tf.concat(self.each(self.model, x), 0))

        return joined, lambda x: self.step(lambda: self.model(x)), []

    def tape_each(self) -> tuple[Any, Any, list[Any]]:
        def towers(x: Any) -> Any:
            steps = self.each(lambda part, change: self.step(lambda: self.model(part, change)), x)
            losses, gradients = zip(*steps, strict=True)
            return tf.add_n(losses) / 4.0, [tf.add_n(parts) / 4.0 for parts in zip(*gradients, strict=True)]

        return towers, lambda x: self.step(lambda: self.model(x)), []


def judged(towers: Towers, tapes: Callable[[Towers], tuple[Any, Any, list[Any]]]) -> Verification:
    parallel, reference, variables = tapes(towers)
    return verify(
        colocate_gradients(parallel),
        lambda x: reference(x),
        {"x": X},
        devices=towers.devices,
        variables=variables,
        modes=("eager",),
    )


@pytest.mark.cases("left_the_tape")
@pytest.mark.parametrize("tapes", [Towers.with_verify, Towers.one_tape, Towers.tape_each])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (doubled, r"Mul in the gradient of doubled"),
        (clipped, r"(Minimum|Maximum|clip\w*) in the gradient of clipped"),
        (half_stopped, r"Mul in the gradient of Mul"),
        (stopped, r"(gradient stops at StopGradient|stopped by tf.stop_gradient)"),
        (left_the_tape, r"the gradient stops at Mul( on .*)?, which no tape records"),
    ],
)
def test_the_line_that_changes_or_ends_a_gradient_is_named(
    devices: Devices, change: Change, words: str, tapes: Callable[[Towers], tuple[Any, Any, list[Any]]]
) -> None:
    for wrong in ((2,), (0, 1, 2, 3)) if tapes is Towers.with_verify else ((2,),):
        found = judged(Towers(devices, change, wrong), tapes)
        assert found.verdict is Verdict.FAIL
        first = found.reason.partition("). ")[0]
        assert re.search(words, first, re.IGNORECASE), found.reason
        assert f"test_first_gradient.py:{line_of(change)}" in first, found
        if len(wrong) == 1 and change is not left_the_tape:
            assert devices[2].parsed.short in first, found
    assert judged(Towers(devices, change, ()), tapes).passed


def test_zeros_in_the_place_of_one_towers_gradient_are_named(devices: Devices) -> None:
    towers = Towers(devices, unchanged, ())

    def dropped(x: Any, wrong: bool) -> Any:
        def tower(part: Any, _: Change) -> Any:
            loss, (first, second) = towers.step(lambda: towers.model(part))
            lost = wrong and len(steps) == 1
            steps.append(lost)
            return loss, first, tf.zeros_like(second) if lost else second  # at fault

        steps: list[bool] = []
        return [tf.add_n(parts) / 4.0 for parts in zip(*towers.each(tower, x), strict=True)]

    def reference(x: Any) -> Any:
        loss, gradients = towers.step(lambda: towers.model(x))
        return [loss, *gradients]

    def verified(wrong: bool) -> Verification:
        return verify(lambda x: dropped(x, wrong), reference, {"x": X}, devices=devices, modes=("eager",))

    found = verified(True)
    first = found.reason.partition("). Output")[0]
    assert f"ZerosLike on {devices[1].parsed.short} gives only zeros" in first, found
    assert f"test_first_gradient.py:{line_of(dropped)}" in first, found
    assert verified(False).passed


def test_backward_ops_have_the_lines_of_their_forward_ops_and_those_without_a_gradient_are_known() -> None:
    x = tf.constant(X)
    with recording() as steps, tf.GradientTape() as tape:
        tape.watch(x)
        kept = tf.tanh(x)
        lost = tf.exp(x)
        made = doubled(kept)
        tape.gradient(made, x)
    ((tanh,), (exp,), (times,), (back,)) = (
        [step for step in steps if step.kind == kind] for kind in ("Tanh", "Exp", "Mul", "TanhGrad")
    )
    assert back.gradient_of == "Tanh"
    assert back.places == tanh.places
    assert times.gradient_of == "doubled"
    assert times.place == f"tests/judgement/test_first_gradient.py:{line_of(doubled)}"
    assert steps.played.issuperset(tanh.outputs)
    assert not steps.played.intersection(exp.outputs)
    assert lost is not None


def test_all_devices_on_which_a_gradient_stops_are_named(devices: Devices) -> None:
    found = judged(Towers(devices, stopped, (1, 2, 3)), Towers.with_verify)
    one, two, three = (device.parsed.short for device in devices[1:4])
    assert f"the gradient stops at StopGradient on {one}, {two} and {three}" in found.reason, found
