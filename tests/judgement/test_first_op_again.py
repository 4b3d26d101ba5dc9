"""The first op that differs is run again from the reference's inputs: it gives the same result, or is not accused."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, Verification, verify

X = np.random.default_rng(7).normal(size=(8, 3)).astype(np.float32)
SAME = "{}, run again on the reference's inputs, gives the same wrong result"


def line_in(fn: Callable[..., Any]) -> str:
    source, start = inspect.getsourcelines(fn)
    at = next(number for number, text in enumerate(source) if "# at fault" in text)
    return f"tests/judgement/test_first_op_again.py:{start + at}"


def evidence(found: Verification) -> list[str]:
    return [line for each in found.findings for line in each.follows if "run again" in line]


def towers(devices: Devices, x: Any, fn: Callable[[Any], Any]) -> list[Any]:
    parts = []
    for device, part in zip(devices[:4], tf.split(x, 4), strict=True):
        with tf.device(device.name):
            parts.append(fn(part))
    return parts


def magnified(x: Any, again: bool) -> Any:
    """The sum of the columns minus itself, a million times: only rounding is left, which another order changes."""
    one = x[:, :1] + x[:, 1:2] + x[:, 2:]
    other = (x[:, 2:] + x[:, 1:2] if again else x[:, 1:2] + x[:, :1]) + (x[:, :1] if again else x[:, 2:])
    return (one * 1.7 - other * 1.7) * 1e6


@pytest.mark.cases("True")
@pytest.mark.parametrize("wrong", [True, False])
def test_an_op_in_which_rounding_grows_is_not_accused_of_it(devices: Devices, wrong: bool) -> None:
    def tower(x: Any, again: bool, slip: bool) -> Any:
        noise = 1e-9 * magnified(x, again)
        return tf.tanh(tf.nn.softplus(x) if slip else tf.exp(x)) + noise  # at fault

    found = verify(
        lambda x: tf.concat(towers(devices, x, lambda part: tower(part, True, wrong)), 0),
        lambda x: tower(x, False, False),
        {"x": X},
        devices=devices[:4],
        modes=("eager",),
    )
    assert found.passed == (not wrong), found
    if wrong:
        assert re.search(rf"is Softplus: its inputs equal the reference's.* \({line_in(tower)}", found.reason), found


def test_an_op_that_is_at_fault_gives_its_result_again(devices: Devices) -> None:
    def tower(x: Any, wrong: bool) -> Any:
        return tf.tanh(tf.nn.softplus(x) if wrong else tf.exp(x))  # at fault

    def judged(wrong: bool) -> Verification:
        program = lambda x: tf.concat(towers(devices, x, lambda part: tower(part, wrong)), 0)  # noqa: E731
        return verify(program, lambda x: tower(x, False), {"x": X}, devices=devices[:4], modes=("eager",))

    found = judged(True)
    assert (
        f"is Softplus: its inputs equal the reference's; the reference runs no Softplus ({line_in(tower)}"
        in found.reason
    ), found
    assert evidence(found) == [SAME.format(f"Softplus ({line_in(tower)}) on {devices[0].parsed.short}")], found
    assert judged(False).passed


def test_what_cannot_be_run_again_is_not_said_to_have_been(devices: Devices) -> None:
    table = tf.Variable(X)

    def tower(x: Any, wrong: bool) -> Any:
        return x * tf.gather(table, [1 if wrong else 0])  # at fault

    program = lambda x: tf.concat(towers(devices, x, lambda part: tower(part, True)), 0)  # noqa: E731
    found = verify(program, lambda x: tower(x, False), {"x": X}, devices=devices[:4], modes=("eager",))
    assert line_in(tower) in found.reason, found
    assert not [line for line in evidence(found) if "ResourceGather" in line], found


def test_an_op_that_reads_something_else_is_not_said_to_have_been_run_from_what_the_reference_reads(
    devices: Devices,
) -> None:
    def shares(x: Any, rows: Any) -> Any:
        return tf.exp(x) / tf.cast(tf.shape(rows)[0], tf.float32)  # at fault

    program = lambda x: tf.concat(towers(devices, x, lambda part: shares(part, part)), 0)  # noqa: E731
    found = verify(program, lambda x: shares(x, x), {"x": X}, devices=devices[:4], modes=("eager",))
    assert found.verdict is Verdict.FAIL, found
    assert evidence(found) == [], found
