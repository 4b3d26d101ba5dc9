"""The requested devices exist, are distinct and compute; a missing one is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from harness.checking.check import Check, CheckContext
from harness.checking.tally import Tally
from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.lazy import tf
from harness.plural import plural
from harness.records import CheckResult, Exercised, Finding, Verdict


def run(context: CheckContext) -> CheckResult:
    """Run an op on each device, in eager code and in a graph, and one on a device that does not exist."""
    tally = Tally()
    _judge_names(context.devices, tally)
    for index, device in enumerate(context.devices):
        for mode in ("eager", "graph"):
            _judge_device(device, index, mode, tally)
    tally.require_devices(context.devices)
    _judge_absent(context.devices, tally)
    count = len(context.devices)
    return tally.result(
        f"{plural(count, 'distinct device')}; each ran its own op with the right result; an op for a "
        "missing device is refused",
        "compare the device names in the findings with the output of `harness devices`",
    )


def _judge_names(devices: Devices, tally: Tally) -> None:
    """Names are unique and known to TensorFlow; real GPUs lie on cards of their own."""
    # TensorFlow leaves the host out of the names of its own devices, so they are compared as parsed.
    known = {DeviceName.parse(device.name).short for device in tf.config.list_logical_devices()}
    seen: dict[str, int] = {}
    cards: dict[str, str] = {}
    for index, device in enumerate(devices):
        if device.name in seen:
            _unused(device, index, f"already listed as device number {seen[device.name]}", tally)
        seen.setdefault(device.name, index)
        if device.kind == "gpu" and cards.setdefault(device.physical, device.name) != device.name:
            _unused(device, index, f"on the same card as {cards[device.physical]}", tally)
        if device.parsed.short not in known:
            _unused(device, index, f"not among TensorFlow's logical devices: {', '.join(sorted(known))}", tally)


def _unused(device: Device, index: int, found: str, tally: Tally) -> None:
    message = f"{device.parsed.short} is {found}"
    tally.fail("unused-device", f"device number {index}", "a device of its own", found, message, device.name)


def _judge_device(device: Device, index: int, mode: str, tally: Tally) -> None:
    """A product computed on ``device`` is right, and TensorFlow's own record says that it ran there."""
    from harness.evidence.tracing import trace

    # Whole numbers, other ones for each device and mode: exact in float32, and no result can stand for another.
    left = np.arange(15, dtype=np.float32).reshape(3, 5) + 100 * index + (50 if mode == "graph" else 0)
    right = np.arange(10, dtype=np.float32).reshape(5, 2) - index
    traced = trace(_product(device.name, mode), left, right)
    ran = [op for op in traced.ops if op.type == "MatMul" and op.device is not None]
    elsewhere = [op for op in ran if str(op.device) != device.name]
    where = f"MatMul, {mode}"
    if not ran:
        tally.unproven(f"{where}: no record of where the op for {device.name} ran")
    for op in elsewhere:
        message = f"an op pinned to {device.parsed.short} ran on {DeviceName.parse(str(op.device)).short}"
        tally.fail("op-placement", where, device.name, str(op.device), message, str(op.device))
    result = np.asarray(traced.outputs)
    wanted = left @ right
    if result.shape != wanted.shape or not np.array_equal(result, wanted):
        message = "a product of small integers is wrong"
        tally.fail("value", where, str(wanted.tolist()), str(result.tolist()), message, device.name)
    proven = tuple(sorted({str(op.device) for op in ran}))
    tally.exercised += Exercised(values=int(wanted.size), ops=len(ran), devices=proven)


def _product(device: str, mode: str) -> Any:
    def product(left: Any, right: Any) -> Any:
        with tf.device(device):
            return tf.matmul(left, right)

    return tf.function(product) if mode == "graph" else product


def _judge_absent(devices: Devices, tally: Tally) -> None:
    if tf.config.get_soft_device_placement():
        tally.found(
            Finding(
                kind="op-placement",
                where="soft placement",
                device=None,
                expected="off",
                found="on",
                message="soft placement is on: an op for a missing device silently runs elsewhere",
                next_step="remove soft_placement = true from the device profile",
                severity=Verdict.WARN,
            )
        )
        return
    absent = _beyond_the_last(devices)
    matrix = np.ones((2, 2), np.float32)
    for mode in ("eager", "graph"):
        try:
            _product(absent, mode)(matrix, matrix)
        except (tf.errors.OpError, RuntimeError, ValueError):
            continue
        message = f"an op for {absent}, which does not exist, silently ran elsewhere"
        tally.fail("op-placement", f"an op for {absent}, {mode}", "an error", "a result", message)


def _beyond_the_last(devices: Devices) -> str:
    """The name of a device that would be next: on the next server, where each is on a server of its own."""
    last = devices[-1].parsed
    if devices[-1].kind in ("core", "remote"):
        tasks = [device.parsed.task or 0 for device in devices if device.parsed.job == last.job]
        return str(replace(last, task=max(tasks) + 1))
    return f"/device:{last.kind}:{len(tf.config.list_logical_devices(last.kind))}"


CHECK = Check(
    id="devices-distinct",
    title="the requested devices exist and are distinct",
    proves="each requested device exists, is distinct, runs the ops pinned to it and computes them correctly; a "
    "missing device is refused",
    minimum_devices=1,
    typical_s=0.5,
    run=run,
)
