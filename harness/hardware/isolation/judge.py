"""Judges whether a process that was given one card saw and used only that card."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.hardware.finding import finding
from harness.plural import plural
from harness.records import Card, Finding

_GPUS = (
    "compare the output of nvidia-smi -L with CUDA_VISIBLE_DEVICES of the process: the variable may list GPUs that the "
    "container does not have"
)
_CPUS = "look at the CPUs that the process may use (taskset -cp PID), and at the cpuset of its container"
_FAILED_CPU = "check that the host has memory for one more TensorFlow process per device, and run this check again"
_INCORRECT = "run the check 'arithmetic', which tests the results of the device more closely"


@dataclass(frozen=True, slots=True)
class Given:
    """What a process was given: a GPU by its UUID, or CPUs."""

    card: Card
    uuid: str | None = None
    cpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the process reports after it has computed.

    ``gpus`` is the number of GPUs in TensorFlow, ``uuids`` are those of CUDA; ``used`` are the GPUs on which the driver
    reports memory of the process, ``None`` if unknown; ``cpus`` are those that any of its threads may run on; ``right``
    is whether its result is exact; ``device`` is where it was computed.
    """

    gpus: int
    uuids: tuple[str, ...]
    used: tuple[str, ...] | None
    cpus: tuple[int, ...]
    right: bool
    device: str


def judge_isolation(given: Given, seen: Seen | str) -> list[Finding]:
    """Report what is wrong; ``seen`` is a text, the reason, if the process gave no answer."""
    if isinstance(seen, str):
        step = _GPUS if given.uuid is not None else _FAILED_CPU
        return [_finding(given, "a result", seen, f"failed: {seen}", step)]
    found = []
    if not seen.right:
        message = "multiplied integers incorrectly"
        found.append(_finding(given, "the exact product", "a different one", message, _INCORRECT))
    if given.uuid is None:
        if seen.gpus:
            found.append(_finding(given, "no GPU", f"{seen.gpus}", f"sees {plural(seen.gpus, 'GPU')}"))
        if given.cpus is not None and set(seen.cpus) != set(given.cpus):
            cpus = f"CPUs {_listed(seen.cpus)}"
            found.append(_finding(given, f"CPUs {_listed(given.cpus)}", cpus, f"has threads on {cpus}", _CPUS))
        return found
    if seen.gpus != 1 or seen.uuids != (given.uuid,):
        what = f"{plural(seen.gpus, 'GPU')}, {_listed(seen.uuids) or 'UUID unknown'}"
        found.append(_finding(given, f"1 GPU, {given.uuid}", what, f"sees {what}"))
    if not seen.device.endswith("/device:GPU:0"):
        found.append(_finding(given, "/device:GPU:0 of the process", seen.device, f"computed on {seen.device}"))
    others = [each for each in seen.used or () if each != given.uuid]
    if others:
        message = f"has memory on other GPUs: {_listed(others)}"
        found.append(_finding(given, f"memory only on {given.uuid}", f"also on {_listed(others)}", message))
    return found


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def _finding(given: Given, expected: str, found: str, message: str, next_step: str = _GPUS) -> Finding:
    return finding(
        "isolation",
        given.card,
        f"process with {given.card.label}",
        expected=expected,
        found=found,
        message=f"was given to a process that {message}",
        next_step=next_step,
    )
