"""How near the figures of the hardware checks are to what a core and its memory do without the harness.

Matrix products by ``machine.run`` against NumPy and TensorFlow on one thread: what is reported is within 5 % of one of
the two (TensorFlow's own product of float64 may be slower than NumPy's). And copies by ``machine.put``, ``move`` and
``fetch`` against NumPy's ``copyto`` of the same bytes, which is a plain memcpy. On logical CPUs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import harness

pytest_plugins = ["figures"]

_SIDE = 1024
_COPY_BYTES = 64 * 1024 * 1024
#: From the goals of the project: within 5 % of the best for one core, within 10 % of a memcpy.
_PRODUCT_TARGET, _COPY_TARGET = 1.05, 1.10
_ABSURD = 3.0


@pytest.fixture
def machine(devices: harness.Devices) -> Any:
    from harness.hardware.real import TensorFlowMachine

    if any(device.kind != "logical-cpu" for device in devices):
        pytest.skip("the figures of logical CPUs; --harness-devices=cpu:2")
    return TensorFlowMachine(devices)


@pytest.mark.parametrize("beside", ["TensorFlow", "NumPy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_beside_one_core(compare: Callable[..., object], machine: Any, dtype: str, beside: str) -> None:
    import tensorflow as tf

    from harness.hardware.operations import matmul
    from harness.hardware.profile_rates import matrices

    card = machine.cards[0].label
    arrays = matrices(_SIDE, np.dtype(dtype))
    buffers = [machine.put(array, card) for array in arrays]
    operation = matmul(_SIDE, dtype)
    tensors = [tf.constant(array) for array in arrays]

    def by_numpy(_: int) -> object:
        with threadpool_limits(1):
            return arrays[0] @ arrays[1]

    def by_tensorflow(_: int) -> object:
        return tf.matmul(*tensors).numpy()

    compare(
        f"product of {_SIDE} x {_SIDE} {dtype}: machine.run / {beside}",
        lambda _: machine.run(operation, card, buffers),
        {"NumPy": by_numpy, "TensorFlow": by_tensorflow}[beside],
        target=_PRODUCT_TARGET,
        absurd=_ABSURD,
        pairs=30,
    )


@pytest.mark.parametrize("way", ["host-to-device", "device-to-device", "device-to-host"])
def test_a_copy_beside_a_memcpy(compare: Callable[..., object], machine: Any, way: str) -> None:
    from harness.hardware.profile_rates import COPIES

    labels = [card.label for card in machine.cards]
    source = np.arange(_COPY_BYTES // 8, dtype=np.int64)
    held = machine.put(source, labels[0])
    # As the check "copies" measures them.
    repeats = COPIES if way == "device-to-device" else 1
    copies: dict[str, Callable[[], Any]] = {
        "host-to-device": lambda: machine.put(source, labels[0]).pieces[0],
        "device-to-device": lambda: machine.move(held, labels[-1], repeats).pieces[0],
        "device-to-host": lambda: machine.fetch(held),
    }
    read = source if way == "host-to-device" else np.asarray(memoryview(held.pieces[0]))
    # The machine writes a copy where the last one was that nobody keeps, so that this is the very same memory.
    written = _writable(copies[way]())
    assert np.array_equal(written, source)

    def by_numpy(_: int) -> None:
        for _ in range(repeats):
            np.copyto(written, read)

    compare(
        f"copy {way} of {_COPY_BYTES >> 20} MiB: machine / np.copyto",
        lambda _: copies[way](),
        by_numpy,
        target=_COPY_TARGET,
        absurd=_ABSURD,
        pairs=60,
    )
    assert _writable(copies[way]()).ctypes.data == written.ctypes.data


def _writable(made: Any) -> Any:
    """The memory of a tensor or an array as an array that can be written to and keeps nothing alive."""
    address = np.asarray(memoryview(made)).ctypes.data
    return np.ctypeslib.as_array((ctypes.c_int64 * (_COPY_BYTES // 8)).from_address(address))
