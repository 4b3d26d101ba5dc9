"""Plants the faults of the catalogue and their clean twins, and counts what is found. All in one process."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from harness.devices.device import Devices
from harness.errors import RefusedByWorker, UsageError, WorkerFailed
from harness.faults.catalogue import CATALOGUE
from harness.faults.fault import Case, Fault, Planted
from harness.faults.origin import lines_at_fault
from harness.judgement.verification import Verification
from harness.plural import plural
from harness.records import Fingerprint, Verdict
from harness.runner.job import Job, WorkerFiles, typed_task
from harness.runner.limits import STARTUP_LIMIT_S
from harness.runner.messages import Answer, Ready, Refused, plain
from harness.runner.postmortem import describe_loss
from harness.runner.process import WorkerProcess
from harness.runner.worker import Send

#: For one fault and its twin, in seconds.
_LIMIT_S = 600.0
#: Version of the stored form of :class:`SelfTest`.
SELFTEST_SCHEMA_VERSION = 1

#: A line of a program of the catalogue, as a message names it.
_LINE = re.compile(r"[\w./-]+\.py:\d+")
#: Kinds of finding of faults whose first divergent op is looked for.
_OF_VALUES = frozenset({"value", "gradient", "missing-gradient", "shape", "dtype"})
#: What the first line says where no known cause gives the numbers: so, or which op or step was the first to differ.
NO_CAUSE = (
    "no known cause",
    "first op whose result differs from the reference's",
    "diverged from the single-device run at step",
)


#: Of the whole catalogue, the least share of causes and of first ops that are right, and the largest of wrong causes.
AIMS = {"cause right": 0.85, "first op right": 0.90, "cause wrong": 0.03}


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one fault and its clean twin.

    ``modes`` are how the program ran (``eager``, ``graph``; the loops of a training), ``missed`` those in which the
    fault gave none of the expected kinds of finding, ``accused`` those in which the twin gave any. ``undecided`` says
    that the twin did not pass either. ``cause`` says what the first line, ``said``, names. ``origin`` are the lines
    that lead to the first op that the twin does not run, for faults of value. ``unexpected`` are kinds of finding that
    the fault should not give. ``error`` is what was raised. ``skipped`` says why it cannot be tried here.
    """

    name: str
    group: str
    title: str
    modes: tuple[str, ...]
    missed: tuple[str, ...]
    accused: tuple[str, ...]
    undecided: bool
    cause: Literal["right", "none", "wrong"]
    line_named: bool
    unexpected: tuple[str, ...]
    said: str
    said_of_twin: str
    elapsed_s: float
    error: str = ""
    skipped: str = ""
    origin: tuple[str, ...] = ()

    @property
    def origin_named(self) -> bool:
        """Whether the first sentence names one of these lines."""
        return names_one_of(self.origin, self.said)

    @property
    def good(self) -> bool:
        """Whether the fault was found in every mode, and its twin passed."""
        return not (self.missed or self.accused or self.undecided or self.error)

    @property
    def result(self) -> str:
        """What became of it, in words."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        if self.error:
            return f"ended in an error: {self.error}"
        parts = [f"missed ({', '.join(self.missed)})"] if self.missed else ["found"]
        parts += [f"false alarm on the twin ({', '.join(self.accused)})"] if self.accused else []
        parts += ["twin neither passed nor failed"] if self.undecided else []
        parts += [f"also gives {', '.join(self.unexpected)}"] if self.unexpected else []
        parts += [f"cause {self.cause}"] if not self.missed else []
        parts += ["first op not named"] if self.origin and not self.origin_named else []
        return ", ".join(parts)


@dataclass(frozen=True)
class SelfTest:
    """A self-test on one set of devices."""

    spec: str
    devices: tuple[str, ...]
    fingerprint: Fingerprint
    tried: tuple[Tried, ...]
    elapsed_s: float
    schema_version: int = SELFTEST_SCHEMA_VERSION
    #: Whether every fault that was asked for has been tried.
    complete: bool = True

    @property
    def good(self) -> bool:
        """Whether every fault that could be tried was found, every twin passed, and no aim was missed."""
        tried = [each for each in self.tried if not each.skipped]
        return self.complete and bool(tried) and all(each.good for each in tried) and not self.aims_missed

    @property
    def shares(self) -> dict[str, float]:
        """The shares that :data:`AIMS` are about; without any fault of value, no ``first op right``."""
        return _shares([each for each in self.tried if not each.skipped])

    @property
    def aims_missed(self) -> tuple[str, ...]:
        """The aims that the figures do not reach; none unless the whole catalogue was tried."""
        if not {*CATALOGUE} <= {each.name for each in self.tried}:
            return ()
        missed = ((name, share, AIMS[name]) for name, share in self.shares.items())
        return tuple(
            f"{name}: {share:.1%}; the aim is at {'most' if name == 'cause wrong' else 'least'} {aim:.0%}"
            for name, share, aim in missed
            if (share > aim if name == "cause wrong" else share < aim)
        )

    def rows(self) -> Iterable[tuple[str, ...]]:
        """The figures of each group and of all, as in :data:`COLUMNS`."""
        tried = [each for each in self.tried if not each.skipped]
        groups = dict.fromkeys(each.group for each in tried)
        for group in [*groups, "all"] if tried else ():
            chosen = [each for each in tried if group in (each.group, "all")]
            runs = sum(len(each.modes) for each in chosen)
            missed = sum(len(each.missed) for each in chosen)
            shares = _shares(chosen)
            counts = (len(chosen), runs, runs - missed, missed, sum(len(each.accused) for each in chosen))
            yield (
                group,
                *(f"{count:,}" for count in counts),
                *(f"{shares[name]:.1%}" if name in shares else "-" for name in COLUMNS[6:9]),
                f"{sum(each.elapsed_s for each in chosen):.0f} s",
            )


#: The heads of :meth:`SelfTest.rows`.
COLUMNS = (
    *("group", "faults", "runs", "found", "missed", "false alarms", "cause right", "cause wrong", "first op right"),
    "time",
)


def _shares(tried: Sequence[Tried]) -> dict[str, float]:
    causes = Counter(each.cause for each in tried)
    located = [each.origin_named for each in tried if each.origin]
    shares = {f"cause {name}": causes[name] / len(tried) for name in ("right", "wrong") if tried}
    return shares | ({"first op right": sum(located) / len(located)} if located else {})


def first_sentence(reason: str) -> str:
    """The part of a reason that names the cause, with its place."""
    return reason.partition("). ")[0].partition("Ruled out:")[0]


def names_one_of(lines: Iterable[str], reason: str) -> bool:
    """Whether the part of a reason that names the cause names one of these lines."""
    return bool({*lines} & {*_LINE.findall(first_sentence(reason))})


def select(only: Collection[str]) -> list[Fault[Planted]]:
    """The faults with these names, classes (``V01``) or groups (``values``); all, if there are none.

    Raise UsageError if one of them is not known.
    """
    for wanted in only:
        if not any(wanted in (fault.name, fault.id, fault.group) for fault in CATALOGUE.values()):
            groups = ", ".join(dict.fromkeys(fault.group for fault in CATALOGUE.values()))
            near = [name for name in CATALOGUE if wanted.lower() in name.lower()][:3]
            raise UsageError(
                f"no planted fault, class or group is named {wanted!r}; accepted: {groups}, a class such as V01, or a "
                f"name such as {', '.join(near or list(CATALOGUE)[:3])}"
            )
    return [fault for fault in CATALOGUE.values() if not only or {fault.name, fault.id, fault.group} & set(only)]


def try_fault(fault: Fault[Planted], devices: Devices) -> Tried:
    """Plant a fault and its clean twin, judge both, and compare with what is expected."""
    started = time.monotonic()
    modes: tuple[str, ...] = ("eager", "graph")
    if why := fault.unsuited(devices):
        return replace(_lost(fault, ""), modes=(), missed=(), skipped=why)
    try:
        case = fault.plant(devices)
        modes = case.modes
        found = case.judge(devices, faulty=True)
        # Planted again: a first call has changed the variables, or made them.
        clean = fault.plant(devices).judge(devices, faulty=False)
        origin = origin_of(fault, devices)
    except Exception as error:  # noqa: BLE001 - one fault must not end the test of the others
        return replace(_lost(fault, f"{type(error).__name__}: {error}", modes), elapsed_s=time.monotonic() - started)
    by_mode = {mode: kinds_in(found, mode) for mode in modes}
    unexpected = tuple(sorted({kind for kinds in by_mode.values() for kind in kinds} - case.kinds - case.also))
    failed = found.verdict is Verdict.FAIL
    accused = tuple(mode for mode in modes if kinds_in(clean, mode))
    named = fault.names_cause(found.reason, len(devices))
    unnamed = not failed or any(words in found.reason for words in NO_CAUSE)
    return Tried(
        name=fault.name,
        group=fault.group,
        title=fault.title,
        modes=modes,
        missed=tuple(mode for mode in modes if not failed or not by_mode[mode] & case.kinds),
        accused=accused,
        undecided=not accused and clean.verdict is not Verdict.PASS,
        cause="right" if failed and named else "none" if unnamed else "wrong",
        line_named=_LINE.search(found.reason) is not None,
        origin=origin,
        unexpected=unexpected,
        said=found.reason,
        said_of_twin="" if clean.verdict is Verdict.PASS else f"{clean.verdict}: {clean.reason}",
        elapsed_s=time.monotonic() - started,
    )


def origin_of(fault: Fault[Planted], devices: Devices) -> tuple[str, ...]:
    """The lines that lead to the first op that the twin of a fault of value does not run; none for other faults."""
    faulty, clean = fault.plant(devices), fault.plant(devices)
    if not isinstance(faulty, Case) or not isinstance(clean, Case) or not faulty.kinds & _OF_VALUES:
        return ()
    return tuple(sorted(lines_at_fault(faulty, clean)))


def _lost(fault: Fault[Planted], error: str, modes: tuple[str, ...] = ("eager", "graph")) -> Tried:
    return Tried(fault.name, fault.group, fault.title, modes, modes, (), False, "none", False, (), "", "", 0.0, error)


def kinds_in(judged: Verification, mode: str) -> frozenset[str]:
    """The kinds of finding in one mode."""
    return frozenset(finding.kind for finding in judged.findings if mode in finding.mode.split(", "))


@typed_task
def run(send: Send, spec: str, names: list[str]) -> None:
    """Do the task of a worker process: tell the devices, then what became of each fault."""
    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure

    devices = configure(spec)
    needed = max(CATALOGUE[name].devices_needed for name in names)
    if len(devices) < needed:
        raise UsageError(f"{spec} has {plural(len(devices), 'device')}; accepted: {needed} or more, such as cpu:4")
    send(Ready(devices.names, "", fingerprint(devices)))
    for name in names:
        answer = plain(try_fault(CATALOGUE[name], devices))
        assert isinstance(answer, dict)
        send(Answer(answer))


def self_test(spec: str, faults: Sequence[Fault[Planted]], logs: Path) -> Generator[SelfTest, None, None]:
    """Try the faults in a process of their own, in a fresh one after one that was lost; yield all so far after each.

    Raises:
        RefusedByWorker: the devices are unavailable, or too few.
        WorkerFailed: the process did not get as far as to try a fault.
    """
    started = time.monotonic()
    tried: list[Tried] = []
    remaining = list(faults)
    for number in itertools.count(1):
        job = Job("harness.faults.selftest:run", {"spec": spec, "names": [fault.name for fault in remaining]})
        files = WorkerFiles.create(logs, f"selftest-{number}")
        with WorkerProcess(job, files) as worker:
            message, how = worker.next_message(STARTUP_LIMIT_S)
            if isinstance(message, Refused):
                raise RefusedByWorker(message.error, message.message, message.details)
            if not isinstance(message, Ready):
                raise WorkerFailed(f"the process of the self-test {how}; see {files.log}", describe_loss(how, files)[1])
            devices, facts = message.devices, message.fingerprint
            while remaining:
                message, how = worker.next_message(_LIMIT_S)
                fault = remaining.pop(0)
                if isinstance(message, Answer):
                    tried.append(TypeAdapter(Tried).validate_python(message.value))
                else:
                    tried.append(_lost(fault, f"the process of the self-test {how}; see {files.log}"))
                elapsed_s, complete = time.monotonic() - started, not remaining
                yield SelfTest(spec, devices, facts, tuple(tried), elapsed_s, complete=complete)
                if not isinstance(message, Answer):
                    break
        files.discard_empty()
        if not remaining:
            break
