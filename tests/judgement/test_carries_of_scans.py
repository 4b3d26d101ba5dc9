"""A scan over rows that is done in shards: the wrong carry into a shard is named, and the right one passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

Carry = Callable[[list[Any], int], Any]


def added_up(totals: list[Any], shard: int) -> Any:
    return reduce(tf.add, totals[:shard], tf.zeros_like(totals[0]))


def multiplied(totals: list[Any], shard: int) -> Any:
    return reduce(tf.multiply, totals[:shard], tf.ones_like(totals[0]))


def in_shards(devices: Devices, scan: Any, join: Any, carry: Carry, last: int = -1) -> Callable[..., Any]:
    """The scan of each shard, joined with its carry, then changed row by row."""

    def program(x: Any) -> Any:
        own = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                own.append(scan(part))
        totals = [part[last] for part in own]
        made = []
        for shard, (device, part) in enumerate(zip(devices, own, strict=True)):
            with tf.device(device.name):
                made.append(tf.tanh(join(part, carry(totals, shard)) / 4.0))
        return tf.concat(made, 0)

    return program


WRONG: list[tuple[str, Carry, str]] = [
    (
        "missing",
        lambda totals, _: tf.zeros_like(totals[0]),
        "starts over .* without the state, the carry or the offset of the shards before it",
    ),
    (
        "doubled",
        lambda totals, shard: 2.0 * added_up(totals, shard),
        r"carry of Cumsum .* shards 1 to 3 .* counted 2 times",
    ),
    (
        "of a neighbour",
        lambda totals, shard: totals[shard - 1] if shard else tf.zeros_like(totals[0]),
        r"carry of Cumsum .* made from shard 1 alone",
    ),
    ("inclusive", lambda totals, shard: added_up(totals, shard + 1), "made from the shard's own rows"),
    ("subtracted", lambda totals, shard: -added_up(totals, shard), "subtracted instead of added"),
    (
        "missing in one shard",
        lambda totals, shard: added_up(totals, shard) * (0.0 if shard == 2 else 1.0),
        "into shard 2 is wrong: it is left out",
    ),
    (
        "without one",
        lambda totals, shard: added_up(totals, shard) - (totals[1] if shard == 3 else 0.0),
        "into shard 3 is wrong: it is without the part of shard 1",
    ),
]


@pytest.mark.cases("missing", "missing in one shard", "subtracted", "of a neighbour", "inclusive", "without one")
@pytest.mark.parametrize(("name", "carry", "words"), WRONG, ids=[name for name, *_ in WRONG])
def test_a_wrong_carry_of_a_running_sum_is_named(devices: Devices, name: str, carry: Carry, words: str) -> None:
    x = {"x": sample(24, 3)}
    found = verify(
        in_shards(devices, tf.cumsum, tf.add, carry), lambda x: tf.tanh(tf.cumsum(x) / 4.0), x, devices=devices
    )
    assert found.verdict is Verdict.FAIL, name
    assert re.search(words, found.reason), found
    assert "test_carries_of_scans.py" in found.reason


def test_a_carry_from_the_wrong_side_is_named(devices: Devices) -> None:
    def backwards(x: Any) -> Any:
        return tf.cumsum(x, reverse=True)

    def after(totals: list[Any], shard: int) -> Any:
        return reduce(tf.add, totals[shard + 1 :], tf.zeros_like(totals[0]))

    x = {"x": sample(24, 3)}
    wrong = in_shards(devices, backwards, tf.add, added_up, last=0)
    found = verify(wrong, lambda x: tf.tanh(backwards(x) / 4.0), x, devices=devices)
    assert re.search("made from the later shards instead of the earlier ones", found.reason), found
    right = in_shards(devices, backwards, tf.add, after, last=0)
    assert verify(right, lambda x: tf.tanh(backwards(x) / 4.0), x, devices=devices).passed


def test_a_wrong_carry_of_a_product_is_named(devices: Devices) -> None:
    x = {"x": sample(24, 3) / 4.0 + 1.0}

    def twice(totals: list[Any], shard: int) -> Any:
        return tf.square(multiplied(totals, shard))

    program = in_shards(devices, tf.math.cumprod, tf.multiply, twice)
    found = verify(program, lambda x: tf.tanh(tf.math.cumprod(x) / 4.0), x, devices=devices)
    assert re.search(r"carry of Cumprod .* counted 2 times", found.reason), found


# GPUs have no running sum of complex numbers.
@pytest.mark.devices(kind="logical-cpu")
def test_complex_carries_are_compared_with_their_imaginary_parts(devices: Devices) -> None:
    def turned(totals: list[Any], shard: int) -> Any:
        return added_up(totals, shard) * (2.0 if shard == 2 else 1.0)

    def mirrored(totals: list[Any], shard: int) -> Any:
        return tf.math.conj(added_up(totals, shard)) * 2.0 if shard == 2 else added_up(totals, shard)

    x = {"x": tf.complex(sample(24, 3), sample(3, 24).T)}
    for carry, named in ((turned, True), (mirrored, False), (added_up, False)):
        found = verify(
            in_shards(devices, tf.cumsum, tf.add, carry),
            lambda x: tf.tanh(tf.cumsum(x) / 4.0),
            x,
            devices=devices,
            gradients=False,
        )
        assert ("into shard 2 is wrong: it is counted 2 times" in found.reason) is named, found
        assert found.passed is (carry is added_up), found


def test_right_carries_pass(devices: Devices) -> None:
    x = {"x": sample(24, 3) / 4.0 + 1.0}
    summed = in_shards(devices, tf.cumsum, tf.add, added_up)
    assert verify(summed, lambda x: tf.tanh(tf.cumsum(x) / 4.0), x, devices=devices).passed
    product = in_shards(devices, tf.math.cumprod, tf.multiply, multiplied)
    assert verify(product, lambda x: tf.tanh(tf.math.cumprod(x) / 4.0), x, devices=devices).passed
