"""What is asked for: a spec, with its profile read where it names one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from harness.devices.profile import Options, find_profile, load_profile
from harness.devices.spec import DeviceSpec, ProfileFile, ShippedProfile, parse_spec


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. ``text`` is how it was written; two requests are the same whatever way they were written."""

    spec: DeviceSpec
    options: Options = field(default_factory=Options)
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        spec = str(self.spec)
        return spec if self.text in ("", spec) else f"{self.text} ({spec})"


def resolve(spec: str | os.PathLike[str]) -> Request:
    """Parse a spec, and read the profile that it names, if any. TensorFlow is not loaded.

    Raises:
        InvalidSpec: the spec does not follow the grammar, or its profile is not there.
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
