"""Judges what a card and its driver count: memory errors and repairs, resent packets, errors of links, Xid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from harness.hardware.driver_errors import LOST, Surroundings, of_nvml
from harness.hardware.finding import REPLACE, RESET, WATCH, finding
from harness.hardware.machine import Reading
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: NVIDIA replaces cards with so many retired pages (Dynamic Page Retirement, "RMA policy").
MANY_RETIRED = 60
_UNREPAIRED = f"the driver could not repair its memory: {REPLACE}"
_ASKED = "the driver asks for"
_REBOOT = f"{_ASKED} a reboot: stop the programs on this node and reboot it"
_RESET = f"{_ASKED} a reset: {RESET}"
#: NVML's recovery actions (nvmlDeviceGpuRecoveryAction_t): what the driver asks for, and the next step.
RECOVERY = {
    1: ("a reset of the card", _RESET),
    2: ("a reboot of the node", _REBOOT),
    3: (
        "draining of peer-to-peer traffic",
        f"{_ASKED} draining of peer-to-peer traffic: stop all programs that copy between GPUs, and start them again",
    ),
    4: ("draining and a reset", f"{_RESET}; let its programs finish before, and give it no new ones"),
    5: ("recovery of the IMEX domain", f"{_ASKED} recovery of the IMEX domain: restart nvidia-imex on its nodes"),
    6: ("a reset of the bus", f"{_RESET}; if nvidia-smi cannot, reset its PCIe slot, or reboot the node"),
    7: ("a reboot of the system", _REBOOT),
}
_LINK = "reseat the card and its riser or cable: a link that must resend packets loses bandwidth and may fail"
_NVLINK = "look at nvidia-smi nvlink -e, and reseat the card or its bridge"
_WATCH_NVLINK = "watch it with nvidia-smi nvlink -e; only if the count grows, reseat the card or its bridge"
_NVLINK_RESET = f"{RESET}; if it comes again, look at nvidia-smi nvlink -e, and reseat the card or its bridge"
#: What NVIDIA's catalogue of Xid errors advises. From 144 to 150 it has the errors of NVLink's fifth generation.
_XID_STEPS = {
    46: f"{RESET}: the card has stopped processing",
    48: f"{RESET}: the card has an uncorrectable memory error",
    54: "look at its power cables and at the power supply: the card's auxiliary power is not connected",
    61: f"{RESET}: the card's power management has stopped",
    62: f"{RESET}: the card's power management has stopped",
    63: f"{RESET}: a row of the card's memory is waiting to be remapped",
    64: REPLACE,
    74: _NVLINK,
    79: LOST,
    92: WATCH,
    94: RESET,
    95: RESET,
    110: LOST,
    119: f"{RESET}: the card's firmware (GSP) does not answer",
    120: f"{RESET}: the card's firmware (GSP) failed",
    121: f"{RESET}: the link between the card and its processor has counted errors",
    140: RESET,
    143: f"{RESET}: the card could not be started",
    **dict.fromkeys(range(144, 151), _NVLINK_RESET),
    154: RESET,
}
#: Errors that programs cause: an illegal instruction or address, a video decoder, a channel that was stopped or took
#: too long. They say nothing of a card. NVIDIA's device plug-in for Kubernetes calls the same ones application errors.
_XID_OF_PROGRAMS = (13, 31, 43, 45, 68, 109)
_XID_STEP = "look up the Xid in NVIDIA's catalogue and the kernel's log (dmesg | grep -i xid)"
_XID_PROGRAM = (
    "look for the fault in the program that used the card then, not in the card: an address or an instruction of its "
    "kernels is wrong, or it was stopped; the kernel's log (dmesg | grep -i xid) names the process"
)


class Limits(NamedTuple):
    """From when on a count is a warning, and when it fails.

    ``warn`` and ``fail`` are for growth within a check; ``warn_per_s`` and ``fail_per_s`` are rates, and both have to
    be reached. ``old`` is what a healthy link or card does not reach from the load of the driver on.
    """

    warn: float = 1
    fail: float = 10
    warn_per_s: float = 0.0
    fail_per_s: float = 0.0
    old: float | None = None


#: So many uncorrected errors in one run are more than a bad row.
_MANY_UNCORRECTED = 1_000
#: Xid errors of the memory: NVIDIA's catalogue asks for a reset.
_XID_OF_MEMORY = (48, 63, 94, 95)
#: A burst in less time says little of a rate, in seconds.
_LEAST_S = 15.0
PCIE_REPLAYS = Limits(old=1_000)
#: By the kind of error of an NVLink. NVIDIA's DCGM fails a link that recovered once, or has 100 CRC errors a second.
NVLINK_ERRORS = {
    "replay": Limits(old=1_000),
    "recovery": Limits(old=10),
    "CRC flit error": Limits(fail_per_s=100.0, old=1_000_000),
    "CRC data error": Limits(fail_per_s=100.0, old=1_000_000),
}
#: Memory errors that the card corrected: some are normal, and NVIDIA asks for nothing.
CORRECTED = Limits(warn=2, warn_per_s=0.5, fail=_LEAST_S, fail_per_s=1.0)


def judge_count(grown: int, total: int, seconds: float, limits: Limits) -> tuple[Verdict, bool] | None:
    """Judge a count by its growth within ``seconds``, and else by all of it.

    Return the severity and whether it is about the growth, or ``None`` for a count that is no problem.
    """
    if grown >= limits.warn and grown >= limits.warn_per_s * seconds:
        fails = grown >= limits.fail and grown >= limits.fail_per_s * seconds
        return (Verdict.FAIL if fails else Verdict.WARN), True
    if limits.old is not None and total >= limits.old:
        return Verdict.WARN, False
    return None


def judge_counters(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    """Yield what grew from the first of ``readings`` on, or was too much before. ``when`` is such as ``under load``."""
    yield from _resent(card, readings, when)
    yield from _nvlinks(card, readings, when)
    yield from _ecc(card, readings, when)
    yield from _xid(card, readings, when)


def growth(readings: Sequence[Reading], counter: str) -> int:
    """Return by how much a counter grew."""
    known = [value for each in readings if (value := getattr(each, counter)) is not None]
    return max(known) - known[0] if known else 0


def asked(last: Reading) -> str | None:
    """Return the step that the driver asks for, which goes before any other; ``None`` where it asks for nothing."""
    if last.recovery_action in RECOVERY:
        return RECOVERY[last.recovery_action or 0][1]
    return _RESET if last.remap_pending or last.retired_pending else None


def _resent(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    totals = [each.nvlink_errors for each in readings if each.nvlink_errors is not None]
    by_link = any(each.details.links for each in readings)
    replays = [each.pcie_replays for each in readings if each.pcie_replays is not None]
    for values, name, step, limits in (
        (replays, "PCIe", _LINK, PCIE_REPLAYS),
        ([] if by_link else totals, "NVLink", _NVLINK, NVLINK_ERRORS["replay"]),
    ):
        if not values:
            continue
        grown = max(values) - values[0]
        judged = judge_count(grown, values[0], _seconds(readings), limits)
        if judged is not None:
            severity, new = judged
            count = plural(grown if new else values[0], f"{name} packet")
            yield finding(
                "link",
                card,
                f"{name} replays {when}" if new else f"{name} replays before",
                expected="no new replays" if new else f"less than {limits.old:,.0f}",
                found=f"{grown:,} new" if new else f"{values[0]:,}",
                message=f"had to resend {count} {when if new else 'since the driver was loaded'}",
                next_step=step,
                severity=severity,
                subject=f"{name} replays" if new else f"old {name} replays",
            )


def _nvlinks(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    """Yield a finding for each kind of error, which names the links."""
    known = [each.details.links for each in readings if each.details.links]
    for kind, limits in NVLINK_ERRORS.items() if known else ():
        of_kind = [(link, count) for (link, name), count in known[0].items() if name == kind]
        by_verdict: dict[tuple[Verdict, bool], dict[int, int]] = {}
        for link, first in of_kind:
            grown = max(each.get((link, kind), first) for each in known) - first
            judged = judge_count(grown, first, _seconds(readings), limits)
            if judged is not None:
                by_verdict.setdefault(judged, {})[link] = grown if judged[1] else first
        for (severity, new), links in by_verdict.items():
            count = plural(sum(links.values()), f"{'new ' if new else ''}{_named(kind)}")
            yield finding(
                "link",
                card,
                f"NVLink {_named(kind)} {when if new else 'before'}",
                expected="no new ones" if new else f"less than {limits.old:,.0f} on a link",
                found=", ".join(f"link {link}: {count:,}" for link, count in links.items()),
                message=f"has counted {count} on {_links(links)} {when if new else 'since the driver was loaded'}",
                next_step=_NVLINK if new else _WATCH_NVLINK,
                severity=severity,
                subject=f"NVLink {kind}" if new else f"old NVLink {kind}",
            )


def _named(kind: str) -> str:
    return kind if kind.endswith("error") else f"{kind} error" if kind == "recovery" else kind


def _links(links: Sequence[int] | dict[int, int]) -> str:
    numbers = list(links)
    if len(numbers) == 1:
        return f"NVLink {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
        return f"NVLinks {numbers[0]} to {numbers[-1]}"
    return f"NVLinks {', '.join(map(str, numbers))}"


def _seconds(readings: Sequence[Reading]) -> float:
    return readings[-1].at_s - readings[0].at_s


def _ecc(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    uncorrected, before = growth(readings, "ecc_uncorrected"), readings[0].ecc_uncorrected or 0
    again = f"{RESET}; only if the card counts uncorrected errors again after that, {REPLACE}"
    known = bool(set(readings[-1].xid or ()) & set(_XID_OF_MEMORY))
    repair = asked(readings[-1]) or (REPLACE if uncorrected >= _MANY_UNCORRECTED and not known else again)
    # Of a card that has to be reset, the corrected errors say nothing more.
    worn = "" if not (uncorrected or known or asked(readings[-1])) else repair
    for grown, what, limits, step in (
        (uncorrected, "uncorrected memory error", Limits(fail=1), repair),
        (growth(readings, "remapped_rows"), "remapped memory row", Limits(fail=1), repair),
        (growth(readings, "ecc_corrected"), "corrected memory error", CORRECTED, worn),
    ):
        judged = judge_count(grown, 0, _seconds(readings), limits)
        if judged is not None:
            yield finding(
                "memory",
                card,
                f"ECC {when}",
                expected="no new errors",
                found=f"{grown:,} new",
                message=f"counted {plural(grown, f'new {what}')} {when}",
                next_step=step or (REPLACE if judged[0] is Verdict.FAIL else WATCH),
                severity=judged[0],
            )
    if before and not uncorrected:
        yield finding(
            "memory",
            card,
            "ECC before the run",
            expected="no uncorrected errors",
            found=f"{before:,}",
            message=f"has counted {plural(before, 'uncorrected memory error')} since the driver was loaded",
            next_step=asked(readings[-1]) or f"{RESET}; only if the card counts more uncorrected errors, {REPLACE}",
            severity=Verdict.WARN,
        )


def judge_silence(card: Card, error: str, when: str = "", around: Surroundings | None = None) -> Finding:
    """Report a card that answered the driver before. ``when`` is a text such as `` during the check 'memory'``."""
    return finding(
        "missing-device",
        card,
        f"the driver's list of GPUs{when}",
        expected="an answer",
        found=error,
        message=f"stopped answering the driver{when}: {error}",
        next_step=of_nvml(error, around or Surroundings()).step,
        lasting=True,
    )


def judge_repairs(card: Card, last: Reading) -> Iterator[Finding]:
    """Yield what the card says of the repair of its memory: rows that it remaps, or pages that it retires."""
    needed = last.recovery_action and not (last.remap_pending or last.retired_pending)
    recovery = RECOVERY.get(last.recovery_action or 0, ("a recovery", RESET))[0]
    retired = f"has {last.retired_pages} retired pages; the limit is {MANY_RETIRED}"
    step = asked(last) or RESET
    for wrong, where, found, next_step in (
        (last.remap_failed, "row remapping", "could not remap a row of its memory", _UNREPAIRED),
        (last.remap_pending, "row remapping", "is waiting for a reset to remap a row of its memory", step),
        (last.retired_pending, "page retirement", "is waiting for a reset to retire a page of its memory", step),
        ((last.retired_pages or 0) >= MANY_RETIRED, "page retirement", retired, _UNREPAIRED),
        (needed, "recovery action", f"needs {recovery}, according to the driver", step),
    ):
        if wrong:
            yield finding(
                "memory" if where != "recovery action" else "sensor",
                card,
                where,
                expected="nothing pending and nothing failed",
                found=found,
                message=found,
                next_step=next_step,
                subject=where,
                lasting=True,
            )


def xid_step(codes: Sequence[int], last: Reading | None = None) -> str:
    """Return what to do about Xid errors: what the driver asks for, or else what NVIDIA's catalogue advises."""
    of_card = [code for code in codes if code not in _XID_OF_PROGRAMS]
    if not of_card:
        return _XID_PROGRAM
    wanted = asked(last) if last is not None else None
    return wanted or next((_XID_STEPS[code] for code in of_card if code in _XID_STEPS), _XID_STEP)


def _xid(card: Card, readings: Sequence[Reading], when: str) -> Iterator[Finding]:
    """Yield the driver's errors. It reports only those that come after it was asked to, so that all are of this run."""
    before, after = list(readings[0].xid or ()), list(readings[-1].xid or ())
    for code in before:
        if code in after:
            after.remove(code)
    for codes, then in ((after, when), (before, "earlier in this run")):
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
                next_step=xid_step(shown, readings[-1]),
                severity=Verdict.FAIL if of_card else Verdict.WARN,
                subject="Xid",
                # It happens once, and no second pass undoes it.
                lasting=bool(of_card),
            )
