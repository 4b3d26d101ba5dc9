"""What a trace says in a few sentences: whether backward ops ran where they should, and what each device did."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from harness.devices.name import DeviceName
from harness.evidence.arithmetic import PYTHON, TABLES, computes, floats, gradients_elsewhere, moved
from harness.evidence.op import Evidence, Op
from harness.evidence.roles import LOOKUPS
from harness.evidence.updates import update_arithmetic
from harness.plural import plural

_Key = TypeVar("_Key")

#: A device does its share with at least this part of an even one.
_SHARE = 0.5
#: So many devices are listed one by one.
_LISTED = 8


def conclude(
    evidence: Evidence, work: Mapping[str, float] | None = None, devices: Sequence[DeviceName] = ()
) -> list[str]:
    """The sentences, the most important first.

    ``work`` is an estimate of what each op computes, by its name; without it, ops are counted. ``devices`` are those
    that the program could use; without them, those that the trace has.

    Report only what the trace proves: a backward op counts as misplaced by the forward op that it belongs to, so a
    program without gradients has none, nor has one that computes each gradient where its forward op ran.
    """
    updates = update_arithmetic(evidence)
    ran = [op for op in evidence.ops if op.device is not None]
    computing = [op for op in ran if computes(op) and op.name not in updates]
    working = [op for op in computing if op.branch is None]
    lines = [*_misplaced(evidence), *_not_obeyed(ran)]
    if computing and not working:
        return [
            *lines,
            "All ops that compute are in branches of conditions: TensorFlow does not tell which of them ran.",
        ]
    if not working:
        kinds = "moves data, or works on integers and texts" if ran else "had nothing to do on a device"
        return [*lines, f"No op computes on floating-point tensors: the function {kinds}."]
    where = "" if len(working) == len(computing) else " outside of conditions"
    lines.append(_shares(working, work, _idle(working, evidence, devices), where, right=not lines))
    linked = {op.device for op in working if op.role == "gradient" and op.forward is not None}
    if len(linked) > 1 and not any(gradients_elsewhere(evidence)):
        lines.append("Backward ops ran on the devices of their forward ops.")
    return lines


def _misplaced(evidence: Evidence) -> list[str]:
    """A line for the devices of forward ops whose backward ops ran elsewhere; devices with the same fault share one."""
    by_name = {op.name: op for op in evidence.ops}
    backward = [op for op in evidence.ops if op.role == "gradient" and op.device is not None and computes(op)]
    forwards = [forward for op in backward if (forward := by_name.get(op.forward or "")) and computes(forward)]
    belonging = Counter(forward.device for forward in forwards)
    away: dict[DeviceName, list[DeviceName]] = defaultdict(list)
    for op, forward in gradients_elsewhere(evidence):
        if op.device is not None and forward.device is not None:
            away[forward.device].append(op.device)
    groups: dict[tuple[str, bool], list[DeviceName]] = defaultdict(list)
    for device, places in away.items():
        groups[_names(places), len(places) == belonging[device]].append(device)
    busy = {op.device for op in backward}
    lines = []
    for (where, every), devices in groups.items():
        whole, count = sum(belonging[device] for device in devices), sum(len(away[device]) for device in devices)
        run, its = ("runs", "its") if len(devices) == 1 else ("run", "their")
        what = f"{whole - count:,} of {its} {plural(whole, 'backward op')}: the others"
        if every:
            own = "" if busy.isdisjoint(devices) else f" of {its} own"
            what = f"no backward op{own}: {'it' if whole == 1 else f'all {whole:,}'}"
        lines.append(f"{_names(devices)} {run} {what} ran on {where}; wrap the step in harness.colocate_gradients.")
    return _first(lines)


def _not_obeyed(ran: Sequence[Op]) -> list[str]:
    """A line for each device that was requested, and on which nothing ran."""
    busy = {op.device for op in ran}
    asked: dict[DeviceName, list[Op]] = defaultdict(list)
    for op in ran:
        if op.requested is None or op.requested.index is None or not moved(op) or not computes(op):
            continue
        if op.type in PYTHON | TABLES | LOOKUPS or (op.dtypes and not floats(op.dtypes)):
            continue
        if not any(device is not None and device.matches(op.requested) for device in busy):
            asked[op.requested].append(op)
    lines = []
    for device, ops in sorted(asked.items(), key=lambda item: str(item[0])):
        where = _names([op.device for op in ops if op.device is not None])
        them = "it" if len(ops) == 1 else "them"
        compiled = all(op.unit is not None for op in ops)
        why = "XLA ignores device scopes in what it compiles" if compiled else "soft placement moves ops silently"
        lines.append(
            f"No op ran on {device.short}, which {plural(len(ops), 'op')} asked for: {where} ran {them}; {why}."
        )
    return _first(lines)


def _idle(working: Sequence[Op], evidence: Evidence, devices: Sequence[DeviceName]) -> list[DeviceName]:
    """The devices that did no work. One whose work is in branches of conditions may have done some."""
    busy = {op.device for op in working} | {op.device for op in evidence.ops if op.branch is not None}
    return [device for device in devices if not any(each is not None and device.matches(each) for each in busy)]


def _shares(
    working: Sequence[Op], work: Mapping[str, float] | None, idle: Sequence[DeviceName], where: str, *, right: bool
) -> str:
    sized = work is not None and all(work.get(op.name) for op in working)
    done: dict[DeviceName, float] = defaultdict(float)
    for op in working:
        if op.device is not None:
            done[op.device] += work[op.name] if sized and work is not None else 1.0
    if any(device.kind != "CPU" for device in done) and len({device.kind for device in done}) > 1:
        # The host prepares what the devices work on, and is none of them.
        done = {device: amount for device, amount in done.items() if device.kind != "CPU"}
    total, what = sum(done.values()), f"{'work' if sized else 'ops that compute'}{where}"
    rest = f"; {_names(idle)} ran none" if idle else ""
    if len(done) == 1:
        return f"All {'the ' if sized else ''}{what} ran on {_names(done)}{rest}."
    shares = {device: amount / total for device, amount in sorted(done.items())}
    if len(shares) > _LISTED:
        figures = f"{min(shares.values()):.1%} to {max(shares.values()):.1%} of the {what} each"
    else:
        texts = [f"{device.short} {share:.0%}" for device, share in shares.items()]
        figures = f"{', '.join(texts)} of the {what}"
    if right and not idle and min(shares.values()) >= _SHARE / len(shares):
        every = "Both" if len(shares) == 2 else f"All {len(shares):,}"
        return f"{every} devices do their share: {figures}."
    return f"{len(shares):,} devices work: {figures}{rest}."


def _first(lines: list[str]) -> list[str]:
    rest = len(lines) - 2
    return lines if rest <= 0 else [*lines[:2], f"and the same of {plural(rest, 'more device')}."]


def _names(devices: Collection[DeviceName]) -> str:
    names = [device.short for device in sorted(set(devices))]
    if len(names) > _LISTED:
        return f"{names[0]} and {len(names) - 1:,} more devices"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
