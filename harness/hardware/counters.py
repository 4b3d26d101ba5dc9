"""Judges what a card and its driver count: memory errors and repairs, resent packets, errors of links, Xid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.devices.nvidia import NEEDS_RESET
from harness.hardware.finding import REPLACE, RESET, WATCH, finding
from harness.hardware.machine import Reading
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: From this many resent packets on, PCIe's or NVLink's, a link is bad.
MANY_REPLAYS = 10
#: Corrected memory errors per second from which on a card fails; fewer are a warning, because the card corrected them.
MANY_CORRECTED_PER_S = 1.0
#: NVIDIA replaces cards with so many retired pages (Dynamic Page Retirement, "RMA policy").
MANY_RETIRED = 60
#: What NVML's recovery action asks for.
RECOVERY = {
    1: "a reset of the card",
    2: "a reboot of the node",
    3: "draining of peer-to-peer traffic",
    4: "draining and a reset",
}
LOST = (
    "read the kernel's log (dmesg | grep -i xid), power the node off and on, reseat the card, and replace it if it is "
    "lost again"
)
_LINK = "reseat the card and its riser or cable: a link that must resend packets loses bandwidth and may fail"
_NVLINK = "look at nvidia-smi nvlink -e, and reseat the card or its bridge"
#: What NVIDIA's catalogue of Xid errors advises.
_XID_STEPS = {
    48: f"{RESET}: the card has an uncorrectable memory error",
    63: f"{RESET}: a row of the card's memory is waiting to be remapped",
    64: REPLACE,
    74: _NVLINK,
    79: LOST,
    92: WATCH,
    94: RESET,
    95: RESET,
    119: f"{RESET}: the card's firmware (GSP) does not answer",
    120: f"{RESET}: the card's firmware (GSP) failed",
    140: RESET,
}
#: What programs cause too: an illegal instruction or address, a channel that was stopped. They say little of a card.
_XID_OF_PROGRAMS = (13, 31, 43, 45)
_XID_STEP = "look up the Xid in NVIDIA's catalogue and the kernel's log (dmesg | grep -i xid)"


def judge_counters(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    """Yield what grew from the first of ``readings`` on. ``when`` is a text such as ``under load``."""
    yield from _resent(card, readings, when)
    yield from _ecc(card, readings, when)
    yield from _xid(card, readings, when)


def growth(readings: Sequence[Reading], counter: str) -> int:
    """Return by how much a counter grew."""
    known = [value for each in readings if (value := getattr(each, counter)) is not None]
    return max(known) - known[0] if known else 0


def _resent(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    for counter, name, step in (("pcie_replays", "PCIe", _LINK), ("nvlink_errors", "NVLink", _NVLINK)):
        if grown := growth(readings, counter):
            yield finding(
                "link",
                card,
                f"{name} replays {when}",
                expected="no new replays",
                found=f"{grown:,} new",
                message=f"had to resend {plural(grown, f'{name} packet')} {when}",
                next_step=step,
                severity=Verdict.FAIL if grown >= MANY_REPLAYS else Verdict.WARN,
                subject=f"{name} replays",
            )


def _ecc(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    uncorrected, before = growth(readings, "ecc_uncorrected"), readings[0].ecc_uncorrected or 0
    # A burst in less than 15 s says little of a rate.
    seconds = max(15.0, readings[-1].at_s - readings[0].at_s)
    for grown, what, worst in (
        (uncorrected, "uncorrected memory error", 1),
        (growth(readings, "remapped_rows"), "remapped memory row", 1),
        (growth(readings, "ecc_corrected"), "corrected memory error", MANY_CORRECTED_PER_S * seconds),
    ):
        if grown:
            fails = grown >= worst
            yield finding(
                "memory",
                card,
                f"ECC {when}",
                expected="no new errors",
                found=f"{grown:,} new",
                message=f"counted {plural(grown, f'new {what}')} {when}",
                next_step=REPLACE if fails else WATCH,
                severity=Verdict.FAIL if fails else Verdict.WARN,
            )
    if before and not uncorrected:
        yield finding(
            "memory",
            card,
            "ECC before the run",
            expected="no uncorrected errors",
            found=f"{before:,}",
            message=f"has counted {plural(before, 'uncorrected memory error')} since the driver was loaded",
            next_step=f"{RESET}; if the card counts more uncorrected errors, {REPLACE}",
            severity=Verdict.WARN,
        )


def judge_silence(card: Card, error: str, when: str = "") -> Finding:
    """Report a card that answered the driver before. ``when`` is a text such as `` during the check 'memory'``."""
    return finding(
        "missing-device",
        card,
        f"the driver's list of GPUs{when}",
        expected="an answer",
        found=error,
        message=f"stopped answering the driver{when}: {error}",
        next_step=RESET if error in NEEDS_RESET else LOST,
        lasting=True,
    )


def judge_repairs(card: Card, last: Reading) -> Iterator[Finding]:
    """Yield what the card says of the repair of its memory: rows that it remaps, or pages that it retires."""
    needed = last.recovery_action and not (last.remap_pending or last.retired_pending)
    recovery = RECOVERY.get(last.recovery_action or 0, "a recovery")
    retired = f"has {last.retired_pages} retired pages; the limit is {MANY_RETIRED}"
    for wrong, where, found, step in (
        (last.remap_failed, "row remapping", "could not remap a row of its memory", REPLACE),
        (last.remap_pending, "row remapping", "is waiting for a reset to remap a row of its memory", RESET),
        (last.retired_pending, "page retirement", "is waiting for a reset to retire a page of its memory", RESET),
        ((last.retired_pages or 0) >= MANY_RETIRED, "page retirement", retired, REPLACE),
        (needed, "recovery action", f"needs {recovery}, according to the driver", RESET),
    ):
        if wrong:
            yield finding(
                "memory" if where != "recovery action" else "sensor",
                card,
                where,
                expected="nothing pending and nothing failed",
                found=found,
                message=found,
                next_step=step,
                subject=where,
            )


def _xid(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    before, after = list(readings[0].xid or ()), list(readings[-1].xid or ())
    for code in before:
        if code in after:
            after.remove(code)
    for codes, then, severity in ((after, when, Verdict.FAIL), (before, "before this run", Verdict.WARN)):
        of_card = sorted({code for code in codes if code not in _XID_OF_PROGRAMS})
        # A program that failed before says nothing of the card; one that fails in a check may.
        shown = sorted(set(codes)) if then == when else of_card
        if shown:
            text = ", ".join(map(str, shown))
            yield finding(
                "sensor",
                card,
                f"Xid {then}",
                expected="no Xid",
                found=text,
                message=f"raised Xid {text} {then}, according to the driver",
                next_step=next((_XID_STEPS[code] for code in of_card if code in _XID_STEPS), _XID_STEP),
                severity=severity if of_card else Verdict.WARN,
                subject="Xid",
                # It happens once, and no second pass undoes it.
                lasting=severity is Verdict.FAIL and bool(of_card),
            )
