"""A pytest plug-in of the planted faults: the devices they run on, which TensorFlow fixes once per process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import harness


@pytest.fixture(scope="session")
def four_cpus() -> Iterator[harness.Devices]:
    """Four logical CPUs. Soft placement is as the harness leaves it, before the tests and after them."""
    import tensorflow as tf

    devices = harness.configure("cpu:4")
    assert [device.parsed.short for device in devices] == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert tf.config.get_soft_device_placement() is False
    yield devices
    assert tf.config.get_soft_device_placement() is False
