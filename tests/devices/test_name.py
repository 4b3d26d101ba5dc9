from __future__ import annotations

import pytest

from harness.devices.name import DeviceName
from harness.errors import InvalidDeviceName


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("/job:localhost/replica:0/task:0/device:CPU:3", ("localhost", 0, 0, "CPU", 3)),
        ("/device:GPU:10", (None, None, None, "GPU", 10)),
        ("gpu:1", (None, None, None, "GPU", 1)),
        ("/CPU:0", (None, None, None, "CPU", 0)),
        ("/job:worker/task:1", ("worker", None, 1, None, None)),
        ("/job:*/device:CPU:*", (None, None, None, "CPU", None)),
        ("/device:XLA_CPU:0", (None, None, None, "XLA_CPU", 0)),
        ("", (None, None, None, None, None)),
    ],
)
def test_a_device_name_is_read_field_by_field(text: str, fields: tuple[object, ...]) -> None:
    name = DeviceName.parse(text)
    assert (name.job, name.replica, name.task, name.kind, name.index) == fields


@pytest.mark.parametrize("text", ["CPU", "/CPU:x", "/device:CPU:0/device:CPU:1", "/jub:a", "CPU:0 ", "/"])
def test_what_is_not_a_device_name_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InvalidDeviceName, match="accepted") as caught:
        DeviceName.parse(text)
    assert caught.value.text == text


def test_a_device_matches_a_request_only_where_each_field_is_the_same() -> None:
    device = DeviceName.parse("/job:localhost/replica:0/task:0/device:GPU:10")
    assert device.matches(DeviceName.parse("GPU:10"))
    assert device.matches(DeviceName.parse(""))
    assert not device.matches(DeviceName.parse("GPU:1"))
    assert not device.matches(DeviceName.parse("CPU:10"))
    assert not device.matches(DeviceName.parse("/job:worker/GPU:10"))


def test_the_full_name_and_the_short_name_come_back() -> None:
    full = "/job:localhost/replica:0/task:0/device:CPU:3"
    assert str(DeviceName.parse(full)) == full
    assert DeviceName.parse(full).short == "CPU:3"
    assert DeviceName.parse("/job:worker/task:1/CPU:0").short == "worker/1/CPU:0"
