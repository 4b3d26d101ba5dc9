"""``MirroredStrategy``: two over different devices in one process fail, so each number of devices has a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

FreshProcess = Callable[..., CompletedProcess[str]]


def _mirrored(count: int) -> None:
    import numpy as np
    import tensorflow as tf
    from sample_programs import by_name, facts, gradient_ops, unlinked

    import harness
    from harness import Trace, trace

    devices = harness.configure(f"cpu:{count}")
    strategy = tf.distribute.MirroredStrategy(list(devices.names))
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(5, activation="tanh")])
        model.compile("adam", "mse")
    x, y = np.ones([4 * count, 3], np.float32), np.ones([4 * count, 5], np.float32)

    def fit() -> None:
        model.fit(x, y, batch_size=2 * count, verbose=0)

    def places(found: Trace, op_type: str, role: str) -> Counter[str]:
        ops = [op for op in found.ops if op.type == op_type and op.role == role and op.device]
        return Counter(op.device.short for op in ops if op.device)

    everywhere = [device.parsed.short for device in devices]
    trace(fit)  # makes the variables of the optimizer
    found = trace(fit)
    assert found.conclusion(devices)[-1] == "Backward ops ran on the devices of their forward ops."
    steps = 2
    assert places(found, "MatMul", "forward") == dict.fromkeys(everywhere, steps)
    assert places(found, "MatMul", "gradient") == dict.fromkeys(everywhere, steps)
    assert places(found, "CollectiveReduceV2", "collective").keys() == set(everywhere)
    assert places(found, "AssignSubVariableOp", "update") == dict.fromkeys(everywhere, steps * 2)
    assert any("replica_1/" in op.name for op in found.ops)
    assert unlinked(found) == []
    names = by_name(found)
    pairs = [(op.device, names[op.forward].device) for op in gradient_ops(found) if op.forward]
    assert all(there in (here, None) for here, there in pairs)
    assert facts(trace(fit)) == facts(found)

    weights = model.trainable_variables

    def on_each(part: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(part) ** 2)
        return tf.distribute.get_replica_context().all_reduce("sum", tape.gradient(loss, weights))

    def run() -> Any:
        return strategy.run(on_each, args=(tf.ones([2, 3]),))

    for call in (run, tf.function(run)):
        found = trace(call)
        assert places(found, "MatMul", "forward") == dict.fromkeys(everywhere, 1)
        assert places(found, "MatMul", "gradient") == dict.fromkeys(everywhere, 1)
        assert places(found, "CollectiveReduceV2", "collective").keys() == set(everywhere)
        assert unlinked(found) == []


def two_devices() -> None:
    _mirrored(2)


def four_devices() -> None:
    _mirrored(4)


def test_a_mirrored_strategy_on_two_devices(fresh_process: FreshProcess) -> None:
    fresh_process(two_devices)


@pytest.mark.long
def test_a_mirrored_strategy_on_four_devices(fresh_process: FreshProcess) -> None:
    fresh_process(four_devices)
