"""Copies with a device of this process that has a memory of its own, as a GPU has: TensorFlow's XLA device of the CPU.

Its eager runtime treats it as no CPU: what is read of it is copied to the host, and kept there with the tensor.
"""

from __future__ import annotations

import json
import subprocess
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

_SIZE_BYTES = 8 * 2**20


def copy_there_and_back() -> None:
    import ml_dtypes
    import numpy as np
    import tensorflow as tf

    from harness.devices.device import Device, Devices
    from harness.hardware.machine import Pattern
    from harness.hardware.real import TensorFlowMachine

    def new_memory(call: Callable[[], Any]) -> float:
        """What NumPy asked for meanwhile, as a share of what is copied."""
        call()
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / _SIZE_BYTES

    tf.config.set_soft_device_placement(False)
    name = "/job:localhost/replica:0/task:0/device:XLA_CPU:0"
    machine = TensorFlowMachine(Devices([Device(name, "gpu", "/physical_device:XLA_CPU:0")], spec="gpu"))
    card = machine.cards[0].label
    array = np.arange(_SIZE_BYTES // 8)
    buffer = machine.put(array, card)
    fetched = [machine.fetch(buffer) for _ in range(3)]
    round_trips = {}
    for dtype in ("float64", "float16", "int32", "uint64", "bool", "complex64", "bfloat16"):
        sent = (np.arange(6) % 2).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).reshape(2, 3)
        sent.flags.writeable = False
        back = machine.fetch(machine.put(sent, card))
        round_trips[dtype] = back.dtype == sent.dtype and bool(np.array_equal(back, sent))
    # Nothing of an array may be seen on the card that was written to it after it was put there.
    changed = np.ones(_SIZE_BYTES // 8)
    ones = machine.put(changed, card)
    changed[...] = 2
    machine.put(changed, card)
    print(
        json.dumps(
            {
                "device": buffer.pieces[0].backing_device == name,
                "right": [bool(np.array_equal(each, array)) for each in fetched],
                "places": len({each.ctypes.data for each in fetched}),
                "pieces": machine.fetch(machine.fill(card, _SIZE_BYTES, Pattern(1, 2)))[:3].tolist(),
                "new memory of put": new_memory(lambda: machine.put(array, card)),
                "new memory of fetch": new_memory(lambda: machine.fetch(buffer)),
                "round trips": round_trips,
                "a copy": bool((machine.fetch(ones) == 1).all()),
            }
        )
    )


@pytest.mark.long
def test_each_copy_crosses_and_the_host_makes_no_other_one(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = fresh_process(copy_there_and_back, TF_XLA_FLAGS="--tf_xla_enable_xla_devices", CUDA_VISIBLE_DEVICES="")
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["device"]
    assert seen["right"] == [True] * 3
    assert seen["places"] == 3, "what was fetched once is given out again, though nothing crosses"
    # A copy more on the host, into new memory, takes longer than the one that is measured.
    assert seen["new memory of put"] < 0.1
    assert seen["new memory of fetch"] < 0.1
    assert seen["pieces"] == [1, 3, 5]
    assert seen["round trips"] == dict.fromkeys(seen["round trips"], True)
    assert len(seen["round trips"]) == 7
    assert seen["a copy"]
