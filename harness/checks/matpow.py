"""A^n + B^n, each chain of products on a device of its own, and the sum on the host.

The example that this follows recurses until ``n < 1`` and returns the matrix there, so it computes A^(n+1). Both its
single-device and its two-device version do, so they agree. Here A^n takes n - 1 products, and NumPy's float64 result
is the judge of both sides.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.checking.check import Check, CheckContext
from harness.checking.tally import Tally
from harness.devices.device import Devices
from harness.lazy import tf
from harness.plural import plural
from harness.records import CheckResult

#: The exponent of the example.
POWER = 10
#: Rows and columns of the matrices.
SIZE = 96


def matpow(matrix: Any, power: int) -> Any:
    """``matrix`` (``[n, n]``) to the power of ``power`` (1 or more): ``power - 1`` products."""
    result = matrix
    for _ in range(power - 1):
        result = tf.matmul(matrix, result)
    return result


def run(context: CheckContext) -> CheckResult:
    """Compare both placements and NumPy, and count the products that each device ran."""
    from harness.judgement.verify import verify

    pair = context.devices[:2]
    parallel = two_chains(pair)
    inputs = _matrices(context.seed)
    tally = Tally()
    tally.add(verify(parallel, one_chain_after_the_other, inputs, devices=pair, gradients=False, oracle=in_float64))
    _judge_chains(parallel, inputs, pair, tally)
    tally.require_devices(pair)
    return tally.result(
        f"A^{POWER} + B^{POWER} equals NumPy's float64 result; {POWER - 1} products ran on {pair[0].parsed.short} and "
        f"{POWER - 1} on {pair[1].parsed.short}",
        "read the findings: an op-placement finding names the products that ran on the wrong device; a value finding "
        "names the program with the wrong numbers",
    )


def two_chains(pair: Devices) -> Any:
    """A function of ``a`` and ``b``: each power on a device of its own, the sum on the host."""

    def parallel(a: Any, b: Any) -> Any:
        with tf.device(pair[0].name):
            power_of_a = matpow(a, POWER)
        with tf.device(pair[1].name):
            power_of_b = matpow(b, POWER)
        with tf.device(pair.host):
            return power_of_a + power_of_b

    return parallel


def one_chain_after_the_other(a: Any, b: Any) -> Any:
    """The same on whatever device it is called."""
    return matpow(a, POWER) + matpow(b, POWER)


def in_float64(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same by NumPy in float64, which shares no code with either side."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    total: npt.NDArray[Any] = np.linalg.matrix_power(a, POWER) + np.linalg.matrix_power(b, POWER)
    return total


def _matrices(seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Two matrices of positive entries whose rows sum to about 1, so that no power of them grows or dies."""
    random = np.random.default_rng(seed)
    return {name: random.uniform(0, 2 / SIZE, (SIZE, SIZE)).astype(np.float32) for name in ("a", "b")}


def _judge_chains(parallel: Any, inputs: dict[str, Any], pair: Devices, tally: Tally) -> None:
    """Each device ran the products of one chain, no more and no fewer."""
    from harness.evidence.tracing import trace

    traced = trace(tf.function(parallel), **{name: tf.constant(value) for name, value in inputs.items()})
    ran = Counter(str(op.device) for op in traced.ops if op.type == "MatMul" and op.device is not None)
    for name, device in zip(("a", "b"), pair, strict=True):
        tally.measured[f"products_of_{name}"] = ran[device.name]
        if ran[device.name] != POWER - 1:
            found = ", ".join(f"{count} on {where}" for where, count in sorted(ran.items())) or "none"
            message = (
                f"{device.parsed.short} ran {plural(ran[device.name], 'product')} instead of the {POWER - 1} of "
                f"{name.upper()}^{POWER}"
            )
            tally.fail(
                "op-placement", f"the products of {name.upper()}", f"{POWER - 1} products", found, message, device.name
            )


CHECK = Check(
    id="matpow",
    title="A^n + B^n on two devices",
    proves=f"A^{POWER} + B^{POWER} matches NumPy in float64, with each chain of products on its own device",
    minimum_devices=2,
    typical_s=0.4,
    run=run,
)
