"""Collectives between software GPUs are exact, and strategies and Keras train on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from softgpu_programs import refusal, run_all, start

from harness.softgpu.compiler import NAMES

_TIMEOUT_S = 900
_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")

Array = np.ndarray[Any, Any]
COUNT = 4
#: A decimal digit for each device: a device that is missing, or counted twice, is seen in the sum.
INPUTS = [np.arange(1, 9, dtype=np.float32) * np.float32(10**device) for device in range(COUNT)]
SUM = np.sum(INPUTS, axis=0)


def assert_exact(name: str, found: list[Any], expected: list[Array]) -> None:
    for device, (one, other) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(np.asarray(one), other, err_msg=f"{name} on GPU:{device}")


def collectives() -> None:
    tf = start(f"softgpu:{COUNT}x256")
    with ThreadPoolExecutor(COUNT) as pool:

        def on_each(program: Callable[[int, Any], Any]) -> list[Any]:
            def on_one(device: int) -> Any:
                with tf.device(f"GPU:{device}"):
                    return program(device, tf.constant(INPUTS[device]))

            return list(pool.map(on_one, range(COUNT)))

        for at, hint in enumerate(("auto", "ring", "nccl")):
            _hinted(tf, on_each, hint, 10 * at)
    _nccl_ops(tf)


def _hinted(tf: Any, on_each: Callable[..., list[Any]], hint: str, key: int) -> None:
    raw = tf.raw_ops
    group: dict[str, Any] = {"group_size": COUNT, "group_key": 1, "communication_hint": hint}
    free: dict[str, Any] = {**group, "ordering_token": [], "is_stateless": True}

    def reduced(device: int, x: Any) -> Any:
        return raw.CollectiveReduceV2(input=x, merge_op="Add", final_op="Id", instance_key=key, **free)

    def scattered(device: int, x: Any) -> Any:
        return raw.CollectiveReduceScatterV2(input=x, merge_op="Add", final_op="Div", instance_key=key + 1, **free)

    def gathered(device: int, x: Any) -> Any:
        return raw.CollectiveGatherV2(input=x, instance_key=key + 2, **free)

    def broadcast(device: int, x: Any) -> Any:
        if device == 0:
            return raw.CollectiveBcastSendV2(input=x, instance_key=key + 3, **group)
        return raw.CollectiveBcastRecvV2(T=tf.float32, shape=[8], instance_key=key + 3, **group)

    def exchanged(device: int, x: Any) -> Any:
        return raw.CollectiveAllToAllV2(input=tf.reshape(x, (COUNT, 2)), instance_key=key + 4, **free)

    for _ in range(2):  # the second time, groups are known
        assert_exact(f"all-reduce, {hint}", on_each(reduced), [SUM] * COUNT)
        assert_exact(f"reduce-scatter, {hint}", on_each(scattered), np.split(SUM / COUNT, COUNT))
    assert_exact(f"gather, {hint}", on_each(gathered), [np.concatenate(INPUTS)] * COUNT)
    assert_exact(f"broadcast, {hint}", on_each(broadcast), [INPUTS[0]] * COUNT)
    parts = [array.reshape(COUNT, 2) for array in INPUTS]
    assert_exact(
        f"all-to-all, {hint}", on_each(exchanged), [np.stack([each[i] for each in parts]) for i in range(COUNT)]
    )


def _nccl_ops(tf: Any) -> None:
    for reduction, expected in (
        ("sum", SUM),
        ("min", INPUTS[0]),
        ("max", INPUTS[-1]),
        ("prod", np.prod(INPUTS, axis=0)),
    ):

        @tf.function  # type: ignore[untyped-decorator]
        def all_reduce(reduction: str = reduction) -> Any:
            made = []
            for device in range(COUNT):
                with tf.device(f"GPU:{device}"):
                    x = tf.constant(INPUTS[device])
                    made.append(
                        tf.raw_ops.NcclAllReduce(input=x, reduction=reduction, num_devices=COUNT, shared_name=reduction)
                    )
            return made

        assert_exact(f"NcclAllReduce, {reduction}", all_reduce(), [expected] * COUNT)

    @tf.function  # type: ignore[untyped-decorator]
    def reduce() -> Any:
        inputs = []
        for device in range(COUNT):
            with tf.device(f"GPU:{device}"):
                inputs.append(tf.constant(INPUTS[device]) * 1.0)
        with tf.device("GPU:0"):
            return tf.raw_ops.NcclReduce(input=inputs, reduction="sum")

    assert_exact("NcclReduce", [reduce()], [SUM])

    @tf.function  # type: ignore[untyped-decorator]
    def broadcast() -> Any:
        with tf.device("GPU:1"):
            sent = tf.raw_ops.NcclBroadcast(input=tf.constant(INPUTS[3]) * 1.0, shape=[8])
        received = []
        for device in range(COUNT):
            with tf.device(f"GPU:{device}"):
                received.append(sent * 1.0)
        return received

    assert_exact("NcclBroadcast", broadcast(), [INPUTS[3]] * COUNT)


def strategies() -> None:
    tf = start(f"softgpu:{COUNT}x256")
    names = [f"GPU:{device}" for device in range(COUNT)]
    distribute = tf.distribute
    for cross in (
        None,
        distribute.NcclAllReduce(),
        distribute.HierarchicalCopyAllReduce(),
        distribute.ReductionToOneDevice(),
    ):
        strategy = distribute.MirroredStrategy(names, cross_device_ops=cross)

        @tf.function  # type: ignore[untyped-decorator]
        def step(strategy: Any = strategy) -> Any:
            def replica() -> Any:
                context = distribute.get_replica_context()
                power = tf.cast(context.replica_id_in_sync_group, tf.float32)
                return context.all_reduce("SUM", tf.constant(INPUTS[0]) * 10.0**power)

            return strategy.experimental_local_results(strategy.run(replica))

        assert_exact(f"MirroredStrategy, {cross}", step(), [SUM] * COUNT)


def dtensor() -> None:
    tf = start(f"softgpu:{COUNT}x256")
    from tensorflow.experimental import dtensor

    mesh = dtensor.create_mesh([("x", COUNT)], devices=[f"GPU:{device}" for device in range(COUNT)])
    sharded = dtensor.Layout(["x", dtensor.UNSHARDED], mesh)
    rows = dtensor.copy_to_mesh(tf.constant(np.stack(INPUTS)), dtensor.Layout.replicated(mesh, 2))
    rows = dtensor.relayout(rows, sharded)
    total = tf.reduce_sum(rows, axis=0)
    assert_exact(
        "DTensor's sum",
        list(dtensor.unpack(dtensor.relayout(total, dtensor.Layout.replicated(mesh, 1)))),
        [SUM] * COUNT,
    )


def keras() -> None:
    tf = start(f"softgpu:{COUNT}x256")
    x = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    y = x @ np.ones((8, 1), np.float32)

    def trained(strategy: Any, **options: Any) -> list[float]:
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
            model.compile("sgd", "mse", **options)
        return [float(loss) for loss in model.fit(x, y, 16, epochs=3, verbose=0, shuffle=False).history["loss"]]

    alone = trained(tf.distribute.get_strategy())
    assert alone[-1] < 0.9 * alone[0]
    mirrored = trained(tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"]))
    np.testing.assert_allclose(mirrored, alone, rtol=1e-5)
    message = refusal(lambda: trained(tf.distribute.get_strategy(), jit_compile=True), tf.errors.OpError)
    assert "Could not find compiler for platform SOFTWARE_GPU_WITHOUT_XLA" in message, message


def programs() -> None:
    run_all(collectives, strategies, dtensor)


def programs_of_keras() -> None:
    """In a process of its own: TensorFlow keeps the size of each group of devices for good."""
    run_all(keras)


def test_sums_are_exact_and_trainings_run(fresh_process: Any) -> None:
    fresh_process(programs, timeout_s=_TIMEOUT_S)
    fresh_process(programs_of_keras, timeout_s=_TIMEOUT_S)
