"""Whether a process that was given one card saw and used that card alone."""

from __future__ import annotations

from dataclasses import dataclass

from harness.hardware.naming import described, device_of
from harness.records import Card, Finding


@dataclass(frozen=True, slots=True)
class Given:
    """What a process was given: a GPU by its UUID, or CPUs."""

    card: Card
    uuid: str | None = None
    cpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the process says of itself after it has computed.

    ``gpus`` is how many TensorFlow saw, ``uuids`` are those of CUDA; ``used`` are the GPUs on which the driver knows
    memory of the process, ``None`` where it does not say; ``cpus`` are those that any of its threads may run on;
    ``right`` is whether what it computed is exact; ``device`` is where.
    """

    gpus: int
    uuids: tuple[str, ...]
    used: tuple[str, ...] | None
    cpus: tuple[int, ...]
    right: bool
    device: str


def judge_isolation(given: Given, seen: Seen | None, why: str = "") -> list[Finding]:
    """What is wrong; ``seen`` is ``None`` where the process said nothing, and ``why`` then says what became of it."""
    if seen is None:
        return [_finding(given, "a result", why, f"a process that was given {described(given.card)} ended: {why}")]
    found = []
    name = described(given.card)
    if not seen.right:
        message = f"a process that was given {name} multiplied whole numbers wrong"
        found.append(_finding(given, "the exact product", "another one", message))
    if given.uuid is None:
        if seen.gpus:
            message = f"a process that was given {name} sees {seen.gpus} GPU(s)"
            found.append(_finding(given, "no GPU", f"{seen.gpus}", message))
        if given.cpus is not None and set(seen.cpus) != set(given.cpus):
            message = f"threads of a process that was given {name} run on CPUs {_list(seen.cpus)}"
            found.append(_finding(given, f"CPUs {_list(given.cpus)}", f"CPUs {_list(seen.cpus)}", message))
        return found
    if seen.gpus != 1 or seen.uuids != (given.uuid,):
        what = f"{seen.gpus} GPU(s), {_list(seen.uuids) or 'of unknown UUID'}"
        message = f"a process that was given {name} sees {what}"
        found.append(_finding(given, f"1 GPU, {given.uuid}", what, message))
    if not seen.device.endswith("/device:GPU:0"):
        message = f"a process that was given {name} computed on {seen.device}"
        found.append(_finding(given, "/device:GPU:0 of the process", seen.device, message))
    others = [each for each in seen.used or () if each != given.uuid]
    if others:
        message = f"a process that was given {name} has memory on other cards: {_list(others)}"
        found.append(_finding(given, f"memory on {given.uuid} alone", f"on {_list(others)} too", message))
    return found


def _list(items: object) -> str:
    return ", ".join(str(each) for each in items) if isinstance(items, (tuple, list)) else str(items)


def _finding(given: Given, expected: str, found: str, message: str) -> Finding:
    where = f"process with {given.card.label}"
    return Finding("isolation", where, device_of(given.card), expected, found, message)
