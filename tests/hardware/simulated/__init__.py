"""Simulated machines: what the checks of hardware do with rates, series and sensors of real cards, without any.

Software GPUs execute the faults of described machines (``tests/faults``). They cannot be as fast as an H100, so rates
that a check judges by a profile, sensors over minutes of load that pass in no time, and memory of 80 GB are simulated
here. The checks use it through the same interface as TensorFlow's devices.
"""

from __future__ import annotations

from collections.abc import Iterable

from described_machines import H100, text

from harness.checking.check import Check, CheckContext, Level
from harness.devices.described.description import Description
from harness.devices.described.reading import read_description
from harness.records import CheckResult
from simulated.cards import NOISE, DescribedMachine
from simulated.identity import devices

__all__ = ["DescribedMachine", "Description", "devices", "machine", "read_description", "results"]


def machine(count: int, model: str = H100, *faults: str, noise: float = NOISE, **lines: str) -> DescribedMachine:
    """The machine of ``text``. ``noise`` is how much durations vary, as a share."""
    return DescribedMachine(read_description("test.toml", text(count, model, *faults, **lines)), noise)


def results(made: DescribedMachine, checks: Iterable[Check], level: Level = Level.QUICK) -> dict[str, CheckResult]:
    """What the checks say of the machine."""
    return {check.id: check.run(CheckContext(devices(made.description), level=level, machine=made)) for check in checks}
