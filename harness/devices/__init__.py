"""Which devices are there? Names, specs, profiles, and the one place that configures TensorFlow's devices.

Importing this loads neither TensorFlow nor Pydantic.
"""

from harness.devices.device import Device, DeviceKind, Devices
from harness.devices.measuring import MeasuringSpec, measuring_spec
from harness.devices.name import DeviceName
from harness.devices.profile import Profile, shipped_profiles
from harness.devices.runtime import configure, current, server_process
from harness.devices.spec import parse_spec

__all__ = [
    "Device",
    "DeviceKind",
    "DeviceName",
    "Devices",
    "MeasuringSpec",
    "Profile",
    "configure",
    "current",
    "measuring_spec",
    "parse_spec",
    "server_process",
    "shipped_profiles",
]
