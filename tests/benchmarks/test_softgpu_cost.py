"""What software GPUs cost beside the CPU of the same process, and what starting them costs.

A session on software GPUs has one thread inside an op, on the CPU too: so a product is compared with one CPU thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forks
import pytest

import harness

pytest_plugins = ["figures"]
pytestmark = pytest.mark.devices(min=2, kind="software-gpu")

_EAGER_OPS, _GRAPH_OPS, _SIDE = 1000, 1000, 2048
#: From the goals of the project: microseconds an op, a ratio, 95 % of the rate, and milliseconds.
_EAGER_TARGET_US, _GRAPH_TARGET, _PRODUCT_TARGET, _LOAD_TARGET_MS, _START_TARGET_MS = 20.0, 1.5, 1 / 0.95, 300.0, 2000.0
_ABSURD = 10.0


def test_eager_ops(compare: Callable[..., object], devices: harness.Devices) -> None:
    import tensorflow as tf

    def additions(name: str) -> Callable[[int], object]:
        with tf.device(name):
            x = tf.ones(16)

        def run(_: int) -> Any:
            y = x
            with tf.device(name):
                for _ in range(_EAGER_OPS):
                    y = tf.add(y, x)
            return y.numpy()

        return run

    compare(
        # A thousand ops: a millisecond more is a microsecond an op.
        f"{_EAGER_OPS:,} eager additions, beside the CPU",
        additions(devices[0].name),
        additions(devices.host),
        target=_EAGER_TARGET_US * _EAGER_OPS / 1000,
        absurd=_ABSURD * _EAGER_TARGET_US,
        pairs=31,
        unit="ms more",
    )


def test_a_graph_of_small_ops(compare: Callable[..., object], devices: harness.Devices) -> None:
    import tensorflow as tf

    def graph(name: str) -> Callable[[int], object]:
        with tf.device(name):
            x = tf.ones(16)

        @tf.function  # type: ignore[untyped-decorator]
        def run() -> Any:
            with tf.device(name):
                y = x
                for _ in range(_GRAPH_OPS // 2):
                    y = tf.tanh(y * x)
                return y

        return lambda _: run().numpy()

    compare(
        f"a graph of {_GRAPH_OPS:,} small ops, beside the CPU",
        graph(devices[0].name),
        graph(devices.host),
        target=_GRAPH_TARGET,
        absurd=_ABSURD,
        pairs=51,
        warmup=10,
    )


def test_a_product(compare: Callable[..., object], devices: harness.Devices) -> None:
    import tensorflow as tf

    def product(name: str) -> Callable[[int], object]:
        with tf.device(name):
            x = tf.random.stateless_normal((_SIDE, _SIDE), (1, 2))

            @tf.function  # type: ignore[untyped-decorator]
            def run() -> Any:
                with tf.device(name):
                    return tf.matmul(x, x)[0, 0]

        return lambda _: run().numpy()

    compare(
        f"a product of {_SIDE:,} x {_SIDE:,}, beside one CPU thread",
        product(devices[0].name),
        product(devices.host),
        target=_PRODUCT_TARGET,
        absurd=_ABSURD,
        pairs=15,
    )


@pytest.mark.parametrize(
    ("count", "target_ms"), [(2, _LOAD_TARGET_MS), (64, _START_TARGET_MS)], ids=["2 devices", "64 devices"]
)
def test_starting(compare: Callable[..., object], count: int, target_ms: float) -> None:
    """With TensorFlow imported, and the library in the cache: this session has put it there."""
    paths = [str(Path(harness.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def start(spec: str) -> Callable[[int], object]:
        code = f"import harness, tensorflow as tf; harness.configure({spec!r}); tf.config.list_logical_devices()"
        command = [sys.executable, "-c", code]

        def run(_: int) -> object:
            with forks.forking():
                return subprocess.run(command, env=environment, check=True, capture_output=True)

        return run

    compare(
        f"starting {count} software GPUs, beside one CPU",
        start(f"softgpu:{count}x64"),
        start("cpu:1"),
        target=target_ms,
        absurd=_ABSURD * target_ms,
        pairs=7,
        warmup=1,
        unit="ms more",
    )
