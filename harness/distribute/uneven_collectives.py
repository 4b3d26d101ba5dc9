"""Judges the collectives of a training step: every device, and every worker, takes the same part in them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.devices.device import Devices
from harness.distribute.equivalence import CollectiveCount
from harness.records import Finding


def judge_collectives(counts: Sequence[CollectiveCount], loop: str, devices: Devices, needed: bool) -> list[Finding]:
    """Findings of the kind ``sync``: a device takes no part in a collective that others take part in, or gives less."""
    findings = []
    by_type: dict[str, dict[str, CollectiveCount]] = {}
    for count in counts:
        by_type.setdefault(count.type, {})[count.device] = count
    for type_, by_device in by_type.items():
        if not set(by_device) <= set(devices.names):
            continue
        want = max(by_device.values(), key=lambda count: count.count)
        for name in devices.names:
            got = by_device.get(name)
            if got is None or (got.count, got.size_bytes) != (want.count, want.size_bytes):
                findings.append(
                    Finding(
                        "sync",
                        f"{type_} ({loop})",
                        name,
                        f"{want.count} of {want.size_bytes} bytes, as on {want.device}",
                        "none" if got is None else f"{got.count} of {got.size_bytes} bytes",
                        "a device takes another part in the collectives of a step than the rest",
                    )
                )
    if needed and len(devices) > 1 and not by_type:
        findings.append(
            Finding(
                "sync",
                f"a step ({loop})",
                None,
                "gradients added up over the replicas",
                "no collective ran",
                "replicas exchange nothing: each trains for itself",
            )
        )
    return findings


def uneven_collectives(counts: Sequence[CollectiveCount], workers: int) -> list[Finding]:
    """Findings of the kind ``sync``: workers that give other numbers of bytes to the same collectives."""
    findings = []
    for loop, type_ in sorted({(count.loop, count.type) for count in counts}):
        own = [count for count in counts if (count.loop, count.type) == (loop, type_)]
        if len({(count.count, count.size_bytes) for count in own}) > 1 or len(own) < workers:
            findings.append(
                Finding(
                    "sync",
                    f"{type_} ({loop})",
                    own[0].device,
                    f"the same in {workers} workers",
                    "; ".join(f"{count.count} of {count.size_bytes} bytes on {count.device}" for count in own),
                    "workers take different parts in the collectives of a step",
                )
            )
    return findings
