"""Variables of the environment that are true or false. With any other value TensorFlow aborts the process."""

from __future__ import annotations

import os
from collections.abc import Mapping

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
