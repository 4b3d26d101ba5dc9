"""Prints the machine and its devices: for ``harness devices``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.devices.device import Device
from harness.devices.profile import Profile
from harness.records import Fingerprint
from harness.report.terminal import print_line

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class MachineFacts:
    """The answer of the process that looked at the machine. ``devices`` are those configured for a spec, if any."""

    physical: tuple[str, ...]
    auto: str
    reason: str | None
    devices: tuple[Device, ...]
    fingerprint: Fingerprint
    measuring: str = ""


def print_machine(console: Console, machine: MachineFacts, profiles: tuple[Profile, ...]) -> None:
    """Print the machine, the configured devices, and the shipped profiles."""
    facts = machine.fingerprint
    rows = [
        ("physical devices", ", ".join(machine.physical)),
        ("processor", f"{facts.cpu_model or 'unknown'}, {_cores(facts)}"),
        ("memory", f"{facts.memory_mib:,} MiB" if facts.memory_mib is not None else "unknown"),
        ("GPU software", _gpu_software(facts)),
        ("TensorFlow", facts.tensorflow),
        ("packages", f"Keras {facts.keras or 'none'}, NumPy {facts.numpy}, Python {facts.python}"),
        ("oneDNN", {True: "on", False: "off", None: "unknown"}[facts.onednn]),
        ("auto", machine.auto),
    ]
    if machine.measuring:
        rows.append(("for speedups", machine.measuring))
    if machine.devices:
        rows.append(("configured", machine.reason or ""))
    width = max(len(name) for name, _ in rows) + 2
    for name, value in rows:
        print_line(console, f"{name:<{width}}{value}")
    for device in machine.devices:
        print_line(console, f"{'':<{width}}{device.name}  {device.kind} on {device.physical}")
    print_line(console, "")
    print_line(console, "shipped profiles:")
    name_width = max((len(profile.name) for profile in profiles), default=0) + 3
    spec_width = max((len(str(profile.spec)) for profile in profiles), default=0) + 2
    for profile in profiles:
        print_line(console, f"  {'@' + profile.name:<{name_width}}{profile.spec!s:<{spec_width}}{profile.description}")


def _cores(facts: Fingerprint) -> str:
    if facts.cores_logical is None:
        return "cores unknown"
    physical = f" ({facts.cores_physical} physical)" if facts.cores_physical is not None else ""
    return f"{facts.cores_logical} cores{physical}"


def _gpu_software(facts: Fingerprint) -> str:
    if not facts.gpus:
        return "no usable GPU"
    known = (("driver", facts.driver), ("CUDA", facts.cuda), ("cuDNN", facts.cudnn))
    return ", ".join(f"{name} {version or 'unknown'}" for name, version in known)
