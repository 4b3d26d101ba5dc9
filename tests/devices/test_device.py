from __future__ import annotations

from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName


def _devices(count: int) -> Devices:
    return Devices(
        (
            Device(f"/job:localhost/replica:0/task:0/device:CPU:{i}", "logical-cpu", "/physical_device:CPU:0")
            for i in range(count)
        ),
        spec=f"cpu:{count}",
        reason="as asked",
    )


def test_devices_are_a_sequence_and_a_slice_of_them_is_too() -> None:
    devices = _devices(4)
    assert len(devices) == 4
    assert devices[3].name == "/job:localhost/replica:0/task:0/device:CPU:3"
    part = devices[1:3]
    assert isinstance(part, Devices)
    assert [device.parsed for device in part] == [DeviceName("localhost", 0, 0, "CPU", i) for i in (1, 2)]
    assert (part.spec, part.reason, part.host) == (devices.spec, devices.reason, devices.host)
    assert part == devices[1:3]
    assert part != devices[0:2]
    assert hash(part) == hash(devices[1:3])
    assert devices[1] in part
    assert devices[0] not in part


def test_devices_print_as_people_write_them() -> None:
    assert repr(_devices(2)) == "Devices(CPU:0, CPU:1; spec='cpu:2')"
