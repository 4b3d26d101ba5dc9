"""Judges the clock of a card under load: heat, the board's slowdown signal, locked clocks, a cap without a cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import median

from harness.hardware.finding import finding
from harness.hardware.machine import Reading
from harness.hardware.sustained_load.measure import Load
from harness.records import Finding, Verdict

#: Throttling in a larger share of the samples than this fails.
THROTTLED_SHARE = 0.2
#: Heat slows a card down near its limit: within so many degrees, because its memory is hotter than its chip.
_NEAR_C = 30.0
#: The chip of a card without a known limit is warm from here on.
_WARM_C = 60.0
#: Shares of the highest clock below which the median under load is a warning, and fails. Default application clocks of
#: older cards are 0.85 of the highest.
WARN_CLOCK, FAIL_CLOCK = 0.75, 0.5
#: A card that is capped by its own limit draws more than this share of it.
_CAPPED_SHARE = 0.6
_COOL = (
    "the chip is cool, so look at the temperature of its memory and its voltage regulators (nvidia-smi -q -d "
    "TEMPERATURE,PERFORMANCE), and swap it with another card to see whether the signal moves with it"
)
#: NVML's reasons that mean that a card cannot run as it should, in order. A power cap is how a card works at its limit.
_THROTTLING = (
    (("thermal",), "heat", "look at its fans, its air flow, the room temperature and its thermal paste"),
    (("hwslowdown", "powerbrake"), "its board's slowdown signal", "look at its power cables and at the power supply"),
)
_UNLOCK = "unlock its clocks unless they were locked on purpose: nvidia-smi -rgc (locked), -rac (application clocks)"
_UNLOCK_MEMORY = (
    "unlock the clock of its memory unless it was locked on purpose: nvidia-smi -rmc (locked), -rac (application "
    "clocks); only if that does not help, look at nvidia-smi -q -d PERFORMANCE,CLOCK"
)
_CAP = (
    "look at its power cables, at the board's power table and limits (nvidia-smi -q -d POWER), and at a power cap that "
    "the server's management controller sets"
)
_NO_CAUSE = "look at nvidia-smi -q -d PERFORMANCE,CLOCK, and swap it with another card to see whether it moves with it"


def judge_clocks(load: Load) -> Iterator[Finding]:
    """Yield why the card runs below its highest clock under load: at most one cause."""
    known = [each for each in load.during if each.throttle_reasons is not None]
    found = _throttling(load, known) or _slow_clock(load, known) or _slow_memory(load, known)
    if found is not None:
        yield found


def _has(reading: Reading, words: Sequence[str]) -> bool:
    reasons = (re.sub(r"[^a-z]", "", why.lower()) for why in reading.throttle_reasons or ())
    return any(word in why for why in reasons for word in words)


def _throttling(load: Load, known: Sequence[Reading]) -> Finding | None:
    for words, cause, step in _THROTTLING:
        throttled = [each for each in known if _has(each, words)]
        if not throttled:
            continue
        share = len(throttled) / len(known)
        hottest = max(load.known("temperature_c"), default=None)
        if cause == "heat" and not _warm(load, hottest):
            if len(throttled) == 1:
                continue  # one sample of a cool card is noise
            cause, step = "its signal for heat", _COOL
        slowest = min((each.clock_mhz for each in throttled if each.clock_mhz is not None), default=None)
        most = max(load.known("clock_max_mhz"), default=None)
        clock = f", down to {slowest:,.0f} of {most:,.0f} MHz" if slowest is not None and most is not None else ""
        warm = f" (up to {hottest:.0f} °C)" if hottest is not None else ""
        return finding(
            "sensor",
            load.card,
            "throttling under load",
            expected="no throttling by heat or by the board",
            found=", ".join(sorted({reason for each in throttled for reason in each.throttle_reasons or ()})),
            message=f"throttles {share:.0%} of the time because of {cause}{warm}{clock}",
            next_step=step,
            severity=Verdict.FAIL if share > THROTTLED_SHARE else Verdict.WARN,
        )
    return None


def _warm(load: Load, hottest: float | None) -> bool:
    if hottest is None:
        return True
    limit = max(load.known("temperature_slowdown_c", before=True), default=None)
    return hottest >= (_WARM_C if limit is None else limit - _NEAR_C)


def _slow_clock(load: Load, known: Sequence[Reading]) -> Finding | None:
    # Of a card that waits for its program, the clock says nothing.
    busy = [each for each in known if not _has(each, ("gpuidle",)) and each.clock_mhz is not None]
    most = max(load.known("clock_max_mhz"), default=None)
    if len(busy) < len(known) / 2 or not busy or not most:
        return None
    clock = median(each.clock_mhz for each in busy if each.clock_mhz is not None)
    cause = _cause(load, busy) if clock < WARN_CLOCK * most else None
    return None if cause is None else _slow(load, "clock", "", clock, most, *cause)


def _slow_memory(load: Load, known: Sequence[Reading]) -> Finding | None:
    """Report a memory that stays slow while its card works. A cap of power or heat does not change its clock."""
    busy = [each for each in known if not _has(each, ("gpuidle",))]
    clocks = [now for each in busy if (now := each.details.memory_clock_mhz) is not None]
    most = max((each.details.memory_clock_max_mhz or 0.0 for each in busy), default=0.0)
    if len(clocks) < len(known) / 2 or not clocks or median(clocks) >= WARN_CLOCK * most:
        return None
    return _slow(load, "memory clock", "its memory ", median(clocks), most, "", _UNLOCK_MEMORY)


def _slow(load: Load, name: str, what: str, clock: float, most: float, why: str, step: str) -> Finding:
    return finding(
        "sensor",
        load.card,
        f"{name} under load",
        expected=f"{WARN_CLOCK * most:,.0f} MHz or more",
        found=f"{clock:,.0f} MHz",
        message=f"runs {what}at {clock:,.0f} of {most:,.0f} MHz under load{why}",
        next_step=step,
        severity=Verdict.FAIL if clock < FAIL_CLOCK * most else Verdict.WARN,
        subject=name,
    )


def _cause(load: Load, busy: Sequence[Reading]) -> tuple[str, str] | None:
    """Return why the clock is low, and the next step; ``None`` if the card is at its power limit, or is not a GPU."""

    def mostly(*words: str) -> bool:
        return sum(_has(each, words) for each in busy) > len(busy) / 2

    if mostly("applicationsclocks", "userdefinedclocks", "displayclock"):
        return ": its clocks are locked or set", _UNLOCK
    if mostly("powercap"):
        drawn, limit = max(load.known("power_w"), default=None), max(load.known("power_limit_w"), default=None)
        if drawn is None or limit is None or drawn >= _CAPPED_SHARE * limit:
            return None
        return f": its power is capped, though it draws only {drawn:,.0f} of {limit:,.0f} W", _CAP
    if mostly("syncboost"):
        return None
    return ", and the driver gives no reason", _NO_CAUSE
