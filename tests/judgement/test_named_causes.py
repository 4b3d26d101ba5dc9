"""The first line of a failing verification names the cause and its place; the right twin passes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, Verification, verify

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(10, 3)).astype(np.float32)
EVEN = RANDOM.normal(size=(8, 3)).astype(np.float32)
_WEIGHTS = RANDOM.normal(size=(3, 4)).astype(np.float32)

Fn = Callable[..., Any]


@functools.cache
def shared() -> Any:
    """The variable of all programs; TensorFlow must not start before the devices are configured."""
    return tf.Variable(_WEIGHTS, name="weights")


@pytest.fixture(scope="module", autouse=True)
def _shared_on_the_host(devices: Devices) -> None:
    shared()


def dense(x: Any) -> Any:
    return tf.tanh(tf.matmul(x, shared()))


def sizes_of(rows: int, count: int = 4) -> list[int]:
    return [rows // count + (index < rows % count) for index in range(count)]


def towers(devices: Devices, fn: Fn, x: Any, sizes: Sequence[int] | None = None) -> list[Any]:
    parts = []
    for device, part in zip(devices, tf.split(x, sizes or sizes_of(x.shape[0])), strict=True):
        with tf.device(device.name):
            parts.append(fn(part))
    return parts


def joined(devices: Devices, fn: Fn, x: Any) -> Any:
    return tf.concat(towers(devices, fn, x), axis=0)


def loss(x: Any) -> Any:
    return tf.reduce_mean(tf.square(dense(x)))


def step(fn: Fn, x: Any) -> Any:
    with tf.GradientTape() as tape:
        value = fn(x)
    return value, tape.gradient(value, shared())


def batch_norm(x: Any) -> Any:
    return (x - tf.reduce_mean(x, axis=0)) / (tf.math.reduce_std(x, axis=0) + 0.1)


def dropped(devices: Devices, x: Any) -> Any:
    size = x.shape[0] // 4
    parts = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            parts.append(dense(x[index * size : (index + 1) * size]))
    return tf.concat(parts, axis=0)


def doubled(devices: Devices, x: Any) -> Any:
    parts = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            parts.append(dense(x[2 * max(index - 1, 0) : 2 * max(index - 1, 0) + 2]))
    return tf.concat(parts, axis=0)


def stopped(part: Any) -> Any:
    return tf.tanh(tf.matmul(part, tf.stop_gradient(shared())))


def half(part: Any) -> Any:
    return tf.tanh(tf.cast(tf.matmul(tf.cast(part, tf.float16), tf.cast(shared(), tf.float16)), tf.float32))


def scaled(devices: Devices, x: Any, number: int, change: Fn) -> Any:
    parts = towers(devices, dense, x)
    parts[number] = change(parts[number])
    return tf.concat(parts, axis=0)


def swapped(devices: Devices, x: Any) -> Any:
    mean, largest = tf.reduce_mean(joined(devices, dense, x)), tf.reduce_max(joined(devices, dense, x))
    return {"mean": largest, "largest": mean}


def mean_of(fn: Fn) -> Fn:
    return lambda devices, x: tf.add_n(towers(devices, fn, x)) / 4.0


def summed_step(devices: Devices, x: Any) -> Any:
    values, gradients = zip(*towers(devices, lambda part: step(loss, part), x), strict=True)
    return tf.add_n(list(values)) / 4.0, tf.add_n(list(gradients))


def penalty(x: Any) -> Any:
    return tf.reduce_mean(tf.square(dense(x))) + 0.1 * tf.nn.l2_loss(shared())


def penalty_sum(devices: Devices, x: Any) -> Any:
    rows = float(4 * x.shape[0])
    tower = lambda part: tf.reduce_sum(tf.square(dense(part))) / rows + 0.1 * tf.nn.l2_loss(shared())  # noqa: E731
    return tf.add_n(towers(devices, tower, x))


def padded(devices: Devices, x: Any) -> Any:
    return joined(devices, dense, tf.pad(x, [[0, 2], [0, 0]]))


OLD = RANDOM.normal(size=(3, 4)).astype(np.float32)


#: Name, faulty program, reference, batch, words of the first line. Nobody named these beforehand; each stands for many.
CASES: list[tuple[str, Fn, Fn, Any, str]] = [
    ("dropped", dropped, dense, X, r"Rows 8 and 9 of 10 were dropped: the batch is split into 4 equal parts"),
    ("doubled", doubled, dense, EVEN, r"Rows 0 and 1|Rows 0 to 1"),
    ("reversed", lambda d, x: tf.reverse(joined(d, dense, x), [0]), dense, X, r"10 rows are in reverse order"),
    ("shifted", lambda d, x: tf.roll(joined(d, dense, x), -1, 0), dense, X, r"rows are shifted by 1"),
    (
        "shards in another order",
        lambda d, x: tf.concat(towers(d, dense, x)[::-1], 0),
        dense,
        EVEN,
        r"shards are joined in another order",
    ),
    (
        "join along features",
        lambda d, x: tf.concat(towers(d, dense, x), 1),
        dense,
        EVEN,
        r"joined along axis 1, but the batch is split along axis 0",
    ),
    ("stacked", lambda d, x: tf.stack(towers(d, dense, x)), dense, EVEN, r"stacked along a new axis 0"),
    ("not row-wise", lambda d, x: joined(d, batch_norm, x), batch_norm, X, r"not row-wise"),
    (
        "softmax over rows",
        lambda d, x: joined(d, lambda p: tf.nn.softmax(p, axis=0), x),
        lambda x: tf.nn.softmax(x, axis=0),
        X,
        r"not row-wise",
    ),
    ("mean of means", mean_of(loss), loss, X, r"mean of means of uneven shards: 4 parts of 3, 3, 2 and 2 rows"),
    (
        "mean of roots",
        mean_of(lambda p: tf.sqrt(loss(p))),
        lambda x: tf.sqrt(loss(x)),
        EVEN,
        r"averaged over shards, but it is no mean over rows",
    ),
    ("sum of means", lambda d, x: tf.add_n(towers(d, loss, x)), loss, EVEN, r"4 times too large"),
    (
        "mean of sums",
        mean_of(lambda p: tf.reduce_sum(dense(p))),
        lambda x: tf.reduce_sum(dense(x)),
        X,
        r"4 times too small",
    ),
    ("gradients added up", summed_step, lambda x: step(loss, x), EVEN, r"4 times too large"),
    (
        "one shard lost",
        lambda d, x: tf.add_n(towers(d, lambda p: tf.reduce_sum(dense(p)), x)[:3]),
        lambda x: tf.reduce_sum(dense(x)),
        X,
        r"part of shard 3 .* is missing",
    ),
    ("one shard alone", lambda d, x: towers(d, loss, x)[2], loss, X, r"counts shard 2 .* alone"),
    ("zeros of one", lambda d, x: scaled(d, x, 1, tf.zeros_like), dense, EVEN, r"Rows 2 and 3, those of shard 1"),
    (
        "one shard twice as large",
        lambda d, x: scaled(d, x, 3, lambda p: 2.0 * p),
        dense,
        EVEN,
        r"Rows 6 and 7, those of shard 3 .* 2 times",
    ),
    (
        "a neighbour's rows",
        lambda d, x: tf.concat([*towers(d, dense, x)[:3], towers(d, dense, x)[2]], 0),
        dense,
        EVEN,
        r"Rows 4 and 5 stand in the place of rows 6 and 7",
    ),
    ("everything doubled", lambda d, x: 2.0 * joined(d, dense, x), dense, X, r"2 times"),
    ("half precision", lambda d, x: joined(d, half, x), dense, X, r"computes in float16 instead of float32"),
    ("an offset", lambda d, x: joined(d, dense, x) + 0.25, dense, X, r"off by 0.25"),
    (
        "outputs swapped",
        swapped,
        lambda x: {"mean": tf.reduce_mean(dense(x)), "largest": tf.reduce_max(dense(x))},
        X,
        r"output\['largest'\] and output\['mean'\] are in the wrong order",
    ),
    ("padded", padded, dense, X, r"padded to 12 with zeros, and these rows count in output"),
    (
        "padded before a mean",
        lambda d, x: tf.reduce_mean(padded(d, x)),
        lambda x: tf.reduce_mean(dense(x)),
        X,
        r"divided by 12 rows, but the batch has 10",
    ),
    ("half", lambda d, x: 0.5 * joined(d, dense, x), dense, X, r"0.5 times the single-device result"),
    (
        "one shard twice",
        lambda d, x: tf.add_n([*towers(d, lambda p: tf.reduce_sum(dense(p)), x), tf.reduce_sum(dense(x[2:4]))]),
        lambda x: tf.reduce_sum(dense(x)),
        EVEN,
        r"part of shard 1 .* is counted twice in output",
    ),
    (
        "a largest index",
        lambda d, x: tf.reduce_max(tf.stack(towers(d, lambda p: tf.argmax(p, 0), x)), 0),
        lambda x: tf.argmax(x, 0),
        X,
        r"Output is the maximum over the shards' results",
    ),
    (
        "old weights of one",
        lambda d, x: scaled(d, x, 2, lambda p: tf.tanh(tf.matmul(x[4:6], OLD)) + 0.0 * p),
        dense,
        EVEN,
        r"Only rows 4 and 5, those of shard 2 \(CPU:2\), differ",
    ),
    (
        "another activation",
        lambda d, x: joined(d, lambda p: tf.nn.softplus(tf.matmul(p, shared())), x),
        dense,
        X,
        r"first result that differs is that of Tanh .* of the reference.*; the program does Softplus there",
    ),
    (
        "no activation",
        lambda d, x: tf.exp(joined(d, lambda p: tf.matmul(p, shared()), x)),
        lambda x: tf.exp(dense(x)),
        X,
        r"first result that differs is that of Tanh .* of the reference.*; the program does Exp there",
    ),
    (
        "no penalty",
        lambda d, x: tf.add_n(towers(d, loss, x)) / 4.0,
        penalty,
        EVEN,
        r"a term that depends on variables alone, such as a regulariser, is missing",
    ),
    ("a penalty for each tower", penalty_sum, penalty, EVEN, r"regulariser, is counted 4 times"),
]


def verified(devices: Devices, program: Fn, reference: Fn, x: Any, **options: Any) -> Verification:
    return verify(lambda x: program(devices, x), reference, {"x": x}, devices=devices, **options)


@pytest.mark.parametrize(("fault", "program", "reference", "x", "words"), CASES, ids=[case[0] for case in CASES])
def test_the_first_line_names_the_cause(
    devices: Devices, fault: str, program: Fn, reference: Fn, x: Any, words: str
) -> None:
    found = verified(devices, program, reference, x)
    assert found.verdict is Verdict.FAIL, fault
    (finding,) = (each for each in found.findings if each.kind in ("value", "shape"))
    assert finding.mode == "eager, graph", found
    assert len(finding.follows) >= 2
    assert re.search(words, found.reason, re.IGNORECASE), found
    assert "test_named_causes.py:" in found.reason, found


def test_a_variable_that_is_never_read_is_named(devices: Devices) -> None:
    bias = tf.Variable(OLD[0], name="bias")
    reference = lambda x: tf.tanh(tf.matmul(x, shared()) + bias)  # noqa: E731
    found = verified(devices, lambda d, x: joined(d, dense, x), reference, X)
    assert "Variable bias is never read: output is what it would be with 0 in its place" in found.reason, found


def test_inputs_that_are_split_into_different_rows_are_named(devices: Devices) -> None:
    labels = RANDOM.normal(size=(8, 3)).astype(np.float32)

    def program(x: Any, y: Any) -> Any:
        parts = []
        for device, part, label in zip(devices, tf.split(x, 4), tf.split(tf.roll(y, 1, 0), 4), strict=True):
            with tf.device(device.name):
                parts.append(tf.reduce_sum(tf.square(part - label)))
        return tf.add_n(parts)

    found = verify(program, lambda x, y: tf.reduce_sum(tf.square(x - y)), {"x": EVEN, "y": labels}, devices=devices)
    assert "split into different rows: row 0 of x meets row 7 of y" in found.reason, found


def test_updates_are_told_from_sums_of_gradients(devices: Devices) -> None:
    weights = tf.Variable(_WEIGHTS, name="own")
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build([weights])

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(tf.square(tf.matmul(x, weights)))
        return tape.gradient(value, weights)

    def each(x: Any) -> Any:
        for part in towers(devices, gradient, x):
            weights.assign_sub(0.1 * part)
        return tf.reduce_sum(x)

    def never(x: Any) -> Any:
        return tf.reduce_sum(tf.add_n(towers(devices, gradient, x))) * 0.0 + tf.reduce_sum(x)

    def plain(x: Any) -> Any:
        weights.assign_sub(0.1 * gradient(x))
        return tf.reduce_sum(x)

    def twice(x: Any) -> Any:
        mean = tf.add_n(towers(devices, gradient, x)) / 4.0
        for _ in range(2):
            optimizer.apply([mean], [weights])
        return tf.reduce_sum(x)

    def once(x: Any) -> Any:
        optimizer.apply([gradient(x)], [weights])
        return tf.reduce_sum(x)

    for program, reference, words in (
        (each, plain, "Variable own is updated 4 times, once with each shard's gradient"),
        (never, plain, "Variable own is not updated: the program never writes to it (test_named_causes.py:"),
        (twice, once, "The optimizer applies the same gradients 2 times instead of once (test_named_causes.py:"),
    ):
        found = verify(program, reference, {"x": EVEN}, devices=devices, variables=[weights], modes=("eager",))
        assert words in found.reason, found


def test_a_right_program_has_no_cause(devices: Devices) -> None:
    clean: list[tuple[Fn, Fn, Any]] = [
        (lambda d, x: joined(d, dense, x), dense, X),
        (mean_of(loss), loss, EVEN),
        (lambda d, x: batch_norm(joined(d, tf.identity, x)), batch_norm, X),
    ]
    for program, reference, x in clean:
        found = verified(devices[:1] if reference is batch_norm else devices, program, reference, x)
        assert not [each for each in found.findings if each.kind == "value"], found


def test_batch_statistics_are_told_from_a_training_step(devices: Devices) -> None:
    average = tf.Variable(tf.zeros(3), name="moving_mean")
    weights = tf.Variable(shared().numpy(), name="own")

    def normalised(x: Any) -> Any:
        average.assign_sub(0.1 * (average - tf.reduce_mean(x, 0)))
        return batch_norm(x)

    def trained(x: Any) -> Any:
        rows = tf.matmul(x, weights)
        weights.assign_sub(0.1 * tf.matmul(x, rows, transpose_a=True))
        return rows

    for fn, variable, words in (
        (normalised, average, r"not row-wise: .* and updates variable moving_mean with them"),
        (trained, weights, r"training step ran once for each of the 4 shards"),
    ):
        whole = lambda d, x, fn=fn: tf.concat(tf.split(fn(tf.concat(towers(d, tf.identity, x), 0)), 4), 0)  # noqa: E731
        found = verified(devices, lambda d, x, fn=fn: joined(d, fn, x), fn, EVEN, variables=[variable])
        assert re.search(words, found.reason), found
        found = verified(devices, whole, fn, EVEN, variables=[variable])
        assert not [each for each in found.findings if each.kind == "value"], found


def test_a_stopped_gradient_is_named_with_its_place(devices: Devices) -> None:
    found = verified(devices, lambda d, x: joined(d, stopped, x), dense, X, variables=[shared()])
    assert "variable weights is stopped by tf.stop_gradient (test_named_causes.py:" in found.reason, found


def test_a_random_reference_is_unknown_and_names_the_op(devices: Devices) -> None:
    noisy = lambda x: x + tf.random.normal(tf.shape(x))  # noqa: E731
    found = verified(devices, lambda d, x: joined(d, noisy, x), noisy, X)
    assert found.verdict is Verdict.UNKNOWN, found
    assert "RandomStandardNormal (test_named_causes.py:" in found.reason, found


def test_state_that_cannot_be_restored_is_unknown_and_no_nondeterminism(devices: Devices) -> None:
    calls = [0]

    def counted(x: Any) -> Any:
        calls[0] += 1
        return tf.tanh(x) + float(calls[0])

    found = verified(devices, lambda d, x: joined(d, tf.tanh, x) + counted(x[:1])[0, 0], counted, X, modes=("eager",))
    assert found.verdict is Verdict.UNKNOWN, found
    assert "state was not restored" in found.reason, found


def test_what_no_hypothesis_explains_has_no_cause_but_a_list_of_what_was_ruled_out(devices: Devices) -> None:
    wrong = lambda d, x: tf.tensor_scatter_nd_add(joined(d, dense, x), [[7, 1]], [0.01])  # noqa: E731
    found = verified(devices, wrong, dense, X)
    assert "no known cause gives these numbers" in found.reason
    assert "Ruled out: " in found.reason
    assert "1 of 40 elements differ" in found.reason


def test_an_optimizer_applied_by_each_shard_is_named(devices: Devices) -> None:
    weights = tf.Variable(shared().numpy(), name="own")
    optimizer = tf.keras.optimizers.Adam(0.1)
    optimizer.build([weights])

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(tf.square(tf.matmul(x, weights)))
        return tape.gradient(value, weights)

    def each(d: Devices, x: Any) -> Any:
        for part in towers(d, gradient, x):
            optimizer.apply([part], [weights])
        return tf.reduce_sum(x)

    def once(d: Devices, x: Any, factor: float = 0.25) -> Any:
        optimizer.apply([tf.add_n(towers(d, gradient, x)) * factor], [weights])
        return tf.reduce_sum(x)

    def reference(x: Any) -> Any:
        optimizer.apply([gradient(x)], [weights])
        return tf.reduce_sum(x)

    found = verified(devices, each, reference, EVEN, variables=[weights])
    assert "The optimizer is applied 4 times, once for each shard" in found.reason, found
    found = verified(devices, once, reference, EVEN, variables=[weights])
    assert not [finding for finding in found.findings if finding.kind == "value"], found
