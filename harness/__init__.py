"""Test-and-profiling harness for device placement correctness of TensorFlow programs.

Importing this package loads neither TensorFlow nor pytest: each public name loads what it needs when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import distribute, strategies
    from harness.devices.device import Device, Devices
    from harness.devices.name import DeviceName
    from harness.devices.runtime import configure
    from harness.errors import (
        DevicesAlreadyConfigured,
        DevicesUnavailable,
        EnsembleError,
        EvidenceError,
        HarnessError,
        InvalidProfile,
        InvalidSpec,
        OutputsDiffer,
        ShardingError,
        StageError,
        TensorFlowInterfaceChanged,
        TrainingError,
        UnknownStrategy,
        UsageError,
        VerificationError,
    )
    from harness.evidence.trace import Trace, trace
    from harness.judgement.verification import Verification
    from harness.judgement.verify import assert_parallel, verify
    from harness.parallel.data import make_parallel
    from harness.parallel.ensemble import ensemble
    from harness.parallel.gradients import colocate_gradients
    from harness.parallel.model import pipeline
    from harness.records import Exercised, Finding, Verdict
    from harness.speed.measure import measure_speedup
    from harness.speed.record import SpeedupRecord
    from harness.speed.work import Work

_HOME = {
    "Device": "harness.devices.device",
    "DeviceName": "harness.devices.name",
    "Devices": "harness.devices.device",
    "DevicesAlreadyConfigured": "harness.errors",
    "DevicesUnavailable": "harness.errors",
    "EvidenceError": "harness.errors",
    "EnsembleError": "harness.errors",
    "Exercised": "harness.records",
    "Finding": "harness.records",
    "HarnessError": "harness.errors",
    "InvalidProfile": "harness.errors",
    "InvalidSpec": "harness.errors",
    "OutputsDiffer": "harness.errors",
    "ShardingError": "harness.errors",
    "SpeedupRecord": "harness.speed.record",
    "StageError": "harness.errors",
    "TensorFlowInterfaceChanged": "harness.errors",
    "Trace": "harness.evidence.trace",
    "TrainingError": "harness.errors",
    "UnknownStrategy": "harness.errors",
    "UsageError": "harness.errors",
    "Verdict": "harness.records",
    "Verification": "harness.judgement.verification",
    "VerificationError": "harness.errors",
    "Work": "harness.speed.work",
    "assert_parallel": "harness.judgement.verify",
    "colocate_gradients": "harness.parallel.gradients",
    "configure": "harness.devices.runtime",
    "ensemble": "harness.parallel.ensemble",
    "make_parallel": "harness.parallel.data",
    "measure_speedup": "harness.speed.measure",
    "pipeline": "harness.parallel.model",
    "trace": "harness.evidence.trace",
    "verify": "harness.judgement.verify",
}

#: Public modules.
_MODULES = ("distribute", "strategies")

__all__ = [
    "Device",
    "DeviceName",
    "Devices",
    "DevicesAlreadyConfigured",
    "DevicesUnavailable",
    "EnsembleError",
    "EvidenceError",
    "Exercised",
    "Finding",
    "HarnessError",
    "InvalidProfile",
    "InvalidSpec",
    "OutputsDiffer",
    "ShardingError",
    "SpeedupRecord",
    "StageError",
    "TensorFlowInterfaceChanged",
    "Trace",
    "TrainingError",
    "UnknownStrategy",
    "UsageError",
    "Verdict",
    "Verification",
    "VerificationError",
    "Work",
    "assert_parallel",
    "colocate_gradients",
    "configure",
    "distribute",
    "ensemble",
    "make_parallel",
    "measure_speedup",
    "pipeline",
    "strategies",
    "trace",
    "verify",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"harness.{name}")
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'harness' has no attribute {name!r}; public names: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
