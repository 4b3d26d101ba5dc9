"""Resolves a spec to a request: parsed, with its profile read where it names one."""

from __future__ import annotations

import os

from harness.devices.kinds.kind import Request
from harness.devices.profile import find_profile, load_profile
from harness.devices.spec import ProfileFile, ShippedProfile, parse_spec
from harness.devices.switches import check_switches


def resolve(spec: str | os.PathLike[str]) -> Request:
    """Parse a spec, and read the profile that it names, if any. TensorFlow is not loaded.

    Raises:
        InvalidSpec: the spec does not follow the grammar, or its profile does not exist.
        InvalidProfile: the profile is broken.
        UsageError: a variable of the environment would abort TensorFlow.
    """
    check_switches()
    parsed = parse_spec(spec)
    if isinstance(parsed, ShippedProfile):
        profile = load_profile(find_profile(parsed))
    elif isinstance(parsed, ProfileFile):
        profile = load_profile(parsed.path)
    else:
        return Request(parsed, text=str(parsed))
    return Request(profile.spec, profile.options, text=str(parsed))
