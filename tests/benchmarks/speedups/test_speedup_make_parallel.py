"""``make_parallel``: forward, and a training step whose gradients are taken beside their forward ops or are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dense import Dense
from programs import SEVERAL

import harness

Speedup = Callable[..., harness.SpeedupRecord]


@pytest.mark.devices(min=SEVERAL)
def test_forward(speedup: Speedup, devices: harness.Devices) -> None:
    dense = Dense(devices)
    split = harness.make_parallel(dense.forward, devices)
    record = speedup(
        dense.forward_on(dense.forward),
        dense.forward_on(lambda x: split(x=x)),
        devices=devices,
        work=harness.Work(flops=dense.forward_flops),
    )
    assert record.transfers != 0


@pytest.mark.devices(min=SEVERAL)
def test_training_step_against_one_device(speedup: Speedup, devices: harness.Devices) -> None:
    alone, together = Dense(devices), Dense(devices)
    split = harness.make_parallel(together.loss_per_row, devices)
    record = speedup(
        alone.step_of(alone.loss_per_row),
        together.step_of(lambda x: split(x=x)),
        devices=devices,
        work=harness.Work(flops=3 * alone.forward_flops),
    )
    assert record.transfers != 0


@pytest.mark.devices(min=SEVERAL)
def test_training_step_against_a_tape_outside_of_the_scopes(speedup: Speedup, devices: harness.Devices) -> None:
    """The harm of gradients in the wrong place: both sides split the forward pass, one alone the backward pass.

    So the baseline runs on all devices, and the record says so.
    """
    by_hand, together = Dense(devices), Dense(devices)
    split = harness.make_parallel(together.loss_per_row, devices)
    record = speedup(
        by_hand.step_of(by_hand.split_by_hand),
        together.step_of(lambda x: split(x=x)),
        devices=devices,
        work=harness.Work(flops=3 * by_hand.forward_flops),
    )
    assert record.transfers != 0
