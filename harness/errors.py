"""The errors that the harness raises on purpose: one root, and each error carries its data as attributes.

A message is one line: what was given, what is accepted, what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.tensorflow_version import SUPPORTED

if TYPE_CHECKING:
    from harness.records import Finding


class HarnessError(Exception):
    """Root of every error that the harness raises on purpose."""

    if not TYPE_CHECKING:
        # AutoGraph gives the caller of a tf.function an error of the same class only where it sees this constructor.
        __init__ = Exception.__init__


class UsageError(HarnessError):
    """The caller's input cannot be used: the command line exits with code 2."""


class FileProblem(UsageError):
    """A file or folder cannot be used. ``MESSAGE`` is the text of its class, from ``path`` and ``why``."""

    MESSAGE = "{path}: {why}"

    def __init__(self, path: Path | str, why: str) -> None:
        self.path = str(path)
        self.why = why
        super().__init__(self.MESSAGE.format(path=self.path, why=why))


class MissingExtra(UsageError, ModuleNotFoundError):
    """A package is missing that an extra installs."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = self.name = package
        self.extra = extra
        super().__init__(f"{package} is not installed; run: python -m pip install 'tf-placement-harness[{extra}]'")


class InvalidDeviceName(UsageError, ValueError):
    """A text is not a TensorFlow device name."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"device name {text!r} is not valid; accepted: '/job:J/replica:R/task:T/device:KIND:INDEX' "
            "or a part of it, such as 'CPU:1' or '/GPU:0'"
        )


class InvalidSpec(UsageError, ValueError):
    """A device spec cannot be used. ``accepted`` is empty where no list of forms would help."""

    def __init__(self, spec: str, why: str, accepted: str = "") -> None:
        self.spec = spec
        self.why = why
        self.accepted = accepted
        super().__init__(f"device spec {spec!r}: {why}" + (f"; accepted: {accepted}" if accepted else ""))


class InvalidRequirement(UsageError, ValueError):
    """A requirement on the machine cannot be parsed."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"requirement {text!r} is not valid; accepted: gpu=N, core=N (CPU cores) or device=N (configured devices), "
            "with = or >= for at least N and == for exactly N; in a shell, quote 'gpu>=N'"
        )


class InvalidProfile(UsageError, ValueError):
    """A profile file is broken. The message names the file, the key, and what is accepted there.

    ``found`` is ``None`` where the key is missing: TOML itself has no such value. If the file cannot be read at all,
    ``key`` is empty and ``found`` is the reason.
    """

    #: What kind of file it is.
    WHAT = "profile"

    def __init__(self, path: Path | str, key: str, found: object, accepted: str) -> None:
        self.path = str(path)
        self.key = key
        self.found = found
        self.accepted = accepted
        what = f"{key} is missing" if found is None else f"{key} = {found!r}" if key else str(found)
        super().__init__(f"{self.WHAT} {self.path}: {what}; accepted: {accepted}")


class InvalidDescription(InvalidProfile):
    """A file that describes a machine for ``--fake`` is broken."""

    WHAT = "description"


class InvalidSettings(InvalidProfile):
    """The settings of a project are broken."""

    WHAT = "settings"


class InvalidKnownFailures(InvalidProfile):
    """A file of failures that are accepted is broken."""

    WHAT = "known failures"


class InvalidPolicy(InvalidProfile):
    """A file with the policy of a fleet is broken."""

    WHAT = "policy"


class DevicesAlreadyConfigured(HarnessError, RuntimeError):
    """TensorFlow's runtime has started with another configuration, which it keeps until the process ends."""

    def __init__(self, current: str, asked: str) -> None:
        self.current = current
        self.asked = asked
        super().__init__(
            f"devices are already configured as {current}; requested: {asked}; TensorFlow fixes its devices once per "
            "process: request the same devices, call harness.configure before anything else uses TensorFlow, or use a "
            "fresh process"
        )


