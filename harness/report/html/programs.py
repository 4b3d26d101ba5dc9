"""Where the ops of the checks' programs ran, and in which order."""

from __future__ import annotations

from collections import Counter

from harness.records import Placement, RunRecord
from harness.report.html.charts.op_timeline import ROLES, op_timeline
from harness.report.html.tables import table
from harness.report.printable import device_label

#: Charts of one run: the first program of each check before the second of any. All programs have tables.
_MOST_CHARTS = 10
_MOST_DEVICES = 32


def programs_of(record: RunRecord) -> dict[str, list[dict[str, object]]]:
    """Make the section, by check; empty where nothing was traced."""
    every = [
        (place, number, placement)
        for number, result in enumerate(record.results)
        for place, placement in enumerate(result.placements)
        if placement.ops
    ]
    drawn = {(place, number) for place, number, _ in sorted(every, key=lambda each: each[:2])[:_MOST_CHARTS]}
    programs: dict[str, list[dict[str, object]]] = {}
    for place, number, placement in every:
        check = record.results[number].check
        made = _program(f"program-{number}-{place}", check, placement, drawn=(place, number) in drawn)
        programs.setdefault(check, []).append(made)
    return programs


def _program(name: str, check: str, placement: Placement, *, drawn: bool) -> dict[str, object]:
    devices = sorted({op.device for op in placement.ops}, key=_in_order)
    counted = Counter((op.device, op.role) for op in placement.ops)
    roles = [role for role in ROLES if any(op.role == role for op in placement.ops)]
    roles += sorted({op.role for op in placement.ops} - set(roles))
    shown, total = len(placement.ops), placement.total
    extent = f"all {total:,} traced ops" if shown >= total else f"the first {shown:,} of {total:,} traced ops"
    spread = ", ".join(f"{device_label(each)}: {sum(counted[each, role] for role in roles)}" for each in devices)
    chart = None
    if drawn and len(devices) <= _MOST_DEVICES:
        description = f"Ops on each device, counting {extent}: {spread}."
        chart = op_timeline(name, f"{check}: {placement.program}", description, placement.ops, devices)
    by_device = [
        (
            device_label(device),
            str(sum(counted[device, role] for role in roles)),
            *(str(counted[device, role] or "") for role in roles),
        )
        for device in devices
    ]
    ops = [(str(op.order), op.name, op.type, op.role, device_label(op.device)) for op in placement.ops]
    return {
        "title": placement.program,
        "extent": extent,
        "chart": chart,
        "devices": table("Ops on each device", ("device", "ops", *roles), by_device, tuple(range(1, len(roles) + 2))),
        "ops": table("Ops in the order in which they ran", ("order", "op", "type", "role", "device"), ops, (0,)),
    }


def _in_order(device: str) -> tuple[str, int, str]:
    """``GPU:2`` before ``GPU:10``."""
    head, _, index = device.rpartition(":")
    return (head, int(index), "") if index.isdecimal() else (device, 0, "")
