from __future__ import annotations

from collections import Counter

import pytest

from harness.devices.device import Device, Devices
from harness.errors import UsageError
from harness.strategies import device_sets, explore, sample

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
CPUS = Devices(
    [Device(HOST[:-1] + str(index), "logical-cpu", "/physical_device:CPU:0") for index in range(4)],
    spec="cpu:4",
    reason="asked for",
    host=HOST,
)


def test_device_sets_are_distinct_devices_of_all_sizes_in_any_order() -> None:
    drawn = sample(device_sets(CPUS), 200)
    assert all(isinstance(devices, Devices) and len(set(devices.names)) == len(devices) >= 1 for devices in drawn)
    assert all(set(devices) <= set(CPUS) for devices in drawn)
    sizes = Counter(len(devices) for devices in drawn)
    assert min(sizes[size] for size in (1, 2, 3, 4)) >= 10
    orders = {devices.names for devices in drawn}
    assert CPUS.names in orders
    assert any(list(names) != sorted(names) for names in orders)


def test_device_sets_keep_spec_reason_and_host() -> None:
    devices = sample(device_sets(CPUS, min_size=3), 1)[0]
    assert (devices.spec, devices.reason, devices.host) == ("cpu:4", "asked for", HOST)


def test_device_sets_keep_to_the_sizes_asked_for() -> None:
    assert {len(devices) for devices in sample(device_sets(CPUS, min_size=2, max_size=3), 60)} == {2, 3}


def test_a_spec_is_no_devices() -> None:
    with pytest.raises(UsageError, match="devices='cpu:2'; accepted: what"):
        device_sets("cpu:2")  # type: ignore[arg-type]


def test_device_sets_shrink_to_the_first_device_or_to_the_first_that_fail() -> None:
    def never(devices: Devices) -> None:
        raise AssertionError

    def needs_two(devices: Devices) -> None:
        assert len(devices) < 2

    failure = explore(never, device_sets(CPUS), examples=20).failure
    assert failure is not None
    assert failure.example == CPUS[:1]
    failure = explore(needs_two, device_sets(CPUS), examples=40).failure
    assert failure is not None
    assert failure.example == CPUS[:2]


@pytest.mark.parametrize(("least", "most"), [(0, None), (5, None), (1, 5), (3, 2)])
def test_sizes_that_cannot_be_had_are_refused(least: int, most: int | None) -> None:
    with pytest.raises(UsageError, match=r"min_size=.*accepted"):
        device_sets(CPUS, min_size=least, max_size=most)
    with pytest.raises(UsageError, match=r"devices=\(\) is empty"):
        device_sets(CPUS[:0])
