"""The first line of a failing verification names the cause and its place; the right twin passes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cause_programs import (
    CASES,
    EVEN,
    OLD,
    RANDOM,
    WEIGHTS,
    Fn,
    X,
    batch_norm,
    dense,
    joined,
    loss,
    mean_of,
    shared,
    stopped,
    towers,
)

from harness import Devices, Verdict, Verification, verify
from harness.judgement.diagnosis import diagnose


@pytest.fixture(scope="module", autouse=True)
def _shared_on_the_host(devices: Devices) -> None:
    shared()


def verified(devices: Devices, program: Fn, reference: Fn, x: Any, **options: Any) -> Verification:
    return verify(lambda x: program(devices, x), reference, {"x": x}, devices=devices, **options)


@pytest.mark.cases(2, "padded", "shifted", "a largest index", "doubled", "old weights of one", "reversed")
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
    assert re.search(r"(cause_programs|test_named_causes)\.py:\d", found.reason), found


def test_a_variable_that_is_never_read_is_named(devices: Devices) -> None:
    bias = tf.Variable(OLD[0], name="bias")
    reference = lambda x: tf.tanh(tf.matmul(x, shared()) + bias)  # noqa: E731
    found = verified(devices, lambda d, x: joined(d, dense, x), reference, X)
    assert (
        "Variable bias is never read: output has the value that it would have if the variable were 0" in found.reason
    ), found


def test_inputs_that_are_split_into_different_rows_are_named(devices: Devices) -> None:
    labels = RANDOM.normal(size=(8, 3)).astype(np.float32)

    def program(x: Any, y: Any) -> Any:
        parts = []
        for device, part, label in zip(devices, tf.split(x, 4), tf.split(tf.roll(y, 1, 0), 4), strict=True):
            with tf.device(device.name):
                parts.append(tf.reduce_sum(tf.square(part - label)))
        return tf.add_n(parts)

    found = verify(program, lambda x, y: tf.reduce_sum(tf.square(x - y)), {"x": EVEN, "y": labels}, devices=devices)
    assert "split into different rows: row 0 of x is paired with row 7 of y" in found.reason, found


def test_updates_are_told_from_sums_of_gradients(devices: Devices) -> None:
    weights = tf.Variable(WEIGHTS, name="own")
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
        (
            never,
            plain,
            "Variable own is not updated: the program never writes to it (tests/judgement/test_named",
        ),
        (
            twice,
            once,
            "The optimizer applies the same gradients 2 times instead of once (tests/judgement/test_named",
        ),
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
    assert "variable weights is stopped by tf.stop_gradient (tests/judgement/cause_programs.py:" in found.reason, found
    assert ", called at tests/judgement/test_named_causes.py:" in found.reason, found


def test_a_random_reference_is_unknown_and_names_the_op(devices: Devices) -> None:
    noisy = lambda x: x + tf.random.normal(tf.shape(x))  # noqa: E731
    found = verified(devices, lambda d, x: joined(d, noisy, x), noisy, X)
    assert found.verdict is Verdict.UNKNOWN, found
    assert "RandomStandardNormal (tests/judgement/test_named_causes.py:" in found.reason, found


def test_state_that_cannot_be_restored_is_unknown_and_no_nondeterminism(devices: Devices) -> None:
    calls = [0]

    def counted(x: Any) -> Any:
        calls[0] += 1
        return tf.tanh(x) + float(calls[0])

    found = verified(devices, lambda d, x: joined(d, tf.tanh, x) + counted(x[:1])[0, 0], counted, X, modes=("eager",))
    assert found.verdict is Verdict.UNKNOWN, found
    assert "state that was not restored" in found.reason, found


def test_what_no_hypothesis_explains_has_no_cause_but_its_first_op_or_a_list_of_what_was_ruled_out(
    devices: Devices,
) -> None:
    wrong = lambda d, x: tf.tensor_scatter_nd_add(joined(d, dense, x), [[7, 1]], [0.01])  # noqa: E731
    found = verified(devices, wrong, dense, X)
    assert re.search(
        r"first op .* is TensorScatterAdd.*: its inputs equal the reference's, as do \d+ results before", found.reason
    )
    assert "1 of 40 elements differ" in found.reason
    assert any("Ruled out: graph optimization; another dtype; " in line for line in found.findings[0].follows)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def skewed(x: Any) -> Any:
        return tf.identity(x), lambda upstream: upstream + 0.01 * tf.sin(9.0 * upstream)

    found = verified(
        devices, lambda d, x: joined(d, lambda part: skewed(dense(part)), x), dense, X, variables=[shared()]
    )
    assert "is Mul in the gradient of skewed: its inputs equal the reference's" in found.reason, found

    untraced = lambda d, x: tf.constant(joined(d, dense, x).numpy() + 0.01 * np.sin(9.0 * X[:, :1]))  # noqa: E731
    found = verified(devices, untraced, dense, X, modes=("eager",))
    assert "no known cause gives these numbers" in found.reason, found
    assert "Ruled out: " in found.findings[0].follows[0]
    assert "Ruled out: " not in str(found)


def test_a_program_that_takes_long_is_searched_for_the_first_op_alone(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_MOST_S", -1.0)
    wrong = lambda d, x: 2.0 * joined(d, dense, x)  # noqa: E731
    found = verified(devices, wrong, dense, X, modes=("eager",))
    assert re.search(r"first op whose result differs .* is Mul.*: its inputs equal the reference's", found.reason), (
        found
    )
    untried = "Not tried, because the search took too long: graph optimization; another dtype; "
    assert any(untried in line for line in found.findings[0].follows), found.findings
    assert verified(devices, lambda d, x: joined(d, dense, x), dense, X, modes=("eager",)).passed


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: 2 * y, r"^Row 1, that of shard 1 \([CG]PU:1\), is 2 times that of the single-device run"),
        (tf.sort, r"^Only row 1, that of shard 1 \([CG]PU:1\), differs; the other shards are right"),
    ],
)
def test_one_row_is_named_in_the_singular(devices: Devices, change: Fn, words: str) -> None:
    def program(d: Devices, x: Any) -> Any:
        parts = towers(d, dense, x)
        return tf.concat([*parts[:1], change(parts[1]), *parts[2:]], 0)

    found = verified(devices, program, dense, X[:4], modes=("eager",))
    assert re.search(words, found.reason), found.reason


def test_rows_outside_of_the_parts_that_were_seen_are_not_called_right(devices: Devices) -> None:
    """Each device smooths its part with the edges of its neighbours: those of this sweep instead of the last one."""

    def sweeps(d: Devices, u: Any, late: bool) -> Any:
        parts = tf.split(u, len(d))
        for _ in range(3):
            new: list[Any] = []
            for at, device in enumerate(d):
                with tf.device(device.name):
                    before = [(new if late else parts)[at - 1][-1:]] if at else []
                    after = [parts[at + 1][:1]] if at + 1 < len(d) else []
                    known = tf.concat([*before, parts[at], *after], 0)
                    first, last = ([] if before else [parts[at][:1]]), ([] if after else [parts[at][-1:]])
                    new.append(tf.concat([*first, (known[:-2] + known[2:]) / 2, *last], 0))
            parts = new
        return tf.concat(parts, 0)

    def reference(x: Any) -> Any:
        for _ in range(3):
            x = tf.concat([x[:1], (x[:-2] + x[2:]) / 2, x[-1:]], 0)
        return x

    u = np.random.default_rng(1).normal(size=16).astype(np.float32)
    found = verified(devices, lambda d, x: sweeps(d, x, True), reference, u, modes=("eager",))
    assert found.verdict is Verdict.FAIL
    assert "the other shards are right" not in found.reason, found.reason
    assert verified(devices, lambda d, x: sweeps(d, x, False), reference, u, modes=("eager",)).passed
