"""A request: a spec, with its profile read where it names one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from harness.devices.inventory import Inventory
from harness.devices.kinds.kind import DeviceSpec
from harness.devices.plan import Options, Plan
from harness.devices.profile import find_profile, load_profile
from harness.devices.spec import ProfileFile, ShippedProfile, parse_spec


@dataclass(frozen=True, slots=True)
class Request:
    """The devices that are requested. Two requests are equal whatever their ``text``, which is how it was written."""

    spec: DeviceSpec
    options: Options = field(default_factory=Options)
    text: str = field(default="", compare=False)

    def plan(self, inventory: Inventory) -> Plan:
        """Decide which devices to configure. Raise DevicesUnavailable if fewer devices are available than requested."""
        return self.spec.plan(self, inventory)

    def __str__(self) -> str:
        spec = str(self.spec)
        return spec if self.text in ("", spec) else f"{self.text} ({spec})"


def resolve(spec: str | os.PathLike[str]) -> Request:
    """Parse a spec, and read the profile that it names, if any. TensorFlow is not loaded.

    Raises:
        InvalidSpec: the spec does not follow the grammar, or its profile does not exist.
        InvalidProfile: the profile is broken.
    """
    parsed = parse_spec(spec)
    if isinstance(parsed, ShippedProfile):
        profile = load_profile(find_profile(parsed))
    elif isinstance(parsed, ProfileFile):
        profile = load_profile(parsed.path)
    else:
        return Request(parsed, text=str(parsed))
    return Request(profile.spec, profile.options, text=str(parsed))
