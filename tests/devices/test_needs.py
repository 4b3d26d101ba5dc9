from __future__ import annotations

from typing import Any

import pytest

from harness.devices.device import Device, DeviceKind, Devices
from harness.devices.needs import KINDS, Needs, describe, parse_needs
from harness.errors import UsageError


def _devices(count: int, kind: DeviceKind) -> Devices:
    letter = "CPU" if kind == "logical-cpu" else "GPU"
    each = [Device(f"/device:{letter}:{i}", kind, f"/physical_device:{letter}:0") for i in range(count)]
    return Devices(each, spec="a spec")


def test_the_kinds_are_those_of_devices() -> None:
    assert KINDS == ("logical-cpu", "logical-gpu", "gpu", "software-gpu", "core", "remote")


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ({}, Needs(1, ())),
        ({"min": 2}, Needs(2, ())),
        ({"kind": "gpu"}, Needs(1, ("gpu",))),
        ({"min": 2, "kind": None}, Needs(2, ())),
        ({"min": 3, "kind": ["gpu", "logical-gpu"]}, Needs(3, ("gpu", "logical-gpu"))),
    ],
)
def test_needs_are_read(arguments: dict[str, Any], needs: Needs) -> None:
    assert parse_needs((), arguments) == needs


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((2,), {}, "devices(2): the marker takes keyword arguments only"),
        ((), {"minimum": 2}, "devices(minimum=2): unknown argument minimum"),
        ((), {"min": "2"}, "min='2' is not a valid number of devices"),
        ((), {"min": 2.0}, "min=2.0 is not"),
        ((), {"min": True}, "min=True is not"),
        ((), {"min": 0}, "min=0 is not"),
        ((), {"kind": "tpu"}, "kind='tpu' is unknown"),
        ((), {"kind": []}, "kind=[] names no kind"),
        ((), {"kind": ["gpu", 3]}, "kind=3 is unknown"),
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(
    args: tuple[object, ...], kwargs: dict[str, object], why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_needs(args, kwargs)
    assert why in str(caught.value)
    assert "accepted: devices(min=N, kind=K)" in str(caught.value)
    assert "logical-cpu, logical-gpu, gpu, software-gpu, core, remote" in str(caught.value)


def test_needs_are_met_by_enough_devices_of_the_kinds_that_count() -> None:
    assert Needs(2).met_by(_devices(2, "logical-cpu"))
    assert not Needs(3).met_by(_devices(2, "logical-cpu"))
    assert Needs(2, ("gpu",)).met_by(_devices(2, "gpu"))
    assert Needs(2, ("gpu",)).met_by(_devices(2, "software-gpu"))
    assert not Needs(2, ("gpu",)).met_by(_devices(1, "software-gpu"))
    assert not Needs(2, ("software-gpu",)).met_by(_devices(8, "gpu"))
    assert not Needs(2, ("gpu",)).met_by(_devices(8, "logical-gpu"))
    assert Needs(2, ("gpu", "logical-gpu")).met_by(_devices(2, "logical-gpu"))


def test_needs_and_devices_are_described() -> None:
    assert str(Needs(2)) == "2 devices"
    assert str(Needs(2, ("gpu", "remote"))) == "2 gpu or remote devices"
    assert describe(_devices(3, "logical-gpu")) == "3 logical-gpu devices from a spec"
