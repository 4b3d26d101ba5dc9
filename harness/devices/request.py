"""Resolves a spec to a request: parsed, with its profile read where it names one."""

from __future__ import annotations

import os
from collections.abc import Mapping

from harness.devices.kinds.kind import Request
from harness.devices.profile import find_profile, load_profile
from harness.devices.spec import ProfileFile, ShippedProfile, parse_spec
from harness.errors import UsageError

#: What TensorFlow accepts, in any case (``ReadBoolFromEnvVar``). A variable that is empty has another value.
ACCEPTED = ("0", "1", "true", "false")
#: Those whose value TensorFlow reads within ``TF_CHECK_OK``, which ends the process; the others it ignores.
SWITCHES = (
    "TF_DETERMINISTIC_OPS",
    "TF_DETERMINISTIC_ORDER",
    "TF_CUDNN_DETERMINISTIC",
    "TF_USE_CUBLASLT",
    "TF_USE_DEFAULT_CONV_ALGO",
    "TF_ENABLE_ASYNC_WAIT_FOR_REMOTE_FUNCTION",
    "TF_ENABLE_MAXPOOL_NANPROP",
    "TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE",
    "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS",
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
    "DTENSOR_USE_ALL_TO_ALL_RELAYOUT",
)


def check_switches(environment: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError for a variable with a value that ends TensorFlow's process."""
    for name in SWITCHES:
        value = environment.get(name)
        if value is not None and value.lower() not in ACCEPTED:
            raise UsageError(
                f"environment variable {name}={value!r}; accepted: {', '.join(ACCEPTED)}; with another value "
                "TensorFlow aborts: set one of these, or unset the variable"
            )


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
