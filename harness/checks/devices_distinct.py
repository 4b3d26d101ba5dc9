"""The devices asked for exist, are distinct, compute, and an absent one is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from harness.checking.check import Check, CheckContext, CheckOutcome
from harness.checking.tally import Tally
from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.records import Exercised, Finding, Verdict


def run(context: CheckContext) -> CheckOutcome:
    """Run an op on each device, in eager code and in a graph, and one on a device that does not exist."""
    tally = Tally()
    _judge_names(context.devices, tally)
    for index, device in enumerate(context.devices):
        for mode in ("eager", "graph"):
            _judge_device(device, index, mode, tally)
    tally.require_devices(context.devices)
    _judge_absent(context.devices, tally)
    count = len(context.devices)
    return tally.outcome(
        f"{count} distinct device{'' if count == 1 else 's'}; each ran its own op with the right result; "
        "an absent one is refused",
        "compare with `harness devices`; configure the devices before anything else uses TensorFlow",
    )


def _judge_names(devices: Devices, tally: Tally) -> None:
    """Names are unique and known to TensorFlow; real GPUs lie on cards of their own."""
    import tensorflow as tf

    # TensorFlow leaves the host out of the names of its own devices, so they are compared as parsed.
    known = {DeviceName.parse(device.name).short for device in tf.config.list_logical_devices()}
    seen: dict[str, int] = {}
    cards: dict[str, str] = {}
    for index, device in enumerate(devices):
        if device.name in seen:
            tally.found(_unused(device, index, f"the same device as number {seen[device.name]}"))
        seen.setdefault(device.name, index)
        if device.kind == "gpu" and cards.setdefault(device.physical, device.name) != device.name:
            tally.found(_unused(device, index, f"on the same card as {cards[device.physical]}"))
        if device.parsed.short not in known:
            tally.found(_unused(device, index, f"not among TensorFlow's logical devices: {', '.join(sorted(known))}"))


def _unused(device: Device, index: int, found: str) -> Finding:
    return Finding(
        kind="unused-device",
        where=f"device number {index}",
        device=device.name,
        expected="a device of its own",
        found=found,
        message=f"{device.name} is {found}",
    )


def _judge_device(device: Device, index: int, mode: str, tally: Tally) -> None:
    """A product computed on ``device`` is right, and TensorFlow's own record says that it ran there."""
    from harness.evidence.trace import trace

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
        tally.found(
            Finding(
                kind="op-placement",
                where=where,
                device=str(op.device),
                expected=device.name,
                found=str(op.device),
                message=f"asked to run on {device.name}, ran on {op.device}",
            )
        )
    result = np.asarray(traced.outputs)
    wanted = left @ right
    if result.shape != wanted.shape or not np.array_equal(result, wanted):
        tally.found(
            Finding(
                kind="value",
                where=where,
                device=device.name,
                expected=str(wanted.tolist()),
                found=str(result.tolist()),
                message="a product of small whole numbers is wrong",
            )
        )
    proven = tuple(sorted({str(op.device) for op in ran}))
    tally.count(Exercised(values=int(wanted.size), ops=len(ran), devices=proven))


def _product(device: str, mode: str) -> Any:
    """A function that multiplies two matrices on ``device``: as it is, or as a graph."""
    import tensorflow as tf

    def product(left: Any, right: Any) -> Any:
        with tf.device(device):
            return tf.matmul(left, right)

    return tf.function(product) if mode == "graph" else product


def _judge_absent(devices: Devices, tally: Tally) -> None:
    """An op for a device beyond the last one raises."""
    import tensorflow as tf

    if tf.config.get_soft_device_placement():
        tally.found(
            Finding(
                kind="op-placement",
                where="soft placement",
                device=None,
                expected="off",
                found="on",
                message="soft placement is on: an op for an absent device runs elsewhere without a word",
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
        tally.found(
            Finding(
                kind="op-placement",
                where=f"an op for the absent {absent}, {mode}",
                device=None,
                expected="an error",
                found="a result",
                message=f"an op for {absent}, which does not exist, ran elsewhere without a word",
            )
        )


def _beyond_the_last(devices: Devices) -> str:
    """The name of a device that would be next: on the next server, where each is on a server of its own."""
    import tensorflow as tf

    last = devices[-1].parsed
    if devices[-1].kind in ("core", "remote"):
        tasks = [device.parsed.task or 0 for device in devices if device.parsed.job == last.job]
        return str(replace(last, task=max(tasks) + 1))
    return f"/device:{last.kind}:{len(tf.config.list_logical_devices(last.kind))}"


CHECK = Check(
    id="devices-distinct",
    title="the devices asked for exist and are distinct",
    proves="each device asked for exists, is another one than the rest, runs the ops it is given and gets them right; "
    "an absent device is refused",
    minimum_devices=1,
    typical_s=1,
    run=run,
)