class DevicesUnavailable(HarnessError, RuntimeError):
    """Fewer devices are available than requested. ``advice``: what to do, where fewer devices would not help."""

    #: The advice where no device of the kind is available.
    USE_CPUS = "request logical CPUs with 'cpu:N'"

    def __init__(self, asked: str, needed: str, available: Sequence[str], advice: str = "") -> None:
        self.asked = asked
        self.needed = needed
        self.available = tuple(available)
        self.advice = advice or "request fewer devices, or logical CPUs with 'cpu:N'"
        super().__init__(
            f"device spec {asked!r} needs {needed}; available: {', '.join(self.available) or 'none'}; {self.advice}"
        )


class SoftwareGpusUnavailable(HarnessError, RuntimeError):
    """This process cannot have software GPUs. ``why`` is the cause, ``remedy`` what to do about it."""

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy
        super().__init__(f"software GPUs are unavailable: {why}; {remedy}")


class CoreServerFailed(HarnessError, RuntimeError):
    """The TensorFlow server of a device of ``cores:N`` did not start. ``log``: the end of its output."""

    def __init__(self, cpu: int, what: str, log: str) -> None:
        self.cpu = cpu
        self.what = what
        self.log = log
        output = f"its output: {log}" if log else "it wrote no output"
        super().__init__(
            f"the TensorFlow server on CPU {cpu} {what}; {output}; free memory or end processes on this machine, or use"
            " logical CPUs with 'cpu:N'"
        )


class HostUnreachable(HarnessError, RuntimeError):
    """No TensorFlow server can be used on a host of a cluster. ``hosts``: one text for each that fails."""

    START = (
        "start `harness serve --bind ADDRESS --port PORT` on each host named here, and check that no firewall blocks "
        "the port"
    )
    #: The advice where the servers answer.
    RESTART = "restart `harness serve` on each host named here, and check that the hosts can reach each other's ports"

    def __init__(self, asked: str, hosts: Sequence[str], advice: str = START) -> None:
        self.asked = asked
        self.hosts = tuple(hosts)
        super().__init__(f"device spec {asked!r}: {'; '.join(self.hosts)}; {advice}")


class ServerNotStarted(UsageError, RuntimeError):
    """``harness serve`` cannot serve on this host. ``port``: the requested one, 0 for any."""

    def __init__(self, port: int, why: str) -> None:
        self.port = port
        self.why = why
        which = f"port {port}" if port else "any port"
        free = "leave --port out to use a free port, and " if port else ""
        super().__init__(
            f"TensorFlow's server cannot start on {which}: {why}; {free}check that TensorFlow is installed"
        )


class ShardingError(UsageError, ValueError):
    """The arguments or results of a data-parallel call cannot be split or joined."""


class StageError(UsageError, ValueError):
    """The stages of a pipeline do not fit their devices, one another, or what the pipeline is called with."""


class EnsembleError(UsageError, ValueError):
    """The models of an ensemble do not fit their devices, or what the ensemble is called with."""


class TrainingError(UsageError, ValueError):
    """A training cannot run under a strategy: its build function, what that returns, or its data is unsuitable."""


class UnknownStrategy(UsageError, LookupError):
    """No strategy of this name is known, or none that supports the request."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"strategy {name!r} is not known; accepted: {', '.join(self.known)}")


class StrategyTaken(UsageError, RuntimeError):
    """A process already has a TensorFlow strategy, and cannot have a second one."""

    def __init__(self, asked: str, taken: str) -> None:
        self.asked = asked
        self.taken = taken
        super().__init__(
            f"strategy {asked}: this process already has {taken}, and the collectives of two strategies collide; use a "
            "fresh process for each strategy, as harness.distribute.equivalent does"
        )


class EvidenceError(HarnessError, RuntimeError):
    """TensorFlow's execution could not be recorded."""


class TensorFlowInterfaceChanged(EvidenceError):
    """TensorFlow's private interface differs from the one that this version of the harness knows."""

    def __init__(self, name: str, expected: str, found: str) -> None:
        self.name = name
        self.expected = expected
        self.found = found
        super().__init__(
            f"TensorFlow's private interface {name} is not as expected: expected {expected}, found {found}; "
            f"use TensorFlow {SUPPORTED}, or a newer harness"
        )


