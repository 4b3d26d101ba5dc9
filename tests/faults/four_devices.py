"""A pytest plug-in of the planted faults: the devices they run on, which TensorFlow fixes once per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import harness


@pytest.fixture(scope="session")
def four_cpus(spec_of: Callable[[int], str]) -> Iterator[harness.Devices]:
    """Four devices of the session's kind. Soft placement is as the harness leaves it, before the tests and after."""
    import tensorflow as tf

    devices = harness.configure(spec_of(4))
    assert [device.parsed.index for device in devices] == [0, 1, 2, 3]
    assert tf.config.get_soft_device_placement() is False
    yield devices
    assert tf.config.get_soft_device_placement() is False
