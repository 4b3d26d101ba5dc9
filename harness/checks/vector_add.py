"""Vector addition by hand: split, add on each device, concatenate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.checking.check import Check, CheckContext
from harness.checking.tally import Tally
from harness.devices.device import Devices
from harness.lazy import tf
from harness.plural import plural
from harness.records import CheckResult

#: Rows that each device gets, and columns.
ROWS_EACH = 125
COLUMNS = 100


def run(context: CheckContext) -> CheckResult:
    """Compare the sum made on all devices with the sum made on one, bit by bit."""
    from harness.judgement.verify import verify

    devices = context.devices
    tally = Tally()
    tally.add(
        verify(
            split_add_concat(devices),
            add,
            _vectors(context.seed, ROWS_EACH * len(devices)),
            devices=devices,
            gradients=False,
            oracle=_by_numpy,
        )
    )
    tally.require_devices(devices)
    return tally.result(
        f"the sum, split over {plural(len(devices), 'device')} and concatenated, is bit-identical to the "
        "single-device result",
        "read the findings: a value finding means that rows were dropped or permuted; an op-placement finding means "
        "that an addition ran on another device",
    )


def split_add_concat(devices: Devices) -> Any:
    """A function of ``a`` and ``b`` (``[rows, columns]``, rows a multiple of the devices) that adds them."""

    def parallel(a: Any, b: Any) -> Any:
        with tf.device(devices.host):
            parts = zip(tf.split(a, len(devices)), tf.split(b, len(devices)), devices, strict=True)
        sums = []
        for part_of_a, part_of_b, device in parts:
            with tf.device(device.name):
                sums.append(part_of_a + part_of_b)
        with tf.device(devices.host):
            return tf.concat(sums, axis=0)

    return parallel


def add(a: Any, b: Any) -> Any:
    """The same on one device."""
    return a + b


def _by_numpy(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(a, np.float64) + np.asarray(b, np.float64)


def _vectors(seed: int, rows: int) -> dict[str, npt.NDArray[np.float32]]:
    """Whole numbers, whose sums are exact in float32: any difference is a fault, and a permutation is seen."""
    random = np.random.default_rng(seed)
    return {name: random.integers(-(2**20), 2**20, (rows, COLUMNS)).astype(np.float32) for name in ("a", "b")}


CHECK = Check(
    id="vector-add",
    title="vector addition by split and concat",
    proves="a sum split over all devices and concatenated is bit-identical to the single-device result; "
    "each device adds its part",
    minimum_devices=2,
    typical_s=0.4,
    run=run,
)
