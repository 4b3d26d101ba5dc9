"""Profiles made by hand: two devices that compute side by side, and what a test changes in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.speed.timeline.record import DeviceTimes, HostTimes, Profile

MS = 1_000_000
CPU = "/job:localhost/replica:0/task:0/device:CPU:{}"

HOST = HostTimes(alone_ns=4 * MS, input_ns=0, tracing_ns=0, convert_ns=0, calls_traced=0, traced=(), reads=0)


def times(index: int, **changed: Any) -> DeviceTimes:
    """A device that computes for 90 of 100 ms, forward and backward."""
    healthy = DeviceTimes(
        device=CPU.format(index),
        listed=True,
        compute_ns=90 * MS,
        transfer_ns=2 * MS,
        collective_ns=0,
        input_ns=0,
        busy_ns=91 * MS,
        host_ns=4 * MS,
        waiting_ns=5 * MS,
        idle_share=0.09,
        ops=100,
        eager_ops=0,
        forward_ops=6,
        gradient_ops=5,
    )
    return replace(healthy, **changed)


def profile(*devices: DeviceTimes, host: HostTimes = HOST, **changed: Any) -> Profile:
    """Ten calls of 10 ms; by default on two healthy devices that overlap as much as they can."""
    listed = devices or (times(0), times(1))
    healthy = Profile(
        target="program.py:step",
        spec="cpu:2",
        devices=tuple(each.device for each in listed if each.listed),
        calls=10,
        wall_ns=100 * MS,
        times=listed,
        host=host,
        overlap_share=0.85,
        possible_overlap_share=0.9,
        unattributed_ns=0,
        unattributed_ops=0,
    )
    return replace(healthy, **changed)
