"""Test-and-profiling harness for device placement correctness of TensorFlow programs.

Importing this package loads neither TensorFlow nor pytest: each public name loads
what it needs on first use, and has a help text of its own, as in help(harness.verify).

    configure           the devices of a spec, such as "cpu:4"; Devices, Device, DeviceName
    verify              compare a program with a reference, and judge where its ops ran
    assert_parallel     verify, and raise VerificationError unless it passes
    prove               whether two programs compute the same for every input: a Proof
    trace               what ran where: a Trace
    write_report        the page, run.json and junit.xml of verifications
    load_run            the RunRecord in a run.json
    write_summaries     speedups, profiles, traces and verifications for TensorBoard

    make_parallel       run a function on several devices, each on its share of the rows
    pipeline            run stages one after the other, each on its device
    ensemble            run several models on the same arguments, each on its device
    colocate_gradients  run backward ops on the devices of their forward ops
    advise              try the ways to run a program on several devices: an Advice
    measure_speedup     the speedup of one program over another: a SpeedupRecord, of Work
    profile             where the time and the memory of a program go: a Profile
    Memory              the memory of devices, and what leaks

    Verification        what verify returns: a Verdict, each Finding, what was Exercised
    distribute          trainings under tf.distribute, compared with the single-device run
    strategies          Hypothesis strategies: device sets, batches, whole programs

Errors derive from HarnessError: DevicesAlreadyConfigured, DevicesUnavailable,
EnsembleError, EvidenceError, InvalidProfile, InvalidSpec, OutputsDiffer, ShardingError,
StageError, TensorFlowInterfaceChanged, TrainingError, UnknownStrategy, UsageError and
VerificationError.
"""

# Completion that reads this file offers the names without an underscore. Without ``__all__``, ``help(harness)`` is two
# screens: with it, pydoc prints all members of all classes.
import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from harness import distribute as distribute, strategies as strategies
    from harness.advice.advise import advise as advise
    from harness.advice.record import Advice as Advice
    from harness.devices.device import (
        Device as Device,
        Devices as Devices,
    )
    from harness.devices.name import DeviceName as DeviceName
    from harness.devices.runtime import configure as configure
    from harness.errors import (
        DevicesAlreadyConfigured as DevicesAlreadyConfigured,
        DevicesUnavailable as DevicesUnavailable,
        EnsembleError as EnsembleError,
        EvidenceError as EvidenceError,
        HarnessError as HarnessError,
        InvalidProfile as InvalidProfile,
        InvalidSpec as InvalidSpec,
        OutputsDiffer as OutputsDiffer,
        ShardingError as ShardingError,
        StageError as StageError,
        TensorFlowInterfaceChanged as TensorFlowInterfaceChanged,
        TrainingError as TrainingError,
        UnknownStrategy as UnknownStrategy,
        UsageError as UsageError,
        VerificationError as VerificationError,
    )
    from harness.evidence.trace import Trace as Trace
    from harness.evidence.tracing import trace as trace
    from harness.judgement.verification import Verification as Verification
    from harness.judgement.verify import (
        assert_parallel as assert_parallel,
        verify as verify,
    )
    from harness.parallel.data import make_parallel as make_parallel
    from harness.parallel.ensemble import ensemble as ensemble
    from harness.parallel.gradients import colocate_gradients as colocate_gradients
    from harness.parallel.model import pipeline as pipeline
    from harness.proof.claim import Proof as Proof, prove as prove
    from harness.records import (
        Exercised as Exercised,
        Finding as Finding,
        RunRecord as RunRecord,
        Verdict as Verdict,
    )
    from harness.report.storage import load_run as load_run
    from harness.report.summaries import write_summaries as write_summaries
    from harness.report.verifications import write_report as write_report
    from harness.speed.measure import measure_speedup as measure_speedup
    from harness.speed.memory.memory import Memory as Memory
    from harness.speed.record import SpeedupRecord as SpeedupRecord, Work as Work
    from harness.speed.timeline.profile import profile as profile
    from harness.speed.timeline.record import Profile as Profile

#: The public names by the module that has them.
_NAMES = {
    "harness": ("distribute", "strategies"),
    "harness.advice.advise": ("advise",),
    "harness.advice.record": ("Advice",),
    "harness.devices.device": ("Device", "Devices"),
    "harness.devices.name": ("DeviceName",),
    "harness.devices.runtime": ("configure",),
    "harness.errors": (
        "DevicesAlreadyConfigured",
        "DevicesUnavailable",
        "EnsembleError",
        "EvidenceError",
        "HarnessError",
        "InvalidProfile",
        "InvalidSpec",
        "OutputsDiffer",
        "ShardingError",
        "StageError",
        "TensorFlowInterfaceChanged",
        "TrainingError",
        "UnknownStrategy",
        "UsageError",
        "VerificationError",
    ),
    "harness.evidence.trace": ("Trace",),
    "harness.evidence.tracing": ("trace",),
    "harness.judgement.verification": ("Verification",),
    "harness.judgement.verify": ("assert_parallel", "verify"),
    "harness.parallel.data": ("make_parallel",),
    "harness.parallel.ensemble": ("ensemble",),
    "harness.parallel.gradients": ("colocate_gradients",),
    "harness.parallel.model": ("pipeline",),
    "harness.proof.claim": ("Proof", "prove"),
    "harness.records": ("Exercised", "Finding", "RunRecord", "Verdict"),
    "harness.report.storage": ("load_run",),
    "harness.report.summaries": ("write_summaries",),
    "harness.report.verifications": ("write_report",),
    "harness.speed.measure": ("measure_speedup",),
    "harness.speed.memory.memory": ("Memory",),
    "harness.speed.record": ("SpeedupRecord", "Work"),
    "harness.speed.timeline.profile": ("profile",),
    "harness.speed.timeline.record": ("Profile",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__version__ = "0.2.0"


def __getattr__(name: str) -> _typing.Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'harness' has no attribute {name!r}; public names: {', '.join(sorted(_HOME))}")
    if home == "harness":
        return _importlib.import_module(f"harness.{name}")
    value = globals()[name] = getattr(_importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return [*sorted(_HOME), "__version__"]
