"""Judges the sensors of a card under load: throttling, memory errors and errors that the driver reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

from harness.checking.execute import XID_UNDER_LOAD
from harness.hardware.advised import Advised, advised
from harness.hardware.links import Watched
from harness.hardware.telemetry import Reading
from harness.records import Verdict

#: Corrected memory errors while it was watched: from so many on a card fails, below it is warned of.
MANY_CORRECTED = 10
#: Throttling in a larger share of the samples than this fails.
THROTTLED_SHARE = 0.2
#: NVML's reasons that mean that a card cannot run as it should. A power cap is how a card works at its limit.
_HEAT = ("thermal",)
_POWER = ("hwslowdown", "powerbrake")


def judge_sensors(watched: Watched) -> Iterator[Advised]:
    """What the sensors of a card say that is wrong. A sensor that says nothing is not judged."""
    yield from _throttling(watched)
    yield from _ecc(watched)
    yield from _xid(watched)


def silent(watched: Sequence[Watched]) -> tuple[str, ...]:
    """The sensors that no card has, by their field in ``Reading``."""
    every = [field.name for field in fields(Reading) if field.name != "at_s"]
    return tuple(
        name
        for name in every
        if all(getattr(reading, name) is None for each in watched for reading in (each.before, *each.during))
    )


def _plain(reason: str) -> str:
    return re.sub(r"[^a-z]", "", reason.lower())


def _throttling(watched: Watched) -> Iterator[Advised]:
    told = [each for each in watched.during if each.throttle_reasons is not None]
    for words, what, do in (
        (_HEAT, "heat", "look at its fans, at what blocks its air, at the room and at its thermal paste"),
        (_POWER, "a signal of its board", "look at its power cables and at the power supply"),
    ):
        by_what = [
            each
            for each in told
            if any(word in _plain(reason) for reason in each.throttle_reasons or () for word in words)
        ]
        if not by_what:
            continue
        share = len(by_what) / len(told)
        reasons = sorted({reason for each in by_what for reason in each.throttle_reasons or ()})
        hottest = max((each.temperature_c for each in watched.during if each.temperature_c is not None), default=None)
        slowest = min((each.clock_mhz for each in by_what if each.clock_mhz is not None), default=None)
        most = max((each.clock_max_mhz for each in told if each.clock_max_mhz is not None), default=None)
        clock = f", down to {slowest:.0f} of {most:.0f} MHz" if slowest is not None and most is not None else ""
        warm = f" at up to {hottest:.0f} C" if hottest is not None else ""
        yield advised(
            "sensor",
            watched.card,
            "throttling under load",
            "no throttling by heat or by the board",
            ", ".join(reasons),
            f"throttles by {what} in {share:.0%} of the time{warm}{clock}",
            do,
            Verdict.FAIL if share > THROTTLED_SHARE else Verdict.WARN,
        )
        return


def _ecc(watched: Watched) -> Iterator[Advised]:
    replace = "take it out of use and have the card replaced if the errors go on after a restart"
    corrected = _growth(watched, lambda each: each.ecc_corrected)
    uncorrected = _growth(watched, lambda each: each.ecc_uncorrected)
    remapped = _growth(watched, lambda each: each.remapped_rows)
    for grown, what, worst in (
        (uncorrected, "memory errors that ECC could not correct", 1),
        (remapped, "rows of memory that had to be remapped", 1),
        (corrected, "memory errors that ECC corrected", MANY_CORRECTED),
    ):
        if grown:
            yield advised(
                "memory",
                watched.card,
                "ECC under load",
                "no more errors",
                f"{grown} more",
                f"had {grown} more {what} under load",
                replace,
                Verdict.FAIL if grown >= worst else Verdict.WARN,
            )
    if watched.before.ecc_uncorrected and not uncorrected:
        yield advised(
            "memory",
            watched.card,
            "ECC before the load",
            "no uncorrected errors",
            f"{watched.before.ecc_uncorrected}",
            f"has counted {watched.before.ecc_uncorrected} memory errors that ECC could not correct before this run",
            replace,
            Verdict.WARN,
        )


def _xid(watched: Watched) -> Iterator[Advised]:
    before = list(watched.before.xid or ())
    after = list(watched.during[-1].xid or ()) if watched.during else before
    for code in before:
        if code in after:
            after.remove(code)
    for codes, when, severity in ((after, "under load", Verdict.FAIL), (before, "before this run", Verdict.WARN)):
        if codes:
            text = ", ".join(str(code) for code in sorted(set(codes)))
            yield advised(
                "sensor",
                watched.card,
                XID_UNDER_LOAD if severity is Verdict.FAIL else f"Xid {when}",
                "no Xid",
                text,
                f"was reported by the driver with Xid {text} {when}",
                "look up the Xid in NVIDIA's catalogue and at the kernel's log (dmesg | grep -i xid)",
                severity,
            )


def _growth(watched: Watched, counter: Callable[[Reading], int | None]) -> int:
    seen = [count for each in (watched.before, *watched.during) if (count := counter(each)) is not None]
    return max(seen) - seen[0] if seen else 0