class InvalidRecord(FileProblem, ValueError):
    """A stored record (trace, run) cannot be read."""

    MESSAGE = "{path}: {why}; accepted: a file that this harness has saved"


class TraceNotSaved(FileProblem, OSError):
    """A trace cannot be written to the requested path."""

    MESSAGE = "trace cannot be saved to {path}: {why}; name a file in a writable folder"


class UnknownCheck(UsageError, LookupError):
    """No check has this id."""

    def __init__(self, check_id: str, known: Sequence[str]) -> None:
        self.check_id = check_id
        self.known = tuple(known)
        super().__init__(f"check {check_id!r} does not exist; accepted: {', '.join(self.known)}")


#: What a function of the user's is to be, unless a command needs another one.
NO_ARGUMENTS = "a function that needs no arguments"


class InvalidTarget(UsageError, ValueError):
    """A function of the user's, written ``FILE.py:FUNCTION``, does not exist or has other parameters."""

    def __init__(self, target: str, why: str, accepted: str = NO_ARGUMENTS) -> None:
        self.target = target
        self.why = why
        super().__init__(f"{target}: {why}; accepted: FILE.py:FUNCTION, {accepted}")


class RefusedByWorker(UsageError):
    """The process of a device set refused the request. The message is that of the error raised there."""

    def __init__(self, error: str, message: str, details: str = "") -> None:
        self.error = error
        self.message = message
        self.details = details
        super().__init__(message)


class WorkerFailed(HarnessError, RuntimeError):
    """The process of a device set crashed or exceeded its time limit. ``details``: its stacks and last output."""

    def __init__(self, message: str, details: str = "") -> None:
        self.details = details
        super().__init__(message)


class ReportError(FileProblem, OSError):
    """The report folder is not writable."""

    MESSAGE = "report folder {path} cannot be written: {why}; name another folder with --report"


class ReportNotRendered(ReportError):
    """The harness failed to render a stored record."""

    def __init__(self, path: Path | str, fault: BaseException) -> None:
        self.path = str(path)
        self.why = f"{type(fault).__name__}: {fault}"
        HarnessError.__init__(
            self,
            f"the report in {self.path} could not be rendered: {self.why}; run.json is complete; please report this "
            "error",
        )


class InvalidProgram(UsageError, ValueError):
    """The description of a generated program is inconsistent. ``part`` is the text of the part at fault."""

    def __init__(self, part: str, why: str, accepted: str) -> None:
        self.part = part
        self.why = why
        super().__init__(f"{part}: {why}; accepted: {accepted}")


class InvalidBaseline(FileProblem, ValueError):
    """A pytest-benchmark file that should hold speedups is missing, empty or damaged, or holds none."""

    MESSAGE = (
        "{path}: {why}; accepted: a pytest-benchmark JSON file with speedups; record one with "
        "pytest --benchmark-save=NAME or --benchmark-json=FILE"
    )


class InvalidCalibration(FileProblem, ValueError):
    """A stored calibration cannot be read, or the given runs cannot make one."""

    MESSAGE = "{path}: {why}; make a new calibration with `harness calibrate`"


class OutputsDiffer(HarnessError, AssertionError):
    """The two sides of a measurement compute different results: a fast wrong program is no speedup.

    ``output`` names the output as a path into what the sides return.
    """

    def __init__(self, output: str, why: str) -> None:
        self.output = output
        self.why = why
        super().__init__(
            f"{output}: {why}; the two sides must compute the same values before their times can be compared"
        )


class VerificationError(AssertionError, HarnessError):
    """``harness.assert_parallel`` did not get a PASS. Carries the findings and the whole verification."""

    def __init__(self, message: str, findings: Sequence[Finding] = (), verification: object = None) -> None:
        self.findings = tuple(findings)
        self.verification = verification
        super().__init__(message)
