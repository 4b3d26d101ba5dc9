"""Judges sensors that a card has and does not tell: an error other than NOT_SUPPORTED."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from harness.hardware.driver_errors import NO_PERMISSION, OF_SOFTWARE, Surroundings, of_nvml
from harness.hardware.finding import RESET, finding
from harness.hardware.machine import Failure, Reading
from harness.hardware.sustained_load.measure import Load
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: NVML's error for whatever has no number of its own.
_UNKNOWN_ERROR = 999
#: Of a card that fails so many queries, more is broken than a sensor.
MANY_FAILED = 5
#: Queries that fail in fewer of the readings than this are a warning.
_OFTEN = 0.5
#: Sensors named in a message.
_NAMED = 4
_STEP = (
    f"read the kernel's log (dmesg | grep -i -e nvrm -e xid), {RESET}; if they cannot be read after that, look at "
    "its power cables and swap it with another card"
)


def judge_unread(loads: Sequence[Load], around: Surroundings) -> Iterator[Finding]:
    """Yield the cards whose queries fail, one finding for each card and error. A slice may not ask for all."""
    for load in loads:
        failed = _failed(load)
        for code in dict.fromkeys(each.code for each, _ in failed.values()):
            if code == NO_PERMISSION and load.card.part is not None:
                continue
            sensors = {name: share for name, (each, share) in failed.items() if each.code == code}
            error = next(each for each, _ in failed.values() if each.code == code)
            others = [other for other in loads if other is not load]
            alone = bool(others) and any(not set(sensors) & set(_failed(other)) for other in others)
            yield _finding(load.card, error, sensors, around, sure=alone or len(sensors) >= MANY_FAILED)


def _failed(load: Load) -> dict[str, tuple[Failure, float]]:
    """Return the error of each query that fails, and in which share of the readings."""
    readings = load.readings
    found: dict[str, tuple[Failure, float]] = {}
    for reading in readings:
        for name, error in reading.details.failed.items():
            _, share = found.get(name, (error, 0.0))
            found[name] = error, share + 1 / len(readings)
    return found


def _finding(card: Card, error: Failure, sensors: dict[str, float], around: Surroundings, *, sure: bool) -> Finding:
    row = of_nvml(error.code or error.text, around)
    often = max(sensors.values()) >= _OFTEN
    fails = often and sure and error.code not in OF_SOFTWARE
    names = [name.replace("_", " ") for name in sensors]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    known = len(fields(Reading)) // 2
    which = "most of its sensors" if len(names) > known or names == ["all sensors"] else plural(len(names), "sensor")
    sometimes = "" if often else " now and then"
    return finding(
        "sensor",
        card,
        "sensors",
        expected="an answer, or that the card lacks the sensor (NOT_SUPPORTED)",
        found=error.text,
        message=f"does not tell {which}{sometimes} ({', '.join(names[:_NAMED])}{more}): {error.text}",
        next_step=row.step if row.code not in (0, _UNKNOWN_ERROR) else _STEP,
        severity=Verdict.FAIL if fails else Verdict.WARN,
        subject="sensors",
    )
