"""Programs as people write them, each with a fault that is found and a correct twin that passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)

#: The parallel program, the reference, the inputs, and the variables.
Case = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], list[Any]]


def _sample(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _parts(x: Any, devices: harness.Devices) -> list[tuple[Any, str]]:
    """Uneven parts of rows, and the names of their devices."""
    size, count = int(x.shape[0]), len(devices)
    sizes = [size // count + (part < size % count) for part in range(count)]
    return list(zip(tf.split(x, sizes), [device.name for device in devices], strict=True))


def _vocabulary(devices: harness.Devices, faulty: bool) -> Case:
    """An embedding whose rows are spread over the devices; the faulty one counts rows below its part too."""
    table = tf.Variable(_sample(12, 5, seed=1), name="embedding")

    def reference(ids: Any) -> Any:
        return tf.nn.log_softmax(tf.matmul(tf.gather(table.read_value(), ids), table, transpose_b=True))

    def parallel(ids: Any) -> Any:
        parts, offset, found = _parts(table.read_value(), devices), 0, []
        for rows, device in parts:
            with tf.device(device):
                size, local = rows.shape[0], ids - offset
                mine = (local < size) if faulty else (local >= 0) & (local < size)
                looked_up = tf.gather(rows, tf.clip_by_value(local, 0, size - 1))
                found.append(looked_up * tf.cast(mine, tf.float32)[:, None])
                offset += size
        hidden, logits = tf.add_n(found), []
        for rows, device in parts:
            with tf.device(device):
                logits.append(tf.matmul(hidden, rows, transpose_b=True))
        return tf.nn.log_softmax(tf.concat(logits, axis=1))

    return parallel, reference, {"ids": np.array([0, 3, 4, 7, 11, 8], np.int32)}, [table]


def _contrastive(devices: harness.Devices, faulty: bool) -> Case:
    """A loss over all pairs of a batch; the faulty one numbers the rows of each part from 0."""
    weights = tf.Variable(_sample(6, 4, seed=1))

    def embed(x: Any) -> Any:
        return tf.math.l2_normalize(x @ weights, axis=1)

    def loss(part: Any, whole: Any, first: int) -> Any:
        labels = tf.range(part.shape[0]) + first
        logits = tf.matmul(part, whole, transpose_b=True)
        return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    def reference(x: Any) -> Any:
        return loss(embed(x), embed(x), 0) / 9.0

    def parallel(x: Any) -> Any:
        embedded = []
        for part, device in _parts(x, devices):
            with tf.device(device):
                embedded.append((embed(part), device))
        whole, first, losses = tf.concat([each for each, _ in embedded], axis=0), 0, []
        for part, device in embedded:
            with tf.device(device):
                losses.append(loss(part, whole, 0 if faulty else first))
                first += part.shape[0]
        return tf.add_n(losses) / 9.0

    return parallel, reference, {"x": _sample(9, 6)}, [weights]


def _rms_step(devices: harness.Devices, faulty: bool) -> Case:
    """An optimizer written by hand; the faulty one takes a step per part."""
    weights, squares = tf.Variable(_sample(5, 1, seed=1)), tf.Variable(tf.fill([5, 1], 0.1))

    def update(gradient: Any) -> None:
        squares.assign(0.9 * squares + 0.1 * gradient**2)
        weights.assign_sub(0.05 * gradient / (tf.sqrt(squares) + 1e-3))

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights) ** 2)
        update(tape.gradient(loss, weights))
        return loss

    def parallel(x: Any) -> Any:
        losses, gradients = [], []
        for part, device in _parts(x, devices):
            with tf.device(device):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum((part @ weights) ** 2) / 9.0
                gradients.append(tape.gradient(loss, weights))
                losses.append(loss)
        for gradient in gradients if faulty else [tf.add_n(gradients)]:
            update(gradient)
        return tf.add_n(losses)

    return parallel, reference, {"x": _sample(9, 5)}, [weights, squares]


def _clipped(devices: harness.Devices, faulty: bool) -> Case:
    """A custom gradient that clips; the faulty one clips at another bound in the first part. Values are equal."""
    weights = tf.Variable(_sample(5, 5, seed=3))

    def clip(x: Any, bound: float) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def clipped(y: Any) -> Any:
            return tf.identity(y), lambda upstream: tf.clip_by_value(upstream, -bound, bound)

        return clipped(x)

    def model(x: Any, bound: float = 0.05) -> Any:
        return tf.reduce_sum(clip(x @ weights, bound) ** 2, axis=1)

    def parallel(x: Any) -> Any:
        results: list[Any] = []
        for part, device in _parts(x, devices):
            with tf.device(device):
                results.append(model(part, 0.01 if faulty and not results else 0.05))
        return tf.concat(results, axis=0)

    return parallel, model, {"x": _sample(9, 5)}, [weights]


def _states(devices: harness.Devices, faulty: bool) -> Case:
    """A recurrent cell with a dict of states; the faulty one swaps them in the last part."""
    weights = tf.Variable(_sample(4, 4, seed=1))

    def cell(x: Any, h: Any, c: Any) -> Any:
        c = c * tf.sigmoid(x @ weights) + tf.tanh(h)
        return {"h": tf.tanh(c), "c": c}

    def parallel(x: Any, h: Any, c: Any) -> Any:
        results = []
        split = [_parts(each, devices) for each in (x, h, c)]
        for number, ((part, device), (own_h, _), (own_c, _)) in enumerate(zip(*split, strict=True)):
            if faulty and number == len(devices) - 1:
                own_h, own_c = own_c, own_h
            with tf.device(device):
                results.append(cell(part, own_h, own_c))
        return {name: tf.concat([each[name] for each in results], axis=0) for name in ("h", "c")}

    inputs = {"x": _sample(9, 4), "h": _sample(9, 4, seed=2), "c": _sample(9, 4, seed=3)}
    return parallel, cell, inputs, [weights]


def _collected(devices: harness.Devices, faulty: bool) -> Case:
    """Results in a TensorArray; the faulty one writes the parts in reverse."""
    weights = tf.Variable(_sample(4, 4, seed=1))

    def model(x: Any) -> Any:
        return tf.nn.softplus(x @ weights)

    def parallel(x: Any) -> Any:
        count = len(devices)
        results = tf.TensorArray(tf.float32, size=count, infer_shape=False)
        for number, (part, device) in enumerate(_parts(x, devices)):
            with tf.device(device):
                results = results.write(count - 1 - number if faulty else number, model(part))
        return results.concat()

    return parallel, model, {"x": _sample(8, 4)}, [weights]


def _noise(devices: harness.Devices, faulty: bool) -> Case:
    """Noise by a seed; the faulty one draws it again for each part."""
    weights = tf.Variable(_sample(5, 5, seed=1))

    def noise(shape: Any) -> Any:
        return tf.random.stateless_normal(shape, seed=(3, 4))

    def reference(x: Any) -> Any:
        return tf.tanh((x + noise((9, 5))) @ weights)

    def parallel(x: Any) -> Any:
        results = []
        for (part, device), (own, _) in zip(_parts(x, devices), _parts(noise((9, 5)), devices), strict=True):
            with tf.device(device):
                results.append(tf.tanh((part + (noise(part.shape) if faulty else own)) @ weights))
        return tf.concat(results, axis=0)

    return parallel, reference, {"x": _sample(9, 5)}, [weights]


@pytest.mark.cases("_vocabulary", "_noise")
@pytest.mark.parametrize("case", [_vocabulary, _contrastive, _rms_step, _clipped, _states, _collected, _noise])
def test_the_fault_is_found_and_the_correct_twin_passes(
    devices: harness.Devices, case: Callable[[harness.Devices, bool], Case]
) -> None:
    for faulty in (False, True):
        parallel, reference, inputs, variables = case(devices, faulty)
        found = harness.verify(
            harness.colocate_gradients(parallel), reference, inputs, devices=devices, variables=variables
        )
        assert found.verdict is (Verdict.FAIL if faulty else Verdict.PASS), found
        if faulty:
            kinds = {finding.kind for finding in found.findings}
            assert kinds == {"gradient" if case is _clipped else "value"}, found
            assert "test_pairs_of_programs.py:" in found.reason
